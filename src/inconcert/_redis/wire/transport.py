"""The transport of a process's commands: as its callers see it, and as a channel sees what it is a part of.

`channel.py` carries them to one server, `_cluster/router.py` to the masters of a cluster.
"""

from collections.abc import Iterable
from typing import Protocol

from inconcert._redis.protocol.replies import ErrorReply
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError


class Commands(Protocol):
    """The destination of commands: one server, or to that node of a cluster which has their keys."""

    is_closed: bool

    async def open(self) -> None:
        """Connect; raises `Unavailable` if the server cannot be reached, or refuses the connection."""

    async def close(self) -> None:
        """Wait at most 2 s for calls under way, then fail them and release the connections."""

    def submit(self, call: Call) -> None:
        """Send a call with the next flush, or now, whatever else is under way."""

    def flush(self) -> None:
        """Write submitted calls now, so that the server works on them during the rest of the turn."""

    async def has_room(self, key: str, call: Call | None = None) -> None:
        """Wait while too many calls or bytes are under way to where this key is, for this call, if it may be large.

        Raises:
            Unavailable: No call was answered for a whole call timeout.
        """

    @property
    def is_full(self) -> bool:
        """True if `has_room` would wait."""
        ...

    @property
    def is_idle(self) -> bool:
        """True if a call that is submitted now is the only one, so that to wait for others would only delay it."""
        ...

    def under_way(self) -> Iterable[Call]:
        """The calls that were submitted and not answered, also those of which the reply is waited for no more."""
        ...

    def trouble(self, key: str, since: float) -> InconcertError | None:
        """Why nothing was answered about this key since this time, by the loop's clock; None if something was.

        `Unavailable` if the server is known to be unreachable, `OutcomeUnknown` if it is silent.
        """
        ...


class ChannelOwner(Protocol):
    """Owns several channels, each to a node of a cluster, and moves calls between them."""

    def refused(self, call: Call, reply: ErrorReply) -> None:
        """Take back a call that a node did not execute: another may, or the same one later."""

    def lost(self) -> None:
        """A connection was lost: the node may have gone."""
