"""A wait in a line that the server keeps: its request, and the same request again from its place."""

import time
from abc import abstractmethod

from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.inbox import InboxReceiver
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Command
from inconcert.errors import InconcertError

__all__ = ["Place"]


class Place(Call, InboxReceiver):
    """The base of what waits in a line: the call that joins it, which is done when the wait is over.

    Args:
        session: The open session.
        command: Joins the line.
    """

    __slots__ = ("_asked_at", "_session")

    def __init__(self, session: Session, command: Command) -> None:
        super().__init__(command)
        self._session = session
        self._asked_at = 0.0

    def answered(self, reply: Reply) -> None:
        """Take the reply to this call."""
        self.on_reply(reply, self._asked_at)

    @abstractmethod
    def on_reply(self, reply: Reply, asked_at: float) -> None:
        """Take a reply of the script, to this call or to a later one."""

    def recheck_failed(self) -> None:
        """Go on waiting after a later call failed: the line's timer rechecks."""

    # For subclasses.

    def _submit(self) -> None:
        """Send this call."""
        self._asked_at = time.monotonic()
        self._session.channel.submit(self)

    def _submit_recheck(self, command: Command) -> None:
        """Ask again, unless the wait is over by the time at which this would be sent."""
        self._session.channel.submit(_Recheck(self, command))


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
        self._place.on_reply(reply, self._asked_at)

    def failed(self, error: InconcertError) -> None:
        del error  # the wait goes on
        self._place.recheck_failed()
