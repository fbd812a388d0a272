"""From which queue a consumer claims next: a decision from its claims so far, without I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from inconcert._rules.limits import whole

_HEAVIEST = 1000  # one queue against another; more would be as good as never


class Policy(Protocol):
    """Chooses the order of the queues for each claim."""

    def turn(self, count: int) -> tuple[Sequence[str], int]:
        """The queues in the order in which the next claim checks them, and how many jobs to ask for."""
        ...

    def took(self, order: Sequence[str], count: int, queues: Iterable[str]) -> None:
        """Record a claim: the queues in the order of its look, how many jobs it asked for, and the queue of each."""
        ...


class Strict:
    """The order of the list, always: a queue is used when all before it are empty.

    Args:
        queues: The most urgent first.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues

    def turn(self, count: int) -> tuple[Sequence[str], int]:
        """The queues in their order."""
        return self._queues, count

    def took(self, order: Sequence[str], count: int, queues: Iterable[str]) -> None:
        """Nothing to record."""


class Weighted:
    """Shares by weight, so that no queue starves: of two that have work, one with weight 6 gets six times as many jobs.

    Each job costs its queue 1/weight, and the queue that has spent the least comes first, with at most its weight of
    jobs in one claim.  So while all have work, no two differ by more than 1 in what they spent.  What the first does
    not need goes to the next. An empty queue is brought level with the others: it accumulates no credit.

    Args:
        weights: Queue -> its weight; equal ones are used in their order.

    Source: stride scheduling, Waldspurger and Weihl 1995, with claims of several jobs as in deficit round robin.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._spent = dict.fromkeys(weights, 0.0)
        self._is_empty = dict.fromkeys(weights, False)

    def turn(self, count: int) -> tuple[Sequence[str], int]:
        """The queues, the one that has spent the least first, and at most as many jobs as that one weighs."""
        order = sorted(self._weights, key=lambda queue: (self._spent[queue], self._is_empty[queue]))
        return order, min(count, self._weights[order[0]])

    def took(self, order: Sequence[str], count: int, queues: Iterable[str]) -> None:
        """Charge each queue for its jobs, and find which are empty."""
        got = Counter(queues)
        found_empty: list[str] = []
        for queue in order:
            self._spent[queue] += got[queue] / self._weights[queue]
            if count:  # otherwise it was not checked
                count -= got[queue]
                self._is_empty[queue] = count > 0
                found_empty += [queue] if count else []
        busy = [spent for queue, spent in self._spent.items() if not self._is_empty[queue]]
        level = min(busy, default=max(self._spent.values()))
        for queue in found_empty:
            self._spent[queue] = max(self._spent[queue], level)


def check_weights(queues: Sequence[str], weights: Mapping[str, int]) -> None:
    """Raise ValueError unless these are weights of these queues."""
    if set(weights) != set(queues):
        raise ValueError(f"weights are for {sorted(weights)!r}, and queues are {queues!r}; give each queue one weight")
    for queue, weight in weights.items():
        whole(f"the weight of queue {queue!r}", weight, most=_HEAVIEST)
