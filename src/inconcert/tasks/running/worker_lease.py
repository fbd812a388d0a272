"""The worker lease of jobs: which are run, which are cancelled, and what they ask for while they run."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from inconcert._claims.claimed import ClaimState, Ending, Row, Verdict
from inconcert._claims.ends import Ack, Ended, Nack, ack
from inconcert._claims.keys import BRACE, CLAIM, keys_of, split_body
from inconcert._claims.partition import ClaimPartition
from inconcert._claims.policy import Policy
from inconcert._claims.suspects import Suspects
from inconcert._claims.worker_lease import IS_PLAIN, WorkerLease
from inconcert._core.session import Session
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError, InvalidPayload, JobExpired
from inconcert.tasks.records.envelope import JOB, Envelope, open_envelope, seal, verify_envelope
from inconcert.tasks.records.store import (
    CANCELLING,
    CLAIM_WITH_PLUGS,
    FREE_NAMES,
    OUTCOMES,
    STORE_ANEW,
    JobKeys,
    JobKeyspace,
)
from inconcert.tasks.running.claim_link import ClaimLink
from inconcert.tasks.running.effects import Effects
from inconcert.tasks.running.ends import PlainAck, ack_with_plugs
from inconcert.tasks.running.job_state import JobState, has_terms
from inconcert.tasks.running.lines import Lines
from inconcert.tasks.running.registry import Registry
from inconcert.tasks.running.tally import Tally
from inconcert.tasks.running.task_terms import completed, lacking, queue_of, within_deadline
from inconcert.tasks.running.unknown_tasks import UnknownTasks
from inconcert.tasks.sending.draft import Draft, NewJob
from inconcert.tasks.sending.follow_ups import AckAndEnqueue, draw_follow_ups
from inconcert.tasks.sending.task import Task

_log = logging.getLogger("inconcert.tasks")

_LIMITS_IN_USE = 2  # what a claim answers if it met a job that has limits; with plugs, as long as some are in use
_SOME_TO_LET_IN = 3  # the same, and some may be let in


class JobWorkerLease(WorkerLease[JobState]):
    """A worker that runs jobs of one partition.

    Args:
        number: Which partition.
        queues: Names of the queues to claim from.
        registry: The tasks of this process.
        unknown_tasks: What becomes of jobs that this process cannot run; None if its user decides.
        tally: Counts what ends.
        lines: Lets jobs in that wait for what others have.
        policy: See `WorkerLease`, also for all arguments that follow.
    """

    _form = staticmethod(CLAIM_WITH_PLUGS)  # as long as limits are in use; that is not known before the first claim
    _keys: JobKeys
    _heard: frozenset[str] = frozenset()  # of jobs that were cancelled before the reply of their claim was read

    def __init__(
        self,
        session: Session,
        jobs: JobKeyspace,
        number: int,
        queues: Sequence[str],
        registry: Registry,
        *,
        unknown_tasks: UnknownTasks | None,
        tally: Tally,
        lines: Lines,
        policy: Policy,
        owner: ClaimPartition[JobState],
        suspects: Suspects,
        lease: float,
        about: bytes,
    ) -> None:
        keys = jobs.partitions[number]
        keys_of_queues = [keys.queue(name) for name in queues]
        super().__init__(session, keys, keys_of_queues, policy, owner, suspects=suspects, lease=lease, about=about)
        self._jobs = jobs
        self._tasks, self._look_up, self.handles = registry.tasks, registry.look_up, registry.link
        self._unknown_tasks = unknown_tasks
        self._are_signed = session.key_ring.are_demanded
        self._tally = tally
        self._lines = lines
        self.link = ClaimLink(session, keys, self.holder, self.claimed_key, Effects(session))
        self.observers = session.observers

    async def claim(
        self, count: int, send: Callable[[Call], None] | None = None
    ) -> tuple[list[JobState], float | None]:
        """See `WorkerLease`."""
        self._heard = frozenset()
        return await super().claim(count, send)

    async def outcomes(self, ids: Sequence[str]) -> list[bytes]:
        """The outcomes of the jobs with these ids, which a job runs after; empty for an unknown one."""
        asked: dict[JobKeys, list[str]] = {}
        for id_ in ids:
            asked.setdefault(self._jobs.of_id(id_), []).append(id_)
        found: dict[str, bytes] = {}
        for keys, theirs in asked.items():
            count = 0
            while count < len(theirs):  # in portions of 1 MiB
                portion = await self._session.run(OUTCOMES(keys, ids=theirs[count:]))
                found.update(zip(theirs[count:], portion, strict=False))
                count += len(portion)
        return [found[id_] for id_ in ids]

    def on_message(self, rest: str) -> None:
        """The job with this id was cancelled."""
        jobs = [job for job in self._held.values() if job.id == rest]
        for job in jobs:
            job.cancel_nowait()
        if not jobs:
            self._heard |= {rest}

    def recheck(self) -> None:
        """Ask which jobs were cancelled: a message may have been missed."""
        if self._held:
            self._session.channel.submit(
                _CancellingCall(self, CANCELLING(self._keys, ids=[job.id for job in self.held]))
            )

    def _end_with_plugs(self, ends: list[Ended]) -> None:
        """End these, which have more than was known here."""
        self._send(ends, self._ack_with_plugs)

    def acknowledged(self, ended: Sequence[Ended]) -> None:
        """Count these, which have ended."""
        self._tally.acknowledged(ended)

    def draw_follow_ups(self, job: JobState, drafts: Sequence[Draft[Any]]) -> list[NewJob]:
        """These drafts as jobs that are to follow this one; see `ClaimedJob.enqueue_on_success`."""
        return draw_follow_ups(job.id, drafts, self._session, self._keys, job.follow_ups)

    async def delay_for_others(self, job: JobState, error: Exception) -> float | None:
        """After how many seconds another worker may claim a job that this one cannot run; None to dead-letter it."""
        if self._unknown_tasks is None:
            return None
        return await self._unknown_tasks.delay(self._session, self._keys, job, error)

    def lose(self) -> None:
        """Stop everything: other workers may get it now."""
        super().lose()
        self.link.effects.lose()

    # Private.

    def _claim(self, order: Sequence[str], count: int, *, suspects: int) -> Command:
        return self._form(
            self._keys,
            claimed=self.claimed_key,
            queues=keys_of([self._by_name[name] for name in order]),
            worker=self.holder,
            number=self._number,
            count=count,
            suspects=suspects,
            names=order,
        )

    def _has_stopped(self, status: int) -> bool:
        was_plain = self._form is CLAIM
        self._form = CLAIM_WITH_PLUGS if status >= _LIMITS_IN_USE else CLAIM
        if status == _SOME_TO_LET_IN:
            self._lines.look_nowait(self._keys)
        return was_plain and status == _LIMITS_IN_USE

    def _nack(self, claimed: ClaimState, verdict: Verdict, *, delay: float = 0.0, reason: bytes = b"") -> Nack:
        if isinstance(claimed, JobState):
            self._tally.not_done(claimed, verdict)
            if claimed.is_let_in:
                self._lines.look_nowait(self._keys)
        return super()._nack(claimed, verdict, delay=delay, reason=reason)

    def _end_again(self) -> None:
        self.link.effects.send_again()  # in front of the ends of its jobs
        super()._end_again()

    def _ack(self, batch: list[Ended]) -> Ack:
        job = batch[0].claimed
        if isinstance(job, JobState) and job.ends_alone:
            self._lines.ended(batch, self._keys)
            return AckAndEnqueue(self, self._session, self._keys, batch[0], job.follow_ups)
        if self._some_have_more and not all(map(IS_PLAIN, batch)):
            return self._ack_with_plugs(batch)
        command, order = ack(self, self._keys, self._session.inboxes(self._keys.bodies), batch)
        return PlainAck(self, command, order, self._end_with_plugs)

    def _ack_with_plugs(self, batch: list[Ended]) -> Ack:
        self._lines.ended(batch, self._keys)
        return Ack(self, ack_with_plugs(self, self._keys, self._session.inboxes(self._keys.bodies), batch), batch)

    async def _open(self, rows: list[Row], now_ms: int) -> list[JobState]:
        self._tally.claimed(now_ms)
        jobs = await super()._open(rows, now_ms)
        started = [
            part
            for job in jobs
            if job.envelope.unique_until_started and (self._unknown_tasks is None or _fits(job))
            for part in (job.unique, job.id)
        ]
        if started:
            await self._session.run(FREE_NAMES(self._keys, request=self._session.new_address(), jobs=started))
        return jobs

    def _read(self, row: Row, now_ms: int) -> tuple[JobState, Ending | None]:
        id_ = row.id.decode()
        enqueued_ms, text = split_body(row.body)
        obstacle: Exception | None = None
        said: Envelope | None = None  # if more than that may count
        try:
            if self._are_signed or text[0] != BRACE:
                text = self._session.key_ring.verify(JOB, id_, text)
            envelope = open_envelope(text)
        except Exception:  # noqa: BLE001 - any: it would keep this worker from all others
            envelope, obstacle = self._read_otherwise(id_, text)
        task = self._tasks.get(envelope.name) or self._look_up(envelope.name)
        if task is not None and not task.is_plain:
            said, envelope = envelope, completed(envelope, task)
        queue = row.queue.decode()
        job = JobState(
            self,
            id_,
            queue,
            queue,
            row.position,
            row.attempt,
            row.failures,
            envelope.max_attempts,
            envelope.max_crashes,
            self.observers,
            envelope,
            task,
            enqueued_ms / 1000,
            now_ms / 1000,
        )
        if row.flags or has_terms(id_, envelope):
            job.has_more(row.flags)
        if envelope.expires is not None:
            obstacle = _limited(job, envelope.expires, (now_ms - enqueued_ms) / 1000) or obstacle
        if obstacle is not None:
            return job, partial(job.bury, obstacle)
        if (row.is_cancelled or id_ in self._heard) and not job.is_undoing:
            return job, job.end_cancelled
        if said is not None and task is not None and not job.is_undoing:
            return job, self._lacks_terms(job, said, task)
        return job, None

    def _read_otherwise(self, id_: str, text: bytes) -> tuple[Envelope, Exception | None]:
        """The envelope of a job that has none as others have; and why it cannot be read, if it tells of no death."""
        try:
            return verify_envelope(self._session.key_ring, id_, text), None
        except Exception as unreadable:  # noqa: BLE001 - any, as above
            return Envelope("?"), unreadable

    def _lacks_terms(self, job: JobState, said: Envelope, task: Task[Any, Any]) -> Ending | None:
        """The end of this claim of a job whose limits or other terms scripts do not know yet; None if they do."""
        queue = queue_of(said, job.queue, task)
        try:
            lacks = lacking(said, queue, task) if _fits(job) else None
            if lacks is None:
                return None
            marks, envelope = lacks
            text = marks + self._session.key_ring.sign(JOB, job.id, seal(envelope))
        except Exception as error:  # noqa: BLE001 - of the user's key, as it is raised where its task enqueues
            return partial(job.bury, error)
        return partial(self._store_anew, job, queue, text)

    async def _store_anew(self, job: JobState, queue: str, text: bytes) -> None:
        command = STORE_ANEW(
            self._keys,
            self._keys.queue(queue),
            claimed=self.claimed_key,
            id=job.id,
            position=job.position,
            envelope=text,
            name=queue,
            inboxes=self._session.inboxes(self._keys.bodies),
            worker=self.holder,
        )
        try:
            await self._session.run(command)
        except InconcertError as unconfirmed:  # if it has run, there is no claim to give back
            _log.warning("%s cannot be stored with its limits yet: %s", job, unconfirmed, extra=job.fields())
            self.not_done_nowait(job, "back")
        else:
            self._let_go(job)


def _limited(job: JobState, expires: float, age: float) -> Exception | None:
    """Note when a job expires; returns the error of one that has expired."""
    envelope = job.envelope
    job.expires_at = time.monotonic() + expires - age
    if envelope.stops and not job.is_undoing:
        job.envelope = within_deadline(envelope, expires)
    return JobExpired(job.id, expires, is_deadline=envelope.stops) if age > expires and not job.is_undoing else None


def _fits(job: JobState) -> bool:
    """True if this process knows the task of a job, and its arguments fit."""
    try:
        if job.known is not None:
            job.known.arguments.from_json(job.envelope.args, job.envelope.kwargs)
    except (TypeError, InvalidPayload):
        return False
    return job.known is not None


class _CancellingCall(Call):
    """The call that asks which jobs were cancelled."""

    __slots__ = ("_worker",)

    def __init__(self, worker: JobWorkerLease, command: Command) -> None:
        super().__init__(command)
        self._worker = worker

    def answered(self, reply: Reply) -> None:
        for id_ in reply:
            self._worker.on_message(id_.decode())
        super().answered(reply)
