"""A job or an item that this process has claimed, until it ends, is requeued, or its worker is presumed dead.

`ClaimState` is the engine's side; `Claimed` is what users hold, and only refers to it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import chain, repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from msgspec import Struct

from inconcert._claims.dead_letters import Reason, in_short
from inconcert._core.body import Body, body_here
from inconcert._core.observer import Observers
from inconcert._core.own_loop import check_loop
from inconcert._redis.wire.background import log_error
from inconcert._rules.backoff import retry_delay
from inconcert.errors import InconcertError, NotClaimed

if TYPE_CHECKING:  # it makes these
    from inconcert._claims.worker_lease import WorkerLease

_log = logging.getLogger("inconcert.claims")

_SUSPECT = 2  # workers that died with it; the claiming script has the same number

Verdict = Literal["retry", "again", "back", "later", "asleep", "crash", "dead", "undo", "undone"]
Outcome = Literal["running", "done", "cancelled", "lost"] | Verdict
Ending = Callable[[], Awaitable[None]]

NOBODY = Observers()
"""The observers of what nobody observes."""

S = TypeVar("S", bound="ClaimState")


class Row(Struct, frozen=True, gc=False):
    """One claimed job or item, as the script returns it; most are claimed for the first time, and have no flags."""

    id: bytes
    body: bytes
    position: int
    queue: bytes
    attempt: int = 1
    failures: int = 0
    is_cancelled: int = 0
    flags: bytes = b""

    @classmethod
    def read(cls, number: int, count: int, queues: Any, parts: list[Any]) -> list[Self]:  # noqa: ANN401 - of a reply
        """The rows of the answer to a claim: two parts of each, and after all of these more of some.

        Args:
            number: The number of the claim, which their positions begin with.
            count: How many there are.
            queues: The queue of all; or queues, with the number of those that come from each.
            parts: The rest of the answer.
        """
        size, first = 2 * count, 1000 * number + 1
        names: Iterable[Any] = repeat(queues)
        if isinstance(queues, list):
            names = chain.from_iterable(map(repeat, queues[::2], queues[1::2]))
        positions = range(first, first + count)
        found = list(map(cls, parts[:size:2], parts[1:size:2], positions, names))
        for nth, position, *more in zip(*[iter(parts[size:])] * 6, strict=True):
            row = found[nth]
            found[nth] = cls(row.id, row.body, position, row.queue, *more)
        return found


class _Claim(Struct, eq=False):
    """The known facts of a claim when it is made."""

    _claimer: "WorkerLease[Any]"
    id: str
    queue: str
    source: str
    position: int
    attempt: int
    _failures: int
    _max_attempts: int  # how many may fail before it is dead-lettered
    _max_crashes: int  # how many workers may die with it before it is
    observers: Observers


class ClaimState(_Claim, kw_only=True, eq=False):
    """The engine's state of a claimed job or item, which ends once.

    Its fields are slots, since what is read of each job is read from there ten times faster than from a class.

    Attributes:
        id: Which job or item.
        queue: The user's name of the queue that it was claimed from.
        source: The server's name of it.
        position: Its position among the claims of its worker.
        attempt: Which attempt this is, from 1.
        observers: Who is told what happens to it.
        unique: Its unique name while it is live; empty for none.
        is_over: Whether it has ended, or was lost.
        is_settled: Whether it already counts as done, and is not delivered again.
        outcome: How this attempt ended.
        is_plain: Whether it has nothing, as far as is known here, that plugs of the scripts are for.
        is_limited: Whether it has a place in a limit while it is claimed.
        history: `ENQUEUED_MS MOST:TASK[+]` if its end is to be in the history of its task; otherwise empty.
        has_failed: Whether attempts of it that failed are noted.
        stored: Its stored body, or nothing if it cannot be requeued once it is settled; only for delivery at most once.
    """

    is_over: bool = False
    is_settled: bool = False
    is_plain: bool = True
    is_limited: bool = False
    history: str = ""
    has_failed: bool = False
    unique: str = ""
    outcome: Outcome = "running"
    stored: bytes = b""

    _kind: ClassVar[str]  # as errors name it
    _body: Body | None = None
    _is_unconfirmed: bool | None = None  # once its end was not confirmed: whether that is still so
    _is_left_quietly: bool = False  # whether the error of its body is only how the engine has ended or stopped it

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def enter(self, task: "asyncio.Task[Any] | None" = None) -> None:
        """Begin the body in this task, None for the current one; it is cancelled when the claim is lost."""
        if self.is_over:
            raise NotClaimed(self._kind, self.id)
        self._body = body_here() if task is None else Body(task, task.cancelling())

    def exit(self, raised: BaseException | None) -> Awaitable[bool] | None:
        """End the body, which raised this error, and the claim.

        Returns:
            Whether to suppress the error, once the claim has ended; None if there is no error, and nothing to wait for.
        """
        ending: Ending | None = None
        error = raised
        try:
            body, self._body = self._body, None
            assert body is not None  # noqa: S101 - entered before
            if self._leave_body(error):
                self._is_left_quietly, error = True, None
            was_stopped = body.end(error)
            if error is not None:
                self._left(error, was_stopped=was_stopped)
            if not self.is_over:  # otherwise it was lost, or ended explicitly in the body
                ending = self._end_of_body(error, was_stopped=was_stopped)
        except BaseException as unexpected:  # noqa: BLE001 - it is raised where all are handled
            ending = partial(_raise, unexpected)
        if ending is None and raised is None and not self.observers:
            return None
        return self._exit(raised, ending)

    def end_anyhow(self, error: BaseException | None) -> None:
        """The last resort: requeue or dead-letter it unless an end of it was sent, without waiting for the reply.

        Args:
            error: The unexpected error that has kept it from its end, which counts as a failed attempt. None, or a
                cancellation, does not.
        """
        is_failure = isinstance(error, Exception)
        if isinstance(error, Exception):
            log_error(lambda shown: _log.error("%s did not end as it should", self, exc_info=shown), error)
        if not self._claimer.holds(self):
            return
        verdict: Verdict = "back"
        reason, failures = b"", self._failures + 1
        if is_failure:  # what has succeeded is not repeated
            verdict = "dead" if self.outcome == "done" or failures >= self._max_attempts else "retry"
        if verdict == "retry":
            reason = self._why_failed(error)
        elif verdict == "dead":
            verdict, reason = self._undone_before(verdict, Reason.of(error, self.attempt).stored())
        delay = retry_delay(failures, 0.5) if verdict == "retry" else 0.0
        if not self.is_over:
            self._end_once(verdict)
        self.outcome = verdict
        self._claimer.not_done_nowait(self, verdict, delay=delay, reason=reason)

    async def bury(self, error: Exception) -> None:
        """Dead-letter it at once; see `Claimed.bury`."""
        _log.error("%s is dead-lettered: %s", self, error, extra=self.fields())
        await self._end("dead", reason=Reason.of(error, self.attempt).stored())

    async def give_back(self) -> None:
        """Requeue it at the front; see `Claimed.give_back`."""
        await self._end("back")

    def give_back_nowait(self) -> None:
        """Requeue it without waiting for the reply: it was never handed out."""
        self._end_once("back")
        self._claimer.not_done_nowait(self, "back")

    async def settle(self) -> None:
        """Count it as done before it is handed out, so that it is never redelivered: for delivery at most once.

        If that is not confirmed, the claim is over and must not be handed out: it may be redelivered.
        """
        if self.is_over or self.is_settled:
            return
        try:
            self.is_settled = await self._settle()
        except InconcertError as unconfirmed:
            _log.warning("%s is not handed out: %s", self, unconfirmed, extra=self.fields())
        self.is_over = not self.is_settled

    def leave_unsettled(self) -> None:
        """Note that it is not handed out any more, although it is settled: it is requeued."""
        self._end_once("back")

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it was claimed."""
        return self._claimer.loop

    def unconfirmed(self, error: InconcertError | None = None) -> None:
        """Note that its end was not confirmed; the worker repeats it, and its caller may.

        Args:
            error: Why, if nobody waits for its end; None if the caller gets the error.
        """
        if error is not None and self._is_unconfirmed is None:
            self._warn_of(error)
        self._is_unconfirmed = True

    def not_held(self) -> None:
        """Note that the server had nothing to end, and nobody waits for that."""
        try:
            self._was_not_held()
        except NotClaimed as error:
            self._warn_of(error)

    def not_sent(self, error: Exception) -> None:
        """Note that its end could not be sent, and nobody waits for that: it is still held, and ends otherwise."""
        self.is_over = False
        if isinstance(error, InconcertError):
            self._warn_of(error)
            self.end_anyhow(None)
        else:
            self.end_anyhow(error)

    def lose(self) -> None:
        """Note that the claim is lost, and stop the body."""
        self.is_over = True
        self.outcome = "lost"
        self._stop_body()
        if self.observers:
            self._tell_end()
        _log.warning(
            "%s is stopped: its worker was presumed dead, or is closing, or the server has undone the claim",
            self,
            extra=self.fields(),
        )

    def dropped(self) -> None:
        """Warn if what users held of it is gone, and it has not ended: nothing here can end it now."""
        if not self.is_over and not self.is_settled:
            _log.warning(
                "%s was dropped without an end, and nobody gets it before this process closes; use `async with`, or "
                "end it with ack(), nack() or give_back()",
                self,
                extra=self.fields(),
            )

    def end_in_body(self) -> None:
        """Called before the user ends it explicitly: a subclass may stop the body there."""

    @property
    def bulk(self) -> int:
        """Roughly how many bytes the server drops with it, beside its body, when it ends; 0 if it is plain."""
        return 0

    @property
    def is_suspect(self) -> bool:
        """True if two workers have died with it: such jobs are claimed one at a time."""
        return self.attempt - self._failures - 1 >= _SUSPECT

    @property
    def is_last_attempt(self) -> bool:
        """True if it is dead-lettered if this attempt fails."""
        return self._failures + 1 >= self._max_attempts

    @property
    def ends_alone(self) -> bool:
        """True if its end is a script of its own, instead of one for all that end in the same turn; not if plain."""
        return False

    def fields(self) -> dict[str, object]:
        """The extra fields of its log records."""
        raise NotImplementedError

    # Private.

    def _left(self, error: BaseException, *, was_stopped: bool) -> None:
        """Note that the body has raised this error."""
        if was_stopped:
            self._is_left_quietly = True
        elif not _is_from_outside(error):
            self._log_failure(error)

    async def _exit(self, raised: BaseException | None, ending: Ending | None) -> bool:
        """End the claim, whose body raised this error; returns whether to suppress it."""
        try:
            if ending is not None:
                await ending()
        except InconcertError as unconfirmed:
            self._warn_of(unconfirmed)
            self.end_anyhow(None)
        except Exception as unexpected:  # noqa: BLE001 - any: the claim would be held as long as its worker lives
            self.end_anyhow(unexpected)
        except BaseException:
            self.end_anyhow(None)
            raise
        finally:
            if self.observers:
                self._tell_left(raised)
        return self._is_left_quietly or isinstance(raised, Exception | None)

    def _log_failure(self, error: BaseException) -> None:
        fields = self.fields()
        log_error(lambda shown: _log.error("%s failed", self, exc_info=shown, extra=fields), error)

    def _stop_body(self) -> None:
        """Stop the body, if it has begun and not ended."""
        if self._body is not None:
            self._body.stop()

    def _leave_body(self, error: BaseException | None) -> bool:
        """Note that the body has ended with this error; returns whether that is only how the engine ends a body."""
        del error
        return False

    def _warn_of(self, error: InconcertError) -> None:
        """Warn that its end was not confirmed."""
        _log.warning(
            "%s: its end was not confirmed, so it may be delivered again: %s", self, error, extra=self.fields()
        )

    def _end_of_body(self, error: BaseException | None, *, was_stopped: bool) -> Ending | None:
        """The verdict after its body, which raised this error; None if it is on its way, and nobody waits for it."""
        del was_stopped
        if error is None:
            return self._succeed()
        if _is_from_outside(error):
            return self.give_back
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return partial(self._crash, error)
        return partial(self._fail, _as_failure(error))

    def _succeed(self) -> Ending | None:
        """The acknowledgement; None if it is on its way, and nobody waits for it."""
        raise NotImplementedError

    async def _fail(self, error: BaseException | None) -> None:
        """Count a failed attempt, and retry or dead-letter it."""
        raise NotImplementedError

    async def _crash(self, error: BaseException) -> None:
        """Count it as a crash of the worker, and requeue it, or dead-letter it after too many."""
        if self.attempt - self._failures >= self._max_crashes:
            await self._end("dead", reason=Reason.of(error, self.attempt).stored())
        else:
            await self._end("crash")

    async def _settle(self) -> bool:
        """Acknowledge it before it is handed out; returns whether that is confirmed."""
        return await self._claimer.done(self, b"", 0.0, is_run=False)

    async def _fail_with(self, error: BaseException | None, verdict: Verdict, *, delay: float | None) -> None:
        """Retry it after this delay; dead-letter it if this was its last attempt, or the delay is None."""
        if self.is_last_attempt or delay is None:
            await self._end("dead", reason=Reason.of(error, self.attempt).stored())
        else:
            await self._end(verdict, delay=delay, reason=self._why_failed(error) if verdict == "retry" else b"")

    def _why_failed(self, error: BaseException | None) -> bytes:
        """The reason of an attempt that failed and is not the last one, as the script takes it."""
        return in_short(error).encode()

    def _undone_before(self, verdict: Verdict, reason: bytes) -> tuple[Verdict, bytes]:
        """The same, unless something is undone before it is dead-lettered."""
        return verdict, reason

    async def _done(self, result: bytes, ttl: float, *, outcome: Outcome = "done") -> None:
        try:
            self._end_once(outcome)
            was_held = self.is_settled or await self._claimer.done(self, result, ttl)
        except Exception:
            self.is_over = not self._claimer.holds(self)  # if nothing was sent, it can end otherwise
            raise
        if not was_held:
            self._was_not_held()

    async def _end(self, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> None:
        try:
            self._end_once(verdict)
            was_held = self.is_settled or await self._claimer.not_done(self, verdict, delay=delay, reason=reason)
        except Exception:
            self.is_over = not self._claimer.holds(self)  # likewise
            raise
        if not was_held:
            self._was_not_held()

    def _was_not_held(self) -> None:
        """Raise `NotClaimed`, unless it was ended by a repetition of this end, which was not confirmed before."""
        if self._is_unconfirmed is None or self._claimer.is_lost:
            raise NotClaimed(self._kind, self.id)

    def _end_once(self, outcome: Outcome) -> None:
        if self.is_over:
            if outcome != self.outcome or not self._is_unconfirmed:
                raise NotClaimed(self._kind, self.id)
            self._is_unconfirmed = False  # its caller was told that it is not confirmed, and tries again
            return
        self.is_over = True
        self.outcome = outcome
        if self.observers:
            self._tell_end()

    def _tell_end(self) -> None:
        """Tell observers how it has ended."""

    def _tell_left(self, error: BaseException | None) -> None:
        """Tell observers that its body, which raised this error, was left."""


class Claimed(Generic[S]):
    """A claimed job or item as users hold it: leaving the body of its `async with` ends it.

    Args:
        state: The engine's state.
    """

    __slots__ = ("_state",)

    def __init__(self, state: S) -> None:
        self._state = state

    def __str__(self) -> str:
        return str(self._state)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        exiting = self._state.exit(error)
        return exiting is not None and await exiting

    async def bury(self, error: Exception) -> None:
        """Dead-letter it at once, because another attempt would fail too.

        Raises:
            NotClaimed: It has already ended, or this worker was presumed dead.
            NotConnected: This is another event loop than the one on which it was claimed.
            Unavailable: The server refuses it for now. It is sent again with each heartbeat; call this again to know.
            OutcomeUnknown: The server did not answer. It is sent again then, too.
        """
        self._check_loop()
        self._state.end_in_body()
        await self._state.bury(error)

    async def give_back(self) -> None:
        """Requeue it at the front; that does not count as an attempt.

        Raises:
            NotClaimed: It has already ended, or this worker was presumed dead.
            NotConnected: This is another event loop than the one on which it was claimed.
            Unavailable: The server refuses it for now. It is sent again with each heartbeat; call this again to know.
            OutcomeUnknown: The server did not answer. It is sent again then, too.
        """
        self._check_loop()
        self._state.end_in_body()
        await self._state.give_back()

    def _check_loop(self) -> None:
        """Raise `NotConnected` unless this is called on the event loop on which it was claimed."""
        check_loop(self._state.loop, self)

    @property
    def id(self) -> str:
        """Its id; the same at each attempt."""
        return self._state.id

    @property
    def queue(self) -> str:
        """The name of the queue that it was claimed from."""
        return self._state.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; attempts whose worker died count too."""
        return self._state.attempt

    @property
    def is_over(self) -> bool:
        """True if it has ended, or was lost."""
        return self._state.is_over

    @property
    def outcome(self) -> Outcome:
        """The end of this attempt."""
        return self._state.outcome


def _is_from_outside(error: BaseException) -> bool:
    """True if this exception ended the body from outside, rather than being raised by it.

    The current task was cancelled, or an async generator was closed while it yielded from the body: then the error was
    raised in that generator only.
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


async def _raise(error: BaseException) -> None:
    raise error


def _as_failure(error: BaseException) -> BaseException:
    """The error of a failed attempt: one that normally ends a coroutine from outside is wrapped."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        failure = RuntimeError(f"it raised {type(error).__name__}, although nothing had ended it")
        failure.__cause__ = error
        return failure
    return error
