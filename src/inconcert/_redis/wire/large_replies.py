"""Calls whose replies are large: each is sent again when little of the kind is on its way.

A script that would answer with much answers with `LARGE BYTES`, and no more: so a small reply, such as that to a
heartbeat, never waits behind many large ones, whatever coroutines ask for at once.  The call is then sent again in its
turn, in the script's other form, which answers in any case.  Each script answers a second run as the first, so that
loses nothing, and does nothing twice.
"""

from collections import deque
from collections.abc import Callable

from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.wire.call import Call, Callers
from inconcert.errors import InconcertError

_WINDOW = 512 * 2**10  # bytes of large replies on their way; if one has more, that one alone


class LargeReplies:
    """The large replies of one channel."""

    def __init__(self, submit: Callable[[Call], None]) -> None:
        self._submit = submit  # the time of a call begins then
        self._line: deque[_Again] = deque()
        self._bytes = 0  # of those on their way

    def ask_again(self, call: Call, refusal: ErrorReply) -> None:
        """Send a call in its turn whose reply is so large as this one says."""
        self._line.append(_Again(call, int(str(refusal).split(" ")[1]), self))
        self._go_on()

    def take_all(self) -> list[Call]:
        """Remove and return the calls that wait for their turn, as they were made."""
        line, self._line = self._line, deque()
        return [again.call for again in line]

    # Called by those that are on their way.

    def ended(self, size: int, missing: str | None) -> None:
        """One has ended; `missing` is when it should have been answered, if it was not."""
        self._bytes -= size
        if missing is not None:  # then those behind it would wait as long again, one after the other
            for call in self.take_all():
                call.give_up(missing)
        self._go_on()

    def _go_on(self) -> None:
        while self._line and (not self._bytes or self._bytes + self._line[0].size <= _WINDOW):
            again = self._line.popleft()
            if again.call.must_run or again.call.is_wanted:
                self._bytes += again.size
                self._submit(again)


class _Again(Call):
    """A call that is sent again with room for its reply."""

    __slots__ = ("_line", "call", "size")

    def __init__(self, call: Call, size: int, line: LargeReplies) -> None:
        super().__init__(call.command.with_room(), must_run=True)  # its end lets the next one follow
        self.call = call  # gets what comes of it
        self.size = size  # bytes of the reply, about
        self._line: LargeReplies | None = line

    def answered(self, reply: Reply) -> None:
        self._end()
        self.call.answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._end()
        self.call.fail(error)

    def callers(self) -> Callers:
        return self.call.callers()

    def give_up(self, when: str) -> None:
        self._end(when)
        self.call.give_up(when)

    def with_one_key(self) -> Call | None:
        return self.call.with_one_key()

    def _end(self, missing: str | None = None) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.ended(self.size, missing)
