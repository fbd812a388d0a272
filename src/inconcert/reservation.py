"""Permits that were reserved by an estimate, and are settled by the use.

Source: docs/explanation/rate-limits.md
"""

from collections.abc import Callable


class Reservation:
    """Permits of a rate limiter that were taken by an estimate, until `settle` says how many were used.

    Made by `RateLimiter.reserve`.

    Attributes:
        cost: How many permits count: the estimate, or the number that was settled last.
    """

    __slots__ = ("_name", "_settle", "cost")

    def __init__(self, name: str, cost: int, settle: Callable[[int, int], None]) -> None:
        self._name = name
        self._settle = settle
        self.cost = cost

    def __repr__(self) -> str:
        return f"<Reservation of {self.cost} in rate limiter {self._name!r}>"

    def settle(self, cost: int) -> None:
        """Let this many permits count in place of the estimate: the others come back, or more are taken.

        More than the estimate may be more than the burst: who comes next waits until they are back.  It may be called
        again, such as while a stream goes on, and after the body; the latest number counts.

        It returns at once.  While the server refuses it or does not answer, it is sent again for a minute; after that
        the number of before counts.

        Args:
            cost: How many were used, 0 or more.

        Raises:
            NotConnected: The coordinator is closed; the number of before counts.

        Cost: 1 round trip, which nobody waits for; none if the number is the same.
        """
        self._settle(self.cost, cost)
        self.cost = cost
