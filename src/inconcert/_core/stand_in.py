"""The server on which a test opens a coordinator instead of its own."""

from dataclasses import dataclass

from inconcert._redis.find.sources import Source


@dataclass(slots=True)
class StandIn:
    """The substitute for a coordinator's server while a test overrides it."""

    source: Source  # where its client comes from
    # whether the test itself has opened the coordinator: an application that opens it, too, shares that
    is_shared: bool = False
    sharers: int = 0  # how many share it now
