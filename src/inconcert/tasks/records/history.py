"""The history of a task: its last jobs, and their ends.

The script that ends a job writes its entry, so each end has one, whatever is lost or comes twice.

Source: docs/explanation/job-ends.md
"""

import re
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import Final

import msgspec

from inconcert._core.session import SessionRef
from inconcert._rules.limits import whole
from inconcert._rules.names import digest
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import HISTORY, JobKeys, JobKeyspace

MOST_KEPT: Final = 10_000  # of one task in each partition
_MOST = 250  # in one reply

_ENTRY = re.compile(
    rb"\w+ (?P<number>\d+) (?P<outcome>succeeded|failed|cancelled) (?P<ended>\d+) (?P<enqueued>\d+) (?P<began>\d*) "
    rb"(?P<attempts>\d+) (?P<id>\S+) (?P<error>.*)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The end of a job.

    Attributes:
        task: The name of its task.
        job_id: Which job; a job that was replayed is in the history once for each of its ends.
        outcome: `succeeded`, `failed` if it was dead-lettered, or `cancelled`.
        enqueued_at: When it was enqueued, or replayed, in seconds since 1970 by the server's clock, as all instants.
        began_at: When a worker claimed it last; None if it ended while it waited for a worker.
        ended_at: When it ended.
        attempts: How many attempts there were, including those whose worker died.
        error: Why it was dead-lettered, in one line; None if it was not, and in `Tasks.lately`.
    """

    task: str
    job_id: str
    outcome: JobStatus
    enqueued_at: float
    began_at: float | None
    ended_at: float
    attempts: int
    error: str | None


class Histories:
    """The histories of tasks."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace) -> None:
        self._ref = ref
        self._keyspace = keyspace

    async def latest(self, task: str, limit: int) -> list[EndedJob]:
        """See `Task.history`."""
        whole("limit", limit, most=MOST_KEPT)
        found: list[EndedJob] = []
        for keys in self._keyspace.partitions:
            found = nlargest(limit, [*found, *await self._of_partition(keys, task, limit)], key=attrgetter("ended_at"))
        return found

    async def _of_partition(self, keys: JobKeys, task: str, limit: int) -> list[EndedJob]:
        found: list[EndedJob] = []
        before = b""
        while len(found) < limit:
            asked = min(_MOST, limit - len(found))
            portion = await self._ref.session.run(HISTORY(keys, task=digest(task), before=before, limit=asked))
            entries = [entry for text in portion if (entry := _ENTRY.fullmatch(text))]
            found += (_read(task, entry) for entry in entries)
            if len(portion) < asked or not entries:
                break
            before = entries[-1]["number"]
        return found


def history_note(task: str, most: int) -> str:
    """The argument of the scripts that end a job of this task: `MOST:TASK`; empty if it keeps no history."""
    return f"{most}:{digest(task)}" if most else ""


def _read(task: str, entry: re.Match[bytes]) -> EndedJob:
    return EndedJob(
        task=task,
        job_id=entry["id"].decode(),
        outcome=JobStatus(entry["outcome"].decode()),
        enqueued_at=int(entry["enqueued"]) / 1000,
        began_at=int(entry["began"]) / 1000 if entry["began"] else None,
        ended_at=int(entry["ended"]) / 1000,
        attempts=int(entry["attempts"]),
        error=_error(entry["error"]) if entry["outcome"] == b"failed" else None,
    )


def _error(text: bytes) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.MsgspecError:
        return "the reason cannot be read"
