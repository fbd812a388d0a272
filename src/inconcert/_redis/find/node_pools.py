"""Connections to any node of a cluster, all with the options of one client."""

from collections.abc import Callable
from typing import Any, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from inconcert._redis.driver.clients import ClusterClient
from inconcert._redis.driver.driver import log_in_again
from inconcert._redis.driver.tokens import Listener, listen_for_tokens
from inconcert._redis.wire.wire import Pool

Address = tuple[str, int]


class NodePools:
    """A pool for each node.

    Args:
        client: Says where to begin, how to log in and which addresses to replace; it sends nothing.
    """

    def __init__(self, client: ClusterClient) -> None:
        manager = cast("Any", client).nodes_manager
        nodes = list(manager.startup_nodes.values())
        self.seeds: list[Address] = [(node.host, int(node.port)) for node in nodes]  # the nodes that it was made with
        self._connection_class = nodes[0].connection_class
        # A link tries again, on another node where that is better.
        self._options: dict[str, Any] = {**nodes[0].connection_kwargs, "retry": Retry(NoBackoff(), 0)}
        self._remap: Callable[[Address], Address] | None = manager.address_remap
        self._pools: dict[Address, Pool] = {}
        self._manager = manager

    def listen_for_tokens(self) -> None:
        """Have the client's credential provider tell all these connections of new tokens, and the client's own.

        The client does so for its own whenever it looks for its nodes, so this is to be repeated now and then.
        """
        listen_for_tokens(self._options.get("credential_provider"), self._listeners)

    def _listeners(self) -> list[Listener]:
        nodes = [*self._manager.nodes_cache.values(), *self._manager.startup_nodes.values()]  # some are in both
        return [self._log_in_again, *(node.re_auth_callback for node in {id(node): node for node in nodes}.values())]

    async def _log_in_again(self, token: Any) -> None:  # noqa: ANN401 - a type that older versions do not have
        for pool in self._pools.values():
            log_in_again(pool, token)

    async def close(self) -> None:
        """Close the connections that are left."""
        for pool in self._pools.values():
            await pool.disconnect()

    def pool(self, node: Address) -> Pool:
        """The pool of connections to this node."""
        pool = self._pools.get(node)
        if pool is None:
            host, port = node
            options: dict[str, Any] = {**self._options, "host": host, "port": port}
            pool = self._pools[node] = redis.asyncio.ConnectionPool(self._connection_class, **options)
        return pool

    def reachable(self, host: str, port: int, asked: str) -> Address:
        """The address of a node that the one at the host `asked` has named; with an empty host it means its own."""
        address = (host if host not in ("", "?") else asked, port)
        return self._remap(address) if self._remap is not None else address
