"""The options of a job: a task sets them for all its jobs, and each call may change them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Self, TypedDict, Unpack, cast, get_args

from inconcert._rules import durations
from inconcert._rules.defaults import DEFAULT_QUEUE, MAX_ATTEMPTS, MAX_CRASHES, PRIORITY, RESULT_TTL
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.limits import whole
from inconcert._rules.names import check_job_id, check_name, check_own_id
from inconcert.errors import InvalidName
from inconcert.tasks.following.job import Job
from inconcert.tasks.records.envelope import Envelope, marks_of, terms_of
from inconcert.tasks.records.history import history_note

_MOST_PARENTS = 100  # of one job: one script checks all of them
_MOST_HEADER_BYTES = 8_192  # of one job, encoded

UniqueUntil = Literal["started", "done"]
"""Until when a job has its unique name: until a worker takes it, or until it has ended."""

EvenIf = Literal["failed", "ended"]
"""How a job that another runs after may end for that to run, beside succeeding: dead-lettered, or also cancelled."""


class JobOptions(TypedDict, total=False):
    """The options of a job, as keywords of `Task.options` and `Coordinator.enqueue`.

    An option that is left out is as the task sets it: of a job that is enqueued by name, as the task in the worker that
    runs it does, but for `queue`, which is then the default.
    """

    queue: str
    """Where the job goes; by default `default`."""

    delay: Seconds
    """How long it waits before it may run, in seconds, by the server's clock; by default 0."""

    at: datetime | None
    """At which instant it may run, in place of a delay: a datetime with a time zone; None, the default, for at once.

    How long that is from now is told by the clock of the process that enqueues it. Not together with `after`.
    """

    priority: int
    """Before which jobs of its queue it comes: 0, before all others, to 9; by default 5.

    Among those of one priority the first enqueued is first. Jobs of a number begin when none of a smaller one waits.
    """

    max_attempts: int
    """How many attempts may fail before it is dead-lettered, 1 or more; by default 5."""

    max_crashes: int
    """How many workers may die while they run it before it is dead-lettered as the cause; 1 or more, by default 3."""

    result_ttl: Seconds
    """How long its result is kept, in seconds; 0 keeps none. By default 3,600."""

    expires: Seconds | None
    """Seconds from now after which it is dead-lettered instead of started; None, the default, for never."""

    deadline: Seconds | None
    """Seconds from now for all its attempts together; None, the default, for no end.

    As `expires`, and an attempt that runs then is cancelled, and the last. Not together with `expires`.
    """

    time_limit: Seconds | None
    """Seconds after which an attempt is cancelled; None, the default, for never. See `Coordinator.task`."""

    unique: str | None
    """A name that no two live jobs may have: if one has it, that one is returned, with `created` False.

    None, the default, for no such name.
    """

    unique_until: UniqueUntil
    """Until when it has the unique name: until it has `started`, or until it is `done`, the default.

    A job that was dead-lettered or cancelled no longer has it.
    """

    unique_for: Seconds
    """For how many seconds from now it has the unique name instead, whatever becomes of it.

    By default 0: as `unique_until` says.
    """

    newest: Literal["replaces"] | None
    """With "replaces", the job replaces the live one that has its `unique` name, and so the newest always wins.

    It takes the place of one that waits; one that runs, or has begun, is cancelled, and this one runs when that has
    ended. Not together with `debounce`, `at`, `after`, `unique_for` or `unique_until="started"`. None, the default, if
    the live one is returned instead.
    """

    debounce: Seconds | None
    """After how many seconds of silence it runs: a call with its `unique` name meanwhile replaces it.

    The job that waits then has the arguments and options of the last call, and is due that long after it. Needs
    `unique`, which is free when the job starts; not together with `delay`, `at`, `after` or `unique_for`. None, the
    default, for a job that is not replaced.
    """

    max_wait: Seconds | None
    """How many seconds after the first call a job with `debounce` is due at the latest, however many calls follow.

    Not below `debounce`; None, the default, for no such cap.
    """

    after: Sequence[Job[object] | str]
    """Jobs, or ids of jobs, at most 100, that must have succeeded before it may run; a `delay` counts from then.

    Their results are there for it: see `ClaimedJob.parent_results`.  If one of them does not succeed, or is not known,
    the job is dead-lettered.
    """

    even_if: EvenIf | None
    """Other ends that those of `after` may have: `failed`, dead-lettered; `ended`, dead-lettered or cancelled.

    None, the default, if each must have succeeded.
    """

    id: str | None
    """The id of the job: while there is one of it, or its result is kept, that one is returned, `created` False.

    Letters, digits, `_`, `-`, `:`, `+` and `=`. Not together with `unique` or `after`. None, the default, for an id of
    its own.
    """

    headers: Mapping[str, str]
    """Small strings that travel with the job, such as a tenant or a request id; see `ClaimedJob.headers`.

    At most 8 KiB in all. They are kept as they are, and replace those of the task.
    """


@dataclass(frozen=True)  # without slots, for what is worked out once for all jobs
class Options:
    """The options of a job: each of `JobOptions`, checked, in seconds and ids; and what a task sets for all."""

    queue: str = DEFAULT_QUEUE
    delay: float = 0.0
    at: float | None = None  # seconds since 1970
    priority: int = PRIORITY
    max_attempts: int = MAX_ATTEMPTS
    max_crashes: int = MAX_CRASHES
    result_ttl: float = RESULT_TTL
    expires: float | None = None
    stops: bool = False  # an attempt that runs when it expires: `expires` was given as `deadline`
    time_limit: float | None = None
    unique: str | None = None
    unique_until: UniqueUntil = "done"
    unique_for: float = 0.0
    newest: Literal["replaces"] | None = None
    debounce: float | None = None
    max_wait: float | None = None
    after: tuple[str, ...] = ()
    even_if: EvenIf | None = None
    id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    history: int = 0  # set by a task: how many ends of its jobs are kept
    history_arguments: bool = False  # set by a task: whether these are kept with the arguments
    on_dead: tuple[str, ...] = ()  # set by a task: the task that is told if one is dead-lettered, and its queue
    given: tuple[str, ...] = ()  # of those that a task sets, too: which were given as they are by default

    def changed(self, **options: Unpack[JobOptions]) -> Self:
        """The same options, with these changed.

        Raises:
            TypeError: There is no option of this name, `after` is not a list, or `headers` are not strings.
            ValueError: A number is out of its range; `at` has no time zone, or comes with `delay` or `after`; `after`
                has more than 100 jobs; `headers` have more than 8 KiB, or are not valid Unicode; `debounce` or
                `max_wait` comes without an option it needs, or with one it excludes; `id` with `unique` or `after`,
                or `deadline` with `expires`; `newest` without `unique`, or with what it excludes.
            InvalidName: The queue or the unique name is empty or longer than 512 bytes, an entry of `after` is not a
                job id, or a caller cannot choose this `id`.
        """
        if not options:
            return self
        unknown = [name for name in options if name not in _CHECKS]
        if unknown:
            raise TypeError(f"a job has no option {unknown[0]!r}; its options are {', '.join(_CHECKS)}")
        if "delay" in options and options.get("at") is not None:
            raise ValueError("a job has both at= and delay=; give one of them")
        checked = {name: _CHECKS[name](value) for name, value in options.items()}
        _set_deadline(checked)
        if "delay" in checked or checked.get("at") is not None:  # the later one is in force
            checked = {"delay": 0.0, "at": None} | checked
        as_default = [name for name in _OF_TASK.intersection(checked) if checked[name] == getattr(_PLAIN, name)]
        changed = replace(self, **checked, given=tuple(sorted({*self.given, *as_default})))
        if changed.at is not None and changed.after:
            raise ValueError("a job has both at= and after=; give it a delay=, which counts from the end of the others")
        if changed.id is not None and (changed.unique is not None or changed.after):
            raise ValueError(
                f"a job has id={changed.id!r} beside unique= or after=; there is one job of an id: leave the other out"
            )
        if changed.newest is not None:
            _check_newest(changed)
        if changed.debounce is None and changed.max_wait is None:
            return changed
        if options.get("unique_until") == "done":
            raise ValueError(
                "a job has debounce= and unique_until='done'; its name is free when it starts: leave it out"
            )
        _check_debounce(changed)
        return replace(changed, unique_until="started")

    @cached_property
    def terms(self) -> bytes:
        """The form of these options in the envelope of a job."""
        return terms_of(
            Envelope(
                "",
                priority=self.priority,
                max_attempts=self.max_attempts,
                max_crashes=self.max_crashes,
                result_ttl=self.result_ttl,
                expires=self.expires,
                stops=self.stops,
                time_limit=self.time_limit,
                unique="" if self.unique_for else self.unique or "",
                unique_until_started=self.unique_until == "started",
                after=self.after,
                even_if=self.even_if or "",
                delay=self.debounce or self.delay,
                debounced=self.debounce is not None,
                headers=self.headers,
                history=self.history,
                history_arguments=self.history_arguments,
                on_dead=self.on_dead,
                given=self.given,
            )
        )

    @cached_property
    def are_plain(self) -> bool:
        """True if a job with them may run at once, and is known by its id alone."""
        is_known_by_id = self.unique is None and not self.after and self.id is None
        return is_known_by_id and not self.delay and self.at is None and self.priority == PRIORITY

    @cached_property
    def go_alone(self) -> bool:
        """True if each job with them is enqueued by a script of its own."""
        return bool(self.after) or self.debounce is not None or self.newest is not None or self.id is not None

    @cached_property
    def are_marked(self) -> bool:
        """True if scripts are to know of them."""
        is_usual = self.max_crashes == MAX_CRASHES and self.priority == PRIORITY
        return not is_usual or bool(self.history) or self.debounce is not None

    def marks(self, task: str, limits: str) -> bytes:
        """The part for scripts of a job of this task with these limits."""
        note = history_note(task, self.history, has_arguments=self.history_arguments)
        is_debounced = self.debounce is not None
        return marks_of(self.max_crashes, limits, history=note, priority=self.priority, debounced=is_debounced)

    def delay_ms(self) -> int:
        """The delay of the job if it is enqueued now: no longer than it may wait, so that it expires in time."""
        delay = milliseconds(self.delay if self.at is None else max(0.0, self.at - time.time()))
        return delay if self.expires is None else min(delay, milliseconds(self.expires) + 1)


_PLAIN = Options()
_OF_TASK = frozenset({"queue", "max_attempts", "max_crashes", "result_ttl", "expires", "stops", "time_limit"})


def own_terms(defaults: Options) -> dict[str, Any]:
    """The terms that a task alone sets for its jobs, by their names in an envelope."""
    names = ("history", "history_arguments", "on_dead", *sorted(_OF_TASK - {"queue"}))
    terms = {name: getattr(defaults, name) for name in names}
    return {name: value for name, value in terms.items() if value != getattr(_PLAIN, name)}


def _set_deadline(checked: dict[str, Any]) -> None:
    """Replace a `deadline` among options by when the job expires, and stops.

    Raises:
        ValueError: There are both.
    """
    if "deadline" not in checked:
        if "expires" in checked:
            checked["stops"] = False
        return
    deadline, expires = checked.pop("deadline"), checked.get("expires")
    if deadline is not None and expires is not None:
        raise ValueError(
            f"a job has deadline={deadline:g} and expires={expires:g}; no attempt begins after either: "
            "give deadline= if one that runs then is to be cancelled, otherwise expires="
        )
    checked |= {"expires": expires if deadline is None else deadline, "stops": deadline is not None}


def _check_debounce(job: Options) -> None:
    """Raise ValueError if an option beside `debounce` does not go with it."""
    if job.debounce is None:
        raise ValueError("a job has max_wait= without debounce=; give both, or delay=")
    if job.unique is None:
        raise ValueError("a job has debounce= without unique=; give the name by which its calls replace each other")
    if job.unique_for:
        raise ValueError("a job has debounce= and unique_for=; its name is free when it starts: leave unique_for= out")
    if job.delay or job.at is not None:
        raise ValueError("a job has debounce= beside delay= or at=; debounce= says when it is due: leave the other out")
    if job.after:
        raise ValueError("a job has debounce= and after=; let a job that runs after the others enqueue it")
    if job.max_wait is not None and job.max_wait < job.debounce:
        raise ValueError(f"max_wait is {job.max_wait:g} s, and debounce is {job.debounce:g} s; give a longer max_wait")
    if job.expires is not None and job.expires <= job.debounce:
        raise ValueError(f"expires is {job.expires:g} s, and debounce is {job.debounce:g} s; let it expire later")


def _check_newest(job: Options) -> None:
    """Raise ValueError if an option beside `newest` does not go with it."""
    if job.unique is None:
        raise ValueError("a job has newest= without unique=; give the name by which its calls replace each other")
    if job.debounce is not None or job.max_wait is not None:
        raise ValueError(
            "a job has newest= and debounce=; give newest= if one that runs is to be cancelled, otherwise debounce="
        )
    if job.unique_until != "done" or job.unique_for:
        raise ValueError(
            "a job has newest= beside unique_until='started' or unique_for=; it has its name until it has ended: leave "
            "the other out"
        )
    if job.after:
        raise ValueError("a job has newest= and after=; let a job that runs after the others enqueue it")
    if job.at is not None:
        raise ValueError("a job has newest= and at=; give a delay=, which counts from the end of one that it cancels")


def _seconds(parameter: str) -> Callable[[Any], float]:
    return lambda value: durations.in_seconds(parameter, value)


def _above_zero(parameter: str, value: Seconds) -> float:
    seconds = durations.in_seconds(parameter, value)
    if not seconds:
        raise ValueError(f"{parameter} is {value!r}; give a number of seconds above 0, or None")
    return seconds


def _even_if(value: object) -> object:
    if value is not None and value not in get_args(EvenIf):
        raise ValueError(f"even_if is {value!r}; give 'failed', 'ended' or None")
    return value


def _unique_until(value: object) -> object:
    if value not in get_args(UniqueUntil):
        raise ValueError(f"unique_until is {value!r}; give 'started' or 'done'")
    return value


def _newest(value: object) -> object:
    if value not in {None, "replaces"}:
        raise ValueError(f"newest is {value!r}; give 'replaces' or None")
    return value


def _headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"headers is {value!r}; give a dictionary of strings")
    headers = dict(cast("Mapping[str, str]", value))
    size = 0
    for name, text in headers.items():
        if not isinstance(name, str) or not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"header {name!r} is {text!r}; give strings")
        try:
            size += len(name.encode()) + len(text.encode())
        except UnicodeEncodeError as error:
            raise ValueError(
                f"header {name!r} is {text!r}, which is not valid Unicode; remove the lone surrogates"
            ) from error
    if size > _MOST_HEADER_BYTES:
        raise ValueError(
            f"headers have {size} bytes; give at most {_MOST_HEADER_BYTES}, and larger things as arguments"
        )
    return headers


def _after(value: object) -> tuple[str, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise TypeError(f"after is {value!r}; give a list of jobs, or of their ids")
    jobs = cast("Sequence[Job[object] | str]", value)
    if len(jobs) > _MOST_PARENTS:
        raise ValueError(
            f"after has {len(jobs)} jobs; give at most {_MOST_PARENTS}; chain an intermediate job to wait for more"
        )
    return tuple(job.id if isinstance(job, Job) else _parent(job) for job in jobs)


def _parent(job_id: str) -> str:
    try:
        return check_job_id(job_id)
    except InvalidName as error:
        raise InvalidName(f"after: {error}") from None


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": lambda value: check_name("queue", value),
    "delay": _seconds("delay"),
    "at": lambda value: None if value is None else durations.instant("at", value),
    "priority": lambda value: whole("priority", value, least=0, most=9),
    "max_attempts": lambda value: whole("max_attempts", value),
    "max_crashes": lambda value: whole("max_crashes", value),
    "result_ttl": _seconds("result_ttl"),
    "expires": lambda value: None if value is None else durations.in_seconds("expires", value),
    "deadline": lambda value: None if value is None else _above_zero("deadline", value),
    "time_limit": lambda value: None if value is None else _above_zero("time_limit", value),
    "unique": lambda value: None if value is None else check_name("unique name", value),
    "unique_until": _unique_until,
    "unique_for": _seconds("unique_for"),
    "newest": _newest,
    "debounce": lambda value: None if value is None else _above_zero("debounce", value),
    "max_wait": lambda value: None if value is None else _above_zero("max_wait", value),
    "after": _after,
    "even_if": _even_if,
    "id": lambda value: None if value is None else check_own_id(value),
    "headers": _headers,
}
