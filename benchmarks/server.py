"""What the server says of itself."""

from collections.abc import Mapping
from typing import Any

import redis.asyncio

from inconcert import Coordinator

__all__ = ["commands_processed", "cpu_seconds", "info", "memory", "scripts_run", "version"]


async def info(client: redis.asyncio.Redis, section: str) -> dict[str, Any]:
    """One section of `INFO`."""
    return await client.info(section)


async def version(client: redis.asyncio.Redis) -> str:
    """Its name and version."""
    about = await info(client, "server")
    return f"{about.get('server_name', 'redis')} {about.get('valkey_version', about['redis_version'])}"


async def commands_processed(client: redis.asyncio.Redis) -> int:
    """Commands since the server's start, this one included."""
    return int((await info(client, "stats"))["total_commands_processed"])


async def cpu_seconds(concert: Coordinator) -> float:
    """What the server's main thread has used of a core since its start, on which all commands run."""
    cpu = await info(concert.redis, "cpu")
    return float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"])


async def memory(concert: Coordinator) -> int:
    """Bytes that the server has in use."""
    return int((await info(concert.redis, "memory"))["used_memory"])


def calls_of_scripts(stats: Mapping[str, Any]) -> int:
    """How many scripts were called, of `INFO commandstats`."""
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha"))


async def scripts_run(concert: Coordinator) -> list[int]:
    """How many scripts each node of a cluster has run since its start."""
    client: Any = concert.redis_cluster
    nodes = await client.info("commandstats", target_nodes=client.ALL_NODES)
    found = nodes.values() if len(client.get_nodes()) > 1 else [nodes]
    return [calls_of_scripts(stats) for stats in found]
