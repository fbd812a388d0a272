"""The layout of a namespace: numbers that all its processes must share, as the first of them recorded them.

The keys of jobs and chats depend on these numbers, so a process with others would not find what the rest have stored.
"""

from typing import NamedTuple, Self

from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._rules.limits import whole
from inconcert.errors import WrongLayout

# Of the keys, and of what is stored there. A release of which the processes cannot share a namespace with those of the
# release before has the next number.
FORMAT = 1
PARTITIONS = 1
# A fetch of chats asks each group; on Redis Cluster, chats can spread over as many nodes.
CHAT_GROUPS = 4

_MOST = 1024  # of either


class _LayoutKeys(NamedTuple):
    layout: str  # hash: 'format', 'partitions' and 'chat_groups' -> number; permanent


_LAYOUT = load("sessions/layout").bind(_LayoutKeys)


class Layout(NamedTuple):
    """The division of a namespace."""

    partitions: int = PARTITIONS  # over how many slots of a cluster its jobs are spread
    chat_groups: int = CHAT_GROUPS  # over how many slots its chats are spread

    def checked(self) -> Self:
        """The same; raises `ValueError` if a number is not from 1 to 1,024."""
        for parameter, value in self._asdict().items():
            whole(parameter, value, most=_MOST)
        return self

    def record(self, keys: Keyspace) -> Command:
        """The command that records it, unless the namespace has a layout."""
        key = _LayoutKeys(*keys.shared("namespace", "layout"))
        return _LAYOUT(key, format=FORMAT, partitions=self.partitions, chat_groups=self.chat_groups)

    def compare(self, recorded: Reply, namespace: str) -> None:
        """Check what that command answered.

        Raises:
            WrongLayout: The namespace has another one, or was written by a release that stores things otherwise.
        """
        expected = {"format": FORMAT, **self._asdict()}
        for (parameter, here), there in zip(expected.items(), recorded, strict=True):
            if here != there:
                raise WrongLayout(namespace, parameter, here, there)
