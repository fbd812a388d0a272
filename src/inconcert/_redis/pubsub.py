"""One subscribed connection, shared by everyone in a process who listens to any channel.

The server is asked for a channel once, with its first listener, and told to stop with its last.  A lost connection is
brought back and subscribes to everything again; then all who listened are told that messages may have been missed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from inconcert._redis.commands import pack
from inconcert._redis.link import Link
from inconcert._redis.replies import ErrorReply, Reply
from inconcert._redis.wire import Pool, Wire
from inconcert.errors import InconcertError, Unavailable

__all__ = ["Listener", "PubSub"]

_log = logging.getLogger("inconcert.redis")

_PING_EVERY = 15.0  # seconds; a half-open connection would otherwise never be noticed, for nothing is sent on it

# What the server's answer to a command begins with, once for each; all else on this connection is said unasked.
_ANSWERS = frozenset({b"subscribe", b"psubscribe", b"unsubscribe", b"punsubscribe", b"pong", ord("P")})  # PONG, RESP3


class Listener(Protocol):
    """Someone who listens to a channel, or to all that fit a pattern. Only `abandon` may make it leave at once."""

    def on_message(self, channel: str, text: bytes) -> None:
        """A message came."""

    def missed(self) -> None:
        """The connection was away, and is back: messages may have been missed."""

    def closed(self, error: InconcertError) -> None:
        """Nothing will come any more: the coordinator is closing, or the server refused us when we came back."""


class PubSub:
    """A connection with any number of channels, each with any number of listeners.

    Args:
        pool: Where the connection comes from.
        timeout: How long the server may take to answer, in seconds.
        purpose: What it is for, as log lines name it.
    """

    def __init__(self, pool: Pool, *, timeout: float, purpose: str) -> None:
        self._timeout = timeout
        self._purpose = purpose
        self._link = Link(pool, self, timeout=timeout, purpose=purpose)
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._channels: dict[bytes, _Topic] = {}
        self._patterns: dict[bytes, _Topic] = {}
        self._unanswered: deque[_Topic | None] = deque()  # None: a command whose answer nobody waits for
        self._timer: asyncio.TimerHandle | None = None
        self._connected_at = self._pinged_at = 0.0
        self._end: InconcertError | None = None

    async def open(self) -> None:
        """Connect now, and fail at once if that fails. Without it, the first listener lets it connect.

        Raises:
            Unavailable: The server cannot be reached, or refuses us.
        """
        await self._link.open()
        self._timer = self._loop.call_later(_PING_EVERY, self._ping)

    async def close(self) -> None:
        """Give the connection back."""
        if self._timer is not None:
            self._timer.cancel()
        await self._link.close()
        self._wire = None

    def closed(self, error: InconcertError) -> None:
        """Send all listeners away, now and from now on."""
        self._end = error
        for topic in [*self._channels.values(), *self._patterns.values()]:
            topic.closed(error)

    async def listen(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """Let someone hear a channel until `forget`. When this returns, whatever is published from now on is heard.

        Args:
            channel: Which one, or a glob.
            listener: Who is told.
            is_pattern: Whether it is a glob, for all channels that fit.

        Raises:
            NotConnected: The coordinator is closing.
            Unavailable: The server did not confirm in time, or refused.
        """
        if self._end is not None:
            raise self._end.with_traceback(None)  # many raise this one
        topics, key = self._table(is_pattern=is_pattern), channel.encode()
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = _Topic(channel, "PSUBSCRIBE" if is_pattern else "SUBSCRIBE")
            self._subscribe([topic])
        elif topic.is_refused:
            self._subscribe([topic])
        if self._timer is None:
            self._link.start()
            self._timer = self._loop.call_later(_PING_EVERY, self._ping)
        if topic.is_confirmed:
            topic.listeners[listener] = None
            return
        confirmed = topic.newcomers[listener] = self._loop.create_future()
        try:
            async with asyncio.timeout(self._timeout):
                await confirmed
        except BaseException as error:
            self.forget(channel, listener, is_pattern=is_pattern)
            if isinstance(error, TimeoutError):
                why = f" ({self._link.last_error})" if self._wire is None and self._link.last_error else ""
                message = f"the server did not confirm to {channel!r} within {self._timeout:g} s{why}; try again later"
                raise Unavailable(message) from error
            raise

    def forget(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """End `listen`, at once."""
        topics, key = self._table(is_pattern=is_pattern), channel.encode()
        topic = topics.get(key)
        if topic is None:
            return
        topic.listeners.pop(listener, None)
        topic.newcomers.pop(listener, None)
        if not topic.listeners and not topic.newcomers:
            del topics[key]
            if self._wire is not None:
                self._wire.write(pack("PUNSUBSCRIBE" if is_pattern else "UNSUBSCRIBE", channel))
                self._unanswered.append(None)

    def server_was_lost(self, at: float) -> bool:
        """Leave a connection from before, for the server may have moved; whether it was one."""
        is_from_before = self._connected_at < at
        if is_from_before:
            self._link.drop(ConnectionError("the server may have moved"))
        return is_from_before

    # What the link tells us.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        self._connected_at = self._loop.time()
        self._subscribe([*self._channels.values(), *self._patterns.values()])

    def received(self, reply: Reply) -> None:
        if isinstance(reply, ErrorReply):
            self._refused(reply)
            return
        kind: Reply = reply[0]
        if kind == b"message":
            topic = self._channels.get(reply[1])
            if topic is not None:
                topic.dispatch(topic.name, reply[2])
        elif kind == b"pmessage":
            topic = self._patterns.get(reply[1])
            if topic is not None:
                topic.dispatch(reply[2].decode(errors="surrogateescape"), reply[3])
        elif kind in _ANSWERS:
            topic = self._unanswered.popleft()
            if topic is not None:
                topic.confirm()

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._wire = None
        self._unanswered.clear()
        for topic in [*self._channels.values(), *self._patterns.values()]:
            topic.is_confirmed = False

    def writable(self) -> None:
        """Nothing waits to be written here."""

    # Below.

    def _table(self, *, is_pattern: bool) -> "dict[bytes, _Topic]":
        return self._patterns if is_pattern else self._channels

    def _subscribe(self, topics: "Iterable[_Topic]") -> None:
        """Ask for these now, if connected; else `connected` will."""
        if self._wire is not None:
            for topic in topics:
                topic.is_refused = False
                self._wire.write(pack(topic.verb, topic.name))
                self._unanswered.append(topic)

    def _refused(self, reply: ErrorReply) -> None:
        topic = self._unanswered.popleft()
        if topic is None:
            return
        why = str(reply)
        if reply.code == "NOPERM" and topic.verb == "PSUBSCRIBE":
            why += f"; a pattern needs a rule of its own in the user's ACL: &{topic.name}"
        _log.error("%s: the server refused to let us listen to %r: %s", self._purpose, topic.name, why)
        topic.is_refused = True
        topic.closed(Unavailable(f"the server refused to let us listen to {topic.name!r}: {why}"))

    def _ping(self) -> None:
        delay = _PING_EVERY
        # Who still listens, as an inbox does, hears again when the server lets us.
        self._subscribe([topic for topic in [*self._channels.values(), *self._patterns.values()] if topic.is_refused])
        if self._wire is not None:
            heard_at = self._wire.alive_at()
            silence = self._loop.time() - heard_at
            if heard_at < self._pinged_at:
                self._link.drop(ConnectionError(f"no reply to a ping for {self._timeout:g} s"))
            elif silence < _PING_EVERY:
                delay = _PING_EVERY - silence
            else:
                self._pinged_at = self._loop.time()
                self._wire.write(pack("PING"))
                self._unanswered.append(None)
                delay = self._timeout
        self._timer = self._loop.call_later(delay, self._ping)


@dataclass(eq=False, slots=True)
class _Topic:
    """A channel or a pattern, and who listens.

    Attributes:
        name: The channel, or the glob.
        verb: What asks the server for it.
        listeners: Those who have been told that the server had confirmed.
        newcomers: Those who wait for that.
        is_confirmed: Whether it has, on the present connection.
        is_refused: Whether it has refused instead.
    """

    name: str
    verb: Literal["SUBSCRIBE", "PSUBSCRIBE"]
    listeners: dict[Listener, None] = field(default_factory=dict[Listener, None])
    newcomers: "dict[Listener, asyncio.Future[None]]" = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    is_confirmed: bool = False
    is_refused: bool = False

    def dispatch(self, channel: str, text: bytes) -> None:
        for listener in self.listeners:
            try:
                listener.on_message(channel, text)
            except Exception as error:  # noqa: BLE001 - anyone may publish anything
                _log.warning("what came on %r is none of ours, and is ignored: %.100r (%r)", channel, text, error)

    def confirm(self) -> None:
        """The server has subscribed us. Those who listen already did so on a connection that was lost."""
        self.is_confirmed = True
        for listener in self.listeners:
            listener.missed()
        for listener, confirmed in self.newcomers.items():
            self.listeners[listener] = None
            if not confirmed.done():
                confirmed.set_result(None)
        self.newcomers.clear()

    def closed(self, error: InconcertError) -> None:
        for listener in list(self.listeners):
            listener.closed(error)
        for confirmed in self.newcomers.values():
            if not confirmed.done():
                confirmed.set_exception(error)
                confirmed.exception()  # asyncio is not to warn of it when its caller was cancelled meanwhile
