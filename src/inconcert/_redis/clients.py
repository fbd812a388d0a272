"""Which of the user's clients are accepted."""

import redis
import redis.asyncio

__all__ = ["Client", "check_client"]

Client = redis.asyncio.Redis


def check_client(who_takes: str, client: object) -> Client:
    """Return `client` if it is one of `redis.asyncio`.

    Raises:
        TypeError: `client` is something else, such as a synchronous client, whose class has the same name.
    """
    if isinstance(client, Client):
        return client
    kind = type(client).__name__
    if isinstance(client, redis.Redis):
        kind += " of redis, the synchronous one"
    elif "Cluster" in kind:
        kind += "; Redis Cluster is not supported yet"
    raise TypeError(f"{who_takes} a redis.asyncio.Redis, and this is a {kind}")
