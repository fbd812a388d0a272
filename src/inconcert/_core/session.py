"""The session by which a primitive reaches the server, while the coordinator is open."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inconcert._core.caller import Noted
from inconcert._core.layout import Layout
from inconcert._core.line import Lines
from inconcert._core.observer import Observers
from inconcert._core.origin import Origin
from inconcert._core.renewal import Renewal
from inconcert._core.safeguards import Conditions
from inconcert._core.wiring import Needs, wiring_of
from inconcert._redis.driver.clients import Client
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import AwaitedCall, Call
from inconcert._redis.wire.turns import each_in_turns
from inconcert._rules.signing import KeyRing
from inconcert.errors import NotConnected

if TYPE_CHECKING:  # which imports this module
    from inconcert._core.permit_state import PermitState

_leaves: "dict[str, Callable[[Session, str, str], None]]" = {}


def on_unclaimed(kind: str, leave: "Callable[[Session, str, str], None]") -> None:
    """In all sessions call `leave(session, address, rest)` when such a message comes for a caller that has gone.

    Also in those that are open already: a primitive may be imported later than they were opened.
    """
    _leaves[kind] = leave


@dataclass(frozen=True, slots=True)
class Listening:
    """A subscription to the broadcasts of a signal, or of many."""

    name: str  # which signal, or the glob for their names
    is_pattern: bool  # whether it is a glob
    since: float  # since when, by the local monotonic clock
    noted: Noted


class Session(Origin):
    """One opening of a coordinator, on one event loop."""

    def __init__(
        self,
        client: Client,
        keys: Keyspace,
        key_ring: KeyRing,
        layout: Layout,
        conditions: Conditions,
        *,
        observers: Observers,
        server: str,
        timeout: float,
    ) -> None:
        super().__init__(keys, key_ring, observers)
        self.loop = asyncio.get_running_loop()
        self._layout = layout
        self.server = server  # which server, without secrets, as log lines name it
        self.timeout = timeout  # how long a call may take, reconnecting included, in seconds
        self.renewal = Renewal()  # renews its leases
        self.due: list[PermitState] = []  # the leases to renew at the end of this turn of the loop
        self.is_sharded = keys.is_sharded  # whether the server is a cluster, on which each name has a slot of its own
        needs = Needs(keys, self.id, conditions, timeout, self._server_was_lost, lambda: self.renewal.is_needed)
        self._wiring = wiring_of(client, needs)
        self.inbox = self._wiring.inbox  # receives messages for this process's waiters
        self.inbox.on_stray = self._leave
        self.broadcasts = self._wiring.broadcasts  # receives messages for everyone: connected with the first listener
        self.channel = self._wiring.channel  # where commands go
        self.bells = self._wiring.bells  # where its idle consumers sleep: connected with the first of them
        # makes connections for a thread while the loop is blocked; None where that is not possible
        self.new_blocking_server = self._wiring.new_blocking_server
        # hold grants back until they may be handed out; None if nothing is demanded of them
        self.safeguards = self._wiring.safeguards
        self.lines = Lines(self.inbox)  # the waiters of this process
        # how often a connection for commands was back after a loss: the server may be another one since
        self.reconnects = 0
        # the subscriptions to broadcasts of signals, and the notices about each
        self.listeners: dict[object, Listening] = {}

    async def open(self) -> None:
        """Connect.

        Raises:
            Unavailable: The server cannot be reached, or refuses us.
            WrongLayout: The namespace is divided otherwise.
        """
        try:
            await self._wiring.open()
            for command, check in self.questions(self._layout):
                check(await self.run(command))
            await self.inbox.open()
        except BaseException:
            await self.channel.close()
            await self._wiring.close()
            raise

    async def check(self) -> None:
        """Find out whether the server serves us, and not in the middle of a script that has changed something already.

        Raises:
            Unavailable: It cannot be reached, or refuses.
            OutcomeUnknown: It did not answer.
        """
        command, check = self.rights()
        check(await self.run(command))

    async def close(self) -> None:
        """Release all leases, fail all waiters, and disconnect."""
        closed = NotConnected("the coordinator was closed while this call waited; open it again")
        self.renewal.close()
        await asyncio.gather(
            self.inbox.closed(closed),
            self.broadcasts.closed(closed),
            each_in_turns("releasing what is held", self.renewal.take_all(), lambda lease: lease.give_up()),
        )
        self.lines.close()
        await self.bells.close()  # before the channel, on which it puts back what it may have taken
        await self.channel.close()
        await self.broadcasts.close()
        await self.inbox.close()
        await self._wiring.close()

    async def run(self, command: Command) -> Reply:
        """Run a script and wait for its reply.

        Raises:
            Unavailable: It was not run.
            OutcomeUnknown: It was sent, and no reply came in time.
            WrongState: A key holds something that is not ours.
        """
        call = AwaitedCall(command)
        await self.channel.has_room(call.key, call)
        self.channel.submit(call)
        return await call

    async def gather(self, calls: Sequence[Call]) -> list[Reply]:
        """Send calls without waiting for each other's replies, and wait for all of these.

        Raises:
            Unavailable: One was not run.
            OutcomeUnknown: One was sent, and no reply came in time.
            WrongState: A key holds something that is not ours.
        """
        for call in calls:
            await self.channel.has_room(call.key, call)
            self.channel.submit(call)
        return [await call for call in calls]

    def _leave(self, kind: str, address: str, rest: str) -> None:
        """A message came for a caller that has gone."""
        if leave := _leaves.get(kind):
            leave(self, address, rest)

    def _server_was_lost(self) -> None:
        """A server may have lost its grants."""
        self.reconnects += 1
        self.renewal.renew_all()
        self.observers.reconnected()


class SessionRef:
    """The way to the session that is open now, for primitives that are made before the coordinator opens."""

    def __init__(self, keys: Keyspace) -> None:
        self.keys = keys
        self.observers = Observers()  # who is told what happens
        self.opened: Session | None = None  # the session that is open now
        self.was_opened = False  # whether there was one before, in this process or one that it was forked from

    @property
    def session(self) -> Session:
        """The open session; raises `NotConnected` if the coordinator is closed, or open on another event loop."""
        session = self.opened
        if session is None:
            message = "the coordinator is not open; use it inside `async with coordinator:`" + _why_it_may_not_be()
            raise NotConnected(message, is_misuse=not self.was_opened)
        if session.loop is not asyncio.get_running_loop():
            message = "the coordinator is open on another event loop; open one coordinator per loop"
            raise NotConnected(message, is_misuse=True)
        return session


def _why_it_may_not_be() -> str:
    """For the error: a script that was imported, too, has two coordinators; empty if there is none."""
    script = vars(sys.modules["__main__"]).get("__file__")
    for name, module in list(sys.modules.items()):
        if script is not None and name != "__main__" and getattr(module, "__dict__", {}).get("__file__") == script:
            return (
                f". {script} runs as a script and was imported as {name!r}, too: each has a coordinator, and this one "
                "is not the one that was opened. Begin the program in a file that nothing imports"
            )
    return ""
