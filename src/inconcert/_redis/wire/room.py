"""Callers that wait for room on a channel, because too much of the process is under way there.

They wait in the order in which they came, the large calls in a line of their own, for which there is less room.  Who
is let in looks again before it sends its call: another may have taken the room by then.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from inconcert._redis.wire.call import Call
from inconcert._redis.wire.turns import each_in_turns
from inconcert.errors import Unavailable


class Room:
    """The callers that wait."""

    def __init__(self, has_more_than: Callable[[int], bool], *, timeout: float) -> None:
        # those that wait, by the bytes that may be under way when they are let in; empty if nobody waits
        self.lines: dict[int, deque[_Waiting]] = {}
        self._has_more_than = has_more_than  # whether more bytes than these are under way, or too many calls
        self._timeout = timeout  # seconds without an answer, after which those that wait are sent away
        self._loop = asyncio.get_running_loop()
        self._served_at = 0.0  # when a reply last came while callers waited

    async def wait(self, most: int, call: Call | None = None) -> None:
        """Wait until no more bytes than this may be under way; for this call, if it is large and known.

        Raises:
            Unavailable: `send_away` was called after a whole timeout without an answer.
        """
        waiting = _Waiting(self._loop.time(), call)
        self.lines.setdefault(most, deque()).append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            self.make()  # for another caller
            raise

    def served(self) -> None:
        """Note that a call was answered, and let in those for whom there is room now."""
        self._served_at = self._loop.time()
        self.make()

    def make(self) -> None:
        """Let in those for whom there is room now."""
        for most, line in list(self.lines.items()):
            promised = 0
            while line and not self._has_more_than(most - promised):
                waiting = line.popleft()
                if not waiting.done():
                    promised += waiting.size
                    waiting.end()
            if not line:
                del self.lines[most]

    def send_away(self, now: float, why: str) -> None:
        """Fail those that waited while nothing was answered for a whole timeout."""

        def end(waiting: _Waiting) -> None:
            if not waiting.done():
                waiting.set_exception(self._no_room(waiting.call, why))

        late = [each for each in self._waiting() if now >= max(each.since, self._served_at) + self._timeout]
        each_in_turns("ending a wait for room", late, end)

    def close(self) -> None:
        """Let in all: they find the channel closed."""
        for waiting in self._waiting():
            waiting.end()

    def _waiting(self) -> "Iterator[_Waiting]":
        return chain.from_iterable(self.lines.values())

    def _no_room(self, call: Call | None, why: str) -> Unavailable:
        what = f"was not sent within {self._timeout:g} s: {why}; nothing was executed, so try again later"
        return Unavailable(f"the call {what}") if call is None else call.operation.error(Unavailable, what)


class _Waiting(asyncio.Future[None]):
    """A caller that waits for room."""

    __slots__ = ("call", "since", "size")

    def __init__(self, since: float, call: Call | None) -> None:
        super().__init__()
        self.call = call  # the call to submit; None if that is not known
        self.size = len(call.packed) if call is not None else 0  # bytes needed, for a large call; otherwise 0
        self.since = since  # when the wait began, by the loop's clock

    def end(self) -> None:
        """Let the caller look again."""
        if not self.done():
            self.set_result(None)
