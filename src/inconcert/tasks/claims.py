"""What one worker holds: its heartbeat, the jobs that it has claimed, and how they end.

A worker lives as long as its heartbeat is renewed, all its claims with it, however long its jobs take.  When the
heartbeat cannot be renewed in time, every job of the worker is stopped by the local clock, before the server lets
another worker have them.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

from inconcert._core.held import local_deadline
from inconcert._core.session import Session
from inconcert._redis.blocking import BlockingConnection
from inconcert._redis.channel import Call
from inconcert._redis.commands import Argument
from inconcert._redis.replies import Reply
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, InvalidPayload, JobExpired, NotConnected, NotHeld
from inconcert.tasks.claimed import ClaimedJob, Verdict
from inconcert.tasks.envelope import Envelope, open_envelope, split_body
from inconcert.tasks.policy import Policy
from inconcert.tasks.recovery import put_back
from inconcert.tasks.relay import OTHERS_ARE_TO_BE_TOLD
from inconcert.tasks.store import (
    ACK,
    CANCELLING,
    CLAIM,
    FREE,
    HEARTBEAT,
    NACK,
    OUTCOMES,
    PROGRESS,
    JobKeys,
    QueueKeys,
)

__all__ = ["Claims"]

_log = logging.getLogger("inconcert.tasks")

HEARTBEAT_LEASE = 10.0  # seconds after which a silent worker is taken for dead, and its jobs run elsewhere
_A_MOMENT = 0.05  # seconds after which a lapse can be seen
_MOST = 500  # jobs in one claim or one acknowledgement, so that no script takes long


class Claims:
    """One life of a worker.

    Args:
        session: The open session.
        keys: The keys of all tasks.
        queues: Where to claim from.
        policy: Chooses the order of the queues for each claim.
        on_dead: Called with the workers that were found dead.
        on_news: Called when a job has ended that others wait for.
        on_room: Called when there is something to claim that it could not take before.
    """

    def __init__(
        self,
        session: Session,
        keys: JobKeys,
        queues: list[QueueKeys],
        policy: Policy,
        *,
        on_dead: Callable[[list[str]], None],
        on_news: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        self.holder = session.new_address()
        self.lease = HEARTBEAT_LEASE
        self.renew_at = 0.0
        self.is_lost = False
        self._deadline = self._deadline_aside = 0.0
        self._session = session
        self._keys = keys
        self._policy = policy
        self._on_dead = on_dead
        self.on_news = on_news
        self._on_room = on_room
        self._claimed = keys.claimed(self.holder)
        self._claim_keys = (
            keys.bodies,
            keys.workers,
            self._claimed,
            keys.failures,
            keys.crashes,
            keys.states,
            keys.paused,
        )
        self._by_name = {queue.name: queue for queue in queues}
        self._number = 1
        self._held: dict[str, ClaimedJob] = {}
        self._suspects: set[str] = set()  # jobs held with which two workers have died: one at a time
        self._heard: set[str] = set()  # of jobs that somebody cancelled before the reply of their claim was read
        self._ended: list[_Ended] = []
        self._unconfirmed: list[_Ended | _Nack] = []  # ends that may not have reached the server

    @property
    def deadline(self) -> float:
        """When it is taken for dead unless a heartbeat is renewed, by whichever thread."""
        return max(self._deadline, self._deadline_aside)

    async def begin(self) -> Self:
        """Let the server know of this worker."""
        self._session.wakeups.expect(self.holder, self)
        call = _Heartbeat(self, self._keys, is_new=True)
        try:
            self._session.channel.submit(call)
            await call
        except BaseException:  # then nobody has this life, and its heartbeat must not go on
            self._session.renewal.remove(self)
            self.lose()
            raise
        return self

    async def claim(self, count: int) -> tuple[list[ClaimedJob], float | None]:
        """Take up to `count` jobs, in the order of the policy.

        May be cancelled: the next claim then has the same number, and is answered with the same jobs.  One at a time.

        Returns:
            The jobs, and seconds until it is time to look again, such as when one is due; None if it never is.
        """
        self._heard.clear()
        order, count = self._policy.turn(min(count, _MOST))
        queues = [self._by_name[name] for name in order]
        parts = [key for queue in queues for key in (queue.queue, queue.bell, queue.delayed)]
        status, *answer = await self._session.run(
            CLAIM, (*self._claim_keys, *parts), self.holder, self._number, count, int(not self._suspects), *order
        )
        if not status:
            self._session.renewal.remove(self)
            self.lose()
        if self.is_lost:  # also while the reply was under way: then the jobs in it are for others already
            return [], None
        next_ms, now_ms, *rows = answer
        claimed = [_Claimed(*row) for row in zip(*[iter(rows)] * 7, strict=True)]
        jobs = await self._open(claimed, now_ms)
        self._policy.took(order, count, [row.queue.decode() for row in claimed])
        self._number += 1  # only now, for opening them may be cancelled, too
        return jobs, next_ms / 1000 if next_ms >= 0 else None

    def retire(self) -> None:
        """Give everything back and end this life, without waiting for it."""
        self._end_again()
        self._acknowledge()  # what has ended in this turn is done: it must not be given back before that is said
        self._session.renewal.remove(self)
        self.lose()
        put_back(self._session, self._keys, self.holder, list(self._by_name.values()))

    # For the jobs.

    def done(self, job: ClaimedJob, result: bytes, ttl: float, *, is_run: bool = True) -> asyncio.Future[bool]:
        """Acknowledge, and keep what became of it for `ttl` seconds; the answer is whether it was still held."""
        self._let_go(job)
        ended = _Ended(job, result, milliseconds(ttl), self._session.loop.create_future(), is_run)
        self._ended.append(ended)
        if len(self._ended) == 1:
            self._session.loop.call_soon(self._acknowledge)
        return ended.was_held

    async def progressed(self, job: ClaimedJob, how_far: bytes) -> bool:
        """Say how far it is; returns whether it was still held."""
        keys = (self._claimed, self._keys.progress)
        return bool(await self._session.run(PROGRESS, keys, job.id, job.place, how_far))

    async def not_done(self, job: ClaimedJob, verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Give back, or set aside; returns whether it was still held."""
        self._let_go(job)
        keys, queue = self._keys, self._by_name[job.queue]
        places = (self._claimed, keys.failures, keys.dead, keys.reasons, queue.queue, queue.bell, queue.delayed)
        others = (keys.states, keys.progress, keys.watchers)
        args = (job.id, job.place, verdict, milliseconds(delay), reason, queue.name, self._session.inboxes)
        call = _Nack(self, (*places, *others, *keys.kin), args)
        self._session.channel.submit(call)
        return bool(await call) or self.was_first_time(call)

    async def outcomes(self, ids: Sequence[str]) -> list[bytes]:
        """What became of the jobs of these ids, which a job runs after; empty for one that is not known."""
        found: list[bytes] = await self._session.run(OUTCOMES, (self._keys.outcomes,), *ids)
        return found

    def unconfirmed(self, ends: "Iterable[_Ended | _Nack]") -> None:
        """Take note that these may not have reached the server: as long as this worker lives, nobody else ends them."""
        if not self.is_lost:
            self._unconfirmed += ends

    def was_first_time(self, call: Call) -> bool:
        """Whether an end that found nothing to end was a success before, and only its reply was lost."""
        return call.sends > 1 and not self.is_lost and time.monotonic() < self.deadline

    # What it is told.

    def hear(self, text: str) -> None:
        """Somebody has cancelled the job of this id."""
        job = self._held.get(text)
        if job is not None:
            job.cancel()
        else:
            self._heard.add(text)

    def look(self) -> None:
        """Ask which jobs have been cancelled: it may not have been heard."""
        if self._held:
            self._session.channel.submit(_Cancelling(self, (self._keys.states,), tuple(self._held)))

    def abandon(self, error: InconcertError) -> None:
        """Nothing: whoever keeps its heartbeat lets it give up."""

    # For what renews it.

    def start_renewal(self) -> None:
        """Send a heartbeat."""
        self.renew_at = self.deadline
        self._session.channel.submit(_Heartbeat(self, self._keys, is_new=False))

    def lose(self) -> None:
        """Stop all jobs: another worker may be given them."""
        self.is_lost = True
        self._session.wakeups.forget(self.holder)
        for job in self._held.values():
            _log.warning("%r is stopped: its worker was taken for dead, or is closing", job)
            job.lose()
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
            self.renew_at = min(asked_at + self.lease / 3, time.monotonic() + next_ms / 1000 + _A_MOMENT)
            self._session.renewal.add(self)
            self._end_again()
        else:
            self._session.renewal.remove(self)
            self.lose()
        self._on_dead([worker.decode() for worker in dead])
        if has_news:
            self.on_news()

    def missed(self, error: InconcertError) -> None:
        """Take note that a heartbeat was not answered, and try again."""
        if not self.is_lost:
            _log.warning("worker %s could not renew its heartbeat yet: %s", self.holder, error)
            self.renew_at = min(self.deadline, time.monotonic() + self.lease / 10)
            self._session.renewal.add(self)

    # For the watchdog.

    def beat_aside(self, connection: BlockingConnection) -> bool:
        """Renew the heartbeat from another thread, while the loop stands still; returns whether the worker lives.

        The loop sees the new deadline with its first turn, before it can take the worker for dead.

        Raises:
            Unavailable: No heartbeat was sent.
            OutcomeUnknown: One was sent, and not answered.
        """
        asked_at = time.monotonic()
        keys = (self._keys.workers, self._keys.news)
        is_alive, *_ = connection.run(HEARTBEAT, keys, self.holder, milliseconds(self.lease), 0)
        self._deadline_aside = local_deadline(asked_at, self.lease) if is_alive else 0.0
        return bool(is_alive)

    # Below.

    def _end_again(self) -> None:
        """Say once more what was not confirmed; what the server knows already changes nothing."""
        ends, self._unconfirmed = self._unconfirmed, []
        self._ended += (end for end in ends if isinstance(end, _Ended))
        self._acknowledge()
        for end in ends:
            if isinstance(end, _Nack):
                with suppress(NotConnected):
                    self._session.channel.submit(_Nack(self, end.keys, end.args))

    def _let_go(self, job: ClaimedJob) -> None:
        self._held.pop(job.id, None)
        if job.id in self._suspects:
            self._suspects.remove(job.id)
            self._on_room()

    async def _open(self, claimed: "list[_Claimed]", now_ms: int) -> list[ClaimedJob]:
        """What was claimed, without those that are not to be run: they are ended."""
        jobs: list[ClaimedJob] = []
        others: list[tuple[ClaimedJob, InvalidPayload | JobExpired | None]] = []
        started: list[str] = []
        for row in claimed:
            job, obstacle, frees_its_name = self._read(row, now_ms)
            if obstacle is not None or row.is_cancelled or job.id in self._heard:
                others.append((job, obstacle))
                continue
            jobs.append(job)
            self._held[job.id] = job
            if job.is_suspect:
                self._suspects.add(job.id)
            if frees_its_name:
                started += (job.unique, job.id)
        if started:
            await self._session.run(FREE, (self._keys.unique, self._keys.checks), *started)
        if others:
            await asyncio.gather(*(_end_without_running(job, obstacle) for job, obstacle in others))
        return jobs

    def _read(self, claimed: "_Claimed", now_ms: int) -> tuple[ClaimedJob, InvalidPayload | JobExpired | None, bool]:
        """A job, why it is set aside instead of run, if it is, and whether its start lets others have its name."""
        id_ = claimed.id.decode()
        enqueued_ms, text = split_body(claimed.body)
        envelope = Envelope("?")
        obstacle: InvalidPayload | JobExpired | None = None
        try:
            envelope = open_envelope(self._session.key_ring.verify(id_, text))
            if envelope.expires is not None and now_ms - enqueued_ms > envelope.expires * 1000:
                obstacle = JobExpired(id_, envelope.expires)
        except InvalidPayload as unreadable:
            obstacle = unreadable
        job = ClaimedJob(
            self,
            id_,
            envelope,
            queue=claimed.queue.decode(),
            place=claimed.place,
            attempt=claimed.attempt,
            failures=claimed.failures,
            enqueued_at=enqueued_ms / 1000,
        )
        return job, obstacle, envelope.unique_until_started

    def _acknowledge(self) -> None:
        """One script for all jobs that ended in this turn of the loop."""
        keys = self._keys
        places = (keys.bodies, self._claimed, keys.failures, keys.crashes)
        others = (keys.states, keys.progress, keys.watchers, keys.unique, keys.checks, keys.finished, *keys.kin)
        while self._ended:
            batch, self._ended = self._ended[:_MOST], self._ended[_MOST:]
            call = _Ack(
                self, self._session.inboxes, (*places, *others, *(keys.result(ended.job.id) for ended in batch)), batch
            )
            try:
                self._session.channel.submit(call)
            except InconcertError as error:
                call.failed(error)


async def _end_without_running(job: ClaimedJob, obstacle: InvalidPayload | JobExpired | None) -> None:
    with suppress(NotHeld):  # it was lost meanwhile: the next worker ends it
        await (job.cancelled() if obstacle is None else job.bury(obstacle))


class _Claimed(NamedTuple):
    """A job, as the script that claims answers it."""

    id: bytes
    body: bytes
    place: int
    attempt: int
    failures: int
    is_cancelled: int
    queue: bytes


class _Heartbeat(Call):
    """A heartbeat under way."""

    __slots__ = ("_asked_at", "_claims")

    def __init__(self, claims: Claims, keys: JobKeys, *, is_new: bool) -> None:
        super().__init__(HEARTBEAT, (keys.workers, keys.news), (claims.holder, milliseconds(claims.lease), int(is_new)))
        self._claims = claims
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        self._claims.beaten(reply, self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._claims.missed(error)
        super().failed(error)


class _Cancelling(Call):
    """The question which jobs have been cancelled, under way."""

    __slots__ = ("_claims",)

    def __init__(self, claims: Claims, keys: tuple[str, ...], ids: tuple[str, ...]) -> None:
        super().__init__(CANCELLING, keys, ids)
        self._claims = claims

    def answered(self, reply: Reply) -> None:
        for id_ in reply:
            self._claims.hear(id_.decode())
        super().answered(reply)


class _Ended(NamedTuple):
    """A job that has succeeded, or was cancelled."""

    job: ClaimedJob
    result: bytes
    ttl_ms: int
    was_held: asyncio.Future[bool]
    is_run: bool  # else it was only about to be handed out


class _Ack(Call):
    """The end of several jobs, under way."""

    __slots__ = ("_batch", "_claims")

    def __init__(self, claims: Claims, inboxes: str, keys: tuple[str, ...], batch: list[_Ended]) -> None:
        args: list[Argument] = [inboxes]
        for job, result, ttl_ms, _, _ in batch:
            args += (job.id, job.place, result, ttl_ms, job.unique)
        super().__init__(ACK, keys, tuple(args), must_run=True)
        self._claims = claims
        self._batch = batch

    def answered(self, reply: Reply) -> None:
        if OTHERS_ARE_TO_BE_TOLD in reply:
            self._claims.on_news()
        for ended, was_held in zip(self._batch, reply, strict=True):
            if not ended.was_held.done():
                ended.was_held.set_result(bool(was_held) or self._claims.was_first_time(self))
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._claims.unconfirmed(ended for ended in self._batch if ended.is_run)
        for ended in self._batch:
            if not ended.was_held.done():
                ended.was_held.set_exception(error)
                ended.was_held.exception()
        super().failed(error)


class _Nack(Call):
    """A job that was not done, under way back."""

    __slots__ = ("_claims", "args")

    def __init__(self, claims: Claims, keys: tuple[str, ...], args: tuple[Argument, ...]) -> None:
        super().__init__(NACK, keys, args, must_run=True)
        self.args = args
        self._claims = claims

    def answered(self, reply: Reply) -> None:
        if reply == OTHERS_ARE_TO_BE_TOLD:
            self._claims.on_news()
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._claims.unconfirmed([self])
        super().failed(error)
