"""A client of a master that Sentinels name."""

from typing import Any, cast

import redis.asyncio.connection

from inconcert._redis.driver.clients import ServerClient, client_options, login_options
from inconcert._redis.find.sentinels import Sentinels
from inconcert._rules.urls import ServerUrl

_TIMEOUT = 2.0  # seconds for all Sentinels together to answer; one answer is enough


class SentinelSource:
    """A client made for the URL of Sentinels.

    Its connections ask for the master whenever they connect.

    Raises:
        ValueError: An option is not one of the driver's.
    """

    is_cluster = False

    def __init__(self, parts: ServerUrl) -> None:
        self.url = parts.shown
        self._parts = parts
        self._sentinels: Sentinels | None = None
        self._client: ServerClient | None = None
        with parts.naming_options():
            options = master_options(parts, timeout=None)
            client = self._new_client(self._new_sentinels(options), options)
            client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # without I/O
        self.database = int(options.get("db") or 0)

    async def open(self, *, timeout: float) -> ServerClient:
        options = master_options(self._parts, timeout=timeout)
        self._sentinels = self._new_sentinels(options)
        self._client = self._new_client(self._sentinels, options)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        if self._sentinels is not None:
            await self._sentinels.close()
            self._sentinels = None

    def anew(self, *, is_forked: bool) -> "SentinelSource":  # noqa: ARG002 - it is the same for both
        return SentinelSource(self._parts)

    def _new_sentinels(self, options: dict[str, Any]) -> Sentinels:
        timeout = min(_TIMEOUT, options["socket_timeout"] or _TIMEOUT)
        return Sentinels(
            self._parts.nodes, self._parts.service, timeout=timeout, options=sentinel_options(self._parts, options)
        )

    def _new_client(self, sentinels: Sentinels, options: dict[str, Any]) -> ServerClient:
        client: ServerClient = cast("Any", sentinels).master_for(self._parts.service, **options)
        return client


def master_options(parts: ServerUrl, *, timeout: float | None) -> dict[str, Any]:
    """Options of a client of the master, but for its address, which the Sentinels name."""
    options: dict[str, Any] = dict(cast("Any", redis.asyncio.connection).parse_url(parts.url))
    for name in "host", "port", "connection_class":
        options.pop(name, None)
    options["ssl"] = parts.url.startswith("rediss:")
    return client_options(timeout=timeout) | login_options(parts) | options


def sentinel_options(parts: ServerUrl, options: dict[str, Any]) -> dict[str, Any]:
    """Options of connections to the Sentinels: with the certificates of the master's, and a login of their own."""
    username, password = parts.sentinel_login
    return {
        **client_options(timeout=options["socket_timeout"]),
        **{name: value for name, value in options.items() if name.startswith(("ssl", "socket_"))},
        "username": username,
        "password": password,
        "protocol": 2,
    }
