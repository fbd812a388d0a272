"""A bad network between a client and a server: slow, mute, lossy, or cut exactly between two replies.

    async with Proxy(server.tcp_url) as proxy:
        client = Redis.from_url(proxy.url)
        proxy.cut_after_replies(2, lose_next=True)      # the third command is executed, and its reply is never seen

A TCP stream loses nothing in its middle, so neither do these: a connection whose replies were dropped gets none any
more until it is cut.
"""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Self, cast
from urllib.parse import unquote, urlsplit

from tests.support.servers import free_port

__all__ = ["Direction", "Proxy", "ReplyScanner"]

Direction = Literal["to_server", "to_client"]

_DIRECTIONS: tuple[Direction, Direction] = ("to_server", "to_client")


class Proxy:
    """Listens on a loopback port of its own and passes everything on, until told otherwise.

    What it is told applies to the connections that are open and to those that come, until `heal()`.

    Args:
        upstream: Where the server is: "redis://host:port", "unix:///path", or a port on this machine.
        rate: Bytes per second that each connection carries, each way; None for as many as come.
    """

    def __init__(self, upstream: str | int, *, rate: float | None = None) -> None:
        self.port = free_port()
        self.opened = 0  # connections accepted so far
        self._upstream = upstream
        self._network = _Network(rate=rate)
        self._listener: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._tasks: list[asyncio.Task[None]] = []  # one for each connection that there ever was
        self._sides: list[_Side] = []  # of all these
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.heal()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._is_closed = True
        self.refuse()
        self.cut()
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        for side in self._sides:  # also one whose task was cancelled before it ran, or whose peer does not read
            side.reset()
        for side in self._sides:
            await side.lost.wait()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    @property
    def url(self) -> str:
        """For clients: as the user and in the database of the server's own."""
        if isinstance(self._upstream, int):
            return f"redis://127.0.0.1:{self.port}/0"
        url = urlsplit(self._upstream)
        login, at, _ = url.netloc.rpartition("@")
        return f"redis://{login}{at}127.0.0.1:{self.port}{url.path if url.port else '/0'}"

    @property
    def open(self) -> int:
        """Connections open now."""
        return len(self._links)

    @property
    def replies(self) -> int:
        """Replies passed on so far, on all connections."""
        return self._network.replies

    def delay(self, seconds: float, *, direction: Direction | None = None) -> None:
        """Let everything arrive later and in order: latency, not a lower rate.

        Args:
            seconds: How much later, each way.
            direction: None is both, so a round trip takes twice as long.
        """
        for each in _DIRECTIONS if direction is None else (direction,):
            self._network.delays[each] = seconds

    def mute(self) -> None:
        """Accept connections and bytes and pass nothing on, either way, until `heal()`."""
        for gate in self._network.gates.values():
            gate.clear()

    def hold_replies(self) -> None:
        """Let commands through and keep the replies, until `release_replies()`."""
        self._network.gates["to_client"].clear()

    def release_replies(self) -> None:
        self._network.gates["to_client"].set()

    def drop_replies(self) -> None:
        """Let commands through and throw the replies away; `heal()` cuts the connections that lost some."""
        self._network.drops_replies = True

    def cut(self) -> None:
        """Reset all connections, with what is under way."""
        for link in list(self._links):
            link.reset()

    def cut_after_replies(self, count: int, *, lose_next: bool = False, each: bool = False) -> None:
        """Let so many replies through, from now on and on all connections together, then end them all, once.

        The client reads the replies and then the end of the stream: a reset could overtake what it has not read yet.
        A push message of RESP3 counts as a reply.

        Args:
            count: Replies that still pass; at least 1, or 0 with `lose_next`.
            lose_next: End when one more reply arrives, instead of at once: its command was executed, and nobody hears.
            each: Count for itself, and end alone, every connection opened from now on, until `heal()`.
        """
        if count < (0 if lose_next else 1):
            raise ValueError("nothing would be let through; use cut() or lose_next=True")
        if each:
            self._network.allowance_each = _Allowance(count, lose_next)
        else:
            self._network.allowance = _Allowance(count, lose_next)

    async def losing_each(self, first: int = 0, *, stride: int = 1, least: int, most: int) -> AsyncIterator[int]:
        """The numbers of replies after which to lose one, until the body ends without that.

            async for count in proxy.losing_each(least=10, most=60):
                async with Coordinator(proxy.url, namespace=namespace) as bad:
                    proxy.cut_after_replies(count, lose_next=True)

        Args:
            first: For the first time.
            stride: From one time to the next.
            least: More replies than these there are.
            most: And fewer than these.
        """
        count = first
        while count < most:
            yield count
            if self._network.allowance is not None:  # the body came to its end without a cut
                break
            count += stride
        await self.heal()
        assert least < count < most

    def refuse(self) -> None:
        """Refuse new connections; those that are open go on."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def heal(self) -> None:
        """Pass everything on again, what was held first, and accept connections again."""
        for link in list(self._links):
            link.heal()
        self._network.heal()
        if self._listener is None:
            loop = asyncio.get_running_loop()
            self._listener = await loop.create_server(lambda: _Side(self._accept), sock=self._new_socket())

    def _new_socket(self) -> socket.socket:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._network.rate is not None:  # what waits in the system would look as if it had been carried
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        listening.bind(("127.0.0.1", self.port))
        return listening

    def _accept(self, client: "_Side") -> None:
        if self._is_closed:  # the system accepted it before
            client.reset()
            return
        self.opened += 1
        self._sides.append(client)
        self._tasks.append(asyncio.create_task(self._serve(client)))

    async def _serve(self, client: "_Side") -> None:
        try:
            server = await self._connect()
        except OSError:  # the server is down: so is this connection
            client.reset()
            return
        self._sides.append(server)
        link = _Link(client, server, self._network, self._end)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def _end(self) -> None:
        for link in list(self._links):
            link.end()

    async def _connect(self) -> "_Side":
        loop = asyncio.get_running_loop()
        url = urlsplit(f"redis://127.0.0.1:{self._upstream}" if isinstance(self._upstream, int) else self._upstream)
        if url.scheme == "unix":
            _, side = await loop.create_unix_connection(_Side, unquote(url.path))
        else:
            _, side = await loop.create_connection(_Side, url.hostname or "127.0.0.1", url.port or 6379)
        return side


@dataclass(slots=True)
class _Allowance:
    """How many replies still pass before the cut."""

    left: int
    lose_next: bool

    def take(self, wanted: int) -> int:
        taken = min(wanted, self.left)
        self.left -= taken
        return taken


@dataclass(slots=True)
class _Network:
    """The state of the network, as all links find it."""

    delays: dict[Direction, float] = field(default_factory=dict[Direction, float])
    gates: dict[Direction, asyncio.Event] = field(
        default_factory=lambda: {each: asyncio.Event() for each in _DIRECTIONS}
    )
    drops_replies: bool = False
    allowance: _Allowance | None = None  # of all links together
    allowance_each: _Allowance | None = None  # of every link to come
    replies: int = 0
    rate: float | None = None

    def heal(self) -> None:
        self.delays.clear()
        self.drops_replies = False
        self.allowance = self.allowance_each = None
        for gate in self.gates.values():
            gate.set()

    async def crosses(self, direction: Direction, sent_at: float) -> None:
        """Wait until what was sent at this moment may arrive."""
        gate = self.gates[direction]
        while (early := sent_at + self.delays.get(direction, 0.0) - time.monotonic()) > 0 or not gate.is_set():
            await (asyncio.sleep(early) if early > 0 else gate.wait())


class _Side(asyncio.Protocol):
    """One connection, of a client or to the server: what it received, and when."""

    def __init__(self, on_open: "Callable[[_Side], None] | None" = None) -> None:
        self.received: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()  # an empty one is the end
        self.lost = asyncio.Event()
        self._on_open = on_open
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.received.put_nowait((time.monotonic(), data))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - how it ended does not matter
        self.received.put_nowait((time.monotonic(), b""))
        self.lost.set()

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def write(self, data: bytes) -> None:
        """Send it, if the peer is still there."""
        with suppress(RuntimeError):  # of uvloop, where asyncio drops what it can send to nobody
            self.transport.write(data)

    def reset(self) -> None:
        if self.lost.is_set():
            return
        with suppress(OSError):  # the peer may have gone
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class _Link:
    """A client's connection and the one to the server that it is passed on to."""

    def __init__(self, client: _Side, server: _Side, network: _Network, end_all: Callable[[], None]) -> None:
        self._client = client
        self._server = server
        self._network = network
        self._end_all = end_all
        self._allowance = None if network.allowance_each is None else replace(network.allowance_each)
        self._scanner = ReplyScanner()
        self._free_at: dict[Direction, float] = dict.fromkeys(_DIRECTIONS, 0.0)
        self._has_lost_replies = False
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Pass on until one side ends or the link is reset."""
        self._tasks = [asyncio.create_task(self._pass_commands()), asyncio.create_task(self._pass_replies())]
        try:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self._tasks:
                task.cancel()
            outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
            self._client.transport.close()
            self._server.transport.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def end(self) -> None:
        """Close in good order: the client gets what was written before."""
        for task in self._tasks:
            task.cancel()

    def reset(self) -> None:
        self._client.reset()
        self._server.reset()
        for task in self._tasks:
            task.cancel()

    def heal(self) -> None:
        self._allowance = None
        if self._has_lost_replies:
            self.reset()

    async def _pass_commands(self) -> None:
        while True:
            sent_at, data = await self._client.received.get()
            await self._network.crosses("to_server", sent_at)
            if not data:
                return
            await self._carry("to_server", self._client, data)
            self._server.write(data)

    async def _pass_replies(self) -> None:
        while True:
            sent_at, data = await self._server.received.get()
            await self._network.crosses("to_client", sent_at)
            if not data:
                return
            await self._carry("to_client", self._server, data)
            if self._network.drops_replies or self._has_lost_replies:
                self._has_lost_replies = True
                continue
            allowance = self._allowance or self._network.allowance
            ends = self._scanner.feed(data)
            passing = len(ends) if allowance is None else allowance.take(len(ends))
            self._network.replies += passing
            if allowance is None or allowance.left > 0:
                self._client.write(data)
                continue
            whole = ends[passing - 1] if passing else 0
            self._client.write(data[:whole])
            if whole < len(data) or not allowance.lose_next:
                self._spend(allowance)

    async def _carry(self, direction: Direction, source: _Side, data: bytes) -> None:
        """Take the time that so many bytes take."""
        if self._network.rate is None:
            return
        source.transport.pause_reading()
        self._free_at[direction] = max(time.monotonic(), self._free_at[direction]) + len(data) / self._network.rate
        await asyncio.sleep(self._free_at[direction] - time.monotonic())
        source.transport.resume_reading()

    def _spend(self, allowance: _Allowance) -> None:
        if allowance is self._allowance:
            self.end()
        else:
            self._network.allowance = None
            self._end_all()


class ReplyScanner:
    """Finds where the replies end in a stream of RESP2 or RESP3, however it is cut into pieces."""

    def __init__(self) -> None:
        self._line = b""  # the beginning of a line whose end has not come yet
        self._payload = 0  # bytes of a string still to come, with its line end
        self._values = 1  # values still to come until the reply is whole

    def feed(self, data: bytes) -> list[int]:
        """Return the offsets in `data` behind which a reply is whole."""
        ends: list[int] = []
        at = 0
        while at < len(data):
            if self._payload:
                step = min(self._payload, len(data) - at)
                self._payload -= step
                at += step
            else:
                line_end = data.find(b"\n", at) + 1
                if not line_end:
                    self._line += data[at:]
                    break
                self._read(self._line + data[at:line_end])
                self._line = b""
                at = line_end
            if self._payload == 0:
                self._values -= 1
                if self._values == 0:
                    ends.append(at)
                    self._values = 1
        return ends

    def _read(self, line: bytes) -> None:
        kind = line[:1]
        if kind in b"$!=":
            length = int(line[1:])
            self._payload = length + 2 if length >= 0 else 0
        elif kind in b"*~>":
            self._values += max(0, int(line[1:]))
        elif kind == b"%":
            self._values += 2 * int(line[1:])
        elif kind == b"|":  # an attribute: the value that it belongs to is still to come
            self._values += 2 * int(line[1:]) + 1
