"""The waiters of one process, and the one timer for each line that rechecks for all of them.

Waiters do not ask the server, except that one of each process rechecks when a lease that blocks the line should have
lapsed: a dead holder cannot wake anyone.
"""

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Protocol

from inconcert._redis.protocol.keys import subject
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.background import recurring
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.inbox import Inbox
from inconcert._redis.wire.turns import each_in_turns

_log = logging.getLogger("inconcert.leases")

NO_ANSWER = 5.0  # seconds after which to recheck when a recheck was not answered
_LONG_WAIT = 10.0  # seconds
_PAUSE = 0.5  # seconds between two looks for long waits
_TOLD_OF = {"lock", "rwlock", "semaphore"}  # that others wait for long, such as for a term, is as it should be


class InLine(Protocol):
    """A waiter in line."""

    def recheck(self) -> bool:
        """Ask the server again, which serves the whole line if a lease has lapsed; False if the wait is over."""
        ...


class Lines:
    """The local part of every line in which this process waits.

    Args:
        inbox: Brings the waiters their grants.

    Attributes:
        on_long_wait: Called when a caller has waited for 10 s for a thing such as a lock; None for nothing.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._lines: dict[str, _Line] = {}
        self.on_long_wait: Callable[[], None] | None = None
        self.timer: asyncio.TimerHandle | None = None  # for the next look for long waits
        self._is_closed = False
        self._looked_until = 0.0  # waits that began before, by the monotonic clock, were looked at

    def join(self, key: str, waiter: InLine) -> None:
        """Join the line for this key; does nothing for a waiter that is in it."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        line.waiters.setdefault(waiter, time.monotonic())
        if self.timer is None:
            self._look_for_long_waits_in(_LONG_WAIT)

    def leave(self, key: str, waiter: InLine) -> None:
        """Leave the line, if in it."""
        line = self._lines.get(key)
        if line is not None:
            line.waiters.pop(waiter, None)
            if not line.waiters:
                line.close()
                del self._lines[key]

    def on_reply(self, key: str, retry_ms: int, *grants: bytes) -> None:
        """Act on the end of a script's reply about a line: when to recheck, and grants to waiters of this process."""
        for grant in grants:
            self._inbox.dispatch(grant.decode())
        self.recheck_in(key, retry_ms / 1000)

    def recheck_in(self, key: str, seconds: float) -> None:
        """Recheck after this time, whatever was set before."""
        line = self._lines.get(key)
        if line is not None:
            line.recheck_in(seconds)

    def recheck_within(self, key: str, seconds: float) -> None:
        """Recheck after this time at the latest: a lease of this life was handed over."""
        line = self._lines.get(key)
        if line is not None and seconds < line.time_to_recheck():
            line.recheck_in(seconds)

    def recheck_all(self, key: str, asked_at: float) -> None:
        """Have all waiters ask again, unless they have since: the server had forgotten one that asked at this time."""
        line = self._lines.get(key)
        if line is not None and line.all_rechecked_at < asked_at:
            each_in_turns("asking again", [*line.waiters], lambda waiter: waiter in line.waiters and waiter.recheck())
            line.all_rechecked_at = time.monotonic()

    def close(self) -> None:
        """Stop the timer."""
        self._is_closed = True
        if self.timer is not None:
            self.timer.cancel()

    def _look_for_long_waits_in(self, seconds: float) -> None:
        self.timer = asyncio.get_running_loop().call_later(seconds, self._look_for_long_waits)

    @recurring("looking for long waits")
    def _look_for_long_waits(self) -> None:
        """Log each line in which callers wait for long, once until none waits there, and call `on_long_wait`."""
        self.timer = None
        looked_until, self._looked_until = self._looked_until, time.monotonic() - _LONG_WAIT
        next_since: list[float] = []
        new: list[str] = []

        def look(key: str) -> None:
            line, (kind, name) = self._lines.get(key), subject([key])
            if line is None or kind not in _TOLD_OF:
                return
            since = list(line.waiters.values())  # it rises
            if since[0] <= self._looked_until and not line.is_told:
                line.is_told = True
                _tell_of_long_wait(kind, name, time.monotonic() - since[0], len(since))
            first_later = bisect_right(since, self._looked_until)
            next_since.extend(since[first_later : first_later + 1])
            if bisect_right(since, looked_until) < first_later:
                new.append(key)

        def looked(_: object) -> None:
            if self._is_closed:
                return
            if next_since:
                if self.timer is not None:  # set by one that has joined meanwhile
                    self.timer.cancel()
                self._look_for_long_waits_in(max(_PAUSE, min(next_since) - self._looked_until))
            if new and self.on_long_wait is not None:
                self.on_long_wait()

        each_in_turns("looking for long waits", [*self._lines], look).add_done_callback(looked)


class ReleaseCall(Call):
    """A call that releases something: it runs even if its caller has gone, and may serve others.

    Args:
        lines: The lines of this process, of which it may serve waiters.
        command: A script of permits, with its keys and arguments.
    """

    __slots__ = ("_lines",)

    def __init__(self, lines: Lines, command: Command) -> None:
        Call.__init__(self, command, must_run=True)
        self._lines = lines

    def answered(self, reply: Reply) -> None:
        super().answered(self.held(reply))

    def held(self, reply: Reply) -> int:
        """1 if it was held. Passes on what a reply says to waiters of this process: when to recheck, and grants."""
        if isinstance(reply, int):  # nobody waits
            return reply
        was_held, *served = reply
        self._lines.on_reply(self.key, *served)
        return int(was_held)


class _Line:
    """One line, and when to recheck."""

    def __init__(self) -> None:
        self.waiters: dict[InLine, float] = {}  # since when, by the monotonic clock; the first came first
        self.is_told = False  # that somebody waits for long
        self.all_rechecked_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None
        self._recheck_at = 0.0

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def time_to_recheck(self) -> float:
        return self._recheck_at - time.monotonic()

    def recheck_in(self, seconds: float) -> None:
        """Recheck after this time; a timer that is set for earlier is left alone, because it goes to sleep again."""
        self._recheck_at = time.monotonic() + seconds
        if self.timer is not None and self.timer.when() > self._loop.time() + seconds:
            self.timer.cancel()
            self.timer = None
        if self.timer is None:
            self._sleep()

    def _sleep(self) -> None:
        self.timer = self._loop.call_later(max(0.001, self.time_to_recheck()), self._wake)

    @recurring("looking after a line of waiters")
    def _wake(self) -> None:
        self.timer = None
        if self.time_to_recheck() > 0:
            self._sleep()
        else:
            any(waiter.recheck() for waiter in self.waiters)  # the first that still waits
            self.recheck_in(NO_ANSWER)


def _tell_of_long_wait(kind: str, name: str | None, waited: float, waiters: int) -> None:
    fields = {kind: name, "waited": round(waited, 3), "waiters": waiters}
    _log.warning("%s %r: %d wait in this process, the first for %.1f s", kind, name, waiters, waited, extra=fields)
