"""Facts about a server's memory and its persistence, as far as the user may ask."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import redis.exceptions


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about a server."""

    version: str  # its name and version, such as `valkey 9.1.0`
    used: int  # bytes of memory that it uses
    limit: int  # bytes that it may use; 0 for no limit
    policy: str  # its way to evict when that is reached, such as `noeviction`
    appends: bool  # whether it keeps an append-only file
    clients: int  # how many connections it has


class _Client(Protocol):
    """The commands that a client must have."""

    def info(self) -> Awaitable[Mapping[str, Any]]: ...


async def server_facts(client: _Client) -> ServerFacts | None:
    """The server's facts; None if the user has no right to ask, or it does not answer.

    Cost: 1 command, `INFO`.
    """
    try:
        info = await client.info()
    except (redis.exceptions.RedisError, OSError):
        return None
    name = "valkey" if "valkey_version" in info else "redis"
    return ServerFacts(
        version=f"{name} {info.get('valkey_version', info.get('redis_version', '?'))}",
        used=int(info.get("used_memory", 0)),
        limit=int(info.get("maxmemory", 0)),
        policy=str(info.get("maxmemory_policy", "?")),
        appends=bool(info.get("aof_enabled", 0)),
        clients=int(info.get("connected_clients", 0)),
    )
