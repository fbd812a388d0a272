"""The commands of a process on their way to the masters of a cluster: one channel to each that is in use.

A command that a node refuses because its slot has moved, is moving, or has no master now, was not executed.  It comes
back here and is sent again: at once to the node that is named, otherwise after a pause, behind which all later commands
of the slot are held back; until its own timeout.  Only renewals pass them.  When a node is no longer a master, what was
under way to it is sent to its successor, like after a lost connection: each script answers a second run as the first.

Source: docs/explanation/topology.md
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain

from inconcert._cluster.cluster import Cluster
from inconcert._cluster.slot_map import Node
from inconcert._redis.protocol.replies import ErrorReply
from inconcert._redis.protocol.slots import slot_of
from inconcert._redis.wire.background import attempt
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.channel import Channel
from inconcert._redis.wire.turns import each_in_turns
from inconcert.errors import InconcertError, NotConnected, Unavailable

_FIRST_PAUSE = 0.01  # seconds; doubled each time that the slot is refused again
_LONGEST_PAUSE = 0.5
_SLOW = 0.5  # seconds without an answer after which the node may have been replaced
_SOON = 1.0  # seconds after a pause within which a refusal counts as being refused again


class Router:
    """The channels to the masters of a cluster."""

    def __init__(self, cluster: Cluster, *, timeout: float, reconnected: Callable[[Node], None]) -> None:
        self._cluster = cluster
        self._timeout = timeout  # of a call, everything included, in seconds
        self._reconnected = reconnected  # told of a channel that is back after a loss, and of a node that was replaced
        self._loop = asyncio.get_running_loop()
        self._channels: dict[Node, Channel] = {}
        self._pauses: dict[int, _Pause] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed = False
        cluster.on_change(self._map_changed)
        cluster.watch(self._is_whole)
        cluster.channel_to = self._connected_to
        cluster.is_suspect = lambda node: node in self._channels and not self._is_well(self._channels[node])

    async def open(self) -> None:
        """Connect to one master; to the others with the first command for each.

        Raises:
            Unavailable: It cannot be reached, or refuses the connection.
        """
        node = next(iter(self._cluster.map.masters), None)
        if node is None:
            raise Unavailable("no node of the cluster has slots; create the cluster first")
        channel = self._channels[node] = self._new_channel(node)
        await channel.open()

    async def close(self) -> None:
        """Wait at most 2 s for calls under way, then fail them and release the connections."""
        self.is_closed = True
        closing = [channel.close() for channel in self._channels.values()]
        await asyncio.gather(*closing, *self._closing)
        for pause in self._pauses.values():
            pause.timer.cancel()
        calls = [call for pause in self._pauses.values() for call in pause.calls]
        self._pauses.clear()
        await each_in_turns("ending a call", calls, lambda call: call.give_up("before the coordinator was closed"))

    def submit(self, call: Call) -> None:
        """Send a call with the next flush, whatever else is under way."""
        if self.is_closed:
            raise NotConnected(f"{call.operation} was not sent: the coordinator is closed; open it with `async with`")
        call.give_up_at = self._loop.time() + self._timeout
        self._send(call)

    def flush(self) -> None:
        """Write submitted calls now."""
        for channel in self._channels.values():
            channel.flush()

    async def has_room(self, key: str, call: Call | None = None) -> None:
        """Wait while too many calls or bytes are under way to the master of this key."""
        channel = self._channel(slot_of(key))
        if channel is not None:
            await channel.has_room(key, call)

    @property
    def is_full(self) -> bool:
        """True if `has_room` would wait, for some key."""
        return any(channel.is_full for channel in self._channels.values())

    @property
    def is_idle(self) -> bool:
        """True if nothing is under way to any master."""
        return all(channel.is_idle for channel in self._channels.values())

    def under_way(self) -> Iterable[Call]:
        """The calls that were submitted and not answered."""
        paused = (pause.calls for pause in self._pauses.values())
        return chain.from_iterable(chain(paused, (channel.under_way() for channel in self._channels.values())))

    def trouble(self, key: str, since: float) -> InconcertError | None:
        """Why nothing was answered about this key since this time; None if something was."""
        pause = self._pauses.get(slot_of(key))
        if pause is not None and pause.is_on:
            return Unavailable(f"the cluster cannot serve this key now ({pause.reason}); try again later")
        channel = self._channel(slot_of(key))
        return channel.trouble(key, since) if channel is not None else None

    # Called by channels.

    def refused(self, call: Call, reply: ErrorReply) -> None:
        """Send a call where the reply says, or later."""
        call.is_redirected = False
        slot = slot_of(call.key)
        if reply.code == "ASK":
            if call.must_run or call.is_wanted:
                call.is_redirected = True
                self._channel_to(self._cluster.named_in(reply)).take(call)
        elif reply.code == "MOVED" and self._cluster.moved(slot, self._cluster.named_in(reply)):
            self._resend(call)
        elif reply.code == "TRYAGAIN" and (simpler := call.with_one_key()) is not None:
            simpler.give_up_at = call.give_up_at
            self._resend(simpler)
        else:
            self._cluster.refresh()
            self._pause(slot, call, reply)

    def lost(self) -> None:
        """A connection was lost: another node may have its slots."""
        if not self.is_closed:
            self._cluster.refresh()

    # Private.

    def _is_whole(self) -> bool:
        return all(map(self._is_well, self._channels.values()))

    def _is_well(self, channel: Channel) -> bool:
        """True if it is connected, and does not wait unusually long for an answer."""
        return channel.is_connected and not channel.trouble("", self._loop.time() - _SLOW)

    def _connected_to(self, node: Node) -> Channel | None:
        channel = self._channels.get(node)
        return channel if channel is not None and channel.is_connected and not self.is_closed else None

    def _send(self, call: Call) -> None:
        slot = slot_of(call.key)
        pause = self._pauses.get(slot)
        if pause is not None and pause.is_on and not call.overtakes:
            pause.calls.append(call)
            return
        channel = self._channel(slot)
        if channel is None:
            self._cluster.refresh()
            self._pause(slot, call, Unavailable("no node has its slot"))
        else:
            channel.take(call)

    def _resend(self, call: Call) -> None:
        if self._loop.time() >= call.give_up_at:
            call.give_up(f"within {self._timeout:g} s")
        elif call.must_run or call.is_wanted:
            self._send(call)

    def _pause(self, slot: int, call: Call, reason: Exception) -> None:
        """Send this call, and later ones of its slot, after a while."""
        now = self._loop.time()
        pause = self._pauses.get(slot)
        if pause is None or (not pause.is_on and now > pause.ended_at + _SOON):
            pause = self._pauses[slot] = _Pause(_FIRST_PAUSE)
        elif not pause.is_on:
            pause = self._pauses[slot] = _Pause(min(2 * pause.length, _LONGEST_PAUSE))
        if not pause.calls:
            pause.timer = self._loop.call_later(pause.length, self._end_pause, pause)
        pause.reason = reason
        pause.calls.append(call)

    def _end_pause(self, pause: "_Pause") -> None:
        calls, pause.calls = pause.calls, deque()
        pause.ended_at = self._loop.time()
        for call in calls:
            attempt("sending a call again", self._resend, call)

    def _channel(self, slot: int) -> Channel | None:
        """The channel to the master of this slot; None if it has none."""
        node = self._cluster.map.owner(slot)
        return None if node is None else self._channel_to(node)

    def _channel_to(self, node: Node) -> Channel:
        channel = self._channels.get(node)
        if channel is None:
            channel = self._channels[node] = self._new_channel(node)
            channel.start()
        return channel

    def _new_channel(self, node: Node) -> Channel:
        pool = self._cluster.pool(node)
        return Channel(
            pool,
            timeout=self._timeout,
            reconnected=lambda _: self._reconnected(node),
            owner=self,
            purpose=f"command channel to {node}",
        )

    def _map_changed(self) -> None:
        """Send elsewhere the calls that are under way to nodes that are no longer masters."""
        if self.is_closed:
            return
        gone = [node for node in self._channels if node not in self._cluster.map.masters]
        for node in gone:
            channel = self._channels.pop(node)
            calls = channel.give_back()
            closing = asyncio.ensure_future(channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            for call in calls:
                call.is_redirected = False
                self._resend(call)
            self._reconnected(node)  # in a way: its successor may lack what it had granted


class _Pause:
    """A while in which nothing of one slot is sent."""

    timer: asyncio.TimerHandle
    reason: Exception

    def __init__(self, length: float) -> None:
        self.length = length  # how long it is, in seconds
        self.calls: deque[Call] = deque()  # the calls to send at its end
        self.ended_at = 0.0  # when it ended, by the loop's clock

    @property
    def is_on(self) -> bool:
        """True if it has begun and not ended."""
        return bool(self.calls)
