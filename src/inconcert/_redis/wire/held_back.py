"""Calls held on our side until little is under way, so that small calls need not wait behind large ones."""

from collections import Counter, deque

from inconcert._redis.wire.call import Call


class HeldBack:
    """Large calls that must not be written yet, and small ones that must not pass them, in order."""

    def __init__(self) -> None:
        self.bytes = 0  # their size in total
        self.calls: deque[Call] = deque()  # the calls, first to be written first
        self._tags: Counter[str] = Counter()

    def is_in_front_of(self, call: Call) -> bool:
        """True if one of them shares a hash tag with this call, which must then not pass it."""
        return bool(self.calls) and not call.overtakes and not self._tags.keys().isdisjoint(call.tags)

    def append(self, call: Call) -> None:
        self.calls.append(call)
        self._count(call, 1)

    def popleft(self) -> Call:
        call = self.calls.popleft()
        self._count(call, -1)
        return call

    def take_all(self) -> list[Call]:
        """Remove and return all calls."""
        return [self.popleft() for _ in range(len(self.calls))]

    def take_late(self, now: float) -> list[Call]:
        """Remove and return the calls whose timeout has passed."""
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
