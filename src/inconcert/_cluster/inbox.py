"""The inbox of a process on a cluster: a sharded channel in each slot in which it waits.

A script publishes to the channel in the slot of its keys, because no other can be reached from there.  The process
subscribes when its first waiter of a slot asks, without waiting for that: once the subscription is confirmed, all who
wait in the slot ask again, as they do after a lost connection.
"""

from collections.abc import Callable

from inconcert._cluster.pubsub import ShardedPubSub
from inconcert._redis.inbox import Inbox, InboxReceiver
from inconcert._redis.slots import slot_of
from inconcert.errors import InconcertError

__all__ = ["ShardedInbox"]


class ShardedInbox(Inbox):
    """The inbox of one process.

    Args:
        pubsub: The connections, used for nothing else.
        channel_of: Where a process listens to scripts on a key.
    """

    def __init__(self, pubsub: ShardedPubSub, channel_of: Callable[[str], str]) -> None:
        super().__init__(pubsub, "")
        self._sharded = pubsub
        self._channel_of = channel_of
        self._slots: dict[int, _Slot] = {}
        self._slot_of: dict[str, _Slot] = {}  # by address

    async def open(self) -> None:
        """Nothing to do: the first waiter of a slot subscribes."""

    def follow(self, key: str, address: str) -> None:
        """Receive what scripts on this key say to a registered address."""
        number = slot_of(key)
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot(self)
            self._sharded.follow(self._channel_of(key), slot)
        slot.waiting[address] = self._receivers[address]
        self._slot_of[address] = slot

    def unregister(self, address: str) -> None:
        """End `register`."""
        super().unregister(address)
        slot = self._slot_of.pop(address, None)
        if slot is not None:
            slot.waiting.pop(address, None)

    def recheck(self, concerns: Callable[[int], bool]) -> None:
        """Let those recheck who wait in these slots: replies that told of grants may be lost."""
        for number, slot in list(self._slots.items()):
            if concerns(number):
                slot.missed()


class _Slot:
    """Who waits in a slot; listens to its channel.

    Attributes:
        waiting: By address.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.waiting: dict[str, InboxReceiver] = {}

    def on_message(self, channel: str, text: bytes) -> None:
        self._inbox.on_message(channel, text)

    def missed(self) -> None:
        for receiver in list(self.waiting.values()):
            receiver.recheck()

    def closed(self, error: InconcertError) -> None:
        for receiver in list(self.waiting.values()):
            receiver.closed(error)
