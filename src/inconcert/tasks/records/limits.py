"""The limits of a task: how many of its jobs run at once or begin in a period over all workers, and whose turn it is.

A job takes its places in the script that claims it, and frees them in the one that ends or requeues it.

Source: docs/explanation/limits.md
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from inconcert._rules.durations import Seconds, milliseconds, period
from inconcert._rules.limits import whole
from inconcert._rules.names import digest

__all__ = [
    "HELD_BACK_MS",
    "JobKey",
    "KeyOnDead",
    "KeyOrder",
    "Limit",
    "Rate",
    "TaskLimits",
    "has_a_place",
    "limit_of",
]

_SECOND = 1_000_000  # microseconds
_FASTEST = 100_000  # jobs per second
_LONGEST = 10 * 365 * 24 * 3600 * _SECOND  # until a burst may begin again
_NO_RATE = f"r1,{_SECOND}"  # a million at once, and as many per second
_NO_LIMIT = 1_000_000_000  # places

HELD_BACK_MS = 4e15  # when a job is due that a limit holds back, after all others; as in hold_back.lua

JobKey: TypeAlias = Callable[..., str | int]
"""Given the arguments of a job, returns its key, such as its tenant."""

KeyOrder: TypeAlias = Literal["strict"]
"""`strict`: a job of a key begins when the one before it has ended."""

KeyOnDead: TypeAlias = Literal["stop", "go_on"]
"""If a job of a key in strict order is dead-lettered: the next ones wait for its replay or purge, or go on."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most this many jobs of a task run at once, over all workers.

    Args:
        jobs: How many, 1 or more.

    Raises:
        ValueError: `jobs` is not a whole number of at least 1.
    """

    jobs: int

    def __post_init__(self) -> None:
        whole("the limit", self.jobs)


@dataclass(frozen=True, slots=True)
class Rate:
    """So many jobs of a task begin in a period, over all workers, and up to `burst` at once after a quiet time.

    In no time span t do more begin than `burst + t * jobs / per`, as with a
    [rate limiter](../how-to/rate-limits.md).

    Args:
        jobs: How many in a period, 1 or more, and at most 100,000 per second.
        per: The period, in seconds.
        burst: How many may begin at once after a quiet time; None for as many as `jobs`.

    Raises:
        ValueError: `jobs`, `per` or `burst` is out of range; `burst` jobs may need 10 years.
    """

    jobs: int
    per: Seconds
    burst: int | None = None

    def __post_init__(self) -> None:
        period_us = round(period(self.per) * _SECOND)
        whole("jobs", self.jobs, most=period_us * _FASTEST // _SECOND)
        if self.burst is not None:
            whole("burst", self.burst, most=_LONGEST // self._interval_us)

    @property
    def _interval_us(self) -> int:
        return -(-round(period(self.per) * _SECOND) // self.jobs)  # rounded up: never more than asked for

    def __str__(self) -> str:
        """As scripts read it."""
        burst = self.jobs if self.burst is None else self.burst
        return f"r{self._interval_us},{burst * self._interval_us}"


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The limits of a task's jobs.

    Args:
        limit: Of all its jobs; None for no limit.
        key: The key of a job; None for none.
        key_limit: How many jobs of each key run at once; None for no limit.
        rate: How many of all its jobs begin in a period; None for no limit.
        share: Whether keys take turns.
        key_order: `strict` if a job of a key begins when the one before it has ended; None for no such order.
        key_on_dead: Whether a key in strict order stops at a dead job, or goes on; None for `stop`.

    Raises:
        TypeError: The limit is not a `Limit`, the rate not a `Rate`, the key not a function, or share not a bool.
        ValueError: A key is given without key_limit, share or key_order, or one of these without it; key_order with
            one of the other two, or key_on_dead without it; one of these has another value; or key_limit is not a
            whole number of at least 1.
    """

    limit: Limit | None = None
    key: JobKey | None = None
    key_limit: int | None = None
    rate: Rate | None = None
    share: bool = False
    key_order: KeyOrder | None = None
    key_on_dead: KeyOnDead | None = None

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

    def __bool__(self) -> bool:
        return self.limit is not None or self.key is not None or self.rate is not None

    def of(
        self, task: str, queue: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, expires: float | None = None
    ) -> str:
        """The limits of one job, as scripts read them: `/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT.../eEXPIRES_MS`.

        The rate comes first, then the key that takes turns, and then the narrowest. Empty for none. Of a key in strict
        order it is `/o:KEY`, or `/g:KEY` if that goes on past the dead, in place of `/s:KEY`.

        Raises:
            TypeError: The key of the job is not a string or a whole number.
        """
        found = "" if self.rate is None else f"/{self.rate}:{digest(queue, task, 'rate')}"
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
            found += f"/{self._key_mark}:{of_key}" if self._key_mark else ""
            found += f"/{self.key_limit}:{of_key}" if self.key_limit is not None else ""
        if self.limit is not None:
            found += f"/{self.limit.jobs}:{limit_of(task, queue)}"
        return found if not found or expires is None else f"{found}/e{milliseconds(expires)}"

    def _check_key(self) -> None:
        """Raise ValueError if the options about keys do not fit together."""
        if self.key_order not in (None, "strict"):
            raise ValueError(f"key_order is {self.key_order!r}; give 'strict', or leave it out")
        if self.key_on_dead not in (None, "stop", "go_on"):
            raise ValueError(f"key_on_dead is {self.key_on_dead!r}; give 'stop' or 'go_on'")
        if self.key_on_dead is not None and self.key_order is None:
            raise ValueError("key_on_dead= is about keys in strict order; give key_order='strict' as well")
        if self.key is None and (self.share or self.key_limit is not None or self.key_order is not None):
            raise ValueError("key_limit=, share= and key_order= are about the jobs of a key; give key= as well")
        if self.key is not None and not self.share and self.key_limit is None and self.key_order is None:
            raise ValueError("key= alone limits nothing; give key_limit=, share=True or key_order='strict' as well")
        if self.key_order is not None and (self.share or self.key_limit is not None):
            raise ValueError(
                "with key_order='strict' one job of a key runs at a time, in order; leave key_limit= and share= out"
            )
        if self.key_limit is not None:
            whole("key_limit", self.key_limit)

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
        rates = [] if self.rate is not None else [f"/{_NO_RATE}:{digest(queue, task, 'rate')}"]
        limits = [] if self.limit is not None else [f"/{_NO_LIMIT}:{limit_of(task, queue)}"]
        return rates + limits


@lru_cache(maxsize=1_000)  # many jobs have the same
def has_a_place(limits: str) -> bool:
    """True if others wait for the end of a job of these limits; a rate and a turn are over when it begins."""
    return any(each[0].isdigit() or each[0] in "og" for each in limits.split("/")[1:])


def limit_of(task: str, queue: str) -> str:
    """The limit of all jobs of a task, as scripts know it."""
    return digest(queue, task)
