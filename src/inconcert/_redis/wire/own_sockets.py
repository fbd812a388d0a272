"""The sockets of this process that are not for children that it forks: of connections, and those it answers on."""

from typing import Protocol
from weakref import WeakSet


class _Socket(Protocol):
    """An object that has a socket."""

    def fileno(self) -> int:
        """The descriptor; -1 once it is closed."""
        ...


own_sockets: WeakSet[_Socket] = WeakSet()
