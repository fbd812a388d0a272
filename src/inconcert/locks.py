"""Several locks as one: all of them or none, acquired in an order that cannot deadlock."""

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from itertools import chain

import anyio

from inconcert._core.acquirable import Acquirable
from inconcert._core.caller import note
from inconcert._core.lease import Lease
from inconcert._core.permit_state import Grant, PermitKeys, PermitState, give_back
from inconcert._core.renewal import local_deadline
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import load
from inconcert._redis.protocol.slots import slot_of
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert._rules import durations
from inconcert._rules.defaults import LOCK_TTL
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.errors import InconcertError
from inconcert.lock import Lock

_ACQUIRE = load("locks/acquire").bind()

_MOST = 100  # locks at once: one script acquires them all, and the server does nothing else meanwhile


class Locks(Acquirable["_LeaseStates", "Leases"]):
    """Mutual exclusion on several names at once; the same locks that `Coordinator.lock` makes one by one.

    If all are free and have no waiters, they are acquired in one step.  Otherwise they are acquired one by one in name
    order, each through that lock's own line.  Every caller uses this order, so there is no deadlock, and every waiter
    keeps its place in line, so none starves.  On a cluster they are always acquired one by one, unless all lie in one
    slot: then the cost is a round trip for each, and `try_acquire` may hold some of them for a moment before it fails.

    Use it where one step touches several things, such as a transfer between two accounts.  A task that already holds
    one of the locks waits for itself, and a task that nests single locks in another order may deadlock with others.

    `async with` raises `AcquireTimeout` if they were not free in time, and cancels the body and raises `LeaseLost` if
    one of the leases is lost.

    Made by `Coordinator.locks`:

    ```python
    async with concert.locks("account:1", "account:2") as leases:
        await transfer(fencing_tokens=leases.fencing_tokens)
    ```

    Args:
        names: Which locks, 1 to 100; the order does not matter.
        ttl: Life of each lease between renewals, in seconds; by default 30.
        timeout: Longest wait of `async with` and `acquire()` for all of them, in seconds; None waits forever, 0 tries
            once.
        metrics_name: Their name in metrics, written in the code, because each makes time series; None for none.
        label: What `Coordinator.inspect` shows of its acquisitions, such as the number of an order; None for nothing.

    Raises:
        ValueError: There is no name, a name twice, or more than 100; `ttl` is not above 0, or `timeout` is below 0.
    """

    def __init__(
        self,
        ref: SessionRef,
        *names: str,
        ttl: Seconds = LOCK_TTL,
        timeout: Seconds | None = None,
        metrics_name: str | None = None,
        label: str | None = None,
    ) -> None:
        super().__init__("locks", ", ".join(map(str, names)), timeout, _face)
        if not 1 <= len(names) <= _MOST:
            raise ValueError(f"locks() is given {len(names)} names; give from 1 to {_MOST}")
        self._keys = {name: ref.keys.of(PermitKeys, "lock", name) for name in names}
        if len(self._keys) < len(names):
            raise ValueError(f"locks{names!r} has a name twice, and would wait for itself; give each name once")
        self._is_scattered = ref.keys.is_sharded and len({slot_of(keys.holders) for keys in self._keys.values()}) > 1
        self._first = self._keys[min(self._keys)].holders
        self._ref = ref
        self._ttl = durations.ttl(ttl)
        self._metrics_name = metrics_name
        self._label = label

    async def _take(self, *, waits: bool) -> "_LeaseStates | None":
        if self._is_scattered:
            leases = await self._take_in_turn(waits=waits)
        else:
            leases = await self._take_at_once(waits=waits)
        while leases is None and waits:
            leases = await self._take_in_turn(waits=True)
        return leases

    def _trouble(self, since: float) -> InconcertError | None:
        return self._ref.session.channel.trouble(self._first, since)

    async def _take_at_once(self, *, waits: bool) -> "_LeaseStates | None":
        """Acquire all of them in one step; None if one is not free, or if the grant came too late to be used."""
        session = self._ref.session
        asked_at = time.monotonic() if session.observers else 0.0
        await session.channel.has_room(self._first)
        noted = note(self._label, 3)
        holders = [session.new_address() for _ in self._keys]
        attempt = _Attempt(session, dict(zip(holders, self._keys.values(), strict=True)), self._ttl)
        deadline = local_deadline(time.monotonic(), self._ttl)
        try:
            attempt.ask()
            await attempt
            granted = attempt.granted()
        except BaseException:
            attempt.withdraw()
            raise
        finally:
            attempt.leave()
        if not granted:
            return None
        now = time.monotonic()
        if now >= deadline:  # the grant came while this process could not use it
            attempt.withdraw()
            return None
        tokens, losses = granted[::2], granted[1::2]
        grants = [
            Grant(holder, token, deadline, previous_lost=is_after_loss == 1)
            for holder, token, is_after_loss in zip(holders, tokens, losses, strict=True)
        ]
        named = zip(self._keys, grants, strict=True)
        leases = {name: self._lease(session, name, grant) for name, grant in named}
        for lease in leases.values():
            lease.noted, lease.since = noted, now
        if session.safeguards is not None and not await session.safeguards.admit([*leases.values()], waits=waits):
            return None
        if asked_at:
            for lease in leases.values():
                lease.acquired(asked_at)
        return _LeaseStates(leases)

    def _lease(self, session: Session, name: str, grant: Grant) -> PermitState:
        return PermitState(
            session,
            "lock",
            name,
            keys=self._keys[name],
            ttl=self._ttl,
            grant=grant,
            metrics_name=self._metrics_name or "",
        )

    async def _take_in_turn(self, *, waits: bool) -> "_LeaseStates | None":
        """Acquire one after the other, waiting for each; None if one is not free, or was lost during the next wait."""
        taken: dict[str, PermitState] = {}
        try:
            for name in sorted(self._keys):
                state = await _SingleLock(
                    self._ref, name, ttl=self._ttl, metrics_name=self._metrics_name, label=self._label
                ).take(waits=waits)
                if state is None:
                    _LeaseStates(taken).release_nowait()
                    return None
                taken[name] = state
        except BaseException:
            _LeaseStates(taken).release_nowait()
            raise
        leases = _LeaseStates({name: taken[name] for name in self._keys})
        if not leases.is_lost:
            return leases
        leases.release_nowait()
        return None


class _SingleLock(Lock):
    """One of the locks, taken in its turn."""

    async def take(self, *, waits: bool) -> PermitState | None:
        """Wait in line for it; or return None if it is not free."""
        return await self._take(waits=waits)


class _LeaseStates:
    """The engines of the leases that were taken together.

    Args:
        by_name: That of each lock.
    """

    def __init__(self, by_name: dict[str, PermitState]) -> None:
        self.by_name = by_name

    @property
    def is_lost(self) -> bool:
        """True if one of them ended without a release."""
        return any(state.is_lost for state in self.by_name.values())

    def release_nowait(self) -> None:
        """Release all of them without waiting for the replies: their caller has gone."""
        for state in self.by_name.values():
            state.release_nowait()

    def enter(self) -> None:
        """Begin a body, which is cancelled when one of them is lost."""
        for state in self.by_name.values():
            state.enter()

    async def exit(self, error: BaseException | None) -> None:
        """End a body: release all, and tell of a loss if the body has nothing worse to tell."""
        # All bodies first: one that was stopped during the releases would cancel us.
        ended = [(state, state.end_body(error)) for state in self.by_name.values()]
        await run_shielded(_at_once(state.conclude(error, was_stopped) for state, was_stopped in ended))


class _Attempt(Call, InboxReceiver):
    """A request for all locks in one step; it fails if the coordinator closes meanwhile, as a wait in line does.

    Args:
        locks: The keys of each lock, by the holder that requests it.
        ttl: Life of each lease, in seconds.
    """

    __slots__ = ("_address", "_is_withdrawn", "_locks", "_session", "_ttl")

    def __init__(self, session: Session, locks: Mapping[str, PermitKeys], ttl: float) -> None:
        super().__init__(_ACQUIRE(locks=chain(*locks.values()), ttl_ms=milliseconds(ttl), holders=locks))
        self._session = session
        self._locks = locks
        self._ttl = ttl
        self._address = next(iter(locks))
        self._is_withdrawn = False

    def ask(self) -> None:
        """Request all of them."""
        self._session.inbox.register(self._address, self)
        self._session.channel.submit(self)

    def granted(self) -> Reply:
        """The script's reply."""
        self.raise_if_closed()
        return self.result()

    def withdraw(self) -> None:
        """Release what was granted, or may have been."""
        session = self._session
        if self.sends and not self._is_withdrawn and not session.channel.is_closed:
            self._is_withdrawn = True
            for holder, keys in self._locks.items():
                give_back(session, keys, holder, life=0.0 if self.was_refused else self._ttl)

    def leave(self) -> None:
        """Stop waiting."""
        self._session.inbox.unregister(self._address)

    # Called by the inbox.

    def closed(self, error: InconcertError) -> None:
        super().closed(error)
        self.withdraw()
        self.failed(error)


class Leases(Mapping[str, Lease]):
    """The result of acquiring `Locks`: the `Lease` of each name, `leases["account:1"]`, in the given order.

    Each is renewed and fenced on its own.  If one is lost, the body of `async with` is cancelled and `LeaseLost` is
    raised; the others are released.
    """

    def __init__(self, leases: dict[str, Lease]) -> None:
        self._leases = leases

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {list(self._leases.values())}>"

    def __getitem__(self, name: str) -> Lease:
        return self._leases[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def fencing_tokens(self) -> dict[str, int]:
        """The `Lease.fencing_token` of each name: pass each to the resource that its lock protects."""
        return {name: lease.fencing_token for name, lease in self.items()}

    @property
    def remaining(self) -> float:
        """Seconds until the first of them is lost unless renewed; 0 once one is lost or released."""
        return min(lease.remaining for lease in self.values())

    @property
    def is_lost(self) -> bool:
        """True if one of them ended without a release; known without asking the server."""
        return any(lease.is_lost for lease in self.values())

    async def lost(self) -> None:
        """Wait until one of them is lost, for leases without a body. Never returns if they are released first.

        Cost: Nothing is sent.
        """
        async with anyio.create_task_group() as group:

            async def watch(lease: Lease) -> None:
                await lease.lost()
                group.cancel_scope.cancel()

            for lease in self.values():
                group.start_soon(watch, lease)

    async def renew(self) -> None:
        """Make all of them last a full ttl from now. This happens in the background anyway.

        Raises:
            LeaseLost: One has lapsed.
            NotHeld: One was already released.
            OutcomeUnknown: The server did not answer; background renewal continues until the deadline.

        Cost: 1 round trip for all together.
        """
        await _at_once(lease.renew() for lease in self.values())

    async def release(self) -> None:
        """Release all of them, even if one fails. If cancelled, it completes first.

        Raises:
            LeaseLost: One had already lapsed; another may hold it now.
            NotHeld: One was already released.
            Unavailable: The server refuses it for now. It is sent again until the leases lapse; ask again to know.
            OutcomeUnknown: The server did not answer. It is sent again until the leases lapse, as after `Unavailable`.

        Cost: 1 round trip for all together, and 1 message for each that has waiters.
        """
        await run_shielded(_at_once(lease.release() for lease in self.values()))


def _face(held: _LeaseStates) -> Leases:
    return Leases({name: Lease(state) for name, state in held.by_name.items()})


async def _at_once(steps: Iterable[Coroutine[object, object, None]]) -> None:
    """Run steps concurrently, all to their end, and raise the error of the first that failed."""
    for outcome in await asyncio.gather(*steps, return_exceptions=True):
        if outcome is not None:
            raise outcome
