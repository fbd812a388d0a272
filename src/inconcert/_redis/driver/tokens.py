"""New tokens of a streaming credential provider, where the driver tells no connection of them.

The driver, from 5.3 on, passes them on to the connections of the pool that a client makes for itself: not to those to a
master that Sentinels name, and on a cluster only to those of its own.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import redis.exceptions

_log = logging.getLogger("inconcert.redis")

Listener = Callable[[Any], Awaitable[None]]


def listen_for_tokens(provider: object, listeners: Callable[[], Iterable[Listener]]) -> None:
    """Have a provider pass on each new token to these, and to no other listener.

    Args:
        provider: Does nothing if it is not one that tells.
        listeners: Who is told, asked for with each token; those that the driver would tell must be among them.
    """

    async def tell(token: Any) -> None:  # noqa: ANN401 - a type that older versions do not have
        for listener in listeners():
            try:
                await listener(token)
            except redis.exceptions.RedisError as error:  # a connection that is lost logs in when it is back
                _log.debug("a connection could not log in again: %s", error)

    async def fail(error: Exception) -> None:
        _log.error("the credential provider has no new token: %s", type(error).__name__)  # its text may have a secret

    subscribe: Any = getattr(provider, "on_next", None)
    if subscribe is not None:
        subscribe(tell)
        getattr(provider, "on_error")(fail)  # noqa: B009 - a provider that has the one has the other
