"""Looking for the keys of a namespace, on one server or on all masters of a cluster."""

from collections.abc import AsyncIterator
from typing import Any, cast

from inconcert._redis.driver.clients import Client
from inconcert.coordinator import Coordinator
from inconcert.tasks.front.task_coordinator import parts_of


def client_of(concert: Coordinator) -> Client:
    """The client of an open coordinator; raises `NotConnected` if it is not open."""
    return concert.redis_cluster if parts_of(concert).ref.keys.is_sharded else concert.redis


async def keys_of(concert: Coordinator, client: Client, end: str = "") -> AsyncIterator[str]:
    """The keys of a coordinator's namespace, whose names go on with this glob.

    Cost: a look at each key of the server.
    """
    begin, _ = parts_of(concert).ref.keys.globs
    async for key in cast("Any", client).scan_iter(match=begin + end, count=1000):
        yield key if isinstance(key, str) else key.decode()
