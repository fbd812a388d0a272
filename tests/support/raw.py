"""Clients for looking at a server and for doing it harm: without type hints, for redis-py's have holes."""

from typing import Any

import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster

from inconcert import Coordinator
from tests.support.world import USER, world

__all__ = [
    "as_admin",
    "client_of",
    "close_raw",
    "commands_processed",
    "has_raw",
    "infos",
    "let_hear",
    "listeners",
    "new_client",
    "publish",
    "raw",
]

_admins: dict[Any, Any] = {}  # a cluster's client, or another's pool -> a client for the default user


def client_of(concert: Coordinator) -> Any:
    """Return the client of a coordinator, on one server or on a cluster."""
    return concert.redis_cluster if concert._ref.keys.is_sharded else concert.redis


def raw(concert: Coordinator) -> Any:
    """Return the client of a coordinator; in a world of least rights, one like it for the default user."""
    return as_admin(client_of(concert))


async def publish(concert: Coordinator, channel: str, text: str | bytes) -> None:
    """Publish to listeners to a channel, as scripts do."""
    await _of_channel(concert, "{}PUBLISH", channel, text)


async def listeners(concert: Coordinator, channel: str) -> int:
    """Return how many connections listen to a channel."""
    found = await _of_channel(concert, "PUBSUB {}NUMSUB", channel)
    return int((found[0] if isinstance(found[0], tuple) else found)[1])


async def infos(concert: Coordinator, section: str) -> list[Any]:
    """Return what each server says under `INFO`."""
    client = raw(concert)
    if not concert._ref.keys.is_sharded:
        return [await client.info(section)]
    await client.initialize()
    return [await client.info(section, target_nodes=node) for node in client.get_primaries()]


async def commands_processed(concert: Coordinator) -> int:
    """Return how many commands all servers have run, this question included."""
    return sum(int(info["total_commands_processed"]) for info in await infos(concert, "stats"))


async def _of_channel(concert: Coordinator, verb: str, channel: str, *args: str | bytes) -> Any:
    """Run a command for channels: on a cluster the one for sharded channels, at the master of this one."""
    client = raw(concert)
    if not concert._ref.keys.is_sharded:
        return await client.execute_command(verb.format(""), channel, *args)
    node = await client.initialize() and client.get_node_from_key(channel)
    name = verb.format("S" if verb.startswith("{") else "SHARD")
    return await client.execute_command(name, channel, *args, target_nodes=node)


def as_admin(client: Any) -> Any:
    """Return a client; in a world of least rights, one like it for the default user. It is closed after the test."""
    if not world().least_rights:
        return client
    if isinstance(client, RedisCluster):
        return _cluster_admin(client)
    options = client.connection_pool.connection_kwargs
    if not options.get("username"):
        return client
    admin = _admins.get(client.connection_pool)
    if admin is None:
        pool = type(client.connection_pool)(
            connection_class=client.connection_pool.connection_class,
            **{name: value for name, value in options.items() if name not in ("username", "password")},
        )
        make: Any = redis.asyncio.Redis
        admin = _admins[client.connection_pool] = make.from_pool(pool)
    return admin


def _cluster_admin(client: Any) -> Any:
    if client not in _admins:
        nodes: Any = [ClusterNode(node.host, node.port) for node in client.nodes_manager.startup_nodes.values()]
        _admins[client] = RedisCluster(startup_nodes=nodes)
    return _admins[client]


async def let_hear(concert: Coordinator, pattern: str) -> None:
    """Give the user of least rights the rule that it needs for `concert.signals(pattern)`, as the docs say."""
    if raw(concert) is not client_of(concert):
        await raw(concert).execute_command("ACL", "SETUSER", USER, f"&{concert.signals(pattern)._channels}")


def has_raw() -> bool:
    """Whether `close_raw` has something to close."""
    return bool(_admins)


async def close_raw() -> None:
    """Close what `raw` has made."""
    while _admins:
        _, client = _admins.popitem()
        await client.aclose()


def new_client(url: str, **options: Any) -> Any:
    """Make one as users do, to be entered with `async with`."""
    make: Any = redis.asyncio.Redis
    return make.from_url(url, **options)
