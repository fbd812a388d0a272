"""The commands of all threads of a process, one after the other, on one connection.

As on the channel of coroutines, a lost connection is replaced, and the command that was not answered is sent again
until its timeout: each script answers a second run as it answered the first.
"""

import itertools
import random
import threading
import time
from collections.abc import Iterator

from inconcert._redis.blocking.blocking_server import BlockingServer
from inconcert._redis.blocking.blocking_wire import BlockingWire
from inconcert._redis.protocol.replies import ErrorReply, Reply, error_for
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.backoff import backoff
from inconcert.errors import Unavailable


class BlockingChannel:
    """Runs commands; any thread may."""

    def __init__(self, server: BlockingServer, *, timeout: float) -> None:
        self._server = server
        self._timeout = timeout  # of a call, waiting for other threads and reconnecting included, in seconds
        self._turn = threading.Lock()
        self._was_connected = False

    def run(self, command: Command, *, with_one_key: Command | None = None) -> Reply:
        """Run a script and wait for its reply.

        Args:
            command: The script.
            with_one_key: What to run in its place, and to return the reply of, while its slot moves key by key; None
                to wait.

        Raises:
            Unavailable: It was not run.
            OutcomeUnknown: It was sent, and no reply came in time.
            WrongState: A key holds something that is not ours.
        """
        until = time.monotonic() + self._timeout
        if not self._turn.acquire(timeout=self._timeout):
            raise command.operation.unanswered(self._in_time("other threads wait for the server"), is_sent=False)
        try:
            return self._run(command, with_one_key, until)
        finally:
            self._turn.release()

    def subscribe(self, key: str, channel: str) -> BlockingWire:
        """A connection of its own that is subscribed to a channel in the slot of this key.

        Raises:
            Unavailable: It cannot be made.
            OSError: The server did not confirm the subscription in time.
        """
        wire = self._server.new_wire(key)
        try:
            wire.subscribe(channel, time.monotonic() + self._timeout / 2, is_sharded=self._server.is_cluster)
        except BaseException:
            wire.close()
            raise
        return wire

    def close(self) -> None:
        """Close the connection, after a call that is under way."""
        with self._turn:
            self._server.close()

    def _run(self, command: Command, simpler: Command | None, until: float) -> Reply:
        packed, sends, error = command.pack(), 0, "no answer"
        for _ in _tries(until):
            try:
                wire = self._server.wire(command.keys[0])
            except Unavailable as unavailable:
                if not self._was_connected:  # more likely wrong than away
                    raise
                error = str(unavailable)
                continue
            self._was_connected = True
            try:
                reply, packed = self._exchange(wire, command, packed, until)
            except OSError as lost:
                sends += 1
                error = str(lost)
                self._server.lost(wire)
                continue
            except BaseException:  # such as KeyboardInterrupt: the reply may still come
                self._server.lost(wire)
                raise
            if not isinstance(reply, ErrorReply):
                return reply
            if reply.code == "TRYAGAIN" and simpler is not None:
                command, simpler = simpler, None
                packed = command.pack()
            elif not self._server.refused(wire, command.keys[0], reply):
                raise error_for(reply, command.operation, sends=sends + 1)
            error = str(reply)
        raise command.operation.unanswered(self._in_time(error), is_sent=sends > 0)

    def _exchange(self, wire: BlockingWire, command: Command, packed: bytes, until: float) -> tuple[Reply, bytes]:
        """Send it, with its source if the server lacks that; also returns what to send if it must be repeated."""
        silent_at = min(until, time.monotonic() + self._timeout / 2)  # so that there is time for another connection
        reply = wire.exchange(packed, silent_at)
        if isinstance(reply, ErrorReply) and reply.code == "NOSCRIPT":
            packed = command.pack_with_source()
            reply = wire.exchange(packed, silent_at)
        if isinstance(reply, ErrorReply) and reply.code == "LARGE":
            reply = wire.exchange(command.with_room().pack_with_source(), silent_at)
        return reply, packed

    def _in_time(self, error: str) -> str:
        return f"within {self._timeout:g} s ({error})"


def _tries(until: float) -> Iterator[None]:
    """Go on until this time by the monotonic clock, with pauses that grow."""
    for failures in itertools.count():
        if failures > 1:  # the first failure may be that of a connection that died long ago
            time.sleep(max(0.0, min(until - time.monotonic(), backoff(failures - 1, random.random()))))
        if time.monotonic() >= until:
            return
        yield
