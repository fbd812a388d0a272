"""Calls that wait on our side until little is under way, so that small ones need not stand behind large ones."""

from collections import Counter, deque

from inconcert._redis.call import Call

__all__ = ["HeldBack"]


class HeldBack:
    """Large calls that are not to be written yet, and small ones that must not pass them, in their order.

    Attributes:
        calls: They.
        bytes: Of all of them.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.calls: deque[Call] = deque()
        self._tags: Counter[str] = Counter()

    def is_in_front_of(self, call: Call) -> bool:
        """Whether one of them is about the same, so that this call must not pass."""
        return bool(self.calls) and not call.overtakes and not self._tags.keys().isdisjoint(call.tags)

    def append(self, call: Call) -> None:
        self.calls.append(call)
        self._count(call, 1)

    def popleft(self) -> Call:
        call = self.calls.popleft()
        self._count(call, -1)
        return call

    def take_all(self) -> list[Call]:
        """Let go of all."""
        return [self.popleft() for _ in range(len(self.calls))]

    def take_late(self, now: float) -> list[Call]:
        """Let go of the calls whose time is up."""
        late: list[Call] = []
        for call in self.take_all():
            if now >= call.give_up_at:
                late.append(call)
            else:
                self.append(call)
        return late

    def _count(self, call: Call, by: int) -> None:
        self.bytes += by * len(call.packed)
        for tag in call.tags:
            self._tags[tag] += by
            if not self._tags[tag]:
                del self._tags[tag]
