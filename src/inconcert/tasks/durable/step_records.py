"""The steps of a job as they are kept, for the job itself, and for those that look at it from outside."""

from dataclasses import dataclass
from typing import NamedTuple

from inconcert._core.session import Session
from inconcert._rules.payloads import JSON, decode
from inconcert.tasks.durable.kept_step import STEP, read_step
from inconcert.tasks.records.store import READ_STEPS, JobKeys


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a job that is kept.

    Attributes:
        name: Its name.
        function: The function it ran, such as `charge`; a verb of `durable` by its full name, such as `durable.sleep`.
        value: The result. Of `durable.sleep` and `durable.wait_for` when they end at the latest, in seconds since 1970
            by the server's clock. Of `durable.each` how many items are done, and the key of the last.
        is_awaited: Whether the job has left its worker to wait for the message of this name.
    """

    name: str
    function: str
    value: JSON
    is_awaited: bool


class KeptSteps(NamedTuple):
    """The steps of a job, as the server keeps them."""

    now_ms: int  # the server's time
    awaited: str  # `LENGTH NAME` of each message for which the job has left its worker
    texts: list[tuple[int, bytes]]  # each step with its number, in order


async def read_steps(session: Session, keys: JobKeys, job_id: str) -> KeptSteps:
    """The steps of a job that were kept; raises `UnreadablePayload` if one has no valid signature."""
    found: list[tuple[int, bytes]] = []
    has_more, now_ms, awaited = 1, 0, b""
    while has_more:  # in portions of 1 MiB
        after = found[-1][0] if found else 0
        has_more, now_ms, awaited, *flat = await session.run(READ_STEPS(keys, id=job_id, after=after))
        for number, text in zip(flat[::2], flat[1::2], strict=True):
            found.append((number, session.key_ring.verify(STEP, f"{number} {job_id}", text)))
    return KeptSteps(now_ms, awaited.decode(), found)


async def list_steps(session: Session, keys: JobKeys, job_id: str) -> list[StepRecord]:
    """The steps of a job; see `Job.steps`."""
    _, awaited, texts = await read_steps(session, keys, job_id)
    names = _unpacked(awaited)
    kept = {step.name: step for step in (read_step(job_id, text) for _, text in texts)}
    return [StepRecord(name, step.function, decode(step.value), name in names) for name, step in kept.items()]


def _unpacked(names: str) -> set[str]:
    """The names that were packed, each with its length in bytes before it."""
    rest, found = names.encode(), set[str]()
    while rest:
        length, _, rest = rest.partition(b" ")
        found.add(rest[: int(length)].decode())
        rest = rest[int(length) :]
    return found
