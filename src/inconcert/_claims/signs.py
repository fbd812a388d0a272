"""The latest acts of a consumer, for the checks that judge whether it works."""

from typing import NamedTuple

from inconcert._redis.wire.background import Failure


class ConsumerSigns(NamedTuple):
    """Signs of a consumer's latest acts. Instants are by the monotonic clock."""

    turned_at: float  # when the event loop last turned for the thread that watches it
    is_watched: bool  # whether that thread lives
    claimed_at: float | None  # when a claim was last answered; None before the first
    waits_since: float | None  # since when the connection on which it sleeps has not answered; None if it need not
    is_held: bool  # whether its heartbeat has not lapsed, so that its claims are its own
    failure: Failure | None = None  # the last unexpected error in the background of this process; None for none
