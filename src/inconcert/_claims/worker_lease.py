"""The state of one worker: its heartbeat, its claims, and their ends.

A worker is alive while its heartbeat is renewed, and holds all its claims, however long they take.  When the heartbeat
cannot be renewed in time, everything that the worker holds is stopped by the local clock, before the server lets
another worker have it.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

from inconcert._claims.claimed import ClaimState, Ending, Row, Verdict
from inconcert._claims.comparison import Comparison, StrayClaim
from inconcert._claims.ends import Ack, Ended, Heartbeat, Nack, heartbeat
from inconcert._claims.keys import HOLD_CLOCK, ClaimKeys, QueueKeys
from inconcert._claims.policy import Policy
from inconcert._claims.reaper import put_all_back
from inconcert._claims.suspects import Suspects
from inconcert._core.renewal import RENEW_AFTER, local_deadline, next_renewal, next_try
from inconcert._core.session import Session
from inconcert._redis.blocking.blocking_channel import BlockingChannel
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.background import attempt
from inconcert._redis.wire.call import AwaitedCall, Call
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, NotClaimed, NotConnected

if TYPE_CHECKING:  # it makes these
    from inconcert._claims.partition import ClaimPartition

_log = logging.getLogger("inconcert.claims")

C = TypeVar("C", bound=ClaimState)

IS_PLAIN, _IS_LIMITED, _RESULT = attrgetter("claimed.is_plain"), attrgetter("claimed.is_limited"), attrgetter("result")

_A_MOMENT = 0.05  # seconds after which a lapse can be seen
_MOST = 500  # in one claim or one acknowledgement, so that no script takes long
_MOST_DEAD = 10  # workers that one heartbeat returns
_MOST_BYTES = 2**20  # of results and steps in one acknowledgement, likewise; a claim stops there too


class WorkerLease(InboxReceiver, ABC, Generic[C]):
    """One worker: it is alive while its lease is renewed, and holds its claims.

    Args:
        keys: The keys of everything claimed under one tag.
        queues: The queues to claim from.
        policy: Chooses the order of the queues for each claim.
        owner: Is notified of what the worker learns.
        suspects: Claims of this worker and of other partitions that may kill it; None for a worker alone.
        lease: Seconds of silence after which the worker is presumed dead, and others get its claims.
        about: Its description, sent with each heartbeat, for those that list workers; empty for nothing.
    """

    kind = "worker"  # as log lines name it
    _call: type[Call] = AwaitedCall  # as which a claim is sent
    _acks_at_once = False  # whether the first end of a turn is sent before the turn ends, if nothing is under way

    def __init__(
        self,
        session: Session,
        keys: ClaimKeys,
        queues: list[QueueKeys],
        policy: Policy,
        owner: "ClaimPartition[C]",
        *,
        suspects: Suspects | None = None,
        lease: float,
        about: bytes = b"",
    ) -> None:
        self.holder = session.new_address()
        self.lease = lease
        self.about = about
        self.renew_at = 0.0
        self.is_lost = False
        self.owner = owner
        self._deadline = self._deadline_aside = 0.0
        self._ends_at_ms = 0  # when it is presumed dead, by the lease clock
        self._session = session
        self._keys = keys
        self._policy = policy
        self.claimed_key = keys.claimed(self.holder)
        self._by_name = {queue.name: queue for queue in queues}
        self._passed_over = 0  # of the dead workers, by the next heartbeat
        self._number = 1
        self.is_behind = False  # whether the last claim returned all that it asked for, so there may be more
        self._held: dict[int, C] = {}  # by position: one that was lost may be claimed again before that is known
        self._reconnects = session.reconnects  # as of the last comparison
        self._differs = False  # whether the server held another number of claims at the last heartbeat
        self._suspects = suspects or Suspects()
        self._ended: list[Ended] = []
        self._some_have_more = False  # whether one of these is not plain
        self._unconfirmed: list[Ended | Nack] = []  # ends that may not have reached the server

    @property
    def name(self) -> str:
        """The worker, as log lines name it."""
        return self.holder

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which it claims."""
        return self._session.loop

    @property
    def held(self) -> Collection[C]:
        """The jobs or items that it has claimed and not ended."""
        return self._held.values()

    @property
    def deadline(self) -> float:
        """The time at which it is presumed dead unless a heartbeat is renewed, by whichever thread."""
        return max(self._deadline, self._deadline_aside)

    async def begin(self) -> Self:
        """Register this worker with the server."""
        self._session.inbox.register(self.holder, self)
        self._session.inbox.follow(self._keys.bodies, self.holder)
        call = Heartbeat(self, self._keys, is_new=True)
        try:
            self._session.channel.submit(call)
            await call
        except BaseException:  # the caller has no worker then, but it may be registered on the server
            with suppress(NotConnected):
                self.retire()
            raise
        return self

    async def claim(self, count: int, send: Callable[[Call], None] | None = None) -> tuple[list[C], float | None]:
        """Claim up to `count`, in the order of the policy.

        May be cancelled: the next claim then has the same number, and returns the same.  One at a time.

        Args:
            count: How many at most.
            send: Sends the call, which may be sent again through the channel; None to send it now.

        Returns:
            The claims, and seconds until the next check, such as when something is due; None for no
            check.
        """
        order, count = self._policy.turn(min(count, _MOST))
        call = self._call(self._claim(order, count, suspects=int(self._suspects.may_take(self))))
        channel = self._session.channel
        if channel.is_full:
            await channel.has_room(self._keys.bodies)
        if self._ended:
            self._acknowledge()  # sent along with it
        if send is not None:
            send(call)
        else:
            channel.submit(call)
        if self.is_behind:  # then the server works on it while what the last claim brought begins to run
            channel.flush()
        status, *answer = await call
        self._suspects.answered(self)
        if not status:
            self._session.renewal.remove(self)
            self.lose()
        has_stopped = self._has_stopped(status)
        if self.is_lost:  # also while the reply was on its way: its claims belong to others already
            return [], None
        next_ms, now_ms, taken, queues, *parts = answer
        found = Row.read(self._number, taken, queues, parts)
        opened = await self._open(found, now_ms)
        is_cut = taken > 0 and next_ms == 0  # too large for one reply, and no queue was found empty
        self._policy.took(order, taken if is_cut else count, (row.queue.decode() for row in found))
        self.is_behind = taken == count or is_cut
        self._number += 1  # only now, because opening them may be cancelled too
        if has_stopped and not taken:
            return await self.claim(count)
        if len(opened) < taken:
            next_ms = 0  # the others have ended, and there may be more after them
        return opened, next_ms / 1000 if next_ms >= 0 else None

    def retire(self) -> None:
        """Requeue everything and end, without waiting for the reply."""
        self._end_again()
        self._acknowledge()  # what ended in this turn is done: it must not be requeued before that is sent
        self._session.renewal.remove(self)
        self.lose()
        put_all_back(self._session, self._keys, self.holder, list(self._by_name.values()))

    # Called by the claims.

    def done(self, claimed: ClaimState, result: bytes, ttl: float, *, is_run: bool = True) -> asyncio.Future[bool]:
        """Acknowledge, and keep the outcome for `ttl` seconds; returns whether it was still held."""
        was_held: asyncio.Future[bool] = self._session.loop.create_future()
        self._end(Ended(claimed, result, ttl, was_held, is_run))
        return was_held

    def done_nowait(self, claimed: ClaimState, result: bytes, ttl: float) -> None:
        """The same of one that was run, for a caller that does not wait: the claim is told if it fails."""
        self._end(Ended(claimed, result, ttl, None, True))  # noqa: FBT003 - as fields

    async def confirmed(self) -> None:
        """Wait until the server has answered all acknowledgements, or will not."""
        self._acknowledge()
        while sent := [call for call in self._ends_under_way() if isinstance(call, Ack) and not call.done()]:
            await asyncio.wait(sent)

    async def not_done(self, claimed: ClaimState, verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Requeue or dead-letter; returns whether it was still held."""
        call = self._nack(claimed, verdict, delay=delay, reason=reason)
        try:
            return bool(await call) or self.was_first_time(call)
        except InconcertError:
            claimed.unconfirmed()
            raise

    def not_done_nowait(
        self, claimed: ClaimState, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b""
    ) -> None:
        """The same, without waiting for the reply."""
        with suppress(NotConnected):  # closing has requeued it
            self._nack(claimed, verdict, delay=delay, reason=reason)

    def holds(self, claimed: ClaimState) -> bool:
        """True if no end of it was sent yet, and it is not lost."""
        return self._held.get(claimed.position) is claimed

    def unconfirmed(self, ends: Iterable[Ended | Nack]) -> None:
        """Note that these may not have reached the server: while this worker is alive, nothing else ends them."""
        if not self.is_lost:
            self._unconfirmed += ends

    def was_first_time(self, call: Call) -> bool:
        """True if an end that found nothing to end had succeeded before, and only its reply was lost."""
        return call.sends > 1 and not self.is_lost and time.monotonic() < self.deadline

    def acknowledged(self, ended: Sequence[Ended]) -> None:
        """The server has ended these: nobody counts them, unless a subclass does."""

    # Called by the renewal.

    def start_renewal(self) -> None:
        """Send a heartbeat."""
        self.renew_at = self.deadline
        self._session.channel.submit(Heartbeat(self, self._keys, passed_over=self._passed_over))

    def lose(self) -> None:
        """Stop everything: other workers may get it now."""
        self.is_lost = True
        self._session.inbox.unregister(self.holder)
        self._suspects.answered(self)
        held, self._held = self._held, {}
        for claimed in held.values():
            self._suspects.remove(claimed.id)
            attempt("ending what was lost", claimed.lose)

    def give_up(self) -> None:
        """Retire: the coordinator is closing."""
        self.retire()

    def beaten(self, reply: Reply, asked_at: float) -> None:
        """Process the reply of a heartbeat."""
        alive, at_ms, next_ms, has_news, count, *dead = reply
        if self.is_lost:
            return
        if alive:
            self._ends_at_ms = at_ms + milliseconds(self.lease)
            self._deadline = local_deadline(asked_at, self.lease)
            # Early, if some worker may be dead by then: the reply says when.
            self.renew_at = min(asked_at + self.lease * RENEW_AFTER, time.monotonic() + next_ms / 1000 + _A_MOMENT)
            self._session.renewal.add(self)
            self._end_again()
            self._compare(count)
            self.owner.on_alive()
        else:
            self._session.renewal.remove(self)
            self.lose()
        # Those that cannot be recovered, because of a foreign key, must not hide the others.
        self._passed_over = self._passed_over + len(dead) if len(dead) == _MOST_DEAD else 0
        self.owner.on_dead_workers([worker.decode() for worker in dead])
        if has_news:
            self.owner.on_news()

    def compared(self, gone: Iterable[int], strays: Iterable[StrayClaim], reconnects: int) -> None:
        """Process the reply of a comparison with the server."""
        if self.is_lost:
            return
        self._reconnects = reconnects
        stopped = [claimed for position in gone if (claimed := self._held.pop(position, None)) is not None]
        ending = self._ending()
        forgotten = [stray for stray in strays if stray.position not in ending]
        if stopped or forgotten:
            _log.warning(
                "worker %s holds other jobs or items than the server knows; requeued: %d, stopped: %d",
                self.holder,
                len(forgotten),
                len(stopped),
            )
        for claimed in stopped:
            self._suspects.remove(claimed.id)
            claimed.lose()
        for stray in forgotten:
            self._send_nack(stray.id.decode(), stray.position, stray.queue.decode(), "back")

    def clock_held(self, at_ms: int, asked_at: float) -> None:
        """Process the reply of a command that lets the lease clock stand still, in position of a heartbeat."""
        if not self.is_lost:
            self._deadline = max(self._deadline, self._deadline_at(at_ms, asked_at))
            self.renew_at = next_renewal(self.deadline)
            self._session.renewal.add(self)

    def missed(self, error: InconcertError) -> None:
        """Note that a heartbeat was not answered, and try again."""
        if not self.is_lost:
            _log.warning("worker %s could not renew its heartbeat yet: %s", self.holder, error)
            self.renew_at = next_try(self.deadline, self.lease)
            self._session.renewal.add(self)

    def beat_aside(self, channel: BlockingChannel) -> bool:
        """Renew the heartbeat from another thread, while the loop is blocked; returns whether the worker is alive.

        The loop sees the new deadline in its first turn, before it can declare the worker dead.

        Raises:
            Unavailable: No heartbeat was sent.
            OutcomeUnknown: One was sent, and not answered.
        """
        asked_at = time.monotonic()
        reply = channel.run(heartbeat(self, self._keys), with_one_key=HOLD_CLOCK(self._keys))
        if isinstance(reply, int):  # where the lease clock stands
            self._deadline_aside = max(self.deadline, self._deadline_at(reply, asked_at))
            return True
        is_alive, at_ms, *_ = reply
        if is_alive:
            self._ends_at_ms = at_ms + milliseconds(self.lease)
        self._deadline_aside = local_deadline(asked_at, self.lease) if is_alive else 0.0
        return bool(is_alive)

    # Private.

    @abstractmethod
    def _claim(self, order: Sequence[str], count: int, *, suspects: int) -> Command:
        """The command that claims, from these queues, and so many of those with which two workers have died."""

    @abstractmethod
    def _ack(self, batch: list[Ended]) -> Ack:
        """The call that ends these."""

    def _deadline_at(self, at_ms: int, asked_at: float) -> float:
        """Until when the worker lives if the lease clock stood there; 0 if that is not known."""
        left_ms = self._ends_at_ms - at_ms
        return local_deadline(asked_at, left_ms / 1000) if at_ms >= 0 and left_ms > 0 else 0.0

    def _has_stopped(self, status: int) -> bool:
        """True if a claim that answers so came to something that another form of the script is to claim."""
        del status
        return False

    @abstractmethod
    def _read(self, row: Row, now_ms: int) -> tuple[C, Ending | None]:
        """The claim; and how it ends if it must not be handed out."""

    async def _open(self, rows: list[Row], now_ms: int) -> list[C]:
        """The claims to hand out; those that must not be handed out are ended."""
        opened: list[C] = []
        endings: list[tuple[C, Ending]] = []
        for row in rows:
            claimed, ending = self._read(row, now_ms)
            self._held[claimed.position] = claimed
            if ending is not None:
                endings.append((claimed, ending))
                continue
            opened.append(claimed)
            if row.attempt > 1 and claimed.is_suspect:
                self._suspects.add(claimed.id)
        if endings:
            # The last one first: of those that go back to the front of their queue, the first is in front again.
            await asyncio.gather(*(_if_held(claimed, ending) for claimed, ending in reversed(endings)))
        return opened

    def _compare(self, count: int) -> None:
        """Compare with the server if it has another number of claims twice in a row, or may be another server."""
        differed, self._differs = self._differs, count != len(self._held)
        if self._session.reconnects != self._reconnects or (differed and self._differs):
            held, reconnects = self._held.values(), self._session.reconnects
            self._session.channel.submit(Comparison(self, self._keys, held, self._number, reconnects))

    def _ending(self) -> set[int]:
        """The positions of claims whose end is not answered yet, or not confirmed."""
        positions = {end.claimed.position if isinstance(end, Ended) else end.position for end in self._unconfirmed}
        for call in self._ends_under_way():
            positions.update(call.positions(self))
        return positions

    def _ends_under_way(self) -> list[Ack | Nack]:
        """The calls of this worker that end claims, and are not answered yet."""
        ends = (call for call in self._session.channel.under_way() if isinstance(call, Ack | Nack))
        return [call for call in ends if any(True for _ in call.positions(self))]

    def _end_again(self) -> None:
        """Repeat what was not confirmed; what the server knows already changes nothing."""
        ends, self._unconfirmed = self._unconfirmed, []
        self._ended += (end for end in ends if isinstance(end, Ended))
        self._some_have_more = True  # it may be so
        self._acknowledge()
        for end in ends:
            if isinstance(end, Nack):
                with suppress(NotConnected):
                    self._session.channel.submit(Nack(self, end.command, end.position))

    def _end(self, ended: Ended) -> None:
        """Acknowledge it at the end of this turn of the loop; or now, if its consumer has nothing to send with it."""
        self._ended.append(ended)
        if not ended.claimed.is_plain:
            self._some_have_more = True
        self._let_go(ended.claimed)  # only now: until an end of it is on its way, it needs one
        if len(self._ended) == 1:
            if self._acks_at_once and ended.is_run and self._session.channel.is_idle:
                self._acknowledge()
            else:
                self._session.loop.call_soon(self._turn_ends)

    def _let_go(self, claimed: ClaimState) -> None:
        self._held.pop(claimed.position, None)
        if self._suspects.held and self._suspects.remove(claimed.id):
            self.owner.on_room()

    def _nack(self, claimed: ClaimState, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> Nack:
        call = self._send_nack(claimed.id, claimed.position, claimed.source, verdict, delay=delay, reason=reason)
        self._let_go(claimed)
        return call

    def _send_nack(
        self, id_: str, position: int, source: str, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b""
    ) -> Nack:
        queue = self._by_name[source]
        command = self._keys.scripts.nack(
            self._keys,
            queue,
            claimed=self.claimed_key,
            id=id_,
            position=position,
            verdict=verdict,
            delay_ms=milliseconds(delay),
            reason=reason,
            name=queue.name,
            inboxes=self._session.inboxes(self._keys.bodies),
            worker=self.holder,
        )
        call = Nack(self, command, position)
        self._session.channel.submit(call)
        return call

    def _turn_ends(self) -> None:
        """Acknowledge, and claim at once what was waiting for a place of what has ended."""
        frees_places = self._some_have_more and any(map(_IS_LIMITED, self._ended))
        self._acknowledge()
        if frees_places:
            self.owner.on_room()

    def _acknowledge(self) -> None:
        """Send one script for all that ended in this turn of the loop."""
        while self._ended:
            count = _how_many(self._ended, some_have_more=self._some_have_more)
            self._send(self._ended[:count])
            del self._ended[:count]  # only now: what was not sent is sent with the next heartbeat
        self._some_have_more = False

    def _send(self, batch: list[Ended], call_of: Callable[[list[Ended]], Ack] | None = None) -> None:
        try:
            call = (call_of or self._ack)(batch)
        except Exception as error:  # noqa: BLE001 - one that cannot be sent must not hold up the others
            if len(batch) > 1:
                for ended in batch:
                    self._send([ended], call_of)
            else:
                [ended] = batch
                self._held[ended.claimed.position] = cast("C", ended.claimed)  # its caller ends it otherwise
                if ended.was_held is None:
                    ended.claimed.not_sent(error)
                elif not ended.was_held.done():
                    ended.was_held.set_exception(error)
            return
        try:
            self._session.channel.submit(call)
        except InconcertError as error:
            call.fail(error)


def _how_many(ended: list[Ended], *, some_have_more: bool) -> int:
    """The number of these in one script: with 1 MiB to write or to drop it has enough."""
    if len(ended) == 1:
        return 1
    some, size = ended[:_MOST], 0
    if not some_have_more and sum(map(len, map(_RESULT, some))) < _MOST_BYTES:
        return len(some)
    for count, each in enumerate(some):
        if size >= _MOST_BYTES:
            return count
        size += len(each.result)
        if not each.claimed.is_plain:
            if each.claimed.ends_alone:
                return count or 1
            size += each.claimed.bulk
    return len(some)


async def _if_held(claimed: ClaimState, ending: Ending) -> None:
    try:
        await ending()
    except NotClaimed:  # lost meanwhile: the next worker ends it
        pass
    except Exception as error:
        claimed.end_anyhow(error)
        if isinstance(error, InconcertError):
            raise
