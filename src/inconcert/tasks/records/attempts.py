"""The attempts of a job that failed, each with its error, as the server notes them.

The script that counts a failed attempt notes it, so each is there once, whatever is lost or comes twice.

Source: docs/explanation/job-ends.md
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from inconcert._redis.protocol.scripts import Command
from inconcert.tasks.records.store import ATTEMPTS, JobKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt of a job that failed.

    Attributes:
        number: Which attempt, from 1; from 1 again once the job is replayed, or is being undone.
        failure: `error` if the attempt raised one, ran out of its time or could not run; `worker_died` if its worker
            was killed or lost its server, or its process ended while the job ran. If that exit is the last one which
            `max_crashes` allows, it is an `error`, such as `KeyboardInterrupt`.
        began_at: When its worker claimed it, in seconds since 1970 by the server's clock.
        ended_at: When the server learned of its end; of one whose worker died, when another worker found that.
        worker: The id of its worker, as `Tasks.workers` lists it.
        host: The name of the worker's machine; None if it is not known.
        pid: The worker's process; None if it is not known.
        error: The type and the message of its error, at most 1,000 characters; empty if its worker died.
        traceback: Where the error was raised, the last 2,000 bytes as text; empty if nothing was raised.
    """

    number: int
    failure: Literal["error", "worker_died"]
    began_at: float
    ended_at: float
    worker: str
    host: str | None
    pid: int | None
    error: str
    traceback: str


class _Line(msgspec.Struct, frozen=True, array_like=True):
    """A line, as the script writes it."""

    number: str
    failure: Literal["error", "worker_died"]
    began_ms: str
    ended_ms: str
    worker: str
    host: str
    pid: str
    error: str
    traceback: str

    def read(self) -> FailedAttempt:
        return FailedAttempt(
            number=int(self.number),
            failure=self.failure,
            began_at=int(self.began_ms) / 1000,
            ended_at=int(self.ended_ms) / 1000,
            worker=self.worker,
            host=self.host or None,
            pid=int(self.pid) if self.pid else None,
            error=self.error,
            traceback=self.traceback,
        )


def attempts_of(keys: JobKeys, job_id: str) -> Command:
    """The command that asks for those of a job."""
    [kept] = keys.kept_attempts([job_id])
    return ATTEMPTS(keys, kept_attempts=kept, id=job_id)


def read_attempts(lines: bytes) -> list[FailedAttempt]:
    """The attempts in the reply of that command, the earliest first, without lines that are not ours."""
    found: list[FailedAttempt] = []
    for line in lines.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=_Line).read())
        except (msgspec.MsgspecError, ValueError, OverflowError):
            continue
    return found
