"""A barrier: parties that wait for each other, among all processes on one server, round after round.

The server keeps the open round and its participants, each under a lease.  The last arrival ends the round, and one
message tells the others.  So does a participant that renews its own lease and finds that another's has lapsed.

    participants  zset  holder -> lease end, server ms
    order         zset  holder -> when it arrived
    rounds        hash  the number of the open round, the outcomes of the last 100, and whether the barrier is aborted

Source: docs/explanation/events.md
"""

import logging
import time
from functools import lru_cache
from types import EllipsisType, TracebackType
from typing import NamedTuple

import anyio

from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from inconcert._core.renewal import local_deadline, next_renewal, next_try
from inconcert._core.session import Session, SessionRef
from inconcert._core.unconfirmed import Withdrawal
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules import durations
from inconcert._rules.defaults import BARRIER_TTL
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.limits import whole
from inconcert.errors import BarrierBroken, InconcertError, Unavailable

_log = logging.getLogger("inconcert.barrier")


_MOST = 10_000  # parties; a message names all of them


class _Keys(NamedTuple):
    participants: str
    order: str
    rounds: str
    recent: str
    older: str


_ARRIVE = load("barriers/arrive").bind(_Keys)
_RENEW = load("barriers/renew").bind(_Keys)
_RENEW_LEASE = load("permits/renew").bind()
_LEAVE = load("barriers/leave").bind(_Keys)
_ABORT = load("barriers/abort").bind(_Keys)
_RESET = load("barriers/reset").bind(_Keys)
_COUNT = load("barriers/count").bind(_Keys)


class Barrier:
    """Lets its parties pass when all of them have arrived, as `asyncio.Barrier` does; then the next round begins.

    If a participant leaves, by timeout or cancellation, the others wait until it, or another, arrives.  If one dies,
    its lease lapses, which breaks the round: the other waiters get `BarrierBroken`, and the next arrival begins a new
    round.  `abort()` breaks the barrier itself: waiters get `BarrierBroken`, and so does each party that arrives later,
    until `reset()` is called.  `async with` and `wait()` return the order of arrival, 0 to `parties - 1`, and raise
    `TimeoutError` if the others do not arrive in time.

    Use it for steps that all workers must begin together.  If not all need to wait, use `Coordinator.latch`.

    Made by `Coordinator.barrier`:

    ```python
    async with concert.barrier("epoch", parties=4) as position:
        if position == 0:
            await publish_the_last_epoch()
    ```

    Args:
        name: Which barrier. The same name in the same namespace is the same barrier, on any machine.
        parties: How many must arrive, 1 to 10,000.
        ttl: Life of a participant's lease between renewals, in seconds; by default 10. After that long a dead one
            breaks the round.
        timeout: Longest wait of `async with` and `wait()`, in seconds; None waits forever.

    Raises:
        ValueError: `parties` is out of range, `ttl` is not above 0, or `timeout` is below 0.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        parties: int,
        *,
        ttl: Seconds = BARRIER_TTL,
        timeout: Seconds | None = None,
    ) -> None:
        self._name = name
        whole(f"parties of barrier {name!r}", parties, most=_MOST)
        keys = ref.keys.of(_Keys, "barrier", name)
        self._ref = ref
        self._terms = _Terms(name, keys, ref.keys.channel(keys.rounds, "barrier", name), parties, durations.ttl(ttl))
        self._timeout = durations.timeout(timeout)

    def __repr__(self) -> str:
        return f"<Barrier {self._name!r}>"

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Nothing is held: the round ended when `wait` returned."""

    @property
    def parties(self) -> int:
        """The number of parties that must arrive."""
        return self._terms.parties

    async def wait(self, *, timeout: Seconds | EllipsisType | None = ...) -> int:
        """Wait until all parties have arrived, and pass with them.

        Args:
            timeout: Longest wait in seconds; None waits forever, 0 passes only as the last to arrive. Defaults to the
                barrier's `timeout`.

        Returns:
            The caller's position in the order of arrival, from 0 to `parties - 1`.

        Raises:
            TimeoutError: The others did not arrive in time; the round has been left.
            BarrierBroken: A participant's lease lapsed, perhaps the caller's own; or the barrier was aborted and not
                reset since, or was reset during the wait.
            Unavailable: The server could not be asked; the caller does not take part.
            OutcomeUnknown: The server did not answer. Unless the others have passed with the caller, its arrival is
                undone, or its lease lapses.

        Cost: 1 round trip, and 1 more if no other task of this process waits. 1 message to each process at the end.
            While waiting, 1 renewal every third of `ttl`.
        """
        seconds = self._timeout if timeout is ... else durations.timeout(timeout)
        participant = _Participant(self._ref.session, self._terms)
        if seconds == 0:
            await participant.arrive(waits=False)
        else:
            with anyio.move_on_after(seconds):
                await participant.take_part()
        if participant.result is None:
            raise TimeoutError(
                f"barrier {self._terms.name!r}: not all {self.parties} parties arrived within {seconds:g} s; "
                "wait longer with timeout=, or look at n_waiting()"
            )
        if isinstance(participant.result, BarrierBroken):
            raise participant.result
        return participant.result

    async def n_waiting(self) -> int:
        """The number of participants that wait in the open round now."""
        waiting: int = await self._ref.session.run(_COUNT(self._terms.keys))
        return waiting

    async def abort(self) -> None:
        """Break the barrier: all waiters get `BarrierBroken`, and so does each later arrival, until `reset()`.

        The server forgets this one day after the last arrival that was refused.

        Cost: 1 round trip, and 1 message to each process in which someone waits.
        """
        session = self._ref.session
        await session.run(_ABORT(self._terms.keys, request=session.new_address(), changes=self._terms.changes))

    async def reset(self) -> None:
        """Let an aborted barrier begin again; all waiters at this moment get `BarrierBroken`.

        Call it when nobody works on the aborted round any more: the next arrival waits in a new round.

        Cost: 1 round trip, and 1 message to each process in which someone waits.
        """
        session = self._ref.session
        await session.run(_RESET(self._terms.keys, request=session.new_address(), changes=self._terms.changes))


class _Terms(NamedTuple):
    """The facts about a barrier that a participant needs."""

    name: str
    keys: _Keys
    changes: str
    parties: int
    ttl: float


class _Participant:
    """A waiter in a round, under a lease that is renewed until the round has ended.

    The server alone decides how a round ended: even when the lease should have lapsed, the participant asks before it
    gives up.
    """

    kind = "place at barrier"  # as log lines name it

    def __init__(self, session: Session, terms: _Terms) -> None:
        self.name = terms.name  # that of the barrier
        self.holder = session.new_address()  # its identity, unique every time
        self.deadline = self.renew_at = 0.0  # when its lease ends, and is renewed, by the local monotonic clock
        self.is_waiting = True  # for the outcome of its round
        self.result: int | BarrierBroken | None = None  # its position in the round that it has passed, once known
        self._session = session
        self._terms = terms
        self._round = b""
        self._may_be_in = False
        self._wait = anyio.CancelScope()

    async def take_part(self) -> None:
        """Arrive, and wait until there is a result. If this is cut short, it also leaves the round on the server."""
        with self._wait:
            async with ChannelSubscription(self._session, self._terms.changes) as subscription:
                try:
                    await self.arrive(waits=True)
                    while self.is_waiting:
                        message = await subscription.next()
                        if isinstance(message, ChannelMessage):
                            self.on_message(message.text)
                        else:
                            self.start_renewal()
                finally:
                    self.is_waiting = False
                    self._session.renewal.remove(self)
                    self.give_up()

    async def arrive(self, *, waits: bool) -> None:
        """Take part in the open round; without `waits`, only as the last to arrive."""
        session, terms = self._session, self._terms
        asked_at = time.monotonic()
        self.renew_at = self.deadline = local_deadline(asked_at, terms.ttl)
        if waits:
            self._may_be_in = True
            session.renewal.add(self)  # which calls `give_up` when the coordinator closes
        command = _ARRIVE(
            terms.keys,
            holder=self.holder,
            parties=terms.parties,
            ttl_ms=milliseconds(terms.ttl),
            waits=int(waits),
            changes=terms.changes,
        )
        try:
            self._round, outcome = await session.run(command)
        except Unavailable:
            self._may_be_in = False
            raise
        if outcome:
            self.on_message(outcome)
        elif waits:
            self.renewed(asked_at)

    def on_message(self, text: bytes) -> None:
        """Note the outcome of our round; ignore that of other rounds, and messages that are not the server's."""
        if text.startswith(self._round + b" "):
            self._may_be_in = False
            self._end(_read(text).result_of(self.holder, self._terms.name))

    # Called by the renewal of its lease.

    def start_renewal(self) -> None:
        self.renew_at = self.deadline
        terms = self._terms
        command = _RENEW(
            terms.keys,
            holder=self.holder,
            round=self._round,
            ttl_ms=milliseconds(terms.ttl),
            changes=terms.changes,
        )
        self.submit(_RenewCall(self, command))

    def renewal_of_lease(self) -> Command:
        """The command that renews the lease, and does not ask how the round is."""
        terms = self._terms
        return _RENEW_LEASE(holders=terms.keys.participants, holder=self.holder, ttl_ms=milliseconds(terms.ttl))

    def submit(self, call: Call) -> None:
        """Send a renewal."""
        self._session.channel.submit(call)

    def renewed(self, asked_at: float) -> None:
        """The server renewed the lease: it lasts a full ttl from `asked_at` on."""
        self.deadline = max(self.deadline, local_deadline(asked_at, self._terms.ttl))
        self.renew_at = next_renewal(self.deadline)
        self._session.renewal.add(self)

    def renewal_failed(self, error: InconcertError) -> None:
        """Try again soon, unless the lease must have lapsed by now."""
        if time.monotonic() < self.deadline:
            _log.warning("a lease on barrier %r could not be renewed yet: %s", self._terms.name, error)
            self.renew_at = next_try(self.deadline, self._terms.ttl)
            self._session.renewal.add(self)
        else:
            self.lapsed()

    def lapsed(self) -> None:
        """The server has dropped this participant, or has not answered for a whole lease."""
        self._end(BarrierBroken(self._terms.name, self.holder))

    def lose(self) -> None:
        if self._round:  # otherwise the arrival is still under way, and raises its own error if it fails
            self.start_renewal()

    def give_up(self) -> None:
        if self._may_be_in and not self._session.channel.is_closed:
            self._may_be_in = False
            Withdrawal(self._session, self._terms.keys.participants, self.holder, self._leave, life=self._terms.ttl)

    def _leave(self) -> Call:
        return Call(_LEAVE(self._terms.keys, holder=self.holder), must_run=True)

    def _end(self, result: int | BarrierBroken) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.result = result
            self._wait.cancel()


class _RenewCall(Call):
    """A renewal under way, which also asks whether the round is open."""

    __slots__ = ("_asked_at", "_keeps_lease_first", "participant")

    overtakes = True

    def __init__(self, participant: _Participant, command: Command) -> None:
        super().__init__(command)
        self.participant = participant
        self._asked_at = time.monotonic()
        self._keeps_lease_first = True

    @property
    def is_wanted(self) -> bool:
        return self.participant.is_waiting

    def answered(self, reply: Reply) -> None:
        if not self.is_wanted:
            return
        if reply == 1:
            self.participant.renewed(self._asked_at)
        elif reply:
            self.participant.on_message(reply)
        else:
            self.participant.lapsed()

    def failed(self, error: InconcertError) -> None:
        if self.is_wanted:
            self.participant.renewal_failed(error)

    def with_one_key(self) -> Call | None:
        if self._keeps_lease_first:
            self._keeps_lease_first = False
            return _RenewLeaseCall(self, self.participant.renewal_of_lease())
        return None


class _RenewLeaseCall(Call):
    """A renewal of the lease alone, while nothing of the round can be read because its slot moves key by key."""

    __slots__ = ("_asked_at", "_renewal")

    overtakes = True

    def __init__(self, renewal: _RenewCall, command: Command) -> None:
        super().__init__(command)
        self._renewal = renewal
        self._asked_at = time.monotonic()

    @property
    def is_wanted(self) -> bool:
        return self._renewal.is_wanted

    def answered(self, reply: Reply) -> None:
        if self.is_wanted:
            if reply == 1:
                self._renewal.participant.renewed(self._asked_at)
            else:  # the round has ended, perhaps; wait until that can be read
                self._renewal.participant.submit(self._renewal)

    def failed(self, error: InconcertError) -> None:
        self._renewal.failed(error)


class _Outcome(NamedTuple):
    """The end of a round."""

    verdict: bytes  # passed, broken or aborted
    holders: dict[bytes, int]  # all in their order if the round was passed, the dead one if it was broken

    def result_of(self, holder: str, name: str) -> int | BarrierBroken:
        """The holder's position in the round, or the error if the round was broken."""
        position = self.holders.get(holder.encode())
        if self.verdict == b"passed":
            # A holder whose lease lapsed before the others passed is not among them.
            return position if position is not None else BarrierBroken(name, holder)
        dead = next(iter(self.holders), None)
        return BarrierBroken(name, dead.decode() if dead is not None else None)


@lru_cache(maxsize=8)  # all waiters of this process in a round read the same text
def _read(text: bytes) -> _Outcome:
    _, verdict, *holders = text.split()
    return _Outcome(verdict, {holder: position for position, holder in enumerate(holders)})
