"""What one worker holds: its heartbeat, what it has claimed, and how that ends.

A worker lives as long as its heartbeat is renewed, all its claims with it, however long they take.  When the heartbeat
cannot be renewed in time, everything that the worker holds is stopped by the local clock, before the server lets
another worker have it.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Generic, Self, TypeVar

from inconcert._claims.claimed import ClaimState, Row, Verdict
from inconcert._claims.ends import Ack, Ended, Heartbeat, Nack, WorkerOwner, heartbeat
from inconcert._claims.keys import CLAIM, NACK, ClaimKeys, QueueKeys
from inconcert._claims.policy import Policy
from inconcert._claims.reaper import put_all_back
from inconcert._core.renewal import RENEW_AFTER, local_deadline, next_try
from inconcert._core.session import Session
from inconcert._redis.blocking import BlockingConnection
from inconcert._redis.call import Call
from inconcert._redis.inbox import InboxReceiver
from inconcert._redis.replies import Reply, rows
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, NotClaimed, NotConnected

__all__ = ["Ending", "WorkerLease"]

_log = logging.getLogger("inconcert.claims")

C = TypeVar("C", bound=ClaimState)

Ending = Callable[[], Awaitable[None]]

_A_MOMENT = 0.05  # seconds after which a lapse can be seen
_MOST = 500  # in one claim or one acknowledgement, so that no script takes long
_MOST_DEAD = 10  # workers that one heartbeat is told of
_MOST_BYTES = 2**20  # of results in one acknowledgement, likewise; a claim stops there, too


class WorkerLease(InboxReceiver, ABC, Generic[C]):
    """One worker: it lives as long as its lease is renewed, and holds what it has claimed.

    Args:
        session: The open session.
        keys: Of all that is claimed under one tag.
        queues: Where to claim from.
        policy: Chooses the order of the queues for each claim.
        owner: Is told what the worker learns.
        lease: Seconds after which the worker is taken for dead if it is silent, and others have what it holds.
    """

    def __init__(
        self,
        session: Session,
        keys: ClaimKeys,
        queues: list[QueueKeys],
        policy: Policy,
        owner: WorkerOwner,
        *,
        lease: float,
    ) -> None:
        self.holder = session.new_address()
        self.lease = lease
        self.renew_at = 0.0
        self.is_lost = False
        self.owner = owner
        self._deadline = self._deadline_aside = 0.0
        self._session = session
        self._keys = keys
        self._policy = policy
        self._claimed = keys.claimed(self.holder)
        self._by_name = {queue.name: queue for queue in queues}
        self._passed_over = 0  # of the dead, with the next heartbeat
        self._number = 1
        self._is_behind = False  # whether the last claim brought all that it asked for, so there may be more
        self._held: dict[str, C] = {}
        self._suspects: set[str] = set()  # held, and two workers have died with each: one at a time
        self._ended: list[Ended] = []
        self._unconfirmed: list[Ended | Nack] = []  # ends that may not have reached the server

    @property
    def title(self) -> str:
        """What it is, as log lines name it."""
        return f"worker {self.holder}"

    @property
    def deadline(self) -> float:
        """When it is taken for dead unless a heartbeat is renewed, by whichever thread."""
        return max(self._deadline, self._deadline_aside)

    async def begin(self) -> Self:
        """Let the server know of this worker."""
        self._session.inbox.register(self.holder, self)
        call = Heartbeat(self, self._keys, is_new=True)
        try:
            self._session.channel.submit(call)
            await call
        except BaseException:  # then nobody has this worker, which may have begun on the server
            with suppress(NotConnected):
                self.retire()
            raise
        return self

    async def claim(self, count: int) -> tuple[list[C], float | None]:
        """Take up to `count`, in the order of the policy.

        May be cancelled: the next claim then has the same number, and is answered with the same.  One at a time.

        Returns:
            What was claimed, and seconds until it is time to look again, such as when something is due; None if it
            never is.
        """
        order, count = self._policy.turn(min(count, _MOST))
        queues = [self._by_name[name] for name in order]
        command = CLAIM(
            self._keys,
            claimed=self._claimed,
            queues=[key for queue in queues for key in (queue.queue, queue.bell, queue.delayed)],
            worker=self.holder,
            number=self._number,
            count=count,
            suspects=int(not self._suspects),
            names=order,
        )
        call = Call(command)
        await self._session.channel.has_room(self._keys.bodies)
        self._acknowledge()  # what has ended goes along
        self._session.channel.submit(call)
        if self._is_behind:  # then the server works on it while what the last claim brought begins to run
            self._session.channel.flush()
        status, *answer = await call
        if not status:
            self._session.renewal.remove(self)
            self.lose()
        if self.is_lost:  # also while the reply was under way: then what is in it is for others already
            return [], None
        next_ms, now_ms, *parts = answer
        found = rows(parts, Row)
        opened = await self._open(found, now_ms)
        is_cut = bool(found) and next_ms == 0  # perhaps they were too large for one reply, and no queue was seen empty
        self._policy.took(order, len(found) if is_cut else count, [row.queue.decode() for row in found])
        self._is_behind = len(found) == count or is_cut
        self._number += 1  # only now, for opening them may be cancelled, too
        if len(opened) < len(found):
            next_ms = 0  # the others have ended, and more may lie behind them
        return opened, next_ms / 1000 if next_ms >= 0 else None

    def retire(self) -> None:
        """Give everything back and end, without waiting for it."""
        self._end_again()
        self._acknowledge()  # what has ended in this turn is done: it must not be given back before that is said
        self._session.renewal.remove(self)
        self.lose()
        put_all_back(self._session, self._keys, self.holder, list(self._by_name.values()))

    # For what was claimed.

    def done(self, claimed: ClaimState, result: bytes, ttl: float, *, is_run: bool = True) -> asyncio.Future[bool]:
        """Acknowledge, and keep what became of it for `ttl` seconds; the answer is whether it was still held."""
        self._let_go(claimed)
        ended = Ended(claimed, result, milliseconds(ttl), self._session.loop.create_future(), is_run)
        self._ended.append(ended)
        if len(self._ended) == 1:
            self._session.loop.call_soon(self._acknowledge)
        return ended.was_held

    async def not_done(self, claimed: ClaimState, verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Give back, or set aside; returns whether it was still held."""
        call = self._nack(claimed, verdict, delay=delay, reason=reason)
        return bool(await call) or self.was_first_time(call)

    def give_back_nowait(self, claimed: ClaimState) -> None:
        """Give back, without waiting for it."""
        with suppress(NotConnected):  # then closing has given it back
            self._nack(claimed, "back")

    def unconfirmed(self, ends: Iterable[Ended | Nack]) -> None:
        """Take note that these may not have reached the server: as long as this worker lives, nobody else ends them."""
        if not self.is_lost:
            self._unconfirmed += ends

    def was_first_time(self, call: Call) -> bool:
        """Whether an end that found nothing to end was a success before, and only its reply was lost."""
        return call.sends > 1 and not self.is_lost and time.monotonic() < self.deadline

    # For what renews it.

    def start_renewal(self) -> None:
        """Send a heartbeat."""
        self.renew_at = self.deadline
        self._session.channel.submit(Heartbeat(self, self._keys, passed_over=self._passed_over))

    def lose(self) -> None:
        """Stop everything: another worker may be given it."""
        self.is_lost = True
        self._session.inbox.unregister(self.holder)
        for claimed in self._held.values():
            claimed.lose()
        self._held.clear()

    def give_up(self) -> None:
        """Retire: the coordinator is closing."""
        self.retire()

    def beaten(self, reply: Reply, asked_at: float) -> None:
        """Take the reply of a heartbeat."""
        alive, next_ms, has_news, *dead = reply
        if self.is_lost:
            return
        if alive:
            self._deadline = local_deadline(asked_at, self.lease)
            # Early, if some worker may be dead by then: the reply tells.
            self.renew_at = min(asked_at + self.lease * RENEW_AFTER, time.monotonic() + next_ms / 1000 + _A_MOMENT)
            self._session.renewal.add(self)
            self._end_again()
        else:
            self._session.renewal.remove(self)
            self.lose()
        # Those that cannot be recovered, for a key in their way is not ours, are not to hide the others.
        self._passed_over = self._passed_over + len(dead) if len(dead) == _MOST_DEAD else 0
        self.owner.on_dead_workers([worker.decode() for worker in dead])
        if has_news:
            self.owner.on_news()

    def missed(self, error: InconcertError) -> None:
        """Take note that a heartbeat was not answered, and try again."""
        if not self.is_lost:
            _log.warning("worker %s could not renew its heartbeat yet: %s", self.holder, error)
            self.renew_at = next_try(self.deadline, self.lease)
            self._session.renewal.add(self)

    def beat_aside(self, connection: BlockingConnection) -> bool:
        """Renew the heartbeat from another thread, while the loop stands still; returns whether the worker lives.

        The loop sees the new deadline with its first turn, before it can take the worker for dead.

        Raises:
            Unavailable: No heartbeat was sent.
            OutcomeUnknown: One was sent, and not answered.
        """
        asked_at = time.monotonic()
        is_alive, *_ = connection.run(heartbeat(self, self._keys))
        self._deadline_aside = local_deadline(asked_at, self.lease) if is_alive else 0.0
        return bool(is_alive)

    # Below.

    @abstractmethod
    def _read(self, row: Row, now_ms: int) -> tuple[C, Ending | None]:
        """What was claimed; and how it ends without being handed out, if it does."""

    async def _open(self, rows: list[Row], now_ms: int) -> list[C]:
        """What was claimed, without what is not to be handed out: that is ended."""
        opened: list[C] = []
        endings: list[Ending] = []
        for row in rows:
            claimed, ending = self._read(row, now_ms)
            if ending is not None:
                endings.append(ending)
                continue
            opened.append(claimed)
            self._held[claimed.id] = claimed
            if claimed.is_suspect:
                self._suspects.add(claimed.id)
        if endings:
            await asyncio.gather(*(_if_held(ending) for ending in endings))
        return opened

    def _end_again(self) -> None:
        """Say once more what was not confirmed; what the server knows already changes nothing."""
        ends, self._unconfirmed = self._unconfirmed, []
        self._ended += (end for end in ends if isinstance(end, Ended))
        self._acknowledge()
        for end in ends:
            if isinstance(end, Nack):
                with suppress(NotConnected):
                    self._session.channel.submit(Nack(self, end.command))

    def _let_go(self, claimed: ClaimState) -> None:
        self._held.pop(claimed.id, None)
        if claimed.id in self._suspects:
            self._suspects.remove(claimed.id)
            self.owner.on_room()

    def _nack(self, claimed: ClaimState, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> Nack:
        self._let_go(claimed)
        queue = self._by_name[claimed.source]
        command = NACK(
            self._keys,
            queue,
            claimed=self._claimed,
            id=claimed.id,
            place=claimed.place,
            verdict=verdict,
            delay_ms=milliseconds(delay),
            reason=reason,
            name=queue.name,
            inboxes=self._session.inboxes(self._keys.bodies),
            worker=self.holder,
        )
        call = Nack(self, command)
        self._session.channel.submit(call)
        return call

    def _acknowledge(self) -> None:
        """One script for all that ended in this turn of the loop."""
        while self._ended:
            count = _how_many(self._ended)
            batch, self._ended = self._ended[:count], self._ended[count:]
            call = Ack(self, self._session.inboxes(self._keys.bodies), self._keys, batch)
            try:
                self._session.channel.submit(call)
            except InconcertError as error:
                call.failed(error)


def _how_many(ended: list[Ended]) -> int:
    """How many of these go in one script: with 1 MiB of results it has enough."""
    size = 0
    for count, end in enumerate(ended[:_MOST]):
        if size >= _MOST_BYTES:
            return count
        size += len(end.result)
    return min(len(ended), _MOST)


async def _if_held(ending: Ending) -> None:
    with suppress(NotClaimed):  # it was lost meanwhile: the next worker ends it
        await ending()
