"""Sources of the client: a URL, the user's own client, or a server started by the coordinator."""

import logging
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self, cast

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
from inconcert._redis.find.sentinels import Sentinels, master_options, sentinel_options
from inconcert._rules.urls import ServerUrl, parse_url

_log = logging.getLogger("inconcert.redis")

_SENTINELS_WITHIN = 2.0  # seconds for all Sentinels together to answer; one answer is enough


class Source(ABC):
    """The source of the client: one that is made here at each opening, unless a subclass says otherwise."""

    url: str | None = None  # the server's, without secrets; None if not known
    database = 0  # the number of the database that its connections select
    is_cluster = False
    _client: Client | None = None

    async def open(self, *, timeout: float) -> Client:
        """Prepare the client, by `new_client`; it need not be connected."""
        self._client = self.new_client(timeout=timeout)
        return self._client

    async def close(self) -> None:
        """Close what was opened here, and nothing else."""
        client, self._client = self._client, None
        if client is not None:
            try:
                await client.aclose()
            except RuntimeError as error:  # a command of the user's was on an event loop that is closed by now
                _log.warning("the client of the driver: a connection could not be closed: %s", error)

    @abstractmethod
    def anew(self, *, is_forked: bool) -> Self:
        """The equivalent for another event loop, while this is open on one that cannot close it.

        Args:
            is_forked: Whether this belongs to the process of which this one is a fork: it must not be touched. False if
                the loop was closed.

        Raises:
            RuntimeError: There is no equivalent.
        """

    @abstractmethod
    def new_client(self, *, timeout: float | None) -> Client:
        """Make a client that waits this long to connect, and for a reply; None waits forever."""


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
    return {"cluster": ClusterSource, "sentinel": SentinelSource}.get(parts.topology, UrlSource)(parts)


class UrlSource(Source):
    """A client made for the URL of one server; raises `ValueError` if an option is not one of the driver's."""

    def __init__(self, parts: ServerUrl) -> None:
        self.url = parts.shown
        self._parts = parts
        with parts.naming_options():
            self._check()

    def anew(self, *, is_forked: bool) -> Self:  # noqa: ARG002 - it is the same for both
        return type(self)(self._parts)

    def _check(self) -> None:
        """Make a client, to see whether the driver takes all options."""
        pool = cast("ServerClient", self.new_client(timeout=None)).connection_pool
        pool.make_connection()  # type: ignore[no-untyped-call]  # without I/O
        self.database = _database(pool)

    def new_client(self, *, timeout: float | None) -> Client:
        client: ServerClient = cast("Any", redis.asyncio.Redis).from_url(  # its type hint is incomplete
            self._parts.url, **client_options(timeout=timeout), **login_options(self._parts)
        )
        return client


class SentinelSource(UrlSource):
    """A client made for the URL of Sentinels. Its connections ask for the master whenever they connect."""

    _sentinels: Sentinels

    async def close(self) -> None:
        await super().close()
        await self._sentinels.close()

    def new_client(self, *, timeout: float | None) -> Client:
        options = master_options(self._parts, timeout=timeout)
        self._sentinels = Sentinels(
            self._parts.nodes,
            self._parts.service,
            timeout=min(_SENTINELS_WITHIN, options["socket_timeout"] or _SENTINELS_WITHIN),
            options=sentinel_options(self._parts, options),
        )
        client: ServerClient = cast("Any", self._sentinels).master_for(self._parts.service, **options)
        return client


class ClusterSource(UrlSource):
    """A client made for the URL of a cluster."""

    is_cluster = True

    def _check(self) -> None:
        """Nothing can be seen before its nodes are asked."""

    def new_client(self, *, timeout: float | None) -> Client:
        client: ClusterClient = cast("Any", redis.asyncio.RedisCluster).from_url(
            self._parts.url,
            startup_nodes=[ClusterNode(host, port) for host, port in self._parts.nodes],
            require_full_coverage=False,  # of which the servers decide
            **client_options(timeout=timeout),
            **login_options(self._parts),
        )
        return client


class ClientSource(Source):
    """A client that the user makes and closes."""

    def __init__(self, client: Client) -> None:
        self.is_cluster = isinstance(client, ClusterClient)
        self._users = client
        if not self.is_cluster:
            self.database = _database(check_client("from_client() takes", client).connection_pool)

    async def close(self) -> None:
        """Nothing to close: the client belongs to the user."""

    def anew(self, *, is_forked: bool) -> Self:
        if not is_forked:
            return self
        raise RuntimeError(
            "the coordinator was opened on a client of the process of which this one is a fork; "
            "make a client and a coordinator here"
        )

    def new_client(self, *, timeout: float | None) -> Client:  # noqa: ARG002 - the client has its own
        return self._users


class EmbeddedSource(Source):
    """A private server or cluster, started and stopped with the coordinator."""

    def __init__(self, server: EmbeddedServer | EmbeddedCluster) -> None:
        self.is_cluster = isinstance(server, EmbeddedCluster)
        self._server = server
        self._runs = False  # since an event loop that was closed

    async def open(self, *, timeout: float) -> Client:
        if not self._runs:
            await self._server.start()
        self._runs = False
        return await super().open(timeout=timeout)

    async def close(self) -> None:
        self.url = None
        try:
            await super().close()
        finally:
            await self._server.stop()

    def anew(self, *, is_forked: bool) -> Self:
        if not is_forked:
            self._runs = self._client is not None
            self._client = self.url = None
            return self
        raise RuntimeError(
            "the embedded server belongs to the process of which this one is a fork; connect to its url here"
        )

    def new_client(self, *, timeout: float | None) -> Client:
        source = source_of(self._server.url)
        self.url = source.url
        return source.new_client(timeout=timeout)


def _database(pool: redis.asyncio.ConnectionPool) -> int:
    """The number of the database that a pool's connections select; 0 by default."""
    options: dict[str, Any] = pool.connection_kwargs
    return int(options.get("db") or 0)
