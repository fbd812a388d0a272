"""What is stored of single jobs: their call, their state, and the jobs that they run after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, cast

from inconcert._claims.dead_letters import Reason
from inconcert._claims.keys import split_body
from inconcert._core.session import Session
from inconcert._redis.protocol.replies import rows
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.tasks.records.envelope import read_envelope
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import DESCRIBE_JOBS, JobKeyspace

__all__ = ["DescribedRow", "JobDescription", "describe", "state_and_place"]

_MOST = 250  # in one script


@dataclass(frozen=True, slots=True)
class JobDescription:
    """A job that has not ended, or was dead-lettered.

    Attributes:
        id: Which job.
        task: The name of its task; `?` if its envelope cannot be read, or is not signed as `signing_keys` demand.
        args: Its positional arguments; empty if its envelope cannot be read.
        kwargs: Its named arguments; likewise.
        after: The ids of the jobs that it runs after, whether or not these have ended; likewise.
        status: Its state.
        attempts: How many attempts have failed, or ended with their worker.
        error: Why it was dead-lettered, or why the latest attempt that failed did, in short; None if none has.
        enqueued_at: When it was enqueued, in seconds since 1970 by the server's clock.
        headers: What travels with it; empty if its envelope cannot be read.
        debounce: After how many seconds without a call of its unique name it was to begin; None if it was not to wait.
    """

    id: str
    task: str
    args: Sequence[JSON]
    kwargs: Mapping[str, JSON]
    after: Sequence[str]
    status: JobStatus
    attempts: int
    error: str | None
    enqueued_at: float
    headers: Mapping[str, str]
    debounce: float | None


class DescribedRow(NamedTuple):
    """A job, as the script returns it."""

    id: bytes
    state: bytes
    body: bytes
    failures: int
    crashes: int
    about: bytes
    why: bytes

    @property
    def error(self) -> str | None:
        """Why its latest attempt failed, if it is not dead."""
        return self.why.decode(errors="replace") or None


async def describe(session: Session, jobs: JobKeyspace, ids: Sequence[str]) -> dict[str, JobDescription]:
    """Those of these jobs that are there, by their ids; see `Tasks.describe`."""
    found: dict[str, JobDescription] = {}

    def partition(job_id: str) -> int:
        return jobs.of_id(job_id).number

    for number, some in groupby(sorted(ids, key=partition), key=partition):
        left = list(some)
        while left:  # in portions of 1 MiB
            command = DESCRIBE_JOBS(jobs.partitions[number], head=b"", ids=left[:_MOST])
            looked, *flat = await session.run(command)
            del left[:looked]
            for row in rows(flat, DescribedRow):
                job = _described(session.key_ring, row)
                found[job.id] = job
    return found


def state_and_place(state: str) -> tuple[JobStatus, str]:
    """The state that the server noted, and the queue or worker that it names."""
    word, _, about = state.partition(" ")
    if word == "queued" or (word == "cancelling" and not about):  # its next claimer ends it
        return JobStatus.QUEUED, ""
    if word == "cancelling":
        return JobStatus.RUNNING, about
    if word == "waiting":
        return JobStatus.WAITING, about.partition(" ")[2]
    return JobStatus(word), "" if word == "failed" else about


def _described(key_ring: KeyRing, row: DescribedRow) -> JobDescription:
    job_id = row.id.decode()
    enqueued_ms, text = split_body(row.body)
    envelope = read_envelope(key_ring, job_id, text)
    status, _ = state_and_place(row.state.decode())
    died_of = Reason.read(row.about) if status is JobStatus.FAILED else None
    return JobDescription(
        id=job_id,
        task=envelope.name,
        args=cast("Sequence[JSON]", envelope.args),
        kwargs=cast("Mapping[str, JSON]", envelope.kwargs),
        after=envelope.after,
        status=status,
        attempts=row.failures + row.crashes if died_of is None else died_of.attempts,
        error=row.error if died_of is None else died_of.reason,
        enqueued_at=enqueued_ms / 1000,
        headers=envelope.headers,
        debounce=envelope.delay if envelope.debounced else None,
    )
