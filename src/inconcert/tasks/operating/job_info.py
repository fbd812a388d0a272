"""A job as it is stored, for people and programs that look at it: by its id, in a list, or among the dead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, cast

from inconcert._claims.dead_letters import Reason
from inconcert._claims.keys import split_body
from inconcert._core.session import Session
from inconcert._redis.protocol.replies import rows
from inconcert._rules.defaults import PRIORITY
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.tasks.records.envelope import read_envelope
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import DESCRIBE_JOBS, JobKeyspace
from inconcert.tasks.running.workers import consumer_of

_MOST = 250  # in one script


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job that has not ended, or was dead-lettered, as it was when somebody looked.

    Attributes:
        id: Which job.
        task: The name of its task; `?` if its envelope cannot be read, or is not signed as `signing_keys` demand.
        args: Its positional arguments; empty if its envelope cannot be read.
        kwargs: Its named arguments; empty if its envelope cannot be read.
        status: Its state.
        queue: The queue that it is in, or came from. Empty if `Tasks.describe` found it ready or running: its record
            does not say where, lists do.
        priority: Before which jobs of its queue it comes, 0 to 9.
        attempts: How many attempts were begun, including those whose worker died.
        enqueued_at: When it was enqueued, in seconds since 1970 by the server's clock, as all times here.
        due_at: When it is due, if it is delayed, was found in a list, and is not held back by a limit.
        claimed_at: Since when its worker has it, if it is running and was found in a list.
        died_at: When it was dead-lettered, if it was.
        worker: The id of its worker, as `Tasks.workers` lists it, if it is running.
        error: Why it was dead-lettered, or why the latest attempt that failed did, in short; empty if none has.
        traceback: Where its last error was raised, as text, if it was dead-lettered; empty if none was.
        unique: Its unique name; empty if it has none.
        after: The ids of the jobs that it runs after, whether or not these have ended.
        headers: What travels with it.
        debounce: After how many seconds without a call of its unique name it was to begin; None if it was not to wait.
    """

    id: str
    task: str
    args: Sequence[JSON]
    kwargs: Mapping[str, JSON]
    status: JobStatus
    queue: str
    attempts: int
    enqueued_at: float
    due_at: float | None = None
    claimed_at: float | None = None
    died_at: float | None = None
    worker: str | None = None
    error: str = ""
    traceback: str = ""
    unique: str = ""
    after: Sequence[str] = ()
    headers: Mapping[str, str]
    debounce: float | None = None
    priority: int = PRIORITY


class DescribedRow(NamedTuple):
    """A job, as the script returns it."""

    id: bytes
    state: bytes
    body: bytes
    failures: int
    crashes: int
    about: bytes
    why: bytes


async def describe(session: Session, keyspace: JobKeyspace, ids: Sequence[str]) -> dict[str, JobInfo]:
    """Those of these jobs that are there, by their ids; see `Tasks.describe`."""
    found: dict[str, JobInfo] = {}

    def partition(job_id: str) -> int:
        return keyspace.of_id(job_id).number

    for number, some in groupby(sorted(ids, key=partition), key=partition):
        left = list(some)
        while left:  # in portions of 1 MiB
            command = DESCRIBE_JOBS(keyspace.partitions[number], head=b"", ids=left[:_MOST])
            looked, *flat = await session.run(command)
            del left[:looked]
            for row in rows(flat, DescribedRow):
                job = job_info(session.key_ring, row)
                found[job.id] = job
    return found


def job_info(key_ring: KeyRing, row: DescribedRow) -> JobInfo:
    """The facts about a job in its row."""
    status, where = state_and_name(row.state.decode())
    is_running = status is JobStatus.RUNNING
    job = replace(
        as_called(key_ring, row.id.decode(), row.body),
        status=status,
        queue="" if is_running else where,
        attempts=row.failures + row.crashes + is_running,
        worker=consumer_of(where, row.about) if is_running else None,
        error=row.why.decode(errors="replace"),
    )
    if status is not JobStatus.FAILED:
        return job
    died_ms, queue = float(row.state.split()[1]), row.about.partition(b"\n")[2].decode()
    return as_dead(job, Reason.read(row.about), queue=queue, died_at=died_ms / 1000)


def as_called(key_ring: KeyRing, job_id: str, body: bytes) -> JobInfo:
    """The facts about a job in its stored body, as if it were ready, and new."""
    enqueued_ms, text = split_body(body)
    envelope = read_envelope(key_ring, job_id, text)
    return JobInfo(
        id=job_id,
        task=envelope.name,
        args=cast("Sequence[JSON]", envelope.args),
        kwargs=cast("Mapping[str, JSON]", envelope.kwargs),
        status=JobStatus.QUEUED,
        queue="",
        attempts=0,
        enqueued_at=enqueued_ms / 1000,
        unique=envelope.unique,
        after=envelope.after,
        headers=envelope.headers,
        debounce=envelope.delay if envelope.debounced else None,
        priority=envelope.priority,
    )


def as_dead(job: JobInfo, why: Reason, *, queue: str, died_at: float) -> JobInfo:
    """The same job, dead-lettered."""
    return replace(
        job,
        status=JobStatus.FAILED,
        queue=queue,
        attempts=why.attempts,
        died_at=died_at,
        error=why.reason,
        traceback=why.traceback,
    )


def state_and_name(state: str) -> tuple[JobStatus, str]:
    """The state that the server noted, and the queue or worker that it names."""
    word, _, about = state.partition(" ")
    if word == "queued" or (word == "cancelling" and not about):  # its next claimer ends it
        return JobStatus.QUEUED, ""
    if word == "cancelling":
        return JobStatus.RUNNING, about
    if word == "waiting":
        return JobStatus.WAITING, about.partition(" ")[2]
    return JobStatus(word), "" if word == "failed" else about
