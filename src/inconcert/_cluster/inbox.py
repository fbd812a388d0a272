"""The inbox of a process on a cluster: a sharded channel in each slot in which it waits.

A script publishes to the channel in the slot of its keys, because no other can be reached from there.  A process
subscribes before it joins a line, because scripts pass over places of processes that do not listen.  Other waiters do
not wait for that: once the subscription is confirmed, all in the slot ask again, as after a lost connection.
"""

import asyncio
from collections.abc import Awaitable, Callable

import anyio

from inconcert._cluster.pubsub import ShardedPubSub
from inconcert._redis.protocol.slots import slot_of
from inconcert._redis.wire.inbox import Inbox, InboxReceiver
from inconcert._redis.wire.turns import each_in_turns
from inconcert.errors import InconcertError


class ShardedInbox(Inbox):
    """The inbox of one process."""

    def __init__(self, pubsub: ShardedPubSub, channel_of: Callable[[str], str], *, timeout: float) -> None:
        super().__init__(pubsub, "")
        self._timeout = timeout  # of a subscription, in seconds
        self._sharded = pubsub  # used for nothing else
        self.channel_of = channel_of  # where this process listens to scripts on a key
        self._slots: dict[int, _Slot] = {}
        self._slot_of: dict[str, _Slot] = {}  # by address

    async def open(self) -> None:
        """Nothing to do: the first waiter of a slot subscribes."""

    def follow(self, key: str, address: str) -> None:
        """Receive what scripts on this key say to a registered address."""
        slot = self._slot(key)
        slot.waiting[address] = self._receivers[address]
        self._slot_of[address] = slot

    def listens(self, key: str) -> bool:
        """True if this process has subscribed in the slot of this key."""
        slot = self._slots.get(slot_of(key))
        return slot is not None and slot.confirmed.is_set()

    def losses(self, key: str) -> int:
        """The number of times that this process may have missed a message of scripts on this key, or lost its place."""
        slot = self._slots.get(slot_of(key))
        return 0 if slot is None else slot.losses

    async def listen(self, key: str) -> None:
        """Subscribe in the slot of this key, and return when that is confirmed, or takes too long."""
        with anyio.move_on_after(self._timeout):
            await self._slot(key).confirmed.wait()

    def unregister(self, address: str) -> None:
        """End `register`."""
        super().unregister(address)
        slot = self._slot_of.pop(address, None)
        if slot is not None:
            slot.waiting.pop(address, None)

    @property
    def has_waiters(self) -> bool:
        """True if anyone waits for messages."""
        return any(slot.waiting for slot in self._slots.values())

    def recheck(self, concerns: Callable[[int], bool]) -> None:
        """Let those recheck who wait in these slots: replies that told of grants may be lost."""
        each_in_turns(
            "looking for missed messages",
            [slot for number, slot in self._slots.items() if concerns(number)],
            _Slot.recheck,
        )

    def closed(self, error: InconcertError) -> Awaitable[None]:
        """Send everyone who waits away, also for a subscription."""
        told = super().closed(error)
        for slot in self._slots.values():
            slot.confirmed.set()
        return told

    def _slot(self, key: str) -> "_Slot":
        number = slot_of(key)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot(self)
            self._sharded.follow(self.channel_of(key), slot)
        return slot


class _Slot:
    """The listener to the channel of a slot, for all that wait there."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.losses = 0  # how often it was rechecked
        self.confirmed = asyncio.Event()  # set once this process has subscribed
        self.waiting: dict[str, InboxReceiver] = {}  # by address

    def on_message(self, channel: str, text: bytes) -> None:
        self._inbox.on_message(channel, text)

    def missed(self) -> None:
        self.confirmed.set()
        self.recheck()

    def recheck(self) -> None:
        self.losses += 1
        self._inbox.recheck_these(self.waiting)

    def closed(self, error: InconcertError) -> None:
        self.confirmed.set()  # its waiters then find the coordinator closed
        for receiver in list(self.waiting.values()):
            receiver.closed(error)
