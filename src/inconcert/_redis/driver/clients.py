"""The checks of the user's clients, and the configuration of ours."""

from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from inconcert._redis.driver.driver import said_to_the_server, without_maintenance
from inconcert._redis.driver.password_file import PasswordFile
from inconcert._rules.urls import ServerUrl

ServerClient = redis.asyncio.Redis
ClusterClient = redis.asyncio.RedisCluster
Client = ServerClient | ClusterClient


def check_client(who_takes: str, client: object) -> ServerClient:
    """Return `client` if it is one of `redis.asyncio`, for one server.

    Raises:
        TypeError: `client` is something else, such as a synchronous client, whose class has the same name.
    """
    if isinstance(client, ServerClient):
        return client
    kind = type(client).__name__
    if isinstance(client, redis.Redis):
        kind += " of redis, the synchronous one"
    elif "Cluster" in kind:
        kind += ", which has no server of its own"
    raise TypeError(f"{who_takes} a redis.asyncio.Redis, and this is a {kind}")


def client_options(*, timeout: float | None) -> dict[str, Any]:
    """Options of every client that is made here: it waits for so many seconds to connect, and for a reply."""
    return {
        "client_name": "inconcert",
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        # By default the driver resends a command up to 10 times if its connection breaks, whatever it does.
        "retry": Retry(NoBackoff(), 0),
        **said_to_the_server(),
        **without_maintenance(),
    }


def login_options(parts: ServerUrl) -> dict[str, Any]:
    """Options of a client that logs in with the password in a file, if the URL names one."""
    if parts.password_file is None:
        return {}
    return {"credential_provider": PasswordFile(parts.password_file, parts.username)}
