"""The server on which a test opens a coordinator instead of its own."""

from dataclasses import dataclass

from inconcert._redis.find.sources import Source


@dataclass(slots=True)
class StandIn:
    """The substitute for a coordinator's server while a test overrides it.

    Attributes:
        source: Where its client comes from.
        is_shared: Whether the test itself has opened the coordinator: an application that opens it, too, shares that.
        sharers: How many share it now.
    """

    source: Source
    is_shared: bool = False
    sharers: int = 0
