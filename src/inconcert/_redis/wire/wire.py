"""One connection of the shared pool, taken over: bytes go out, parsed replies come in.

`redis.asyncio` opens the connection, with everything that it knows about URLs, TLS, users and Sentinel.  From then on
the transport's bytes come straight to us: no stream between, no lock, no task, and no cancellation can reach them.
A connection without a transport of its own, such as `fakeredis`'s, is read through its public methods instead.
"""

import asyncio
import logging
import math
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, cast

import anyio
import anyio.lowlevel
import hiredis
import redis.asyncio
import redis.asyncio.connection
import redis.exceptions

from inconcert._redis.driver.driver import forget_credentials, has_input, on_new_credentials
from inconcert._redis.driver.failures import cannot_connect, in_brief
from inconcert._redis.driver.roles import check_role
from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.wire.own_sockets import own_sockets
from inconcert._rules.urls import Node
from inconcert.errors import Unavailable

_log = logging.getLogger("inconcert.redis")

Connection = redis.asyncio.connection.AbstractConnection
Pool = redis.asyncio.ConnectionPool

_NOTHING = object()


class Receiver(Protocol):
    """Receives what comes in on a wire."""

    def received(self, reply: Reply) -> None:
        """The next reply, in order."""

    def disconnected(self, error: Exception) -> None:
        """The wire is dead: called once, and nothing comes after it."""

    def writable(self) -> None:
        """The peer accepts bytes again."""

    def log_in(self, credentials: tuple[str, ...]) -> None:
        """Send `AUTH` with these arguments: the old ones will not be valid for long."""


class Wire(Protocol):
    """The writer's side of a channel or an inbox."""

    is_full: bool
    """Whether the peer reads too slowly; `Receiver.writable` is called when that ends."""

    has_answered: bool
    """Whether anything was received since the connection was taken over."""

    node: Node | None
    """The server's address; None for a unix socket."""

    def write(self, data: bytes) -> None:
        """Send, without waiting. Does nothing on a lost wire: its receiver is, or was, notified."""

    def alive_at(self) -> float:
        """The time at which bytes last came in, or the peer was last seen to take some, by the loop's clock.

        That it takes bytes is seen by looking from time to time, as long as `is_backed_up`.
        """
        ...

    @property
    def is_backed_up(self) -> bool:
        """True if there are written bytes that the peer has not accepted yet."""
        ...

    def drop(self, error: Exception) -> None:
        """Declare the wire dead; the receiver is notified on the next turn of the loop."""

    async def close(self) -> None:
        """Return the connection to its pool, closed: a reply may be under way."""


async def open_wire(pool: Pool, receiver: Receiver, *, timeout: float) -> Wire:
    """Take a connection from `pool`, connect it again and take it over.

    Raises:
        Unavailable: Nothing answered within `timeout` seconds, or the server refused.
    """
    try:
        connection = cast("Connection", pool.get_available_connection())  # type: ignore[no-untyped-call]
    except redis.exceptions.RedisError as error:
        raise Unavailable(f"no connection is free in the pool ({error}); raise its max_connections") from error
    socket = _SocketOf(connection)
    task = asyncio.current_task()
    cancellations = task.cancelling() if task is not None else 0
    try:
        with anyio.fail_after(timeout):
            # An idle connection from the pool may have unread input, which must not be read here.
            await connection.disconnect(nowait=True)
            with _unlimited(connection):
                await connection.connect()  # type: ignore[no-untyped-call]
            if await has_input(connection):
                raise ConnectionError("the new connection says something that nobody asked for")
            await check_role(connection, pool)
        if task is not None and task.cancelling() > cancellations:
            await anyio.lowlevel.checkpoint_if_cancelled()  # raised by a scope, it ends at that scope
            raise asyncio.CancelledError  # the driver's wait_for swallowed it, as it can in Python 3.11
        return _take_over(connection, pool, receiver, socket)
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await _give_back(connection, pool)
        if isinstance(error, Exception):
            raise cannot_connect(error, connection, timeout=timeout) from in_brief(error)
        raise


@contextmanager
def _unlimited(connection: Connection) -> Generator[None]:
    """Have the driver set no time limit of its own, for which it calls `asyncio.wait_for`.

    In Python 3.11 that swallows a cancellation which comes as it ends, and then the driver waits for an answer.
    """
    timeout, connection.socket_timeout = connection.socket_timeout, None
    try:
        yield
    finally:
        connection.socket_timeout = timeout


def _take_over(connection: Connection, pool: Pool, receiver: Receiver, socket: "_SocketOf") -> Wire:
    on_new_credentials(connection, receiver.log_in)
    writer = getattr(connection, "_writer", None)
    if isinstance(writer, asyncio.StreamWriter):
        return _TransportWire(connection, pool, receiver, writer.transport, socket)
    return _StreamWire(connection, pool, receiver)


class _SocketOf:
    """The socket of a connection, which is not for children that this process forks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        own_sockets.add(self)

    def fileno(self) -> int:
        """The descriptor; -1 while there is none."""
        writer = getattr(self._connection, "_writer", None)
        if not isinstance(writer, asyncio.StreamWriter):
            return -1
        descriptor: int = writer.get_extra_info("socket").fileno()
        return descriptor


def _node(connection: Connection) -> Node | None:
    host, port = getattr(connection, "host", None), getattr(connection, "port", None)
    return (str(host), int(port)) if host and port else None


async def _give_back(connection: Connection, pool: Pool) -> None:
    """Close a connection and return it to its pool, which reconnects it when needed."""
    forget_credentials(connection)
    try:
        with anyio.move_on_after(1.0):
            await connection.disconnect(nowait=True)
    finally:
        with suppress(KeyError):  # its owner has reset the pool, which has forgotten it
            await pool.release(connection)


class _TransportWire(asyncio.Protocol):
    """A connection whose transport is read and written directly."""

    def __init__(
        self,
        connection: Connection,
        pool: Pool,
        receiver: Receiver,
        transport: asyncio.WriteTransport,
        socket: _SocketOf,
    ) -> None:
        self.is_full = False
        self.has_answered = False
        self.node = _node(connection)
        self._connection = connection
        self._pool = pool
        self._receiver = receiver
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._alive_at = self._loop.time()
        self._backlog = self._written = 0  # bytes: not accepted at the last check; written since
        self._is_dead = False
        self._telling: asyncio.Handle | None = None
        self._parser = hiredis.Reader(replyError=ErrorReply, notEnoughData=_NOTHING)
        self._former = transport.get_protocol()
        transport.set_protocol(self)
        self._socket = socket  # for as long as it lives

    def write(self, data: bytes) -> None:
        if self._is_dead:
            return
        try:
            self._transport.write(data)
        except (RuntimeError, OSError) as error:  # from uvloop, after the peer has closed and before connection_lost
            self.drop(error)
        self._written += len(data)

    def alive_at(self) -> float:
        backlog = _untaken(self._transport)
        if self._backlog and backlog < self._backlog + self._written:
            self._alive_at = self._loop.time()
        self._backlog, self._written = backlog, 0
        return self._alive_at

    @property
    def is_backed_up(self) -> bool:
        return _untaken(self._transport) > 0

    def drop(self, error: Exception) -> None:
        self._die(error)
        self._transport.abort()

    async def close(self) -> None:
        self._is_dead = True
        if self._telling is not None:
            self._telling.cancel()
        self._transport.abort()
        await _give_back(self._connection, self._pool)

    def data_received(self, data: bytes) -> None:
        self.has_answered = True
        self._alive_at = self._loop.time()
        parser, received = self._parser, self._receiver.received
        parser.feed(data)
        try:
            while (reply := parser.gets()) is not _NOTHING:
                if self._is_dead:
                    return
                received(reply)
        except Exception as error:  # noqa: BLE001 - invalid bytes, or an unsolicited reply
            _log.exception("a connection received an invalid reply, and is replaced")
            self.drop(error)

    def eof_received(self) -> None:
        """Let the transport close itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._former.connection_lost(exc)  # so that the stream's own waiters also end
        self._die(exc or ConnectionError("the server closed the connection"))

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if not self._is_dead:
            self._receiver.writable()

    def _die(self, error: Exception) -> None:
        if not self._is_dead:
            self._is_dead = True
            self._telling = self._loop.call_soon(self._receiver.disconnected, error)


def _untaken(transport: asyncio.WriteTransport) -> int:
    """The number of bytes that wait for the peer, in the transport and in the system's buffer."""
    waiting = transport.get_write_buffer_size()
    with suppress(ImportError, OSError, ValueError, AttributeError):  # not on Windows; or it is closed
        import fcntl  # noqa: PLC0415
        import termios  # noqa: PLC0415

        descriptor: int = transport.get_extra_info("socket").fileno()
        waiting += struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0]
    return waiting


class _StreamWire:
    """A connection that is written and read through its public methods, by one task each."""

    is_full = False
    is_backed_up = False

    def __init__(self, connection: Connection, pool: Pool, receiver: Receiver) -> None:
        self.node = _node(connection)
        self._connection = connection
        self._read_response = cast("Any", connection.read_response)  # it has no type hints
        self._pool = pool
        self._receiver = receiver
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._alive_at = self._loop.time()
        self.has_answered = False
        self._is_dead = False
        self._telling: asyncio.Handle | None = None
        self._tasks = [asyncio.create_task(self._guarded(part)) for part in (self._send, self._read)]

    def write(self, data: bytes) -> None:
        self._outbox.put_nowait(data)

    def alive_at(self) -> float:
        return self._alive_at

    def drop(self, error: Exception) -> None:
        if not self._is_dead:
            self._is_dead = True
            self._telling = self._loop.call_soon(self._receiver.disconnected, error)

    async def close(self) -> None:
        self._is_dead = True
        if self._telling is not None:
            self._telling.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await _give_back(self._connection, self._pool)

    async def _guarded(self, part: Callable[[], Any]) -> None:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - on any error the wire is dead and its receiver is notified
            self.drop(error)

    async def _send(self) -> None:
        while not self._is_dead:
            await self._connection.send_packed_command(await self._outbox.get(), check_health=False)
            self._alive_at = self._loop.time()

    async def _read(self) -> None:
        while not self._is_dead:
            try:
                reply: Reply = await self._read_response(
                    disable_decoding=True, timeout=math.inf, disconnect_on_error=False, push_request=True
                )
            except redis.exceptions.ResponseError as error:
                reply = ErrorReply.of(error)
            self.has_answered = True
            self._alive_at = self._loop.time()
            if not self._is_dead:
                self._receiver.received(reply)
