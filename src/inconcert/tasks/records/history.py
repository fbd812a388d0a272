"""The history of a task: its last jobs, and their ends.

The script that ends a job writes its entry, so each end has one, whatever is lost or comes twice.

Source: docs/explanation/job-ends.md
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import Final, cast

import msgspec

from inconcert._core.session import SessionRef
from inconcert._rules.limits import whole
from inconcert._rules.names import digest
from inconcert._rules.payloads import JSON
from inconcert._rules.signing import KeyRing
from inconcert.errors import InvalidPayload
from inconcert.tasks.records.envelope import verify_envelope
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import HISTORY, JobKeys, JobKeyspace

MOST_KEPT: Final = 10_000  # of one task in each partition
_MOST = 250  # in one reply

_ENTRY = re.compile(
    rb"\w+ (?P<number>\d+) (?P<outcome>succeeded|failed|cancelled) (?P<ended>\d+) (?P<enqueued>\d+) (?P<began>\d*) "
    rb"(?P<attempts>\d+) (?P<id>\S+) (?P<error>[^\n]*)(?:\n(?P<envelope>.*))?",
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
        args: Its positional arguments, if its task has `history_arguments=True`; None if they were not kept, cannot be
            read, or are not signed as `signing_keys` demand.
        kwargs: Its named arguments, or None, as for `args`.
        is_too_long: Whether the arguments were to be kept, and were not: the stored job has more than 4 KiB.
    """

    task: str
    job_id: str
    outcome: JobStatus
    enqueued_at: float
    began_at: float | None
    ended_at: float
    attempts: int
    error: str | None
    args: Sequence[JSON] | None = None
    kwargs: Mapping[str, JSON] | None = None
    is_too_long: bool = False


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
            session = self._ref.session
            has_more, *portion = await session.run(HISTORY(keys, task=digest(task), before=before, limit=asked))
            entries = [entry for text in portion if (entry := _ENTRY.fullmatch(text))]
            found += (_read(session.key_ring, task, entry) for entry in entries)
            if (len(portion) < asked and not has_more) or not entries:
                break
            before = entries[-1]["number"]
        return found


def checked_history(history: int, history_arguments: bool) -> tuple[int, bool]:  # noqa: FBT001 - of a task, by name
    """The options of a task for its history, as they were given.

    Raises:
        TypeError: `history_arguments` is not a bool.
        ValueError: `history` is out of its range, or 0 although arguments are to be kept.
    """
    whole("history", history, least=0, most=MOST_KEPT)
    if not isinstance(history_arguments, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise TypeError(f"history_arguments is {history_arguments!r}; give True or False")
    if history_arguments and not history:
        raise ValueError("a task has history_arguments=True without history=; give it a history=, such as history=100")
    return history, history_arguments


def history_note(task: str, most: int, *, has_arguments: bool) -> str:
    """The argument of the scripts that end a job of this task: `MOST:TASK`; empty if it keeps no history.

    Args:
        task: Its name.
        most: How many ends its history keeps; 0 for none.
        has_arguments: Whether it keeps the arguments, too, which a `+` at the end says.
    """
    return f"{most}:{digest(task)}{'+' if has_arguments else ''}" if most else ""


def _read(key_ring: KeyRing, task: str, entry: re.Match[bytes]) -> EndedJob:
    args, kwargs = _arguments(key_ring, entry["id"].decode(), entry["envelope"])
    return EndedJob(
        task=task,
        job_id=entry["id"].decode(),
        outcome=JobStatus(entry["outcome"].decode()),
        enqueued_at=int(entry["enqueued"]) / 1000,
        began_at=int(entry["began"]) / 1000 if entry["began"] else None,
        ended_at=int(entry["ended"]) / 1000,
        attempts=int(entry["attempts"]),
        error=_error(entry["error"]) if entry["outcome"] == b"failed" else None,
        args=args,
        kwargs=kwargs,
        is_too_long=entry["envelope"] == b"",
    )


def _arguments(
    key_ring: KeyRing, job_id: str, text: bytes | None
) -> tuple[Sequence[JSON], Mapping[str, JSON]] | tuple[None, None]:
    if not text:
        return None, None
    try:
        envelope = verify_envelope(key_ring, job_id, text)
    except InvalidPayload:
        return None, None
    return cast("Sequence[JSON]", envelope.args), cast("Mapping[str, JSON]", envelope.kwargs)


def _error(text: bytes) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.MsgspecError:
        return "the reason cannot be read"
