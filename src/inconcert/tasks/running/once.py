"""A worker lease of jobs that are delivered at most once: they are acknowledged before they are handed out."""

from inconcert._claims.claimed import Ending, Row
from inconcert._claims.ends import ENDED_WITH_DEPENDENTS, Ack, Ended
from inconcert._redis.protocol.replies import Reply
from inconcert.tasks.records.group_ids import group_of
from inconcert.tasks.running.job_state import JobState
from inconcert.tasks.running.worker_lease import JobWorkerLease


class OnceWorkerLease(JobWorkerLease):
    """As `JobWorkerLease`; it also keeps the stored form of its jobs, until they are handed out."""

    def _read(self, row: Row, now_ms: int) -> tuple[JobState, Ending | None]:
        job, ending = super()._read(row, now_ms)
        job.stored = b"" if group_of(job.id) is not None else row.body
        return job, ending

    def _ack(self, batch: list[Ended]) -> Ack:
        return _EarlyAck(self, self._ack_with_plugs(batch).command, batch)


class _EarlyAck(Ack):
    """The call that ends several before they are handed out."""

    __slots__ = ()

    def answered(self, reply: Reply) -> None:
        for ended, answer in zip(self._batch, reply, strict=True):
            if answer == ENDED_WITH_DEPENDENTS:
                ended.claimed.stored = b""  # others are told of its end, which cannot be taken back
        super().answered(reply)
