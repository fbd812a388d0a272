"""A value that is computed once for all processes, kept for a while, and handed to all callers that wait for it.

    value    string  'fresh_until_ms json': the server's time until which it is fresh; it lapses `stale` later

The caller that computes holds the lock `once:NAME`; a caller that finds no value takes that lock, or waits in its line.
In each process one caller of a name does so, its *leader*; the others wait for the leader.  The script that keeps the
value also publishes it, one message to each process that waits, and empties the line, in the same step.  A caller that
gets the lock after all, because its message was lost or the holder has failed or died, looks for the value once more
before it computes.

Source: docs/explanation/once.md
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import cached_property, partial
from types import FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import anyio
import anyio.to_thread

from inconcert._core.cancellation import cancel_all
from inconcert._core.lease import Lease
from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.background import log_error
from inconcert._rules import durations
from inconcert._rules.codec import Codec, codec_of
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.names import check_name
from inconcert.errors import AcquireTimeout, InconcertError, LeaseLost
from inconcert.lock import Lock
from inconcert.tasks.records.arguments import annotations

_log = logging.getLogger("inconcert.once")

_LEASE = 10.0  # seconds; for so long at most a dead process holds up the computation


class _Keys(NamedTuple):
    value: str  # string: 'fresh_until_ms json'; kept_ms
    holders: str  # zset: of the lock, holder -> lease end, server ms
    waiters: str  # zset: of the lock, its line


_FIND = load("once/find").bind(_Keys)
_STORE_SCRIPT = load("once/store")
_STORE = _STORE_SCRIPT.bind(_Keys)


class Onces:
    """All that is computed once by one coordinator."""

    def __init__(self, ref: SessionRef) -> None:
        self._ref = ref
        self._session: Session | None = None  # of what follows
        self._turns: dict[str, _Turn] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    async def get(self, name: str, make: Callable[[], object], *, ttl: Seconds, stale: Seconds | None) -> Any:  # noqa: ANN401 - what `make` returns
        """The value of this name: see `Coordinator.once`."""
        wanted = _Wanted(self._ref, name, make, ttl, stale)
        session = self._ref.session
        if self._session is not session:
            self._session, self._turns, self._refreshing = session, {}, {}
        while (turn := self._turns.get(name)) is not None:
            if turn.task is asyncio.current_task():
                raise RuntimeError(f"the computation of once {name!r} asks for its own value, and would wait forever")
            outcome = await turn.outcome()
            if isinstance(outcome, InconcertError):
                raise outcome.with_traceback(None)  # many waiters raise the same error
            if outcome is not None:
                return wanted.codec.decode(outcome)
        turn = self._turns[name] = _Turn(session)
        try:
            text = await self._lead(wanted, turn)
        except InconcertError as error:
            turn.end(None if turn.is_computing or isinstance(error, LeaseLost) else error)
            raise
        finally:
            turn.end(None)
            del self._turns[name]
        return wanted.codec.decode(text)

    async def close(self) -> None:
        """Cancel the values that are being computed again: the coordinator is closing."""
        await cancel_all(list(self._refreshing.values()))

    def forget(self) -> object:
        """Leave what runs on another loop, and return it."""
        left = self._turns, self._refreshing
        self._session, self._turns, self._refreshing = None, {}, {}
        return left

    # Private.

    async def _lead(self, wanted: "_Wanted", turn: "_Turn") -> bytes:
        """Find the value, or wait until it is handed over, or compute it."""
        session = turn.session
        text, is_fresh = await wanted.find(session)
        if is_fresh or (text and wanted.serves_old):
            turn.end(text)
            if not is_fresh and wanted.name not in self._refreshing:
                task = self._refreshing[wanted.name] = asyncio.create_task(_refresh(wanted, _Turn(session)))
                task.add_done_callback(lambda _: self._refreshing.pop(wanted.name, None))
            return text
        async with AsyncExitStack() as stack:
            lease, handed = await wanted.try_enter(stack), _Handed(turn)
            if lease is None:
                await session.broadcasts.listen(wanted.channel, handed)
                stack.callback(session.broadcasts.forget, wanted.channel, handed)
                lease = await handed.or_entered(stack, wanted.lock(None))
            if lease is None:
                text = handed.text
            else:
                text, is_fresh = await wanted.find(session)
                if not is_fresh:
                    return await wanted.compute(lease, turn)
            turn.end(text)
        return text


class _Turn:
    """The turn of one caller of a process to find or compute the value of a name, for which the others wait."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.task = asyncio.current_task()  # the caller's
        self.is_computing = False  # whether its function runs
        self._waiting: dict[asyncio.Future[_Outcome], None] | None = {}  # in their order; None once it is over
        self._outcome: _Outcome = None

    async def outcome(self) -> "_Outcome":
        """Wait until the turn is over: the value, an error for all, or None if the next one is to try."""
        waiting = self._waiting
        if waiting is None:
            return self._outcome
        waiter: asyncio.Future[_Outcome] = self.session.loop.create_future()
        waiting[waiter] = None
        try:
            return await waiter
        except asyncio.CancelledError:
            waiting.pop(waiter, None)
            raise

    def end(self, outcome: "_Outcome") -> None:
        """End the turn, unless it is over: each of those that wait is woken, in one step."""
        if self._waiting is not None:
            waiting, self._waiting, self._outcome = self._waiting, None, outcome
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(outcome)


_Outcome = bytes | InconcertError | None


class _Handed:
    """Listens for the value that another process has computed.

    All who wait in this process have it with the message, before the leader has left the line.

    Args:
        turn: Ends with the message.
    """

    def __init__(self, turn: _Turn) -> None:
        self.text = b""  # the value; empty before it comes
        self._turn = turn
        self._waiting = anyio.CancelScope()

    async def or_entered(self, stack: AsyncExitStack, lock: Lock) -> Lease | None:
        """Wait in line for the lock, and enter it; None if the value comes before."""
        while not self.text:
            with anyio.CancelScope() as self._waiting:
                return await stack.enter_async_context(lock)
        return None

    # Called by the connection.

    def on_message(self, channel: str, text: bytes) -> None:
        del channel  # there is only one
        self.text = text
        self._turn.end(text)
        self._waiting.cancel()

    def missed(self) -> None:
        """The line may be empty, and its message lost: the place in line asks again by itself, and joins again."""

    def closed(self, error: InconcertError) -> None:
        """The place in line is told, too."""


class _Wanted:
    """The wish of one caller, checked."""

    def __init__(
        self, ref: SessionRef, name: str, make: Callable[[], object], ttl: Seconds, stale: Seconds | None
    ) -> None:
        self.name = check_name("once", name)  # which value
        self._ref = ref
        self._ttl, self._stale = durations.ttl(ttl), 0.0 if stale is None else durations.in_seconds("stale", stale)
        self.serves_old = self._stale > 0  # whether an old value is served while one is computed again
        self._make = make
        self.codec = _codec_of(name, make)  # how it becomes JSON, and is read again

    @cached_property
    def _keys(self) -> _Keys:
        return self._ref.keys.of(_Keys, "lock", self._lock_name)

    @property
    def _lock_name(self) -> str:
        return f"once:{self.name}"

    @property
    def channel(self) -> str:
        """The channel on which the value is handed over."""
        return self._ref.keys.channel(self._keys.value, "once", self.name)

    def lock(self, timeout: float | None) -> Lock:
        """The lock of who computes it."""
        return Lock(self._ref, self._lock_name, ttl=_LEASE, timeout=timeout)

    async def find(self, session: Session) -> tuple[bytes, bool]:
        """The value, empty if there is none; and whether it is fresh."""
        text, is_fresh = await session.run(_FIND(self._keys))
        return text, is_fresh == 1

    async def try_enter(self, stack: AsyncExitStack) -> Lease | None:
        """Enter the lock; None if another has it."""
        with suppress(AcquireTimeout):
            return await stack.enter_async_context(self.lock(0.0))
        return None

    async def compute(self, lease: Lease, turn: _Turn) -> bytes:
        """Call the function, keep its result, and hand it to all waiters."""
        turn.is_computing = True
        _STORE_SCRIPT.prepare()  # nobody has to wait for it once the value is there
        if inspect.iscoroutinefunction(_function(self._make)):
            value = self._make()
        else:
            value = await anyio.to_thread.run_sync(self._make)
        text = self.codec.encode(await value if inspect.isawaitable(value) else value)
        turn.is_computing = False
        store = _STORE(
            self._keys,
            holder=lease.holder,
            text=text,
            ttl_ms=milliseconds(self._ttl),
            kept_ms=milliseconds(self._ttl + self._stale),
            changes=self.channel,
        )
        try:
            await turn.session.run(store)
        except InconcertError as error:
            _log.warning("once %r was computed, and could not be kept for others: %s", self.name, error)
        turn.end(text)
        return text


async def _refresh(wanted: _Wanted, turn: _Turn) -> None:
    """Compute a value again whose old one is served, unless another process does."""
    try:
        async with AsyncExitStack() as stack:
            lease = await wanted.try_enter(stack)
            if lease is not None and not (await wanted.find(turn.session))[1]:
                await wanted.compute(lease, turn)
    except Exception as error:  # noqa: BLE001 - its caller has the old value, and the next one computes
        name = wanted.name
        log_error(lambda shown: _log.error("once %r could not be computed anew", name, exc_info=shown), error)


_codecs: WeakKeyDictionary[Callable[..., object], Codec[Any]] = WeakKeyDictionary()
_callable: WeakSet[object] = WeakSet()  # plain functions that need no arguments, so that each is looked at once


def _codec_of(name: str, make: Callable[[], object]) -> Codec[Any]:
    """The format of a function's result as JSON: that of its annotation; without one it is any JSON.

    Raises:
        TypeError: It is not a function, or needs arguments, or JSON cannot represent its result.
    """
    if type(make) is FunctionType and make in _callable:
        return _codecs[make]
    if not callable(make):
        raise TypeError(f"once {name!r} is to call {make!r}, which is not a function; leave out the parentheses")
    with suppress(ValueError):  # a builtin function may have no signature
        try:
            inspect.signature(make).bind()
        except TypeError as error:
            raise TypeError(
                f"once {name!r} is to call {make!r}, which needs arguments: {error}; give functools.partial(...)"
            ) from None
    function = _function(make)
    codec = _codecs.get(function)
    if codec is None:
        called = getattr(function, "__qualname__", type(function).__qualname__)
        returns = annotations(f"of {called}()", function).get("return")
        codec = _codecs[function] = codec_of(f"the result of {called}()", returns)
    if type(make) is FunctionType:
        _callable.add(make)
    return codec


def _function(make: Callable[[], object]) -> Callable[..., object]:
    while isinstance(make, partial):
        make = make.func
    return getattr(make, "__func__", make)  # a bound method is another object each time
