"""The latest acts of a consumer, for the checks that judge whether it works."""

from typing import NamedTuple

from inconcert._redis.wire.background import Failure


class ConsumerSigns(NamedTuple):
    """Signs of a consumer's latest acts. Instants are by the monotonic clock.

    Attributes:
        turned_at: When the event loop last turned for the thread that watches it.
        is_watched: Whether that thread lives.
        claimed_at: When a claim was last answered; None before the first.
        waits_since: Since when the connection on which it sleeps has not answered; None if it need not.
        is_held: Whether its heartbeat has not lapsed, so that its claims are its own.
        failure: The last unexpected error in the background of this process; None for none.
    """

    turned_at: float
    is_watched: bool
    claimed_at: float | None
    waits_since: float | None
    is_held: bool
    failure: Failure | None = None
