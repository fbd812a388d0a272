"""The jobs that say of another one that it was dead-lettered.

The script that dead-letters a job adds one, if the job's envelope has `on_dead`.  It cannot sign, and need not: the
new job, `HEAD~deadMS.PARTITION`, has the body of the dead one, `HEAD.PARTITION`, as that is, and before it the reason.
From both the worker makes the call, once it has verified the body as that of the dead job.

Source: docs/explanation/job-ends.md
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

from inconcert._claims.dead_letters import Reason
from inconcert._claims.keys import split_body
from inconcert._rules.payloads import JSON
from inconcert.errors import UnreadablePayload

_ID = re.compile(r"(.+)~dead\d+(\.\d+)?")
_TEXT = re.compile(rb"dead (\d+) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadJob:
    """A job that was dead-lettered, as the task of `on_dead=` takes it.

    Attributes:
        id: Which job; `Tasks.replay` takes it.
        task: The name of its task.
        args: Its positional arguments, as JSON.
        kwargs: Its named arguments, as JSON.
        reason: Why it was dead-lettered, in one line. It is not signed, even if `signing_keys` are set.
        attempts: How many attempts were begun, including those whose worker died.
    """

    id: str
    task: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    reason: str
    attempts: int


class Death(NamedTuple):
    """The contents of such a job's body."""

    id: str  # of the dead job
    text: bytes  # of the dead job: its envelope, with its signature
    why: Reason  # why it was dead-lettered

    @classmethod
    def read(cls, job_id: str, text: bytes) -> Self:
        """The death that the text of this job reports; raises `UnreadablePayload` if it is not such a job."""
        found, length = _ID.fullmatch(job_id), _TEXT.match(text)
        if found is None or length is None:
            raise UnreadablePayload(f"the body of job {job_id!r} tells of a death that cannot be read")
        end = length.end() + int(length[1])
        return cls(found[1] + (found[2] or ""), split_body(text[end:])[1], Reason.read(text[length.end() : end]))

    def told(self, task: str, args: Sequence[JSON], kwargs: Mapping[str, JSON]) -> dict[str, JSON]:
        """The argument of the job that says so: a `DeadJob` as JSON."""
        return {
            "id": self.id,
            "task": task,
            "args": cast("JSON", args),
            "kwargs": cast("JSON", kwargs),
            "reason": self.why.reason,
            "attempts": self.why.attempts,
        }


def death_id(job_id: str, died_at: float) -> str:
    """The id of the job that says that this one was dead-lettered at that instant, in seconds since 1970."""
    head, dot, partition = job_id.rpartition(".")
    if not dot or not partition.isdigit():
        head, dot, partition = job_id, "", ""
    return f"{head}~dead{round(died_at * 1000)}{dot}{partition}"
