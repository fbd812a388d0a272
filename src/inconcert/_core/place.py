"""A request that waits in a line which the server keeps, until its turn has come or its caller has gone."""

import time
from abc import abstractmethod
from typing import ClassVar

from inconcert._core.caller import Noted, note
from inconcert._core.line import NO_ANSWER
from inconcert._core.session import Session, on_unclaimed
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call, Callers
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert.errors import InconcertError

NO_WAIT, JOIN = -1, 0  # in place of a ticket


class Place(Call, InboxReceiver):
    """The base of what waits in a line: the call that joins it, which is done when the wait is over.

    A subclass says how to ask, what replies and messages mean, and how to leave.

    Args:
        address: Of this wait in the inbox and in the line, unique every time.
        ticket: `NO_WAIT`, `JOIN`, or the place to have back.

    Attributes:
        noted: From where it is asked for; None for the caller of `ask`.
        since: Since when it is in line, by the local monotonic clock; 0 before.
    """

    __slots__ = (
        "_asked_at",
        "_is_asking",
        "_may_be_in",
        "_must_recheck",
        "_session",
        "address",
        "noted",
        "since",
        "ticket",
    )

    goes_at_once = True
    kind: ClassVar[str]  # of the messages for it, see `_redis/wire/inbox.py`

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        on_unclaimed(cls.kind, cls.leave_for)

    def __init__(self, session: Session, address: str, ticket: int) -> None:
        self._session = session
        self.address = address
        self.ticket = ticket
        self.noted: Noted | None = None
        self.since = 0.0
        self._asked_at = 0.0  # when the request was sent whose reply came last
        self._is_asking = True  # a request is under way
        self._must_recheck = False  # its reply may be from before something that was missed
        self._may_be_in = True  # the server may keep a place in line for this, or more
        Call.__init__(self, self._request())

    def ask(self) -> None:
        """Send the request."""
        # First of all be ready to hear: the inbox may bring a grant before the channel brings the reply.
        self._session.inbox.register(self.address, self)
        if self.noted is None:
            self.noted = note()
        self._asked_at = time.monotonic()
        self._session.channel.submit(self)

    def leave(self) -> None:
        """Stop waiting, as far as this process knows."""
        self._session.inbox.unregister(self.address)
        if self.ticket > 0:
            self._session.lines.leave(self.key, self)

    def withdraw(self) -> None:
        """Stop waiting, and leave the line on the server, or give back what came of the wait."""
        self.leave()
        if self._may_be_in and self.sends and not self._session.channel.is_closed:
            self._may_be_in = False
            self._give_back()
        self.cancel()

    # Called by the channel and the inbox.

    def answered(self, reply: Reply) -> None:
        """Take the reply to this call or to its last recheck."""
        self._is_asking = False
        self._take(reply)
        if self._must_recheck:
            self.recheck()

    def answered_again(self, reply: Reply, asked_at: float) -> None:
        """Take the reply to a recheck that was sent at this time."""
        self._asked_at = asked_at
        self.answered(reply)

    def recheck(self) -> bool:
        """Ask again, from the place in line; False if the wait is over."""
        if self.done():
            return False
        self._must_recheck = self._is_asking
        if not self._is_asking:
            self._is_asking = True
            self._session.channel.submit(_Recheck(self, self._request()))
        return True

    def recheck_failed(self, error: InconcertError) -> None:
        """Go on waiting, and recheck later."""
        del error
        self._is_asking = False
        self._session.lines.recheck_within(self.key, NO_ANSWER)

    def closed(self, error: InconcertError) -> None:
        super().closed(error)
        self.failed(error)
        self.withdraw()

    # For subclasses.

    @staticmethod
    @abstractmethod
    def leave_for(session: Session, address: str, rest: str) -> None:
        """Leave the line for a caller of this process that waits no more, after a message for it has come."""

    @abstractmethod
    def _request(self) -> Command:
        """The script that asks, with the ticket as it is."""

    @abstractmethod
    def _take(self, reply: Reply) -> None:
        """Set the result, or take the place in line."""

    @abstractmethod
    def _give_back(self) -> None:
        """Send what leaves the line on the server, or gives back what came of the wait."""

    def _has_place(self, ticket: int) -> None:
        """Note the place in line; messages about it come in from now on."""
        if self.ticket <= 0 and not self.done():
            self._session.inbox.follow(self.key, self.address)
            self.since = self.since or time.monotonic()
        self.ticket = ticket

    def _stand(self, ticket: int, joined: int, retry_ms: int, *grants: bytes) -> None:
        """Take a place in one of the session's `lines`: how a reply ends to a caller that is in line.

        Args:
            ticket: The place.
            joined: 1 if the caller was not in line before.
            retry_ms: Milliseconds until the next recheck.
            grants: What was granted to others of this process.
        """
        lines, was_in_line = self._session.lines, self.ticket > 0
        self._has_place(ticket)
        if not self.done():
            lines.join(self.key, self)
        lines.on_reply(self.key, retry_ms, *grants)
        if joined and was_in_line:  # the server had forgotten it, and maybe others
            lines.recheck_all(self.key, self._asked_at)


class _Recheck(Call):
    """The same request again, from its place in line."""

    __slots__ = ("_asked_at", "_place")

    def __init__(self, place: Place, command: Command) -> None:
        super().__init__(command)
        self._asked_at = time.monotonic()
        self._place = place

    @property
    def is_wanted(self) -> bool:
        return not self._place.done()

    def answered(self, reply: Reply) -> None:
        self._place.answered_again(reply, self._asked_at)

    def failed(self, error: InconcertError) -> None:
        self._place.recheck_failed(error)

    def callers(self) -> Callers:
        return (self, self._place)
