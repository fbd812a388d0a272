"""Clients for looking at a server and for doing it harm: without type hints, for redis-py's have holes."""

from typing import Any

import redis.asyncio

from inconcert import Coordinator
from tests.support.world import USER, world

__all__ = ["as_admin", "close_raw", "let_hear", "new_client", "raw"]

_admins: dict[Any, Any] = {}  # the pool of a client -> a client for the default user of its server


def raw(concert: Coordinator) -> Any:
    """Return the client of a coordinator; in a world of least rights, one like it for the default user."""
    return as_admin(concert.redis)


def as_admin(client: Any) -> Any:
    """Return a client; in a world of least rights, one like it for the default user. It is closed after the test."""
    options = client.connection_pool.connection_kwargs
    if not world().least_rights or not options.get("username"):
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


async def let_hear(concert: Coordinator, pattern: str) -> None:
    """Give the user of least rights the rule that it needs for `concert.signals(pattern)`, as the docs say."""
    if raw(concert) is not concert.redis:
        await raw(concert).execute_command("ACL", "SETUSER", USER, f"&{concert.signals(pattern)._channels}")


async def close_raw() -> None:
    """Close what `raw` has made."""
    while _admins:
        _, client = _admins.popitem()
        await client.aclose()


def new_client(url: str, **options: Any) -> Any:
    """Make one as users do, to be entered with `async with`."""
    make: Any = redis.asyncio.Redis
    return make.from_url(url, **options)
