"""One connection for threads: each call blocks until its reply is there, or until a given time.

The synchronous half of the driver opens it, with everything that it knows about URLs, TLS, users and Sentinel.  From
then on its socket is read here, because only so has each read a deadline of its own.
"""

import socket
import time
from contextlib import suppress
from typing import Any, cast

import hiredis
import redis.connection

from inconcert._redis.driver.failures import cannot_connect
from inconcert._redis.driver.roles import HELLO, fields_of
from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.wire.greeting import check_kind

_NOTHING = object()
_READ = 64 * 2**10  # bytes at once


class BlockingWire:
    """A connection, connected.  One thread at a time may use it.

    Raises:
        Unavailable: Nothing answered in time, or the server refused.
    """

    def __init__(self, connection: redis.connection.AbstractConnection, *, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout  # of each step of connecting, in seconds
        self._parser = hiredis.Reader(replyError=ErrorReply, notEnoughData=_NOTHING)
        try:
            cast("Any", connection).connect()
            self._socket = cast("socket.socket", vars(connection)["_sock"])
        except Exception as error:
            self.close()
            raise cannot_connect(error, connection, timeout=timeout) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; in a process that was forked since, only what this process has of it."""
        cast("Any", self._connection).disconnect()

    def check_kind(self, *, expects_cluster: bool = False) -> None:
        """Ask what kind of server it is.

        Raises:
            Unavailable: This kind is not supported, or it did not answer.
        """
        try:
            said = self.exchange_soon(HELLO)
            if not isinstance(said, ErrorReply):  # as before Redis 6
                check_kind(fields_of(said), expects_cluster=expects_cluster)
        except OSError as error:
            self.close()
            raise cannot_connect(error, self._connection, timeout=self._timeout) from error
        except BaseException:
            self.close()
            raise

    def exchange(self, data: bytes, until: float) -> Reply:
        """Send a command and wait for its reply, until this time by the monotonic clock.

        After any error the wire must be closed: the reply may still come.

        Raises:
            OSError: The connection was lost, or no reply came in time.
        """
        self._send(data, until)
        while isinstance(reply := self.read(until), hiredis.PushNotification):
            pass  # nobody asked for it
        return reply

    def exchange_soon(self, data: bytes) -> Reply:
        """As `exchange`, within the time that a step of connecting may take."""
        return self.exchange(data, time.monotonic() + self._timeout)

    def read(self, until: float) -> Reply:
        """The next reply or message, at the latest at this time.

        Raises:
            OSError: The connection was lost, or nothing came in time.
        """
        while (reply := self._next()) is _NOTHING:
            self._socket.settimeout(_left(until))
            data = self._socket.recv(_READ)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._parser.feed(data)
        return reply

    def subscribe(self, channel: str, until: float, *, is_sharded: bool) -> None:
        """Subscribe to a channel: from now on only `read` may be used.

        Raises:
            OSError: The connection was lost, or the server refused, or did not answer in time.
        """
        self._send(pack("SSUBSCRIBE" if is_sharded else "SUBSCRIBE", channel), until)
        reply = self.read(until)
        if isinstance(reply, ErrorReply):
            raise ConnectionError(f"the server refused to subscribe: {reply}")

    def wait(self, until: float) -> None:
        """Return when a message has come, or at this time; raises `OSError` if the connection was lost."""
        with suppress(TimeoutError):
            self.read(until)

    def _send(self, data: bytes, until: float) -> None:
        self._socket.settimeout(_left(until))
        self._socket.sendall(data)

    def _next(self) -> Reply:
        try:
            return self._parser.gets()
        except hiredis.ProtocolError as error:
            raise ConnectionError(f"the reply is invalid: {error}") from error


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no reply in time")
    return left
