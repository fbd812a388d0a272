"""One subscribed connection, shared by all listeners of a process to any channel.

A channel is subscribed to once, with its first listener, and unsubscribed from with its last.  A lost connection is
re-established and subscribes to everything again; then all listeners are notified that messages may have been missed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Literal, Protocol

from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.operations import Operation
from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.wire.background import recurring
from inconcert._redis.wire.link import Link
from inconcert._redis.wire.turns import IN_A_TURN, each_in_turns
from inconcert._redis.wire.wire import Pool, Wire
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError, Unavailable

_log = logging.getLogger("inconcert.redis")

_PING_EVERY = 15.0  # seconds; without it a half-open connection would never be noticed, because nothing else is sent

# The first element of each reply to a command; everything else on this connection is unsolicited.
_ANSWERS = frozenset(
    {b"subscribe", b"ssubscribe", b"psubscribe", b"unsubscribe", b"punsubscribe", b"pong", ord("P"), ord("O")}
)  # PONG and OK, RESP3
_MESSAGES = frozenset({b"message", b"smessage"})
_OPPOSITES = {"SUBSCRIBE": "UNSUBSCRIBE", "PSUBSCRIBE": "PUNSUBSCRIBE"}


class Listener(Protocol):
    """Listens to a channel, or to all that match a pattern. Only `closed` may make it leave at once."""

    def on_message(self, channel: str, text: bytes) -> None:
        """Process a message."""

    def missed(self) -> None:
        """The connection was lost and re-established: messages may have been missed."""

    def closed(self, error: InconcertError) -> object:
        """No more messages: the coordinator is closing, or the server refused the subscription on reconnecting."""


class PubSub:
    """A connection with any number of channels, each with any number of listeners.

    A subclass may subscribe to channels in another way.
    """

    _verb: Literal["SUBSCRIBE", "SSUBSCRIBE"] = "SUBSCRIBE"

    def __init__(self, pool: Pool, *, timeout: float, purpose: str, ping_every: float | None = None) -> None:
        self._timeout = timeout  # seconds that the server may take to answer
        self._ping_every = ping_every or _PING_EVERY  # seconds of silence, after which a sign of life is asked for
        self._purpose = purpose  # as log messages name it
        self._link = Link(pool, self, timeout=timeout, purpose=purpose)
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._channels: dict[bytes, Topic] = {}
        self._patterns: dict[bytes, Topic] = {}
        self._unanswered: deque[Topic | Literal["AUTH", "SUNSUBSCRIBE"] | None] = deque()  # None: a reply to discard
        self.timer: asyncio.TimerHandle | None = None
        self._connected_at = self._pinged_at = 0.0
        self._end: InconcertError | None = None

    async def open(self) -> None:
        """Connect now, and fail at once if that fails. Without this call, the first listener starts the connection.

        Raises:
            Unavailable: The server cannot be reached, or refuses the connection.
        """
        await self._link.open()
        self.timer = self._loop.call_later(self._ping_every, self._ping)

    async def close(self) -> None:
        """Release the connection."""
        if self.timer is not None:
            self.timer.cancel()
        await self._link.close()
        self._wire = None

    def closed(self, error: InconcertError) -> Awaitable[None]:
        """End all listeners, and refuse new ones; the awaitable is done when the last has ended."""
        self._end = error
        topics = [*self._channels.values(), *self._patterns.values()]
        ends = chain.from_iterable(topic.ends() for topic in topics)
        return each_in_turns("ending a subscription", ends, lambda end: end(error))

    async def listen(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """Subscribe a listener to a channel or a glob until `forget`: it gets all that is published after this returns.

        Raises:
            Unavailable: The server did not confirm in time, or refused.
        """
        if self._end is not None:
            raise self._end.with_traceback(None)  # many raise this one
        topics, key = self._table(is_pattern=is_pattern), channel.encode()
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = Topic(channel, "PSUBSCRIBE" if is_pattern else self._verb)
            self._subscribe([topic])
        elif topic.is_refused:
            self._subscribe([topic])
        self._start()
        if topic.is_confirmed:
            topic.listeners[listener] = None
            return
        confirmed = topic.newcomers[listener] = self._loop.create_future()
        try:
            async with asyncio.timeout(self._timeout):
                await confirmed
        except BaseException as error:
            topic.listeners.pop(listener, None)
            topic.newcomers.pop(listener, None)
            self._drop_if_unused(topic)
            if isinstance(error, TimeoutError):
                why = f" ({self._link.last_error})" if self._wire is None and self._link.last_error else ""
                what = f"was not confirmed by the server within {self._timeout:g} s{why}; try again later"
                raise Operation.subscribing(channel).error(Unavailable, what) from error
            raise

    def forget(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """End `listen`, at once."""
        topics, key = self._table(is_pattern=is_pattern), channel.encode()
        topic = topics.get(key)
        if topic is None:
            return
        topic.listeners.pop(listener, None)
        topic.newcomers.pop(listener, None)
        self._drop_if_unused(topic)

    @property
    def is_connected(self) -> bool:
        """True if messages come in."""
        return self._wire is not None

    def adopt(self, topic: "Topic") -> "Topic":
        """Subscribe to what another connection gave back; returns what has its listeners from now on."""
        topics = self._table(is_pattern=topic.verb == "PSUBSCRIBE")
        known = topics.setdefault(topic.name.encode(), topic)
        if known is topic:
            topic.is_confirmed = False
            self._subscribe([topic])
        else:
            known.listeners.update(topic.listeners)
            known.newcomers.update(topic.newcomers)
            if known.is_confirmed:
                known.confirm()
        self._start()
        return known

    def give_back(self, is_wanted: "Callable[[Topic], bool]") -> "list[Topic]":
        """Forget these channels and patterns here, and return them; nothing is sent."""
        given: list[Topic] = []
        for topics in self._channels, self._patterns:
            names = [name for name, topic in topics.items() if is_wanted(topic)]
            given += [topics.pop(name) for name in names]
        return given

    def server_was_lost(self, at: float) -> bool:
        """Drop a connection opened before this time, because the server may have moved; returns whether it did."""
        is_from_before = self._connected_at < at
        if is_from_before:
            self._link.drop(ConnectionError("the server may have moved"))
        return is_from_before

    def server_moved(self, to: Node | None) -> None:
        """Connect to this server at once, unless connected to it; to none if it is None."""
        self._link.server_moved(to)

    @property
    def has_listeners(self) -> bool:
        """True if anyone listens."""
        return bool(self._channels or self._patterns)

    # Called by the link.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        self._connected_at = self._loop.time()
        self._subscribe([*self._channels.values(), *self._patterns.values()])

    def received(self, reply: Reply) -> None:
        if isinstance(reply, ErrorReply):
            self._refused(reply)
            return
        kind: Reply = reply[0]
        if kind in _MESSAGES:
            topic = self._channels.get(reply[1])
            if topic is not None:
                topic.dispatch(topic.name, reply[2])
        elif kind == b"pmessage":
            topic = self._patterns.get(reply[1])
            if topic is not None:
                topic.dispatch(reply[2].decode(errors="surrogateescape"), reply[3])
        elif kind == b"sunsubscribe":
            self._subscription_ended(reply[1])
        elif kind in _ANSWERS:
            answered = self._unanswered.popleft()
            if isinstance(answered, Topic) and self._has(answered):
                answered.confirm()

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._wire = None
        self._unanswered.clear()
        for topic in [*self._channels.values(), *self._patterns.values()]:
            topic.is_confirmed = False

    def writable(self) -> None:
        """Nothing to do: no writes are pending here."""

    def log_in(self, command: bytes) -> None:
        if self._wire is not None:
            self._wire.write(command)
            self._unanswered.append("AUTH")

    # Private.

    def _start(self) -> None:
        if self.timer is None:
            self._link.start()
            self.timer = self._loop.call_later(self._ping_every, self._ping)

    def _subscription_ended(self, name: bytes) -> None:
        """A node of a cluster has ended a subscription: as it was asked to, or because the slot has left it."""

    def _has(self, topic: "Topic") -> bool:
        """True if it has not been given back meanwhile."""
        return self._table(is_pattern=topic.verb == "PSUBSCRIBE").get(topic.name.encode()) is topic

    def _drop_if_unused(self, topic: "Topic") -> None:
        if not topic.listeners and not topic.newcomers and self._has(topic):
            del self._table(is_pattern=topic.verb == "PSUBSCRIBE")[topic.name.encode()]
            if self._wire is not None:
                self._unsubscribe(self._wire, topic)

    def _unsubscribe(self, wire: Wire, topic: "Topic") -> None:
        wire.write(pack(_OPPOSITES[topic.verb], topic.name))
        self._unanswered.append(None)

    def _table(self, *, is_pattern: bool) -> "dict[bytes, Topic]":
        return self._patterns if is_pattern else self._channels

    def _subscribe(self, topics: "Iterable[Topic]") -> None:
        """Subscribe to these now if connected; otherwise `connected` will. To many in several turns of the loop."""
        wire = self._wire
        if wire is None:
            return

        def subscribe(topic: Topic) -> None:
            if self._wire is wire and self._has(topic):  # otherwise it has left, or the next connection does it
                topic.is_refused = False
                wire.write(pack(topic.verb, topic.name))
                self._unanswered.append(topic)

        each_in_turns("subscribing", topics, subscribe)

    def _refused(self, reply: ErrorReply) -> None:
        topic = self._unanswered.popleft()
        if topic == "AUTH":
            self._login_refused(reply)
        if not isinstance(topic, Topic):
            return
        why = str(reply)
        if reply.code == "NOPERM" and topic.verb == "PSUBSCRIBE":
            why += f"; a pattern needs a rule of its own in the user's ACL: &{topic.name}"
        _log.error("%s: the server refused to subscribe to %r: %s", self._purpose, topic.name, why)
        topic.is_refused = True
        topic.closed(Operation.subscribing(topic.name).error(Unavailable, f"was refused by the server: {why}"))

    def _login_refused(self, reply: ErrorReply) -> None:
        if reply.code == "WRONGPASS":
            self._link.login_refused(reply)
        else:  # before RESP3 a subscribed connection can only subscribe
            self._link.drop(ConnectionError("new credentials need a new connection"))

    @recurring("asking a connection for messages for a sign of life")
    def _ping(self) -> None:
        delay = self._ping_every
        # Remaining listeners, such as an inbox, receive messages again once the server allows it.
        self._subscribe([topic for topic in [*self._channels.values(), *self._patterns.values()] if topic.is_refused])
        if self._wire is not None:
            heard_at = self._wire.alive_at()
            silence = self._loop.time() - heard_at
            if heard_at < self._pinged_at:
                self._link.drop(ConnectionError(f"no reply to a ping for {self._timeout:g} s"))
            elif silence < self._ping_every:
                delay = self._ping_every - silence
            else:
                self._pinged_at = self._loop.time()
                self._wire.write(pack("PING"))
                self._unanswered.append(None)
                delay = self._timeout
        self.timer = self._loop.call_later(delay, self._ping)


@dataclass(eq=False, slots=True)
class Topic:
    """A channel or a pattern, and its listeners."""

    name: str  # the channel, or the glob
    verb: Literal["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]  # the command that subscribes to it
    # listeners whose subscription the server has confirmed
    listeners: dict[Listener, None] = field(default_factory=dict[Listener, None])
    # listeners that wait for the confirmation
    newcomers: "dict[Listener, asyncio.Future[None]]" = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    is_confirmed: bool = False  # whether the server has confirmed, on the current connection
    is_refused: bool = False  # whether the server has refused instead

    def dispatch(self, channel: str, text: bytes) -> None:
        listeners = [*self.listeners]  # one may leave when it is told
        if len(listeners) <= IN_A_TURN:
            for listener in listeners:
                _tell(listener, channel, text)
            return

        def tell(listener: Listener) -> None:
            if listener in self.listeners:
                _tell(listener, channel, text)

        each_in_turns("telling a listener", listeners, tell)

    def confirm(self) -> None:
        """The server confirmed. Listeners that were confirmed before had subscribed on a connection that was lost."""
        self.is_confirmed = True
        each_in_turns("looking for missed messages", [*self.listeners], self._has_missed)
        for listener, confirmed in self.newcomers.items():
            self.listeners[listener] = None
            if not confirmed.done():
                confirmed.set_result(None)
        self.newcomers.clear()

    def _has_missed(self, listener: Listener) -> None:
        if listener in self.listeners:
            listener.missed()

    def closed(self, error: InconcertError) -> None:
        each_in_turns("ending a subscription", self.ends(), lambda end: end(error))

    def ends(self) -> "Iterator[Callable[[InconcertError], object]]":
        """Ends each of its listeners with an error."""
        for listener in list(self.listeners):
            yield listener.closed
        for confirmed in list(self.newcomers.values()):
            yield partial(_refuse, confirmed)


def _tell(listener: Listener, channel: str, text: bytes) -> None:
    try:
        listener.on_message(channel, text)
    except Exception as error:  # noqa: BLE001 - anyone may publish anything
        _log.warning("ignored a foreign message on %r: %.100r (%r)", channel, text, error)


def _refuse(confirmed: "asyncio.Future[None]", error: InconcertError) -> None:
    if not confirmed.done():
        confirmed.set_exception(error)
        confirmed.exception()  # so that asyncio does not warn when the caller was cancelled meanwhile
