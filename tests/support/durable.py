"""What the server keeps of durable jobs: their steps, the messages to them, and that they wait for one."""

import json
from collections.abc import Iterable
from typing import Any

from inconcert import Coordinator, Job
from tests.support.raw import raw

__all__ = [
    "awaits",
    "forge_message",
    "forge_step",
    "kept",
    "kept_step",
    "latest_step",
    "message",
    "messages",
    "pile_up_steps",
    "wake",
]


async def kept(concert: Coordinator) -> dict[bytes, bytes]:
    """All steps that the server keeps."""
    found: dict[bytes, bytes] = {}
    for keys in concert._jobs.partitions:
        client: Any = raw(concert)
        steps, stepped = await client.hgetall(keys.steps), await client.hgetall(keys.stepped)
        assert {key.partition(b" ")[2] for key in steps} == set(stepped)
        found |= steps
    return found


async def latest_step(concert: Coordinator, job_id: str) -> int:
    """The number of the latest step that is kept of a job; 0 if none is."""
    return int(await raw(concert).hget(concert._jobs.of_id(job_id).stepped, job_id) or 0)


async def kept_step(concert: Coordinator, job_id: str, number: int) -> bytes | None:
    """A step of a job, as it is kept."""
    found: bytes | None = await raw(concert).hget(concert._jobs.of_id(job_id).steps, f"{number} {job_id}")
    return found


async def forge_step(concert: Coordinator, job_id: str, number: int, text: bytes | str | None) -> None:
    """Write something else in its place; None removes it."""
    place = concert._jobs.of_id(job_id).steps, f"{number} {job_id}"
    await (raw(concert).hdel(*place) if text is None else raw(concert).hset(*place, text))


async def pile_up_steps(concert: Coordinator, job_id: str, numbers: Iterable[int]) -> None:
    """Let a job have these steps, of which the last is the latest."""
    keys, steps = concert._jobs.of_id(job_id), {f"{number} {job_id}": "[]" for number in numbers}
    await raw(concert).hset(keys.steps, mapping=steps)
    await raw(concert).hset(keys.stepped, job_id, next(reversed(steps)).partition(" ")[0])


async def wake(concert: Coordinator, job: Job[Any], name: str) -> None:
    """Let a sleep of a job have ended."""
    client: Any = raw(concert)
    keys = concert._jobs.of_id(job.id)
    for field, text in (await client.hgetall(keys.steps)).items():
        step = json.loads(text)
        if step[0] == name:
            step[3] = 1.0
            await client.hset(keys.steps, field, json.dumps(step))


async def messages(concert: Coordinator) -> dict[bytes, bytes]:
    """All messages that the server keeps, and what belongs to them."""
    found: dict[bytes, bytes] = {}
    for keys in concert._jobs.partitions:
        client: Any = raw(concert)
        for key in (keys.messages, keys.received, keys.awaited):
            found |= await client.hgetall(key)
    return found


async def message(concert: Coordinator, job_id: str, name: str) -> bytes | None:
    """The message of this name to a job, as it is kept."""
    found: bytes | None = await raw(concert).hget(concert._jobs.of_id(job_id).messages, f"{len(name)} {name} {job_id}")
    return found


async def forge_message(concert: Coordinator, job_id: str, name: str, text: bytes | None) -> None:
    """Write something else in its place."""
    await raw(concert).hset(concert._jobs.of_id(job_id).messages, f"{len(name)} {name} {job_id}", text)


async def awaits(concert: Coordinator, job_id: str) -> bool:
    """Whether a job has left its worker to wait for a message."""
    return bool(await raw(concert).hexists(concert._jobs.of_id(job_id).awaited, job_id))
