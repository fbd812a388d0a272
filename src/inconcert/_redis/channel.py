"""One connection that carries the commands of all coroutines of a process.

A call is appended to a buffer and the buffer is written once per turn of the event loop, so a hundred coroutines that
ask at the same time cost one write and one read.  Replies come in the order of the commands; each goes to its own
call.  A cancelled caller only stops listening: its command stays in the stream, its reply is read and dropped, and no
other call can get it.

A lost connection is brought back, and every call whose reply had not come is sent again, in the old order, until the
call's own time is up: each script answers a second run as it answered the first.

Source: docs/explanation/command-channel.md
"""

import asyncio
from collections import deque
from collections.abc import Callable

import anyio
import hiredis

from inconcert._redis.commands import Argument
from inconcert._redis.link import Link
from inconcert._redis.replies import ErrorReply, Reply, error_for, is_passing
from inconcert._redis.scripts import Script, loaded
from inconcert._redis.wire import Pool, Wire
from inconcert.errors import InconcertError, NotConnected, OutcomeUnknown, Unavailable

__all__ = ["Call", "Channel"]

_MOST_CALLS = 20_000  # under way at once; a server that answers 50,000/s then is 0.4 s behind
_MOST_BYTES = 32 * 2**20  # under way at once; what a process may hold in memory for a server that is slow
_ENOUGH = 16  # calls to write before the turn is over, so that the server works on them while we prepare the next
_UNUSUAL = (ErrorReply, hiredis.PushNotification)
_LAST_WORDS = 2.0  # seconds that closing waits for what is under way, such as releases


class Call(asyncio.Future[Reply]):
    """One command on its way, and the future of its reply.

    Whoever awaits it may be cancelled at any time.  A subclass may override `answered` to hear of the reply even then.

    Attributes:
        keys: The script's keys.
        must_run: Whether the command is sent even if its caller was cancelled: true of those that tidy up.
        sends: How often it was written; more than once means that an earlier reply was lost.
    """

    __slots__ = ("_args", "_script", "give_up_at", "keys", "must_run", "packed", "sends", "sent_at")

    def __init__(
        self, script: Script, keys: tuple[str, ...], args: tuple[Argument, ...], *, must_run: bool = False
    ) -> None:
        super().__init__()
        self.packed = script.pack(keys, args)
        self.must_run = must_run
        self.sends = 0
        self.sent_at = self.give_up_at = 0.0
        self._script = script
        self.keys = keys
        self._args = args

    @property
    def is_wanted(self) -> bool:
        """Whether there is still a reason to send it."""
        return self.must_run or not self.done()

    @property
    def key(self) -> str:
        """The first of its keys."""
        return self.keys[0]

    @property
    def title(self) -> str:
        """What is called, for messages."""
        return f"{self._script.name} on {self.keys[0]!r}"

    def answered(self, reply: Reply) -> None:
        """Take the reply."""
        if not self.done():
            self.set_result(reply)

    def failed(self, error: InconcertError) -> None:
        """Take the error that stands for a reply."""
        if not self.done():
            self.set_exception(error)
            self.exception()  # asyncio is not to warn of it when nobody awaits this call

    def repeat(self) -> None:
        """Take note that it may have run, for its reply was lost, and that it is sent again."""

    def carry_source(self) -> None:
        """From now on carry the script's source along: the server does not know it."""
        self.packed = self._script.pack_with_source(self.keys, self._args)


class Channel:
    """The commands of one process on their way to one server.

    Args:
        pool: Where the connection comes from.
        timeout: How long a call may take, reconnecting included, in seconds.  A connection on which nothing is answered
            for half of it is given up.
        reconnected: Called when connected again, with the time of the loss.  Replies may be lost in which others were
            told something, and connections from before may lead to a server that is not the master any more.
    """

    def __init__(self, pool: Pool, *, timeout: float, reconnected: Callable[[float], None]) -> None:
        self._timeout = timeout
        self._reconnected = reconnected
        self._patience = timeout / 2
        self._link = Link(pool, self, timeout=self._patience, purpose="command channel")
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._lost_at: float | None = None
        self._unsent: deque[Call] = deque()
        self._unanswered: deque[Call | None] = deque()  # None: a reply that nobody waits for
        self._bytes = 0  # of all calls in both
        self._flush_is_due = False
        self._watch: asyncio.TimerHandle | None = None
        self._waiting_for_room: list[asyncio.Future[None]] = []
        self.is_closed = False

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: The server cannot be reached, or refuses us.
        """
        await self._link.open()

    async def close(self) -> None:
        """Wait for what is under way, at most 2 s, then end it and give the connection back."""
        self.is_closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_LAST_WORDS if self._wire is not None else 0):
                while self._unsent or self._unanswered:
                    await self._room()  # it ends with each reply, for there is room
            await self._link.close()
        if self._watch is not None:
            self._watch.cancel()
        self._wire = None
        for call in [*self._unanswered, *self._unsent]:
            if call is not None:
                call.failed(self._gave_up(call, "the coordinator was closed"))
        self._unanswered.clear()
        self._unsent.clear()
        self._bytes = 0
        self._make_room()

    def submit(self, call: Call) -> None:
        """Send a call with the next flush, whatever else is under way.

        Raises:
            NotConnected: The channel is closed.
        """
        if self.is_closed:
            raise NotConnected(f"{call.title}: the coordinator is closed; open it with `async with`")
        call.give_up_at = self._loop.time() + self._timeout
        self._enqueue(call)
        if self._watch is None:
            self._watch = self._loop.call_at(call.give_up_at - self._patience, self._look)

    def flush(self) -> None:
        """Write what was submitted at once, so that the server works on it during the rest of the turn."""
        wire = self._wire
        if wire is None or wire.is_full or not self._unsent:
            return
        now = self._loop.time()
        pieces: list[bytes] = []
        for call in self._unsent:
            if call.must_run or call.is_wanted:
                call.sends += 1
                call.sent_at = now
                pieces.append(call.packed)
                self._unanswered.append(call)
            else:
                self._bytes -= len(call.packed)
        self._unsent.clear()
        wire.write(b"".join(pieces))
        self._make_room()

    async def has_room(self) -> None:
        """Wait while too many calls or bytes are under way: back-pressure for whoever starts something new."""
        while self.is_full:
            await self._room()

    @property
    def is_full(self) -> bool:
        """Whether `has_room` would wait."""
        return self._bytes > _MOST_BYTES or len(self._unanswered) + len(self._unsent) > _MOST_CALLS

    # What the link tells us.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        scripts = loaded()
        wire.write(b"".join(script.pack_load() for script in scripts))
        self._unanswered.extend([None] * len(scripts))
        if self._lost_at is not None:
            self._reconnected(self._lost_at)
        self.flush()

    def received(self, reply: Reply) -> None:
        if isinstance(reply, _UNUSUAL):
            self._received_unusual(reply)
        else:
            call = self._unanswered.popleft()
            if call is not None:
                self._bytes -= len(call.packed)
                call.answered(reply)
        if self._waiting_for_room:
            self._make_room()

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._wire = None
        self._lost_at = self._loop.time()
        for call in reversed(self._unanswered):
            if call is not None:
                self._bytes -= len(call.packed)
                call.repeat()
                self._bytes += len(call.packed)
                self._unsent.appendleft(call)
        self._unanswered.clear()

    def writable(self) -> None:
        self.flush()

    # Below.

    def _enqueue(self, call: Call) -> None:
        self._unsent.append(call)
        self._bytes += len(call.packed)
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._end_turn)
        elif len(self._unsent) >= _ENOUGH:
            self.flush()

    def _end_turn(self) -> None:
        self._flush_is_due = False
        self.flush()

    def _received_unusual(self, reply: Reply) -> None:
        if not isinstance(reply, ErrorReply):
            return  # the server says something out of turn (RESP3); nothing here asked for it
        call = self._unanswered.popleft()
        if call is None:
            return
        if is_passing(reply):
            call.sends -= 1  # it was refused, not executed
            self._unanswered.appendleft(call)
            self._link.drop(Unavailable(f"the server cannot serve now: {reply}"))
            return
        self._bytes -= len(call.packed)
        if reply.code == "NOSCRIPT":
            call.sends -= 1  # it was not executed
            if call.is_wanted:
                call.carry_source()
                self._enqueue(call)
            return
        call.failed(error_for(reply, call.title))

    def _look(self) -> None:
        """End what has waited too long, and come back when the next may have."""
        now = self._loop.time()
        oldest = next((call for call in self._unanswered if call is not None), None)
        if oldest is not None and self._wire is not None and now >= oldest.sent_at + self._patience:
            self._link.drop(ConnectionError(f"no reply for {self._patience:g} s"))
        for call in self._unanswered:
            if call is not None and now >= call.give_up_at:
                call.failed(self._gave_up(call))  # it keeps its place, for its reply may still come
        kept = deque(call for call in self._unsent if now < call.give_up_at)
        if len(kept) < len(self._unsent):
            for call in self._unsent:
                if now >= call.give_up_at:
                    self._bytes -= len(call.packed)
                    call.failed(self._gave_up(call))
            self._unsent = kept
            self._make_room()
        waiting = [call.give_up_at for call in self._unsent]
        waiting += [
            min(call.sent_at + self._patience, call.give_up_at) for call in self._unanswered if call is not None
        ]
        # Not before a moment has passed: a call that is late already ends with its connection.
        self._watch = self._loop.call_at(max(min(waiting), now + 0.05), self._look) if waiting else None

    def _gave_up(self, call: Call, why: str = "") -> InconcertError:
        why = why or f"no reply within {self._timeout:g} s"
        if self._link.last_error is not None and self._wire is None:
            why += f" ({self._link.last_error})"
        if call.sends:
            return OutcomeUnknown(f"{call.title}: {why}; it may have been executed, so look before repeating it")
        return Unavailable(f"{call.title}: {why}; nothing was sent, so try again when the server is back")

    async def _room(self) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting_for_room.append(waiting)
        await waiting

    def _make_room(self) -> None:
        if self._waiting_for_room and not self.is_full:
            waiting, self._waiting_for_room = self._waiting_for_room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
