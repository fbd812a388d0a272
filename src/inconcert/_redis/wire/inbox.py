"""One inbox per process: a subscribed connection on which scripts tell its waiters to look.

A script publishes `ADDRESS KIND REST` to the inbox of the process in which the receiver waits:

| KIND | REST | said by | heard by |
| --- | --- | --- | --- |
| `permit` | `TOKEN AFTER_LOSS END_MS LEASE_MS TERMS HOLDERS`; 0 to look then | `serve_line` | `_core/permits.py` |
| `mailbox` | `MS WAITERS`, when to look | `notify_line` | `mailboxes/fetch.py` |
| `signal` | the payload, and in the next line WAITERS | `notify_first` | `signals/waiter.py` |
| `limiter` | `GRANTED WAIT_US COST_US BURST_US INTERVAL_US LINE` | `serve_limiter` | `rate_limiter.py` |
| `room` | `LINE`, in which there may be room | `wake_first_putter` | `queues/put.py` |
| `done` | nothing: no item is left | `tell_joiners` | `queues/join.py` |
| `shut` | nothing: the queue is shut down | `queues/shut` | `queues/shutdown.py` |
| `bell` | `BELL`, which rang | `ring` | `_cluster/bells.py` |
| `ended` | nothing: the job that it watches has ended | `notify_watchers` | `tasks/following/watch.py` |
| `cancelled` | `JOB-ID`, a job that it holds | `cancel_jobs` | `tasks/running/worker_lease.py` |
| `ask` | `ADDRESS ENTRIES`: who asks, and how much may be answered | `reports/ask` | `reports/reporter.py` |
| `evicted` | nothing: the lease of this holder was released by force | `reports/evicted` | `_core/permit_state.py` |
| `report` | JSON | `reports/answer` | `reports/inspect.py` |

HOLDERS, WAITERS and LINE are keys.  The script asks first whether anyone listens where a place in a line depends on it,
so it knows at once whether that process is still there.  A message is a hint: what it says is also in the server's
keys, and after a lost connection everyone who waits looks again.

The server may know an address of someone who waits no more: what took it out of the line was lost, or the server came
back with older data.  Where such a stray would stand in the way of others, the message names the key of its line, and
`on_unclaimed` says how it leaves.

The inbox has a connection of its own, so that no flood of other messages delays a wake-up.
"""

from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from typing import Protocol

from inconcert._redis.wire.pubsub import Listener
from inconcert._redis.wire.turns import each_in_turns
from inconcert.errors import InconcertError


class InboxReceiver:
    """The base of what waits for messages, or is to know when the coordinator closes."""

    _closed_by: InconcertError | None = None

    def on_message(self, rest: str) -> None:
        """Act on a message, which is given without its address and kind."""

    def recheck(self) -> object:
        """Ask the server for what was waited for: messages may have been missed."""

    def closed(self, error: InconcertError) -> None:
        """Stop waiting, with this error, and leave nothing behind on the server."""
        self._closed_by = error

    def raise_if_closed(self) -> None:
        """Raise the error with which `closed` was called, if it was."""
        if self._closed_by is not None:
            raise self._closed_by.with_traceback(None)  # many raise this one


class Messages(Protocol):
    """Subscribed connections, to one server or to the masters of a cluster."""

    async def open(self) -> None:
        """Connect now."""

    async def close(self) -> None:
        """Release the connections."""

    def closed(self, error: InconcertError) -> Awaitable[object]:
        """End all listeners, and refuse new ones; the awaitable is done when the last has ended."""
        ...

    async def listen(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """Subscribe a listener to a channel until `forget`. It receives everything published after this returns.

        Raises:
            Unavailable: The server did not confirm in time, or refused.
        """

    def forget(self, channel: str, listener: Listener, *, is_pattern: bool = False) -> None:
        """End `listen`, at once."""

    def server_was_lost(self, at: float) -> bool:
        """Drop connections opened before this time, because the server may have moved; returns whether it did."""
        ...


class Inbox:
    """The inbox of one process."""

    def __init__(self, pubsub: Messages, channel: str) -> None:
        self._channel = channel
        self._pubsub = pubsub  # used for nothing else
        self._receivers: dict[str, InboxReceiver] = {}
        self._unclaimed: dict[str, Callable[[str, str], None]] = {}
        # called with kind, address and rest, when a message comes for an address that is not registered, and
        # its kind is not one of `on_unclaimed`
        self.on_stray: Callable[[str, str, str], None] | None = None

    async def open(self) -> None:
        """Connect and subscribe; raises `Unavailable` if the server cannot be reached, or refuses us."""
        try:
            await self._pubsub.open()
            await self._pubsub.listen(self._channel, self)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Give the connection back."""
        await self._pubsub.close()

    def register(self, address: str, receiver: InboxReceiver) -> None:
        """Let someone hear what comes for `address`, until `unregister`."""
        self._receivers[address] = receiver

    def follow(self, key: str, address: str) -> None:
        """Receive what scripts on this key say to a registered address: on one server all scripts have one channel."""

    def listens(self, key: str) -> bool:
        """True if scripts on this key find this process: one that they do not find loses its place in line."""
        del key
        return True

    async def listen(self, key: str) -> None:
        """Return when scripts on this key find this process, or when that takes too long."""

    def unregister(self, address: str) -> None:
        """End `register`."""
        self._receivers.pop(address, None)

    def receivers(self) -> list[InboxReceiver]:
        """All that are registered."""
        return [*self._receivers.values()]

    def on_unclaimed(self, kind: str, leave: Callable[[str, str], None]) -> None:
        """Call `leave(address, rest)` when a message of this kind comes for an address that is not registered."""
        self._unclaimed[kind] = leave

    def dispatch(self, message: str) -> None:
        """Pass on a message, `ADDRESS KIND REST`, as if it had come through the inbox."""
        address, _, text = message.partition(" ")
        kind, _, rest = text.partition(" ")
        receiver = self._receivers.get(address)
        if receiver is not None:
            receiver.on_message(rest)
        elif leave := self._unclaimed.get(kind):
            leave(address, rest)
        elif self.on_stray is not None:
            self.on_stray(kind, address, rest)

    def server_was_lost(self, at: float) -> None:
        """Leave a connection from before: the server may have moved. Replies that told of grants may be lost, too."""
        if not self._pubsub.server_was_lost(at):
            self.missed()

    # What the connection tells us.

    def on_message(self, channel: str, text: bytes) -> None:
        del channel  # there is only one
        self.dispatch(text.decode())

    def missed(self) -> None:
        """Let everyone look who waits."""
        self.recheck_these(self._receivers)

    def closed(self, error: InconcertError) -> Awaitable[None]:
        """Send everyone who waits away; the awaitable is done when the last was."""

        def send_away(address: str) -> None:
            if (receiver := self._receivers.get(address)) is not None:
                receiver.closed(copy(error))  # its own: an error that several raise shows where the last one was raised

        return each_in_turns("ending a wait", [*self._receivers], send_away)

    def recheck_these(self, addresses: Iterable[str]) -> None:
        """Let those look who wait at these addresses, and still do when it is their turn."""

        def recheck(address: str) -> None:
            if (receiver := self._receivers.get(address)) is not None:
                receiver.recheck()

        each_in_turns("looking for missed messages", [*addresses], recheck)
