"""Shutting a queue down in all processes, and knowing that it is."""

import time
from collections.abc import Callable

from inconcert._core.session import Session
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert.errors import OutcomeUnknown, Unavailable
from inconcert.queues.store import SHUT, STANDBY, ItemKeys

OPEN, SHUT_DOWN, SHUT_AT_ONCE = 0, 1, 2  # states of a queue, as the script knows them

_ASK_AGAIN = 30.0  # seconds; the server forgets after 60 s who waits


async def set_state(session: Session, keys: ItemKeys, state: int) -> None:
    """Shut a queue down, or open it, and tell all consumers that wait."""
    has_more = 1
    while has_more:
        has_more = await session.run(
            SHUT(keys, state=state, inboxes=session.inboxes(keys.bodies), request=session.new_address())
        )


class Standby(InboxReceiver):
    """A consumer that finds nothing, and is told when its queue is shut down.

    Args:
        on_told: Called when it is to look again.
    """

    def __init__(self, session: Session, keys: ItemKeys, on_told: Callable[[], None]) -> None:
        self._session = session
        self._keys = keys
        self._on_told = on_told
        self._address = session.new_address()
        self._ask_at = 0.0  # by the local monotonic clock; it is told of everything before

    async def is_over(self) -> bool:
        """True if the queue is shut down, and nothing is left for this consumer to do; asks only if it may be."""
        now = time.monotonic()
        if now < self._ask_at:
            return False
        inbox = self._session.inbox
        inbox.register(self._address, self)
        if not inbox.listens(self._keys.standby):
            await inbox.listen(self._keys.standby)
        inbox.follow(self._keys.standby, self._address)
        self._ask_at = now + _ASK_AGAIN  # before it asks: what it is told meanwhile counts
        try:
            is_over: int = await self._session.run(STANDBY(self._keys, address=self._address))
        except (Unavailable, OutcomeUnknown):  # such as from a full server, which lets consumers go on
            self._ask_at = 0.0
            return False
        if is_over:
            self._ask_at = 0.0  # it may be opened again
        return bool(is_over)

    def close(self) -> None:
        """Listen no more."""
        self._session.inbox.unregister(self._address)

    # Called by the inbox.

    def on_message(self, rest: str) -> None:
        """The queue is shut down, or nothing is left of one that is."""
        del rest
        self.recheck()

    def recheck(self) -> None:
        """Ask again: the queue may have been shut down."""
        self._ask_at = 0.0
        self._on_told()
