"""The steps of durable jobs as the server keeps them."""

import json
from typing import Any

from inconcert import Coordinator, Job
from tests.support.raw import raw

__all__ = ["kept", "wake"]


async def kept(concert: Coordinator) -> dict[bytes, bytes]:
    """All steps that the server keeps."""
    found: dict[bytes, bytes] = {}
    for keys in concert._jobs.partitions:
        client: Any = raw(concert)
        steps, stepped = await client.hgetall(keys.steps), await client.hgetall(keys.stepped)
        assert {key.partition(b" ")[2] for key in steps} == set(stepped)
        found |= steps
    return found


async def wake(concert: Coordinator, job: Job[Any], name: str) -> None:
    """Let a sleep of a job have ended."""
    client: Any = raw(concert)
    keys = concert._jobs.of_id(job.id)
    for field, text in (await client.hgetall(keys.steps)).items():
        step = json.loads(text)
        if step[0] == name:
            step[3] = 1.0
            await client.hset(keys.steps, field, json.dumps(step))
