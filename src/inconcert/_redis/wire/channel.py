"""One connection that carries the commands of all coroutines of a process.

A call is appended to a buffer and the buffer is written once per turn of the event loop, so a hundred coroutines that
send at the same time cost one write and one read.  A call that nothing else goes with need not wait for the end of the
turn: if nothing is under way, it is written at once.  Replies come in the order of the commands; each goes to its own
call.  A cancelled caller only stops waiting: its command stays in the stream, its reply is read and dropped, and no
other call can receive it.

A lost connection is re-established, and every unanswered call is sent again, in the same order, until the call's own
timeout: each script answers a second run as it answered the first.

A large call is written only when little is under way.  Until then it is held back, and small calls about other keys
pass it: on a slow link a renewal is never behind more than one large call and a few small ones.

Source: docs/explanation/command-channel.md
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from operator import attrgetter

import anyio
import hiredis

from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.replies import ErrorReply, Reply, error_for, is_passing
from inconcert._redis.protocol.scripts import Script
from inconcert._redis.wire.background import log_error, recurring
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.held_back import HeldBack
from inconcert._redis.wire.large_replies import LargeReplies
from inconcert._redis.wire.link import Link
from inconcert._redis.wire.room import Room
from inconcert._redis.wire.traffic import traffic
from inconcert._redis.wire.transport import ChannelOwner
from inconcert._redis.wire.turns import IN_A_TURN, each_in_turns
from inconcert._redis.wire.wire import Pool, Wire
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError, NotConnected, OutcomeUnknown, Unavailable

_log = logging.getLogger("inconcert.redis")

_MOST_CALLS = 20_000  # under way at once; a server that answers 50,000/s then is 0.4 s behind
_MOST_BYTES = 32 * 2**20  # under way at once; what a process may hold in memory for a server that is slow
_MOST_LARGE_BYTES = 4 * 2**20  # the same, for large calls, so that they leave room for small ones
_LARGE = 16 * 2**10  # bytes; a call of more is held back while others are under way
_WINDOW = 512 * 2**10  # bytes under way beyond which no large call is written; 10 MB/s over a round trip of 50 ms
_ENOUGH = 16  # calls to write before the turn ends, so that the server works on them while more are prepared
_UNUSUAL = {ErrorReply, hiredis.PushNotification}
_A_MOMENT = 1.0  # seconds that reconnecting may take before the server counts as unreachable
_CLOSE_TIMEOUT = 2.0  # seconds that closing waits for what is under way, such as releases
_ASKING = pack("ASKING")
_REDIRECTIONS = {"MOVED", "ASK"}
_script_of = attrgetter("command.script")


class Channel:
    """The commands of one process on their way to one server.

    Args:
        pool: Where the connection comes from.
        timeout: How long a call may take, reconnecting included, in seconds.  A connection is dropped if a reply is
            due and no byte moves either way for half of this time.
        reconnected: Called when connected again, with the time of the loss.  Messages may have been lost, and older
            connections may lead to a server that is no longer the master.
        owner: Has channels to other nodes, too; None if there is one server only.
        greeting: Makes the first call on each connection, if there is one.
        purpose: Its purpose, as log messages name it.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        timeout: float,
        reconnected: Callable[[float], None],
        owner: ChannelOwner | None = None,
        greeting: Callable[[], Call | None] | None = None,
        purpose: str = "command channel",
    ) -> None:
        self._owner = owner
        self._greeting = greeting
        self._timeout = timeout
        self._reconnected = reconnected
        self._in_time = f"within {timeout:g} s"
        self._patience = timeout / 2
        self._link = Link(pool, self, timeout=self._patience, purpose=purpose)
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._lost_at: float | None = None
        self._known: set[Script] = set()  # those whose source was sent on this wire
        self._not_run: deque[Call] = deque()  # the server lacked their scripts; next when nothing is unanswered
        self._unsent: deque[Call] = deque()
        self._held_back = HeldBack()
        self._must_look = False  # whether any is not run or held back, or one of the unsent may be large
        self._large_replies = LargeReplies(self._take_anew)
        self._unanswered: deque[Call | None] = deque()  # None: a reply to discard
        self._given_up: set[Call] = set()  # of the unanswered: they keep their places, as their replies may still come
        self._bytes = 0  # of all these calls
        self._flush_is_due = False
        self.timer: asyncio.TimerHandle | None = None
        self._room = Room(self._has_more_than, timeout=timeout)
        self.is_closed = False

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: The server cannot be reached, or refuses the connection.
        """
        await self._link.open()

    def start(self) -> None:
        """Connect, without waiting for that."""
        self._link.start()

    async def close(self) -> None:
        """Wait at most 2 s for calls under way, then fail them and release the connection."""
        self.is_closed = True
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_CLOSE_TIMEOUT if self._wire is not None else 0):
                while self._unsent or self._held_back.calls or self._not_run or self._unanswered:
                    await self._room.wait(_MOST_BYTES)  # returns after each reply, because any reply leaves room
            await self._link.close()
            if self.timer is not None:
                self.timer.cancel()
            self._wire = None
            await self._give_up(self._take_all(), "before the coordinator was closed")
        self._bytes = 0
        self._room.close()

    def submit(self, call: Call) -> None:
        """Send a call with the next flush, or now, whatever else is under way.

        Raises:
            NotConnected: The channel is closed.
        """
        if self.is_closed:
            raise NotConnected(f"{call.operation} was not sent: the coordinator is closed; open it with `async with`")
        call.give_up_at = self._loop.time() + self._timeout
        self.take(call)

    def _take_anew(self, call: Call) -> None:
        """Send a call whose time begins now."""
        call.give_up_at = self._loop.time() + self._timeout
        self.take(call)

    def take(self, call: Call) -> None:
        """Send a call that was submitted before; its time goes on."""
        self._unsent.append(call)
        size = len(call.packed)
        self._bytes += size
        if size > _LARGE:
            self._must_look = True
        if self._flush_is_due:
            if len(self._unsent) >= _ENOUGH:
                self.flush()
        elif call.goes_at_once and not (self._unanswered or self._must_look):
            self.flush()
            if self._unsent:  # there is no connection, or it is full
                self._flush_soon()
        else:
            self._flush_soon()
        if self.timer is None:
            self.timer = self._loop.call_at(call.give_up_at - self._patience, self._tick)

    def flush(self) -> None:
        """Write submitted calls now, so that the server works on them during the rest of the turn."""
        wire = self._wire
        if wire is None or wire.is_full:
            return
        if self._must_look and not self._may_write():
            return
        if not self._unsent:
            return
        if not self._known.issuperset(map(_script_of, self._unsent)):
            self._carry_sources()
        now = self._loop.time()
        pieces: list[bytes] = []
        for call in self._unsent:
            if call.must_run or call.is_wanted:
                call.sends += 1
                call.sent_at = now
                if call.is_redirected:
                    pieces.append(_ASKING)
                    self._unanswered.append(None)
                pieces.append(call.packed)
                self._unanswered.append(call)
            else:
                self._bytes -= len(call.packed)
        self._unsent.clear()
        traffic.commands += len(pieces)
        wire.write(b"".join(pieces))
        if self._room.lines:
            self._room.make()

    def give_back(self) -> list[Call]:
        """Return all calls that are not answered yet, in their order: they go elsewhere, and this is to be closed."""
        calls = self._take_all() + self._large_replies.take_all()
        self._bytes = 0
        self._room.make()
        return calls

    async def has_room(self, key: str, call: Call | None = None) -> None:
        """Wait while too many calls or bytes are under way."""
        del key
        size = len(call.packed) if call is not None else 0
        most = _MOST_LARGE_BYTES if size > _LARGE else _MOST_BYTES
        while self._has_more_than(most):
            await self._room.wait(most, call)

    @property
    def is_full(self) -> bool:
        """True if `has_room` would wait."""
        if self._bytes > _MOST_BYTES:
            return True
        return len(self._unanswered) + len(self._unsent) + len(self._held_back.calls) > _MOST_CALLS

    @property
    def is_idle(self) -> bool:
        """True if a call that goes at once is written now."""
        return not (self._unanswered or self._unsent or self._must_look)

    @property
    def is_connected(self) -> bool:
        """True if calls are sent at once."""
        return self._wire is not None

    def under_way(self) -> Iterable[Call]:
        """The calls that were submitted and not answered."""
        sent = (call for call in self._unanswered if call is not None)
        return itertools.chain(self._not_run, sent, self._held_back.calls, self._unsent)

    def server_moved(self, to: Node | None) -> None:
        """Connect to this server at once, unless connected to it; to none if it is None."""
        self._link.server_moved(to)

    def trouble(self, key: str, since: float) -> InconcertError | None:
        """Why the server has answered nothing since this time; None if it has answered."""
        del key
        wire, lost_at = self._wire, self._lost_at
        if wire is None and lost_at is not None:
            if since < lost_at and self._loop.time() < lost_at + _A_MOMENT:
                return None  # it may be back in a moment
            return Unavailable(f"the server is away ({self._link.last_error}); try again when it is back")
        if wire is not None and self._unanswered and wire.alive_at() <= since:
            return OutcomeUnknown(f"the server has not answered for {self._loop.time() - since:.2g} s")
        return None

    # Called by the link.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        self._known.clear()
        if self._greeting is not None and (call := self._greeting()) is not None:
            self._greet(wire, call)
        if self._lost_at is not None:
            self._reconnected(self._lost_at)
        self.flush()

    def received(self, reply: Reply) -> None:
        if type(reply) in _UNUSUAL:
            self._received_unusual(reply)
        else:
            call = self._unanswered.popleft()
            if call is not None:
                self._bytes -= len(call.packed)
                try:
                    call.answered(reply)
                except Exception as error:  # noqa: BLE001 - one bad reply must not end the connection for all other calls
                    self._spoiled(call, error, "was executed, but its reply is invalid")
        if self._must_look and not self._flush_is_due:
            self._flush_soon()
        if self._room.lines:
            self._room.served()

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._wire = None
        if self._owner is not None:
            self._owner.lost()
        self._lost_at = self._loop.time()
        self._unsent.extend(self._take_all())
        self._must_look = True  # some may be large

    def writable(self) -> None:
        self.flush()

    def log_in(self, command: bytes) -> None:
        if self._wire is not None:
            self._wire.write(command)
            self._unanswered.append(None)

    # Private.

    def _greet(self, wire: Wire, call: Call) -> None:
        """Send a call in front of all others, those of the connection before included."""
        now = self._loop.time()
        call.give_up_at, call.sent_at, call.sends = now + self._timeout, now, 1
        wire.write(call.packed)
        self._unanswered.append(call)
        self._bytes += len(call.packed)
        self._tick_within(self._patience)

    def _flush_soon(self) -> None:
        self._flush_is_due = True
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._flush_is_due = False
        self.flush()

    def _carry_sources(self) -> None:
        """Let the unsent calls carry the sources of all their scripts, with the first call of each.

        One of them has not been on this wire.  The others may have been forgotten, and would be refused while it runs.
        """
        carried: set[Script] = set()
        for call in self._unsent:
            if call.command.script not in carried and (call.must_run or call.is_wanted):
                carried.add(call.command.script)
                self._bytes -= len(call.packed)
                call.carry_source()
                self._bytes += len(call.packed)
        self._known |= carried

    def _take_all(self) -> list[Call]:
        """Remove and return all calls that are not answered yet, in their order."""
        sent = [call for call in self._unanswered if call is not None]
        calls = [*self._not_run, *sent, *self._held_back.take_all(), *self._unsent]
        for each in (self._not_run, self._unanswered, self._unsent):
            each.clear()
        return calls

    def _may_write(self) -> bool:
        """True if anything may be written now; if so, only that is left in `_unsent`."""
        if self._not_run and self._unanswered:
            return False  # of these the server may not run some either, and they come before the unsent
        self._hold_back()
        self._unsent.extendleft(reversed(self._not_run))
        self._not_run.clear()
        self._must_look = bool(self._held_back.calls)
        return True

    def _hold_back(self) -> None:
        """Keep in `_unsent` only what may be written now."""
        held, unsent, self._unsent = self._held_back, self._unsent, deque()
        for call in unsent:
            if len(call.packed) > _LARGE or held.is_in_front_of(call):
                held.append(call)
            else:
                self._unsent.append(call)
        while held.calls and self._bytes - held.bytes < _WINDOW:
            call = held.popleft()
            if call.must_run or call.is_wanted:
                self._unsent.append(call)
            else:
                self._bytes -= len(call.packed)
        self._tick_within(self._patience / 4)  # only polling shows whether the peer takes the bytes of large calls

    def _received_unusual(self, reply: Reply) -> None:
        if not isinstance(reply, ErrorReply):
            return  # an unsolicited push message (RESP3)
        call = self._unanswered.popleft()
        if call is None:
            if reply.code == "WRONGPASS":
                self._link.login_refused(reply)
            return
        try:
            self._refused(call, reply)
        except Exception as error:  # noqa: BLE001 - as above; and its caller would wait forever
            self._spoiled(call, error, f"was refused ({reply}), and that could not be handled")

    def _spoiled(self, call: Call, error: Exception, what: str) -> None:
        """Fail a call because what its reply leads to has raised an unexpected error."""
        log_error(lambda shown: _log.error("%s: the reply is invalid", call.operation, exc_info=shown), error)
        what += f" ({error!r}); check before repeating it"
        call.fail(call.operation.error(OutcomeUnknown, what))

    def _refused(self, call: Call, reply: ErrorReply) -> None:
        if self._owner is not None and (is_passing(reply) or reply.code in _REDIRECTIONS):
            call.sends -= 1
            self._bytes -= len(call.packed)
            self._owner.refused(call, reply)
            return
        if is_passing(reply):
            call.sends -= 1  # it was refused, not executed
            self._unanswered.appendleft(call)
            self._link.drop(Unavailable(f"the server cannot serve now: {reply}"))
            return
        self._bytes -= len(call.packed)
        if reply.code == "LARGE":
            self._large_replies.ask_again(call, reply)
            return
        if reply.code == "NOSCRIPT":
            call.sends -= 1  # it was not executed
            self._known.clear()  # probably it has forgotten the others, too
            if call.must_run or call.is_wanted:
                self._bytes += len(call.packed)
                self._not_run.append(call)
                self._must_look = True
            return
        call.fail(error_for(reply, call.operation, sends=call.sends))

    @recurring("ending calls that are overdue")
    def _tick(self) -> None:
        """Fail calls that are overdue, and schedule the next check."""
        now = self._loop.time()
        checks = self._check_for_life(now)
        overdue = [call for call in self._unanswered if call is not None and now >= call.give_up_at]
        self._given_up.intersection_update(overdue)
        overdue = [call for call in overdue if call not in self._given_up]
        some = overdue[:IN_A_TURN]  # a reply to one of the others may come before its turn
        self._given_up.update(some)
        self._give_up(some, self._in_time)
        unsent = [*self._not_run, *self._unsent]
        late = [*self._held_back.take_late(now), *[call for call in unsent if now >= call.give_up_at]]
        self._bytes -= sum([len(call.packed) for call in late])
        self._give_up(late, self._in_time)
        self._not_run = deque([call for call in self._not_run if now < call.give_up_at])
        self._unsent = deque([call for call in self._unsent if now < call.give_up_at])
        if self._room.lines and not self.is_closed:
            is_mute = self._wire is not None
            self._room.send_away(now, "the calls before it are not answered" if is_mute else str(self._link.last_error))
        self._room.make()
        checks += [call.give_up_at for call in (*self._not_run, *self._held_back.calls, *self._unsent)]
        checks += [call.give_up_at for call in self._unanswered if call is not None and now < call.give_up_at]
        # Not at once unless some are to be failed still: a call that is late already ends with its connection.
        if len(overdue) > len(some):
            self.timer = self._loop.call_at(now, self._tick)
        else:
            self.timer = self._loop.call_at(max(min(checks), now + 0.05), self._tick) if checks else None

    def _give_up(self, calls: list[Call], when: str) -> "asyncio.Future[None]":
        """Fail these, 200 in each turn: no reply may come that is passed on to the others meanwhile."""
        reason = self._with_reason(when)
        return each_in_turns("ending a call", calls, lambda call: call.give_up(reason))

    def _check_for_life(self, now: float) -> list[float]:
        """Drop the wire if it is silent; returns when to check again."""
        oldest = next((call for call in self._unanswered if call is not None), None)
        wire = self._wire
        if oldest is None or wire is None:
            return []
        mute_at = max(oldest.sent_at, wire.alive_at()) + self._patience
        if now >= mute_at:
            self._link.drop(ConnectionError(f"no reply for {self._patience:g} s"))
        return [min(mute_at, now + self._patience / 4) if wire.is_backed_up else mute_at]

    def _tick_within(self, seconds: float) -> None:
        """Run `_tick` after this time at the latest."""
        at = self._loop.time() + seconds
        if self.timer is None or self.timer.when() > at:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = self._loop.call_at(at, self._tick)

    def _with_reason(self, when: str) -> str:
        was_away = self._lost_at is not None and self._loop.time() < self._lost_at + self._timeout
        is_away = self._link.last_error is not None and (self._wire is None or was_away)
        return f"{when} ({self._link.last_error})" if is_away else when

    def _has_more_than(self, most: int) -> bool:
        return (
            self._bytes > most or len(self._unanswered) + len(self._unsent) + len(self._held_back.calls) > _MOST_CALLS
        )
