"""What one worker holds: its heartbeat, the jobs that it has claimed, and how they end.

A worker lives as long as its heartbeat is renewed, all its claims with it, however long its jobs take.  When the
heartbeat cannot be renewed in time, every job of the worker is stopped by the local clock, before the server lets
another worker have them.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from inconcert._core.held import local_deadline
from inconcert._core.session import Session
from inconcert._redis.channel import Call
from inconcert._redis.commands import Argument
from inconcert._redis.replies import Reply
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, InvalidPayload, NotHeld
from inconcert.tasks.envelope import Envelope, open_envelope
from inconcert.tasks.job import ClaimedJob, Verdict
from inconcert.tasks.recovery import put_back
from inconcert.tasks.store import ACK, CLAIM, HEARTBEAT, NACK, JobKeys, QueueKeys

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
        queues: Where to claim from, the most urgent first.
        on_dead: Called with the workers that were found dead.
    """

    def __init__(
        self, session: Session, keys: JobKeys, queues: list[QueueKeys], on_dead: Callable[[list[str]], None]
    ) -> None:
        self.holder = session.new_address()
        self.deadline = self.renew_at = 0.0
        self.is_lost = False
        self._session = session
        self._keys = keys
        self._queues = queues
        self._on_dead = on_dead
        self._claimed = keys.claimed(self.holder)
        self._names: tuple[Argument, ...] = tuple(queue.name for queue in queues)
        parts = tuple(key for queue in queues for key in (queue.queue, queue.bell, queue.delayed))
        self._claim_keys = (keys.bodies, keys.workers, self._claimed, keys.failures, keys.crashes, *parts)
        self._by_name = {queue.name: queue for queue in queues}
        self._number = 1
        self._held: dict[str, ClaimedJob] = {}
        self._ended: list[tuple[str, int, asyncio.Future[bool]]] = []

    async def begin(self) -> Self:
        """Let the server know of this worker."""
        call = _Heartbeat(self, self._keys.workers, is_new=True)
        self._session.channel.submit(call)
        await call
        return self

    async def claim(self, count: int) -> tuple[list[ClaimedJob], float | None]:
        """Take up to `count` jobs, the most urgent first.

        May be cancelled: the next claim then has the same number, and is answered with the same jobs.  One at a time.

        Returns:
            The jobs, and seconds until a delayed one is due; None if there is none.
        """
        status, *answer = await self._session.run(
            CLAIM, self._claim_keys, self.holder, self._number, min(count, _MOST), *self._names
        )
        if not status:
            self._session.renewal.remove(self)
            self.lose()
        if self.is_lost:  # also while the reply was under way: then the jobs in it are for others already
            return [], None
        next_ms, *rows = answer
        jobs: list[ClaimedJob] = []
        for id_, text, attempt, failures, queue in zip(*[iter(rows)] * 5, strict=True):
            job = await self._open(id_.decode(), text, attempt, failures, queue.decode())
            if job is not None:
                jobs.append(job)
        self._number += 1  # only now, for setting an unreadable job aside may be cancelled, too
        return jobs, next_ms / 1000 if next_ms >= 0 else None

    def retire(self) -> None:
        """Give everything back and end this life, without waiting for it."""
        self._acknowledge()  # what has ended in this turn is done: it must not be given back before that is said
        self._session.renewal.remove(self)
        self.lose()
        put_back(self._session, self._keys, self.holder, list(self._by_name.values()))

    # For the jobs.

    async def done(self, job: ClaimedJob) -> bool:
        """Acknowledge; returns whether it was still held."""
        self._held.pop(job.id, None)
        ended: asyncio.Future[bool] = self._session.loop.create_future()
        self._ended.append((job.id, job.attempt, ended))
        if len(self._ended) == 1:
            self._session.loop.call_soon(self._acknowledge)
        return await ended

    async def not_done(self, job: ClaimedJob, verdict: Verdict, *, delay: float, reason: bytes) -> bool:
        """Give back, or set aside; returns whether it was still held."""
        self._held.pop(job.id, None)
        keys, queue = self._keys, self._by_name[job.queue]
        places = (self._claimed, keys.failures, keys.dead, keys.reasons, queue.queue, queue.bell, queue.delayed)
        call = Call(NACK, places, (job.id, job.attempt, verdict, milliseconds(delay), reason), must_run=True)
        self._session.channel.submit(call)
        return bool(await call) or self.was_first_time(call)

    def was_first_time(self, call: Call) -> bool:
        """Whether an end that found nothing to end was a success before, and only its reply was lost."""
        return call.sends > 1 and not self.is_lost and time.monotonic() < self.deadline

    # For what renews it.

    def start_renewal(self) -> None:
        """Send a heartbeat."""
        self.renew_at = self.deadline
        self._session.channel.submit(_Heartbeat(self, self._keys.workers, is_new=False))

    def lose(self) -> None:
        """Stop all jobs: another worker may be given them."""
        self.is_lost = True
        for job in self._held.values():
            _log.warning("%r is stopped: its worker was taken for dead, or is closing", job)
            job.lose()
        self._held.clear()

    def give_up(self) -> None:
        """Retire: the coordinator is closing."""
        self.retire()

    def beaten(self, reply: Reply, asked_at: float) -> None:
        """Take the reply of a heartbeat."""
        alive, next_ms, *dead = reply
        if self.is_lost:
            return
        if alive:
            self.deadline = local_deadline(asked_at, HEARTBEAT_LEASE)
            # Early, if some worker may be dead by then: the reply tells.
            self.renew_at = min(asked_at + HEARTBEAT_LEASE / 3, time.monotonic() + next_ms / 1000 + _A_MOMENT)
            self._session.renewal.add(self)
        else:
            self._session.renewal.remove(self)
            self.lose()
        self._on_dead([worker.decode() for worker in dead])

    def missed(self, error: InconcertError) -> None:
        """Take note that a heartbeat was not answered, and try again."""
        if not self.is_lost:
            _log.warning("worker %s could not renew its heartbeat yet: %s", self.holder, error)
            self.renew_at = min(self.deadline, time.monotonic() + HEARTBEAT_LEASE / 10)
            self._session.renewal.add(self)

    # Below.

    async def _open(self, id_: str, text: bytes, attempt: int, failures: int, queue: str) -> ClaimedJob | None:
        try:
            job = ClaimedJob(self, id_, open_envelope(text), queue=queue, attempt=attempt, failures=failures)
        except InvalidPayload as error:
            job = ClaimedJob(self, id_, Envelope("?"), queue=queue, attempt=attempt, failures=failures)
            with suppress(NotHeld):  # it was lost meanwhile: the next worker sets it aside
                await job.bury(error)
            return None
        self._held[id_] = job
        return job

    def _acknowledge(self) -> None:
        """One script for all jobs that ended in this turn of the loop."""
        keys = (self._keys.bodies, self._claimed, self._keys.failures, self._keys.crashes)
        while self._ended:
            batch, self._ended = self._ended[:_MOST], self._ended[_MOST:]
            call = _Ack(self, keys, batch)
            try:
                self._session.channel.submit(call)
            except InconcertError as error:
                call.failed(error)


class _Heartbeat(Call):
    """A heartbeat under way."""

    __slots__ = ("_asked_at", "_claims")

    def __init__(self, claims: Claims, workers: str, *, is_new: bool) -> None:
        super().__init__(HEARTBEAT, (workers,), (claims.holder, milliseconds(HEARTBEAT_LEASE), int(is_new)))
        self._claims = claims
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        self._claims.beaten(reply, self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._claims.missed(error)
        super().failed(error)


class _Ack(Call):
    """The end of several jobs, under way."""

    __slots__ = ("_batch", "_claims")

    def __init__(
        self, claims: Claims, keys: tuple[str, ...], batch: list[tuple[str, int, asyncio.Future[bool]]]
    ) -> None:
        super().__init__(ACK, keys, tuple(part for id_, attempt, _ in batch for part in (id_, attempt)), must_run=True)
        self._claims = claims
        self._batch = batch

    def answered(self, reply: Reply) -> None:
        for (_, _, ended), was_held in zip(self._batch, reply, strict=True):
            if not ended.done():
                ended.set_result(bool(was_held) or self._claims.was_first_time(self))
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        for _, _, ended in self._batch:
            if not ended.done():
                ended.set_exception(error)
                ended.exception()
        super().failed(error)
