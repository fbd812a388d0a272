"""Sources of the client: a URL, the user's own client, or a server started by the coordinator."""

import logging
import os
from pathlib import Path
from typing import Any, Protocol, cast

import redis.asyncio
from redis.asyncio.cluster import ClusterNode

from inconcert._redis.driver.clients import (
    Client,
    ClusterClient,
    ServerClient,
    check_client,
    client_options,
    login_options,
)
from inconcert._redis.embedded.embedded import EmbeddedServer
from inconcert._redis.embedded.embedded_cluster import EmbeddedCluster
from inconcert._redis.find.sentinel_source import SentinelSource
from inconcert._rules.urls import ServerUrl, parse_url

_log = logging.getLogger("inconcert.redis")


class Source(Protocol):
    """The source of the client."""

    @property
    def url(self) -> str | None:
        """The server's URL without secrets; None if not known."""
        ...

    @property
    def database(self) -> int:
        """The number of the database that its connections select."""
        ...

    @property
    def is_cluster(self) -> bool:
        """True if it leads to a cluster."""
        ...

    async def open(self, *, timeout: float) -> Client:
        """Prepare the client; it need not be connected.

        Args:
            timeout: Longest wait of a client of ours to connect, and for a reply, in seconds.
        """
        ...

    async def close(self) -> None:
        """Close what was opened here, and nothing else."""

    def anew(self, *, is_forked: bool) -> "Source":
        """The equivalent for another event loop, while this is open on one that cannot close it.

        Args:
            is_forked: Whether this belongs to the process of which this one is a fork: it must not be touched. False if
                the loop was closed.

        Raises:
            RuntimeError: There is no equivalent.
        """
        ...


def embedded_source(data_dir: str | os.PathLike[str] | None, masters: int | None) -> Source:
    """A private server, or a cluster of so many masters.

    Raises:
        ValueError: The number is out of range, or there is one beside a folder.
    """
    if masters is None:
        return EmbeddedSource(EmbeddedServer(None if data_dir is None else Path(data_dir)))
    if data_dir is not None:
        raise ValueError("data_dir is for one server, and the embedded cluster keeps nothing; leave out one of the two")
    return EmbeddedSource(EmbeddedCluster(masters))


def source_of(url: str) -> Source:
    """The way to the server, or to the servers, of a URL.

    Raises:
        TypeError: `url` is not a string.
        ValueError: `url` is not a valid server URL, or an option of it is not one of the driver's.
    """
    parts = parse_url(url)
    if parts.topology == "cluster":
        return ClusterSource(parts)
    return SentinelSource(parts) if parts.topology == "sentinel" else UrlSource(parts)


class UrlSource:
    """A client made for the URL of one server.

    Raises:
        ValueError: An option is not one of the driver's.
    """

    is_cluster = False

    def __init__(self, parts: ServerUrl) -> None:
        self.url = parts.shown
        self._parts = parts
        self._client: ServerClient | None = None
        with parts.naming_options():
            pool = self._new_client(timeout=None).connection_pool
            pool.make_connection()  # type: ignore[no-untyped-call]  # without I/O
        self.database = _database(pool)

    async def open(self, *, timeout: float) -> Client:
        self._client = self._new_client(timeout=timeout)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await _close(self._client)
            self._client = None

    def anew(self, *, is_forked: bool) -> "UrlSource":  # noqa: ARG002 - it is the same for both
        return UrlSource(self._parts)

    def _new_client(self, *, timeout: float | None) -> ServerClient:
        client: ServerClient = cast("Any", redis.asyncio.Redis).from_url(  # its type hint is incomplete
            self._parts.url, **client_options(timeout=timeout), **login_options(self._parts)
        )
        return client


class ClientSource:
    """A client that the user makes and closes."""

    url = None

    def __init__(self, client: Client) -> None:
        self.is_cluster = isinstance(client, ClusterClient)
        self._client: Client = client
        self.database = 0
        if not self.is_cluster:
            self.database = _database(check_client("from_client() takes", client).connection_pool)

    async def open(self, *, timeout: float) -> Client:  # noqa: ARG002 - the client has its own
        return self._client

    async def close(self) -> None:
        """Nothing to close: the client belongs to the user."""

    def anew(self, *, is_forked: bool) -> "ClientSource":
        if not is_forked:
            return self
        raise RuntimeError(
            "the coordinator was opened on a client of the process of which this one is a fork; "
            "make a client and a coordinator here"
        )


class ClusterSource:
    """A client made for the URL of a cluster."""

    database = 0
    is_cluster = True

    def __init__(self, parts: ServerUrl) -> None:
        self._parts = parts
        self._client: ClusterClient | None = None

    @property
    def url(self) -> str:
        return self._parts.shown

    async def open(self, *, timeout: float) -> Client:
        nodes = [ClusterNode(host, port) for host, port in self._parts.nodes]
        self._client = cast("Any", redis.asyncio.RedisCluster).from_url(
            self._parts.url,
            startup_nodes=nodes,
            require_full_coverage=False,  # of which the servers decide
            **client_options(timeout=timeout),
            **login_options(self._parts),
        )
        return cast("ClusterClient", self._client)

    async def close(self) -> None:
        if self._client is not None:
            await _close(self._client)
            self._client = None

    def anew(self, *, is_forked: bool) -> "ClusterSource":  # noqa: ARG002 - it is the same for both
        return ClusterSource(self._parts)


class EmbeddedSource:
    """A private server or cluster, started and stopped with the coordinator."""

    database = 0

    def __init__(self, server: EmbeddedServer | EmbeddedCluster) -> None:
        self.is_cluster = isinstance(server, EmbeddedCluster)
        self._server = server
        self._runs = False  # since an event loop that was closed
        self._client: Source | None = None

    @property
    def url(self) -> str | None:
        return self._client.url if self._client is not None else None

    async def open(self, *, timeout: float) -> Client:
        if not self._runs:
            await self._server.start()
        self._runs = False
        self._client = source_of(self._server.url)
        return await self._client.open(timeout=timeout)

    async def close(self) -> None:
        try:
            if self._client is not None:
                await self._client.close()
                self._client = None
        finally:
            await self._server.stop()

    def anew(self, *, is_forked: bool) -> "EmbeddedSource":
        if not is_forked:
            self._runs = self._client is not None
            self._client = None
            return self
        raise RuntimeError(
            "the embedded server belongs to the process of which this one is a fork; connect to its url here"
        )


async def _close(client: Client) -> None:
    try:
        await client.aclose()
    except RuntimeError as error:  # a command of the user's was on an event loop that is closed by now
        _log.warning("the client of the driver: a connection could not be closed: %s", error)


def _database(pool: redis.asyncio.ConnectionPool) -> int:
    """The number of the database that a pool's connections select; 0 by default."""
    options: dict[str, Any] = pool.connection_kwargs
    return int(options.get("db") or 0)
