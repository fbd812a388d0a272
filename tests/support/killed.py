"""Workers that are killed at any moment while they note on the server what they do."""

import random
from typing import Any

from tests.support.eventually import eventually
from tests.support.processes import spawn

__all__ = ["LOG", "kill_after"]

LOG = "{log}"  # a list on the server, of what happened in all processes


async def kill_after(least: int, most: int, client: Any, target: str, *args: object) -> None:
    """Start a process, and kill -9 it when `LOG` has grown by a random number of entries."""
    length = await client.llen(LOG) + random.randrange(least, most)

    async def is_longer() -> bool:
        return bool(await client.llen(LOG) >= length)

    async with spawn(target, *args) as child:
        await eventually(is_longer, timeout=30)
        child.kill()
