"""What is needed of redis-py beyond its documentation: an upgrade that takes it away fails here."""

from typing import Any
from unittest.mock import Mock

import pytest
import redis.utils

from inconcert import Coordinator
from inconcert._redis.driver.driver import get_connection, has_input
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.wire.wire import _TransportWire, open_wire
from tests.support.eventually import eventually
from tests.support.raw import new_client
from tests.support.servers import RealServer


class _Nobody:
    """A receiver that takes no notice."""

    def received(self, reply: Reply) -> None: ...

    def disconnected(self, error: Exception) -> None: ...

    def writable(self) -> None: ...

    def log_in(self, credentials: tuple[str, ...]) -> None: ...


pytestmark = pytest.mark.one_server("about the driver's connections, which are those to each node of a cluster, too")


@pytest.fixture(scope="module", params=["tcp", "unix"])
def url(request: pytest.FixtureRequest, server: RealServer) -> str:
    """The server's, for each kind of connection."""
    return server.tcp_url if request.param == "tcp" else server.url


async def test_writer_of_a_connection_is_found(url: str) -> None:
    """Without it commands go through tasks and streams: all works as before, and slower."""
    async with new_client(url) as client:
        wire = await open_wire(client.connection_pool, _Nobody(), timeout=10)
        assert isinstance(wire, _TransportWire), "redis-py has no StreamWriter in Connection._writer any more"
        await wire.close()


async def test_connection_tells_whether_it_has_input(url: str) -> None:
    """As soon as something has come in, and not before it was asked for."""
    async with new_client(url) as client:
        connection: Any = await get_connection(client.connection_pool)
        assert not await has_input(connection)
        await connection.send_command("PING")
        await eventually(lambda: has_input(connection))
        await connection.disconnect()


async def test_no_reply_is_left_for_the_next_user_of_a_connection(url: str, namespace: str) -> None:
    """By default redis-py 8.1 gives such a connection out again."""
    async with Coordinator(url, namespace=namespace) as concert:
        client: Any = concert.redis
        pool = client.connection_pool
        connection: Any = await get_connection(pool)
        await connection.send_command("PING", "another")
        await eventually(lambda: has_input(connection))
        await pool.release(connection)
        assert await client.ping()  # the answer is PONG


async def test_no_connection_reads_the_metadata_of_the_driver(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default redis-py parses them for each, to name its version, which takes a millisecond of the event loop."""
    ask = Mock(return_value="unknown")
    monkeypatch.setattr(redis.utils, "get_lib_version", ask)
    async with Coordinator(url, namespace=namespace) as concert:
        client: Any = concert.redis
        said = await client.client_list()

    ask.assert_not_called()
    assert redis.__version__ in {each.get("lib-ver", redis.__version__) for each in said if each["name"] == "inconcert"}
