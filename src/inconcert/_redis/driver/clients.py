"""The checks of the user's clients, and the configuration of ours."""

from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider

from inconcert._redis.driver.driver import said_to_the_server, without_maintenance
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


class PasswordFile(CredentialProvider):
    """Logs in with the content of a file, without the white space at its end; it may be replaced at any time."""

    def __init__(self, path: Path, username: str | None) -> None:
        self._path = path
        self._username = username

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """The arguments of `AUTH`; raises `OSError` if the file cannot be read."""
        password = self._path.read_text("utf-8").rstrip()
        return (password,) if self._username is None else (self._username, password)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        """The same; a small file, which is read in no time."""
        return self.get_credentials()
