"""Clients for looking at a server and for doing it harm: without type hints, for redis-py's have holes."""

from typing import Any

import redis.asyncio

from inconcert import Coordinator

__all__ = ["new_client", "raw"]


def raw(concert: Coordinator) -> Any:
    """Return the client of a coordinator."""
    return concert.redis


def new_client(url: str, **options: Any) -> Any:
    """Make one as users do, to be entered with `async with`."""
    make: Any = redis.asyncio.Redis
    return make.from_url(url, **options)
