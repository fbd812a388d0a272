"""What the server says of itself."""

from typing import Any

import redis.asyncio

__all__ = ["commands_processed", "info"]


async def info(client: redis.asyncio.Redis, section: str) -> dict[str, Any]:
    """One section of `INFO`."""
    return await client.info(section)


async def commands_processed(client: redis.asyncio.Redis) -> int:
    """Commands since the server's start, this one included."""
    return int((await info(client, "stats"))["total_commands_processed"])
