"""The connection on which all idle consumers of a process sleep: it waits in `BLPOP` for a token on one of their bells.

A token only says "check again", so losing one costs at most the longest sleep.  One `BLPOP` covers the bells of all
current sleepers; a new sleeper with other bells ends it with a token on the session's own bell.

A command behind a blocked one waits with it.  So a sleeper that is alone here leaves its next call there: the server
runs it as the bell rings, without a message to the process and back.  If the connection is lost, the call goes through
the command channel; it may have run already, and is answered as it was then.

Source: docs/contributing/decisions/0017-claims-behind-the-bell.md
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Protocol

from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.replies import ErrorReply, Reply
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.link import Link
from inconcert._redis.wire.transport import Commands
from inconcert._redis.wire.wire import Pool, Wire
from inconcert._rules.urls import Node
from inconcert.errors import NotConnected

_log = logging.getLogger("inconcert.redis")

RING = load("bells/ring").bind()
_BLOCK = 5.0  # seconds of one BLPOP, after which it is sent again if there are sleepers
_LATE = 1.0  # seconds beyond that, after which a call behind it goes elsewhere


class Bells:
    """The bells that the consumers of a session listen for."""

    def __init__(self, pool: Pool, channel: Commands, key: str, *, timeout: float) -> None:
        self._pool = pool
        self._channel = channel  # returns tokens that no sleeper here waits for, and runs what could not be run here
        self._key = key  # the session's own bell
        self._timeout = timeout  # seconds that the server may take beyond the sleep itself
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._wire: Wire | None = None
        self._connected_at = 0.0
        self._unanswered: deque[Callable[[Reply], None]] = deque()  # for each command what takes its reply
        self._behind: Call | None = None  # waits behind the BLPOP under way
        self._sleepers: dict[Sleeper, None] = {}  # the first has slept longest
        self._covered: frozenset[str] = frozenset()  # by the BLPOP under way; empty for none
        self._is_ending = False  # a token that ends that BLPOP was sent
        self._patience: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.waits_since: float | None = None  # monotonic: since when a BLPOP should have been answered; for any thread

    async def close(self) -> None:
        """Release the connection.

        The BLPOP that ends with it may have taken tokens, such as one for a job that this process has just requeued.
        So each bell that it covered is rung once more; the channel must still be open.
        """
        self._is_closed = True
        covered = self._covered
        if self._link is not None:
            await self._link.close()
        self._lose()
        for key in covered:
            self._ring(key)

    def sleeper(self, keys: tuple[str, ...]) -> "Sleeper":
        """A sleeper that wakes when one of these bells rings, the most urgent first."""
        return Sleeper(self, keys)

    def server_was_lost(self, at: float) -> None:
        """Drop a connection opened before this time: the server may have moved."""
        if self._link is not None and self._connected_at < at:
            self._link.drop(ConnectionError("the server may have moved"))

    def server_moved(self, to: Node | None) -> None:
        """Connect to this server at once, unless connected to it; to none if it is None."""
        if self._link is not None:
            self._link.server_moved(to)

    # For sleepers.

    def add(self, sleeper: "Sleeper") -> None:
        """Add a sleeper; the first one starts the connection."""
        self._sleepers[sleeper] = None
        if self.waits_since is None:
            self.waits_since = time.monotonic()
        if self._link is None and not self._is_closed:
            self._link = Link(self._pool, self, timeout=self._timeout, purpose="bells")
            self._link.start()
        elif not self._covered:
            self._block_for_all()
        elif not self._covered.issuperset(sleeper.keys):
            self.end()

    def remove(self, sleeper: "Sleeper") -> None:
        """Remove a sleeper that has woken."""
        self._sleepers.pop(sleeper, None)

    def is_alone(self, sleeper: "Sleeper") -> bool:
        """True if nobody else sleeps here: then a call can wait behind the BLPOP."""
        return (
            self._wire is not None
            and self._behind is None
            and not self._is_ending
            and len(self._sleepers) == (sleeper in self._sleepers)
            and (not self._covered or self._covered == frozenset(sleeper.keys))
        )

    def run_when_rung(self, sleeper: "Sleeper", call: Call) -> None:
        """Have the server run this call when a bell of this sleeper rings, or after 5 s; now if it is not alone."""
        if self._wire is None or not self.is_alone(sleeper):
            self._channel.submit(call)
            return
        if not self._covered:
            self._block(sleeper.keys)
        self._behind = call
        call.sends += 1
        self._wire.write(call.packed)
        self._unanswered.append(partial(self._has_run, call))

    def end(self) -> None:
        """End the BLPOP under way."""
        if self._covered and not self._is_ending:
            self._is_ending = True
            self._ring(self._key)

    def pass_on(self, key: str) -> None:
        """Wake a sleeper for this bell, or return its token for a sleeper in another process."""
        sleeper = next((one for one in self._sleepers if key in one.keys), None)
        if sleeper is not None:
            self.remove(sleeper)
            sleeper.wake(key)
        else:
            self._ring(key)

    # Called by the link.

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        self._connected_at = self._loop.time()
        self._unanswered.clear()
        wire.write(pack("PING"))  # a BLPOP reply may take long, and a wire that answers nothing counts as a failure
        self._unanswered.append(self._is_here)
        if self._sleepers:
            self._block_for_all()

    def received(self, reply: Reply) -> None:
        self._unanswered.popleft()(reply)

    def disconnected(self, error: Exception) -> None:
        del error  # the link logs it
        self._lose()

    def writable(self) -> None:
        """Nothing to do: no writes are pending here."""

    def log_in(self, command: bytes) -> None:
        if self._wire is not None:
            self._wire.write(command)  # after the BLPOP under way, which takes a few seconds at most
            self._unanswered.append(self._is_here)

    # Private.

    def _is_here(self, reply: Reply) -> None:
        """Take the reply of a `PING` or an `AUTH`."""
        if isinstance(reply, ErrorReply) and reply.code == "WRONGPASS" and self._link is not None:
            self._link.login_refused(reply)

    def _has_rung(self, reply: Reply) -> None:
        """Take the reply of a `BLPOP`."""
        if isinstance(reply, ErrorReply):  # the link reconnects after a pause, which grows while connections are brief
            _log.warning("bells: the server refused to wait: %s", reply)
            if self._link is not None:
                self._link.drop(reply)
            return
        key = reply[0].decode() if reply else self._key
        behind = self._behind
        if behind is None:
            self._end_block()
        if key != self._key and (behind is None or behind.done()):  # the caller of that one has gone
            self.pass_on(key)
        if behind is None:
            self._block_again()

    def _has_run(self, call: Call, reply: Reply) -> None:
        """Take the reply of a call that waited behind a `BLPOP`."""
        self._end_block()
        if isinstance(reply, ErrorReply):
            self._run_elsewhere(call)
        else:
            call.answered(reply)
        self._block_again()

    def _run_elsewhere(self, call: Call) -> None:
        """Send a call that may have run, as one whose reply was lost."""
        if self._is_closed:
            call.fail(NotConnected("the coordinator was closed while this call waited; open it again"))
        elif call.is_wanted:
            try:
                self._channel.submit(call)
            except NotConnected as error:
                call.fail(error)

    def _block_again(self) -> None:
        if self._sleepers and not self._covered:
            self._block_for_all()
        self.waits_since = time.monotonic() if self._covered else None

    def _block_for_all(self) -> None:
        self._block(dict.fromkeys(key for sleeper in self._sleepers for key in sleeper.keys))

    def _block(self, keys: Iterable[str]) -> None:
        if self._wire is None:
            return
        if self.waits_since is None:
            self.waits_since = time.monotonic()
        self._covered = frozenset(keys)
        self._wire.write(pack("BLPOP", *keys, self._key, _BLOCK))
        self._unanswered.append(self._has_rung)
        self._patience = self._loop.call_later(_BLOCK + min(_LATE, self._timeout), self._wait_on)

    def _end_block(self) -> None:
        self._covered = frozenset()
        self._behind = None
        self._is_ending = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _wait_on(self) -> None:
        """Give a late reply the rest of its time; a call behind it waits no longer."""
        self._patience = self._loop.call_later(max(0.0, self._timeout - _LATE), self._give_up)
        if self._behind is not None:
            self._run_elsewhere(self._behind)

    def _give_up(self) -> None:
        if self._link is not None:
            self._link.drop(ConnectionError(f"no reply for {self._timeout:g} s"))

    def _lose(self) -> None:
        self._wire = None
        behind = self._behind
        self._end_block()
        if behind is not None:
            self._run_elsewhere(behind)
        sleepers, self._sleepers = self._sleepers, {}  # a token may have been lost: every sleeper re-checks
        for sleeper in sleepers:
            sleeper.interrupt()

    def _ring(self, key: str) -> None:
        with suppress(NotConnected):  # closing; others re-check on their own timers
            self._channel.submit(Call(RING(bell=key), must_run=True))


class _Sleepers(Protocol):
    """The place where sleepers sleep."""

    def add(self, sleeper: "Sleeper") -> None:
        """Wake it, from now on, when one of its bells rings."""

    def remove(self, sleeper: "Sleeper") -> None:
        """End `add`."""

    def is_alone(self, sleeper: "Sleeper") -> bool:
        """True if the server can run a call of this sleeper as it is woken."""
        ...

    def run_when_rung(self, sleeper: "Sleeper", call: Call) -> None:
        """Have the server run this call when a bell of this sleeper rings."""

    def end(self) -> None:
        """Let a call that waits for a bell run now."""

    def pass_on(self, key: str) -> None:
        """Wake another for this bell."""


class Sleeper:
    """One consumer's sleep."""

    def __init__(self, bells: _Sleepers, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self._bells = bells
        self._is_due = False  # interrupted while awake
        self._woken: asyncio.Future[str | None] | None = None
        self._left: Call | None = None  # to be run when a bell rings

    async def rung(self, seconds: float) -> str | None:
        """Sleep until a bell rings, at most this long; may return early. Cancelling it loses no token.

        Only one call at a time.

        Returns:
            The bell that rang; an empty string to check now all the same; None to sleep on with a call left behind.
            No other sleeper receives this ring: a caller that does not check now must pass it on.
        """
        if self._is_due:
            self._is_due = False
            return ""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[str | None] = loop.create_future()
        self._woken = woken
        timer = loop.call_later(seconds, self.interrupt)
        self._bells.add(self)
        try:
            return await woken
        except asyncio.CancelledError:
            if not woken.cancelled() and (key := woken.result()):
                self._bells.pass_on(key)
            raise
        finally:
            timer.cancel()
            self._bells.remove(self)
            self._woken = None

    @property
    def is_alone(self) -> bool:
        """True if `run_when_rung` has the server run a call as this is woken, and it need not check before."""
        return not self._is_due and self._bells.is_alone(self)

    def run_when_rung(self, call: Call) -> None:
        """Have the server run this call when a bell rings, or after 5 s, in place of a sleep; now if it is not alone.

        Its caller may be cancelled.  It must be one that the same caller may send again.
        """
        self._left = call
        self._bells.run_when_rung(self, call)
        if self._is_due:  # interrupted while this call was made
            self._bells.end()

    def leave_call(self) -> None:
        """End the sleep under way if a call can be left behind from now on."""
        if self._woken is not None and not self._woken.done() and self._bells.is_alone(self):
            self._bells.remove(self)
            self._woken.set_result(None)

    def wake(self, key: str) -> None:
        """Wake up: this bell rang, and no other sleeper receives that ring."""
        if self._woken is None or self._woken.done():  # it was cancelled, and has not returned yet
            self._bells.pass_on(key)
        else:
            self._woken.set_result(key)

    def interrupt(self) -> None:
        """Make the current sleep return now, or the next one if none is under way; let a call that was left run."""
        if self._woken is None:
            self._is_due = True
            if self._left is not None and not self._left.done():
                self._bells.end()
        else:
            self._bells.remove(self)  # now: a bell that rings before it has returned is for another
            if not self._woken.done():
                self._woken.set_result("")
