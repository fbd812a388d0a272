"""A job or an item that this process has claimed: until it ends, is given back, or its worker is taken for dead.

`ClaimState` is the engine's side of it, and `Claimed` what users hold, which only refers to that.
"""

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from types import TracebackType
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from inconcert._claims.dead_letters import Reason
from inconcert._core.body import Body
from inconcert.errors import InconcertError, NotClaimed

__all__ = ["MAX_CRASHES", "ClaimState", "Claimed", "Claimer", "Outcome", "Row", "Verdict"]

_log = logging.getLogger("inconcert.claims")

_SUSPECT = 2  # workers that have died with it, as the script that claims has it, too
MAX_CRASHES = 3  # workers that may die with something before it is taken for the reason

Verdict = Literal["retry", "again", "back", "crash", "dead"]
Outcome = Literal["running", "done", "cancelled", "lost"] | Verdict

S = TypeVar("S", bound="ClaimState")


class Row(NamedTuple):
    """What was claimed, as the script answers it."""

    id: bytes
    body: bytes
    place: int
    attempt: int
    failures: int
    is_cancelled: int
    queue: bytes


class Claimer(Protocol):
    """The worker, as what it has claimed sees it."""

    def done(self, claimed: "ClaimState", result: bytes, ttl: float, *, is_run: bool = True) -> Awaitable[bool]:
        """Acknowledge, and keep what became of it for `ttl` seconds; the answer is whether it was still held.

        One that was run is acknowledged again until that is confirmed.
        """
        ...

    async def not_done(self, claimed: "ClaimState", verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Give back, or set aside; returns whether it was still held."""
        ...

    def give_back_nowait(self, claimed: "ClaimState") -> None:
        """Give back, without waiting for it."""


class ClaimState(ABC):
    """What the engine has of a job or an item that was claimed, which ends once.

    Args:
        kind: What it is, such as `job`.
        claimer: The worker that holds it.
        row: What the server says of it.
        queue: The queue that it was claimed from, as users name it.
        max_attempts: How many may fail before it is set aside.
        unique: The name that it has while it is live; empty for none.

    Attributes:
        is_over: Whether it has ended, or was lost.
        is_settled: Whether it counts as done already, and never comes back.
        outcome: What became of this attempt.
    """

    __slots__ = (
        "_body",
        "_claimer",
        "_failures",
        "_kind",
        "_max_attempts",
        "attempt",
        "id",
        "is_over",
        "is_settled",
        "outcome",
        "place",
        "queue",
        "source",
        "unique",
    )

    def __init__(
        self,
        kind: str,
        claimer: Claimer,
        row: Row,
        *,
        queue: str,
        max_attempts: int,
        unique: str = "",
    ) -> None:
        self.id = row.id.decode()
        self.queue = queue
        self.source = row.queue.decode()
        self.place = row.place
        self.attempt = row.attempt
        self.unique = unique
        self.is_over = False
        self.is_settled = False
        self.outcome: Outcome = "running"
        self._kind = kind
        self._claimer = claimer
        self._failures = row.failures
        self._max_attempts = max_attempts
        self._body: Body | None = None

    def enter(self) -> None:
        """Begin the body, which is cancelled when it is lost."""
        if self.is_over:
            raise NotClaimed(self._kind, self.id)
        self._body = Body()

    async def exit(self, error: BaseException | None) -> bool:
        """End the body, which raised this, and the claim with it; returns whether the error stays here."""
        assert self._body is not None  # noqa: S101 - entered before
        body, self._body = self._body, None
        was_stopped = body.end(error)
        if error is not None and not was_stopped and not _is_from_outside(error):
            _log.error("%s failed", self, exc_info=error, extra=self.fields())
        try:
            if not self.is_over:  # else it was lost, or ended by hand in the body
                await self._end_of_body(error, was_stopped=was_stopped)
        except InconcertError as unconfirmed:
            _log.warning(
                "%s: its end was not confirmed, so it may come again: %s", self, unconfirmed, extra=self.fields()
            )
        return was_stopped or isinstance(error, Exception)

    async def bury(self, error: Exception) -> None:
        """Set it aside at once; see `Claimed.bury`."""
        _log.error("%s is set aside: %s", self, error, extra=self.fields())
        await self._end("dead", reason=Reason.of(error, self.attempt).stored())

    async def give_back(self) -> None:
        """Put it back to the front of its queue; see `Claimed.give_back`."""
        await self._end("back")

    def give_back_nowait(self) -> None:
        """Give it back without waiting for that: nobody has been given it."""
        self._end_once("back")
        self._claimer.give_back_nowait(self)

    async def settle(self) -> None:
        """Let it count as done before it is handed out, so that it never comes back: for delivery at most once.

        If that is not sure, it is over, and must not be handed out: it may come back.
        """
        if self.is_over or self.is_settled:
            return
        try:
            self.is_settled = await self._settle()
        except InconcertError as unconfirmed:
            _log.warning("%s is not handed out: %s", self, unconfirmed, extra=self.fields())
        self.is_over = not self.is_settled

    def lose(self) -> None:
        """Take note that it is not ours any more, and stop the body."""
        _log.warning("%s is stopped: its worker was taken for dead, or is closing", self, extra=self.fields())
        self.is_over = True
        self.outcome = "lost"
        if self._body is not None:
            self._body.stop()

    @property
    def is_suspect(self) -> bool:
        """Whether two workers have died with it: then it is claimed beside no other such."""
        return self.attempt - self._failures - 1 >= _SUSPECT

    @abstractmethod
    def fields(self) -> dict[str, object]:
        """What a record of the log has of it, beside the text that `str` makes of it."""

    # Below.

    def _end_of_body(self, error: BaseException | None, *, was_stopped: bool) -> Awaitable[None]:
        """How it ends after its body, which raised this."""
        del was_stopped
        if error is None:
            return self._succeed()
        if _is_from_outside(error):
            return self.give_back()
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return self._crash(error)
        return self._fail(_as_failure(error))

    @abstractmethod
    async def _succeed(self) -> None:
        """End it as done."""

    @abstractmethod
    async def _fail(self, error: BaseException | None) -> None:
        """Count a failed attempt, and let it be tried again or set it aside."""

    async def _crash(self, error: BaseException) -> None:
        """Count that a worker ends with it, and give it back, or set it aside if that were too many."""
        if self.attempt - self._failures >= MAX_CRASHES:
            await self._end("dead", reason=Reason.of(error, self.attempt).stored())
        else:
            await self._end("crash")

    async def _settle(self) -> bool:
        """Acknowledge it before it is handed out; returns whether that is sure."""
        return await self._claimer.done(self, b"", 0.0, is_run=False)

    async def _fail_with(self, error: BaseException | None, verdict: Verdict, *, delay: float | None) -> None:
        """Let it be tried again in this way, unless this was its last attempt, or there is no delay."""
        if self._failures + 1 >= self._max_attempts or delay is None:
            await self._end("dead", reason=Reason.of(error, self.attempt).stored())
        else:
            await self._end(verdict, delay=delay)

    async def _done(self, result: bytes, ttl: float, *, outcome: Outcome = "done") -> None:
        self._end_once(outcome)
        if not self.is_settled and not await self._claimer.done(self, result, ttl):
            raise NotClaimed(self._kind, self.id)

    async def _end(self, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> None:
        self._end_once(verdict)
        if not self.is_settled and not await self._claimer.not_done(self, verdict, delay=delay, reason=reason):
            raise NotClaimed(self._kind, self.id)

    def _end_once(self, outcome: Outcome) -> None:
        if self.is_over:
            raise NotClaimed(self._kind, self.id)
        self.is_over = True
        self.outcome = outcome


class Claimed(Generic[S]):
    """What users hold of a job or an item that was claimed: leaving the body of its `async with` ends it.

    Args:
        state: What it refers to.
    """

    __slots__ = ("_state",)

    def __init__(self, state: S) -> None:
        self._state = state

    def __str__(self) -> str:
        return str(self._state)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        return await self._state.exit(error)

    async def bury(self, error: Exception) -> None:
        """Set it aside at once, because another attempt cannot go better.

        Raises:
            NotClaimed: It has ended before, or this worker was presumed dead.
            OutcomeUnknown: The server did not answer; it may come again.

        Cost: 1 round trip.
        """
        await self._state.bury(error)

    async def give_back(self) -> None:
        """Put it back to the front of its queue; that does not count as an attempt.

        Raises:
            NotClaimed: It has ended before, or this worker was presumed dead.
            OutcomeUnknown: The server did not answer; it comes back with this worker's end at the latest.

        Cost: 1 round trip.
        """
        await self._state.give_back()

    @property
    def id(self) -> str:
        """Which one; the same at each attempt."""
        return self._state.id

    @property
    def queue(self) -> str:
        """The name of the queue that it was claimed from."""
        return self._state.queue

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; tries that ended with their worker count, too."""
        return self._state.attempt

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or was lost."""
        return self._state.is_over

    @property
    def outcome(self) -> Outcome:
        """What became of this attempt."""
        return self._state.outcome


def _is_from_outside(error: BaseException) -> bool:
    """Whether a body was ended with this, and has not raised it by itself.

    The current task was cancelled, or an async generator was closed while it yielded from the body: then the error was
    raised nowhere else than in that generator.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        return traceback is None or bool(traceback.tb_frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR)
    return False


def _as_failure(error: BaseException) -> BaseException:
    """What an attempt has failed with: what would end a coroutine from outside does not stop the attempts."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        failure = RuntimeError(f"it raised {type(error).__name__}, and nobody had ended it")
        failure.__cause__ = error
        return failure
    return error
