"""The limits of a task: how many of its jobs run at once or begin in a period over all workers, and whose turn it is.

A limit or a rate with a name counts the jobs of all tasks that are given it.  A job takes its places in the script that
claims it, and frees them in the one that ends or requeues it.

Source: docs/explanation/limits.md
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from inconcert._rules.durations import Seconds, milliseconds, period
from inconcert._rules.limits import whole
from inconcert._rules.names import check_name, digest

_SECOND = 1_000_000  # microseconds
_FASTEST = 100_000  # jobs per second
_LONGEST = 10 * 365 * 24 * 3600 * _SECOND  # until a burst may begin again
_NO_RATE = f"r1,{_SECOND}"  # a million at once, and as many per second
_NO_LIMIT = 1_000_000_000  # places

SHARED = "*"  # in place of a task, whose jobs lie together: all jobs with a limit or a rate that has a name

HELD_BACK_MS = 4e15  # when a job is due that a limit holds back, after all others; as in hold_back.lua

JobKey: TypeAlias = Callable[..., str | int]
"""Given the arguments of a job, returns its key, such as its tenant."""

JobCost: TypeAlias = int | Callable[..., int]
"""The part of its rate that a job takes: a whole number, or a function that is given its arguments and returns one."""

KeyOrder: TypeAlias = Literal["strict"]
"""`strict`: a job of a key begins when the one before it has ended."""

KeyOnDead: TypeAlias = Literal["stop", "go_on"]
"""If a job of a key in strict order is dead-lettered: the next ones wait for its replay or purge, or go on."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most this many jobs of a task run at once, over all workers.

    Args:
        jobs: How many, 1 or more.
        name: The name under which several tasks share it, as `Coordinator.limit` gives it; None for one that each
            task has to itself.

    Raises:
        ValueError: `jobs` is not a whole number of at least 1.
    """

    jobs: int
    name: str | None = None

    def __post_init__(self) -> None:
        whole("the limit", self.jobs)
        if self.name is not None:
            check_name("limit", self.name)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many jobs of a task begin in a period, over all workers, and up to `burst` at once after a quiet time.

    In no time span t do more begin than `burst + t * jobs / per`, as with a
    [rate limiter](../how-to/rate-limits.md).

    Args:
        jobs: How many in a period, 1 or more, and at most 100,000 per second.
        per: The period, in seconds.
        burst: How many may begin at once after a quiet time; None for as many as `jobs`.
        name: The name under which several tasks share it, as `Coordinator.rate` gives it; None for one that each
            task has to itself.
        key: Whether each key of the task has such a rate, instead of all its jobs one; the task needs `key=`.

    Raises:
        ValueError: `jobs`, `per` or `burst` is out of range; `burst` jobs may need 10 years; or it has both a name and
            `key`.
    """

    jobs: int
    per: Seconds
    burst: int | None = None
    name: str | None = None
    key: bool = False

    def __post_init__(self) -> None:
        period_us = round(period(self.per) * _SECOND)
        whole("jobs", self.jobs, most=period_us * _FASTEST // _SECOND)
        if self.burst is not None:
            whole("burst", self.burst, most=_LONGEST // _interval_us(self))
        if self.name is not None:
            check_name("rate", self.name)
            if self.key:
                raise ValueError(
                    f"rate {self.name!r} is one for all tasks that share it; leave key=True or the name out"
                )

    def __str__(self) -> str:
        """As scripts read it."""
        return f"r{_interval_us(self)},{_burst_us(self)}{'k' if self.key else ''}"


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task's jobs.

    Raises:
        TypeError: The limit is not a `Limit`, the rate not a `Rate`, the key not a function, or share not a bool.
        ValueError: A key is given without key_limit, share, key_order or a rate of keys, or one of these without it;
            key_order with key_limit or share, or key_on_dead without it; one of these has another value; key_limit is
            not a whole number of at least 1; or a cost is given without a rate, or is more than its burst.
    """

    limit: Limit | None = None  # of all its jobs
    key: JobKey | None = None  # the key of a job
    key_limit: int | None = None  # how many jobs of each key run at once
    rate: Rate | None = None
    share: bool = False  # whether keys take turns
    key_order: KeyOrder | None = None
    key_on_dead: KeyOnDead | None = None
    cost: JobCost | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and not isinstance(self.limit, Limit):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"limit is {self.limit!r}; give Limit({self.limit!r})")
        if self.rate is not None and not isinstance(self.rate, Rate):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"rate is {self.rate!r}; give Rate(100, per=60.0), or as many as it is to be")
        if self.key is not None and not callable(self.key):
            raise TypeError(
                f"key is {self.key!r}; give a function of the task's arguments, such as lambda tenant: tenant"
            )
        if not isinstance(self.share, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"share is {self.share!r}; give True if keys are to take turns")
        self._check_key()
        if self.cost is not None and self.rate is None:
            raise ValueError("cost= is what a job takes of its rate; give rate= as well")
        if self.cost is not None and not callable(self.cost):
            self._check_cost("cost", self.cost)

    def __bool__(self) -> bool:
        return self.limit is not None or self.key is not None or self.rate is not None

    def of(
        self, task: str, queue: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, expires: float | None = None
    ) -> str:
        """The limits of one job, as scripts read them: `/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT.../eEXPIRES_MS`.

        The rate comes first, then the key that takes turns, and then the narrowest. Empty for none. Of a key in strict
        order it is `/o:KEY`, or `/g:KEY` if that goes on past the dead, in place of `/s:KEY`. A limit and a rate that
        have names come together, at the end: `/wN.LIMIT,INTERVAL_US.BURST_US.COST.RATE:LINE`; so does a
        rate of which jobs take more than one.

        Raises:
            TypeError: The key of the job is not a string or a whole number.
            ValueError: The cost of the job is not a whole number from 0 to the burst of its rate.
        """
        found = "" if self._rate is None or self._rate.key else f"/{self._rate}:{digest(queue, task, 'rate')}"
        if self.key is not None:
            try:
                key = self.key(*args, **kwargs)
            except Exception as error:
                error.add_note(f"raised by key= of task {task!r}, which is called with the arguments of each job")
                raise
            if not isinstance(key, str | int):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
                raise TypeError(
                    f"task {task!r}: the key of a job is {key!r}; let key= return a string or a whole number"
                )
            plain = str.__str__(key) if isinstance(key, str) else int(key)  # of a member of an enum its value
            of_key = digest(queue, task, self._key_kind, repr(plain))
            if self._rate is not None and self._rate.key:
                found = f"/{self._rate}:{digest(queue, task, 'rate', repr(plain))}"
            found += f"/{self._key_mark}:{of_key}" if self._key_mark else ""
            found += f"/{self.key_limit}:{of_key}" if self.key_limit is not None else ""
        if self._limit is not None:
            found += f"/{self._limit.jobs}:{limit_of(task, queue)}"
        found += self._in_line(task, queue, args, kwargs)
        return found if not found or expires is None else f"{found}/e{milliseconds(expires)}"

    def _check_key(self) -> None:
        """Raise ValueError if the options about keys do not fit together."""
        if self.key_order not in (None, "strict"):
            raise ValueError(f"key_order is {self.key_order!r}; give 'strict', or leave it out")
        if self.key_on_dead not in (None, "stop", "go_on"):
            raise ValueError(f"key_on_dead is {self.key_on_dead!r}; give 'stop' or 'go_on'")
        if self.key_on_dead is not None and self.key_order is None:
            raise ValueError("key_on_dead= is about keys in strict order; give key_order='strict' as well")
        has_rate = self.rate is not None and self.rate.key
        if has_rate and self._rate is None:
            raise ValueError("Rate(key=True) goes neither with cost= nor with a limit that tasks share; leave one out")
        if self.key is None and (self.share or self.key_limit is not None or self.key_order is not None or has_rate):
            raise ValueError(
                "key_limit=, share=, key_order= and Rate(key=True) are of the jobs of a key; give key= as well"
            )
        is_used = self.share or self.key_limit is not None or self.key_order is not None or has_rate
        if self.key is not None and not is_used:
            raise ValueError(
                "key= alone limits nothing; give key_limit=, share=True, key_order='strict' or Rate(key=True) as well"
            )
        if self.key_order is not None and (self.share or self.key_limit is not None):
            raise ValueError(
                "with key_order='strict' one job of a key runs at a time, in order; leave key_limit= and share= out"
            )
        if self.key_limit is not None:
            whole("key_limit", self.key_limit)

    @property
    def wait_to_be_let_in(self) -> bool:
        """True if jobs wait in lines from which `tasks/let_in` takes them."""
        return self._limit is not self.limit or self._rate is not self.rate

    @property
    def are_shared(self) -> bool:
        """True if other tasks may have the same limit, or the same rate."""
        return any(each is not None and each.name is not None for each in (self.limit, self.rate))

    @property
    def _limit(self) -> Limit | None:
        """The limit that the task has to itself."""
        return None if self.limit is not None and self.limit.name is not None else self.limit

    @property
    def _rate(self) -> Rate | None:
        """The rate that the task has to itself, if its jobs wait for it alone, and each takes as much."""
        is_alone = self.rate is None or (self.rate.name is None and self.cost is None and self._limit is self.limit)
        return self.rate if is_alone else None

    def _in_line(self, task: str, queue: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The limit and the rate by name or by cost, and the line of the jobs of this queue that have the same."""
        limit = rate = line = ""
        if self.limit is not None and self._limit is None:
            line = shared_limit(self.limit)
            limit = f"{self.limit.jobs}.{line}"
        if self.rate is not None and self._rate is None:
            of_rate = (
                f"z{digest(queue, task, 'rate')}" if self.rate.name is None else f"y{self.rate.name.encode().hex()}"
            )
            line += of_rate
            rate = f",{_interval_us(self.rate)}.{_burst_us(self.rate)}.{self._cost_of(task, args, kwargs)}.{of_rate}"
        return f"/w{limit}{rate}:{digest(queue, 'line', line)}" if line else ""

    def _cost_of(self, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """The part of the rate that this job takes."""
        if self.cost is None or not callable(self.cost):
            return 1 if self.cost is None else self.cost
        try:
            cost = self.cost(*args, **kwargs)
        except Exception as error:
            error.add_note(f"raised by cost= of task {task!r}, which is called with the arguments of each job")
            raise
        return self._check_cost(f"task {task!r}: the cost of a job", cost)

    def _check_cost(self, parameter: str, cost: int) -> int:
        """Raise ValueError unless a job may cost that: with more than the burst it could never begin."""
        assert self.rate is not None  # noqa: S101 - it was checked
        return whole(parameter, cost, least=0, most=_burst_us(self.rate) // _interval_us(self.rate))

    @property
    def _key_kind(self) -> str:
        return "turn" if self.share else "order" if self.key_order else "key"

    @property
    def _key_mark(self) -> str:
        if self.key_order:
            return "g" if self.key_on_dead == "go_on" else "o"
        return "s" if self.share else ""

    def lifted(self, task: str, queue: str) -> list[str]:
        """The limit and the rate that this task does not have, as scripts read what holds no job back."""
        rates = [] if self._rate is not None and not self._rate.key else [f"/{_NO_RATE}:{digest(queue, task, 'rate')}"]
        limits = [] if self._limit is not None else [f"/{_NO_LIMIT}:{limit_of(task, queue)}"]
        return rates + limits


@lru_cache(maxsize=1_000)  # many jobs have the same
def has_a_place(limits: str) -> bool:
    """True if others wait for the end of a job of these limits; a rate and a turn are over when it begins."""
    return any(each[each[0] == "w"].isdigit() or each[0] in "og" for each in limits.split("/")[1:])


def is_let_in(limits: str) -> bool:
    """True if a job of these limits waits in a line from which `tasks/let_in` takes it: for a name, or with a cost."""
    return "/w" in limits


def home_of(task: str, limits: str) -> str:
    """Beside the jobs of which task one lies that has these limits."""
    return SHARED if ".x" in limits or ".y" in limits else task


def limit_of(task: str, queue: str) -> str:
    """The limit of all jobs of a task, as scripts know it."""
    return digest(queue, task)


def shared_limit(limit: Limit) -> str:
    """A limit that has a name, as scripts know it."""
    return f"x{(limit.name or '').encode().hex()}"


def _interval_us(rate: Rate) -> int:
    return -(-round(period(rate.per) * _SECOND) // rate.jobs)  # rounded up: never more than asked for


def _burst_us(rate: Rate) -> int:
    return (rate.jobs if rate.burst is None else rate.burst) * _interval_us(rate)
