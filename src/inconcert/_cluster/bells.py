"""The sleep of idle consumers on a cluster: they stand in line on each of their bells, and the inbox wakes them.

`BLPOP` takes keys of one slot only, so it would need a connection for each.  Instead, a process writes itself down on
the bell, and the script that rings it tells the first in line, in the slot of both.  A place may outlast the sleep:
what rings then is passed on.
"""

import asyncio
from contextlib import suppress
from itertools import count

from inconcert._cluster.inbox import ShardedInbox
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.bells import RING, Sleeper
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert._redis.wire.transport import Commands
from inconcert.errors import NotConnected

_SLEEP = load("bells/sleep").bind()
_LEAVE = load("bells/leave").bind()
_AGAIN = 5.0  # seconds after which a sleeper joins the line again: the server may have lost its place


class ShardedBells:
    """The bells that the consumers of a session listen for."""

    waits_since: float | None = None  # None: no connection of its own waits for an answer

    def __init__(self, router: Commands, inbox: ShardedInbox, session: str) -> None:
        self._router = router
        self._inbox = inbox
        self._addresses = (f"{session}.bell{number}" for number in count())
        self._bells: dict[str, _Bell] = {}
        self._is_closed = False
        inbox.on_unclaimed("bell", self._unclaimed)

    async def close(self) -> None:
        """Leave the lines; the router must still be open."""
        self._is_closed = True
        for bell in self._bells.values():
            bell.leave()

    def sleeper(self, keys: tuple[str, ...]) -> Sleeper:
        """A sleeper that wakes when one of these bells rings."""
        return Sleeper(self, keys)

    def add(self, sleeper: Sleeper) -> None:
        """Add a sleeper; it joins the lines that this process is not in."""
        for key in sleeper.keys:
            if key not in self._bells:
                self._bells[key] = _Bell(self, self._inbox, key, next(self._addresses))
            if not self._is_closed:
                self._bells[key].add(sleeper)

    def remove(self, sleeper: Sleeper) -> None:
        """Remove a sleeper that has woken."""
        for key in sleeper.keys:
            self._bells[key].remove(sleeper)

    def is_alone(self, sleeper: Sleeper) -> bool:
        """False: nothing waits on a connection here, behind which a call could."""
        del sleeper
        return False

    def run_when_rung(self, sleeper: Sleeper, call: Call) -> None:
        """Run it now."""
        del sleeper
        self._router.submit(call)

    def end(self) -> None:
        """Nothing to do: no call waits for a bell."""

    def pass_on(self, key: str) -> None:
        """Wake a sleeper for this bell, here or in another process."""
        if key in self._bells:
            self._bells[key].pass_on()
        else:
            self.send(RING(bell=key))

    # For the bells.

    def send(self, command: Command) -> None:
        """Run this command, whose reply says nothing."""
        with suppress(NotConnected):  # closing; others look again on their own timers
            self._router.submit(Call(command, must_run=True))

    def _unclaimed(self, address: str, key: str) -> None:
        del address
        if key in self._bells:  # otherwise a stranger has published it
            self._bells[key].on_message(key)


class _Bell(InboxReceiver):
    """One bell, and who sleeps on it here."""

    def __init__(self, bells: ShardedBells, inbox: ShardedInbox, key: str, address: str) -> None:
        self._bells = bells
        self._inbox = inbox
        self._key = key
        self._address = address  # of no other bell
        self._sleeper = f"{inbox.channel_of(key)} {address}"
        self._sleepers: dict[Sleeper, None] = {}  # the first has slept longest
        self._joined_after: int | None = None  # so many losses; after the next one the place may be gone
        self._again_at = 0.0  # by the loop's clock

    def add(self, sleeper: Sleeper) -> None:
        """Let someone sleep."""
        self._sleepers[sleeper] = None
        self._inbox.register(self._address, self)
        self._inbox.follow(self._key, self._address)
        self._join()

    def remove(self, sleeper: Sleeper) -> None:
        """Forget one that has woken. The place stays: most will soon sleep again."""
        self._sleepers.pop(sleeper, None)
        if not self._sleepers:
            self._inbox.unregister(self._address)

    def pass_on(self) -> None:
        """Wake the first here, or in another process."""
        if not self._sleepers:
            self._bells.send(RING(bell=self._key))
            return
        sleeper = next(iter(self._sleepers))
        self._bells.remove(sleeper)
        sleeper.wake(self._key)
        if self._sleepers:
            self._join()

    def leave(self) -> None:
        """Give the place up."""
        if self._is_in_line:
            self._joined_after = None
            self._bells.send(_LEAVE(bell=self._key, sleeper=self._sleeper))

    # Called by the inbox.

    def on_message(self, rest: str) -> None:
        """It rang for us, which took the place."""
        del rest  # the key
        self._joined_after = None
        self.pass_on()

    def recheck(self) -> None:
        """The process can be told from now on, or may have missed it."""
        for sleeper in list(self._sleepers):
            sleeper.interrupt()

    # Private.

    @property
    def _is_in_line(self) -> bool:
        return self._joined_after == self._inbox.losses(self._key)

    def _join(self) -> None:
        """Get in line; not before this process listens, since `recheck` comes then."""
        now = asyncio.get_running_loop().time()
        if self._inbox.listens(self._key) and (not self._is_in_line or now >= self._again_at):
            self._joined_after = self._inbox.losses(self._key)
            self._again_at = now + _AGAIN
            self._bells.send(_SLEEP(bell=self._key, sleeper=self._sleeper))
