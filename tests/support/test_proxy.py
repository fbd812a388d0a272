"""The proxy itself: what it promises to the tests that stand on it."""

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Iterator

import hiredis
import pytest

from tests.support.eventually import eventually
from tests.support.proxy import Proxy, ReplyScanner
from tests.support.servers import RealServer

_REPLIES = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-7\r\n",
    b"$5\r\na\r\nbc\r\n",
    b"$0\r\n\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*2\r\n*2\r\n:1\r\n$1\r\n\n\r\n+x\r\n",
    b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
    b"~1\r\n+a\r\n",
    b">3\r\n+message\r\n+a\r\n$1\r\nb\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"(123456789012345678901234567890\r\n",
    b"=7\r\ntxt:a\nb\r\n",
]
END = b""


class Client:
    """A connection that sends commands as they are typed, and reads replies as they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *commands: str) -> None:
        self.writer.write("".join(f"{command}\r\n" for command in commands).encode())

    async def line(self) -> bytes:
        async with asyncio.timeout(5):
            return await self._reader.readline()

    async def silent(self) -> bool:
        """Whether nothing comes for a moment, and no end either."""
        try:
            async with asyncio.timeout(0.1):
                await self._reader.readline()
        except TimeoutError:
            return True
        return False


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """One for all tests of this file."""
    with RealServer() as server:
        yield server


@pytest.fixture(params=["tcp", "unix"])
async def proxy(server: RealServer, request: pytest.FixtureRequest) -> AsyncIterator[Proxy]:
    """A proxy in front of an empty server."""
    server.command("FLUSHALL")
    async with Proxy(server.tcp_url if request.param == "tcp" else server.url) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    """A connection through the proxy."""
    client = await connect(proxy)
    yield client
    client.writer.close()


async def connect(proxy: Proxy) -> Client:
    """Another one."""
    return Client(*await asyncio.open_connection("127.0.0.1", proxy.port))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_scanner_finds_the_replies_that_hiredis_finds(piece: int) -> None:
    """Every reply ends where hiredis says that it ends, however the stream is cut into pieces."""
    replies = _REPLIES * 3
    random.Random(piece).shuffle(replies)
    stream = b"".join(replies)
    scanner, reader = ReplyScanner(), hiredis.Reader(notEnoughData=Ellipsis)
    ends: list[int] = []
    for start in range(0, len(stream), piece):
        data = stream[start : start + piece]
        found = scanner.feed(data)
        ends += [start + end for end in found]
        reader.feed(data)
        for _ in found:
            assert reader.gets() is not Ellipsis
        assert reader.gets() is Ellipsis
    assert ends == [sum(map(len, replies[: count + 1])) for count in range(len(replies))]


def test_scanner_counts_an_attribute_with_its_reply() -> None:
    """RESP3 puts attributes before the reply that they belong to."""
    assert ReplyScanner().feed(b"|1\r\n+a\r\n:1\r\n*1\r\n+x\r\n") == [20]


async def test_reply_after_the_allowed_ones_is_lost_and_its_command_executed(
    proxy: Proxy, client: Client, server: RealServer
) -> None:
    """With lose_next the cut falls on a reply that is under way."""
    proxy.cut_after_replies(2, lose_next=True)
    client.send("INCR a", "INCR a")
    assert [await client.line(), await client.line()] == [b":1\r\n", b":2\r\n"]
    assert await client.silent()
    client.send("INCR a")
    assert await client.line() == END
    assert server.command("GET", "a") == "3"


@pytest.mark.parametrize("lose_next", [False, True])
async def test_cut_falls_between_replies_that_came_together(proxy: Proxy, client: Client, lose_next: bool) -> None:
    """The replies that pass are whole, and nothing of the next one is seen."""
    proxy.hold_replies()
    client.send("LPUSH b x y z", "LRANGE b 0 -1", "PING")
    proxy.cut_after_replies(2, lose_next=lose_next)
    proxy.release_replies()
    lines = [await client.line() for _ in range(8)]
    assert b"".join(lines) == b":3\r\n*3\r\n$1\r\nz\r\n$1\r\ny\r\n$1\r\nx\r\n"
    assert await client.line() == END
    assert proxy.replies == 2


async def test_cut_after_replies_happens_at_once_and_once(proxy: Proxy, client: Client) -> None:
    """All connections together may have so many replies; those that come later are left alone."""
    other = await connect(proxy)
    proxy.cut_after_replies(2)
    client.send("PING")
    assert await client.line() == b"+PONG\r\n"
    other.send("PING")
    assert await other.line() == b"+PONG\r\n"
    for cut in (client, other):
        assert await cut.line() == END
    other.writer.close()
    later = await connect(proxy)
    later.send(*["PING"] * 3)
    assert [await later.line() for _ in range(3)] == [b"+PONG\r\n"] * 3
    later.writer.close()


async def test_every_new_connection_is_cut_after_its_own_replies(proxy: Proxy, client: Client) -> None:
    """With each=True an older connection is left alone, and heal() ends it."""
    client.send("PING")
    assert await client.line() == b"+PONG\r\n"
    proxy.cut_after_replies(1, each=True)
    for _ in range(2):
        new = await connect(proxy)
        new.send("PING", "PING")
        assert [await new.line(), await new.line()] == [b"+PONG\r\n", END]
        new.writer.close()
    client.send("PING", "PING")
    assert [await client.line(), await client.line()] == [b"+PONG\r\n"] * 2
    await proxy.heal()
    healed = await connect(proxy)
    healed.send("PING", "PING")
    assert [await healed.line(), await healed.line()] == [b"+PONG\r\n"] * 2
    healed.writer.close()


async def test_mute_keeps_both_directions_until_heal(proxy: Proxy, client: Client, server: RealServer) -> None:
    """Nothing arrives, nothing ends, and all of it arrives in the end, also on a connection opened meanwhile."""
    proxy.mute()
    new = await connect(proxy)
    for each in (client, new):
        each.send("INCR c")
        assert await each.silent()
    assert server.command("GET", "c") is None
    await proxy.heal()
    assert {await client.line(), await new.line()} == {b":1\r\n", b":2\r\n"}
    new.writer.close()


async def test_held_replies_come_when_released(proxy: Proxy, client: Client, server: RealServer) -> None:
    """The commands are executed meanwhile."""
    proxy.hold_replies()
    client.send("INCR d")
    await eventually(lambda: server.command("GET", "d") == "1")
    assert await client.silent()
    proxy.release_replies()
    assert await client.line() == b":1\r\n"


async def test_cut_resets_every_connection(proxy: Proxy, client: Client) -> None:
    """The client sees a reset, no end in good order."""
    client.send("PING")
    assert await client.line() == b"+PONG\r\n"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        await client.line()
    await eventually(lambda: proxy.open == 0)


async def test_dropped_replies_end_in_a_cut(proxy: Proxy, client: Client, server: RealServer) -> None:
    """A later reply never takes the place of one that was dropped."""
    proxy.drop_replies()
    client.send("INCR e")
    await eventually(lambda: server.command("GET", "e") == "1")
    assert await client.silent()
    await proxy.heal()
    with pytest.raises(ConnectionResetError):
        await client.line()


async def test_delay_is_latency_and_no_rate(proxy: Proxy, client: Client) -> None:
    """A hundred commands sent one by one take one round trip, not a hundred."""
    proxy.delay(0.1)
    started = time.monotonic()
    for _ in range(100):
        client.send("PING")
        await asyncio.sleep(0)
    assert [await client.line() for _ in range(100)] == [b"+PONG\r\n"] * 100
    assert 0.2 <= time.monotonic() - started < 2


async def test_refused_until_healed(proxy: Proxy, client: Client) -> None:
    """An open connection goes on; a new one is refused, and then accepted on the same port."""
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        await connect(proxy)
    client.send("PING")
    assert await client.line() == b"+PONG\r\n"
    await proxy.heal()
    (await connect(proxy)).writer.close()


async def test_connection_that_comes_as_the_proxy_ends_is_closed(server: RealServer) -> None:
    """Nothing has been done with it yet."""
    async with Proxy(server.tcp_url) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        while not proxy.opened:
            await asyncio.sleep(0)
    client.setblocking(False)
    with client, pytest.raises(ConnectionResetError):
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().sock_recv(client, 1)


async def test_connection_whose_client_does_not_read_is_closed(server: RealServer) -> None:
    """When it was to end in good order, and what was written before has found no room."""
    server.command("SET", "large", "x" * 10**8)
    async with Proxy(server.tcp_url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.cut_after_replies(1)
        writer.write(b"GET large\r\n")
        await eventually(lambda: proxy.replies == 1 and proxy.open == 0)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_connection_ends_with_either_side(proxy: Proxy, client: Client, server: RealServer) -> None:
    """The end of the server's connection reaches the client, and the other way round."""
    client.send("QUIT")
    assert [await client.line(), await client.line()] == [b"+OK\r\n", END]
    await eventually(lambda: proxy.open == 0)
    other = await connect(proxy)
    other.send("PING")
    assert await other.line() == b"+PONG\r\n"
    other.writer.close()
    await eventually(lambda: proxy.open == 0)
    assert server.command("INFO", "clients")["connected_clients"] == 1
    assert proxy.opened == 2
