"""Waiting until all items of a queue are done."""

import random
import time

from inconcert._core.session import Session
from inconcert.queues.store import JOIN, ItemKeys
from inconcert.queues.waiter import LONGEST_WAIT, SHORTEST_WAIT, QueueWaiter


class Join(QueueWaiter):
    """A call that waits until no item is left that is not acknowledged or dead-lettered."""

    verb = "join"

    def __init__(self, session: Session, keys: ItemKeys, name: str) -> None:
        super().__init__(session, name, keys.joiners, session.new_address())
        self._keys = keys

    async def within(self, timeout: float | None) -> None:
        """Wait; None waits forever.

        Raises:
            TimeoutError: Some are left.
        """
        give_up_at = None if timeout is None else time.monotonic() + timeout
        await self._register(timeout)
        try:
            while left := await self._left():
                patience = LONGEST_WAIT if give_up_at is None else give_up_at - time.monotonic()
                if patience <= 0:
                    raise TimeoutError(
                        f"{left} items of queue {self.queue!r} were not done within {timeout:g} s; wait longer with"
                        " timeout=, or look at counts()"
                    )
                await self._told_within(min(patience, random.uniform(SHORTEST_WAIT, LONGEST_WAIT)))
        finally:
            self._unregister()

    async def _left(self) -> int:
        left: int = await self._session.run(JOIN(self._keys, address=self.address))
        return left
