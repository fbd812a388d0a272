"""The origin of commands: one opening of a coordinator or producer, with an id of its own."""

import secrets
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from operator import attrgetter

from inconcert._core.layout import Layout
from inconcert._core.observer import Observers
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._rules.signing import KeyRing
from inconcert.errors import Unavailable

_OPEN = load("sessions/open").bind()

_LENGTHS = "0123456789abcdef"  # of numbers
_TWO_DIGITS = [f"{number:02}" for number in range(100)]

Question = tuple[Command, Callable[[Reply], None]]  # and what checks its answer


class Origin:
    """The facts that the commands of one opening have in common, however they are sent.

    Args:
        key_ring: What jobs and items are signed with.
        observers: Who is told what happens.

    Attributes:
        id: Unique to this opening, in any process.
        inboxes: Prefix of the inbox channel of every process, to which scripts on a key publish, given the key.
        new_address: Makes a name that no other waiter or holder has, in any process: `session.number`. Those of a
            session sort by their text in the order in which they were made, because the server orders what is due in
            one instant by its name: the number has its length before it, so that 9, 10 and 11 are 19, 210 and 211.
    """

    def __init__(self, keys: Keyspace, key_ring: KeyRing, observers: Observers) -> None:
        self.id = secrets.token_hex(8)
        self.new_address = _addresses(f"{self.id}.").__next__
        self.key_ring = key_ring
        self.observers = observers
        self.inboxes = keys.inboxes
        self._keys = keys
        self._requests: dict[str, int] = {}
        [self._bell] = keys.parts("session", self.id, "bell")

    def next_request(self, key: str) -> int:
        """The number of the next request that is sent to this key, from 1: so a script knows if it ran before."""
        number = self._requests[key] = self._requests.get(key, 0) + 1
        return number

    def rights(self) -> Question:
        """True if the server serves us, and not in the middle of a script that has changed something already.

        Raises:
            Unavailable: From the check: the user may not publish.
        """
        channel = self._keys.channel(self._bell, "session", self.id)
        command = _OPEN(bell=self._bell, channel=channel)

        def check(reason: Reply) -> None:
            if reason:
                what = f"was refused by the server: the user may not publish on {channel!r} ({reason.decode()})"
                remedy = "give it the channels of the whole namespace, as docs/how-to/deploy.md shows"
                raise command.operation.error(Unavailable, f"{what}; {remedy}")

        return command, check

    def questions(self, layout: Layout) -> tuple[Question, ...]:
        """The command that is sent once when connected, before anything else.

        Raises:
            Unavailable: From a check; see `rights`.
            WrongLayout: From a check: the namespace is divided otherwise.
        """

        def compare(recorded: Reply) -> None:
            layout.compare(recorded, self._keys.namespace)

        return self.rights(), (layout.record(self._keys), compare)


def _addresses(start: str) -> Iterator[str]:
    """The addresses of a session, without a step in Python: in one, another thread or an interruption may come.

    A number is made into text once for a hundred of them.
    """
    few = [f"{start}{_LENGTHS[len(str(number))]}{number}" for number in range(1, 100)]
    hundreds = [map(f"{start}{_LENGTHS[i + 2]}%d".__mod__, range(10 ** (i - 1), 10**i)) for i in range(1, 14)]
    adding = map(attrgetter("__add__"), chain(*hundreds))
    return chain(few, chain.from_iterable(map(map, adding, repeat(_TWO_DIGITS))))
