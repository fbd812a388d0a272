"""The state of a job, as the server tells it, and what came of one that has ended."""

from enum import StrEnum
from typing import NamedTuple, Self, TypeVar, overload

from inconcert._claims.dead_letters import Reason
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.payloads import JSON, decode
from inconcert.errors import JobCancelled, JobFailed, JobNotFound
from inconcert.tasks.records.arguments import decode_result
from inconcert.tasks.records.store import WATCH, JobKeys

T = TypeVar("T")


class JobStatus(StrEnum):
    """The state of a job.

    Attributes:
        QUEUED: It may run now, and waits for a worker.
        WAITING: It waits until the jobs that it runs after have succeeded.
        DELAYED: It waits until it is due, at first or before another attempt.
        RUNNING: A worker has claimed it.
        SUCCEEDED: It is done, and its result is still kept.
        FAILED: It was dead-lettered, after its last attempt or because it cannot run.
        CANCELLED: It was cancelled, which is still recorded.
        UNKNOWN: There is no such job, or it has ended and its result is no longer kept.
    """

    QUEUED = "queued"
    WAITING = "waiting"
    DELAYED = "delayed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


_ENDED = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.UNKNOWN})


def has_ended(status: JobStatus) -> bool:
    """True if nothing more will come of a job in this state."""
    return status in _ENDED


class Snapshot(NamedTuple):
    """The state of a job at one instant."""

    status: JobStatus  # as it says
    about: bytes  # its result as JSON, why it failed, or the name of its queue if it is delayed or waits; or empty
    progress: bytes  # the progress that it last reported, as JSON, if nobody is to be told of its end; or empty

    @staticmethod
    def take(keys: JobKeys, job_id: str, address: str) -> Command:
        """The command that asks for it.

        Args:
            keys: The keys of the job's partition.
            job_id: Which job.
            address: Where the server is to say that it has ended, if it has not; empty for nowhere.
        """
        return WATCH(keys, result=keys.result(job_id), id=job_id, address=address)

    @classmethod
    def read(cls, reply: Reply) -> Self:
        """The state in the reply to that command."""
        status, about, progress = reply
        return cls(JobStatus(status.decode()), about, progress)

    @property
    def has_ended(self) -> bool:
        """True if nothing more will come of it."""
        return has_ended(self.status)


def not_in_time(job_id: str, timeout: float | None, status: JobStatus | None = None) -> TimeoutError:
    """The error of a wait for a job that goes on, with its state if there was no wait."""
    if timeout == 0:
        return TimeoutError(f"job {job_id} has not ended: it is {status}")
    return TimeoutError(f"job {job_id} has not ended within {timeout:g} s; it goes on")


@overload
def read_outcome(job_id: str, status: JobStatus, about: bytes, as_type: None) -> JSON: ...


@overload
def read_outcome(job_id: str, status: JobStatus, about: bytes, as_type: type[T] | None) -> JSON | T: ...


def read_outcome(job_id: str, status: JobStatus, about: bytes, as_type: type[T] | None) -> JSON | T:
    """The result of a job that has ended, or the error of one without a result.

    Raises:
        JobFailed: It was dead-lettered.
        JobCancelled: It was cancelled.
        JobNotFound: Its result is no longer kept.
        UnreadablePayload: The result is not of this type.
        TypeError: JSON cannot represent this type.
    """
    if status is JobStatus.SUCCEEDED:
        return decode(about) if as_type is None else decode_result(f"the result of job {job_id}", about, as_type)
    if status is JobStatus.CANCELLED:
        raise JobCancelled(job_id)
    if status is JobStatus.FAILED:
        reason = Reason.read(about)
        raise JobFailed(job_id, reason.reason, reason.traceback, reason.attempts)
    raise JobNotFound(job_id)
