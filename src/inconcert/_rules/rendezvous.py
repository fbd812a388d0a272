"""Which member a key belongs to: the same in every process, and with every version of Python.

Each pair of a member and a key has a score, and the key belongs to the member with the highest one.  So a member that
comes takes over only the keys that it wins, from each other about the same share, and the keys of one that goes are
spread over all others: no other key moves.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking
6(1), 1998. The score here is a product modulo a prime, so that a pair costs a multiplication and not a hash.
"""

from collections.abc import Iterable
from hashlib import blake2b

__all__ = ["Division", "Rendezvous"]

_PRIME = 2**61 - 1


def _number(text: str) -> int:
    """A number of 1 to `_PRIME - 1` for a member or key."""
    return 1 + int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") % (_PRIME - 1)


class Rendezvous:
    """The members, and to which of them any key belongs."""

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}  # of each member

    def add(self, member: str) -> None:
        """Let this member have keys, too."""
        self.numbers[member] = _number(member)

    def remove(self, member: str) -> None:
        """Give its keys to the others."""
        self.numbers.pop(member, None)

    def owner(self, key: str) -> str | None:
        """The member that this key belongs to; None without members.

        Cost: O(N), N members.
        """
        number = _number(key)
        best, owner = 0, None
        for member, its_number in self.numbers.items():
            score = number * its_number % _PRIME
            if score > best or (score == best and owner is not None and member > owner):
                best, owner = score, member
        return owner


class Division:
    """Some keys, divided among the members of a `Rendezvous`, and divided anew when one comes or goes.

    Args:
        keys: The keys.
        rendezvous: The members, which are told to this, too, when they change.
    """

    __slots__ = ("__weakref__", "_best", "_numbers", "_owned", "_rendezvous")

    def __init__(self, keys: Iterable[str], rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        self._numbers = {key: _number(key) for key in keys}
        # Key -> the score of its owner, and that.
        self._best: dict[str, tuple[int, str]] = dict.fromkeys(self._numbers, (0, ""))
        self._owned: dict[str, set[str]] = {}
        for member in rendezvous.numbers:
            self.added(member)

    def of(self, member: str) -> set[str]:
        """The keys of a member."""
        return self._owned.get(member, set())

    def added(self, member: str) -> None:
        """The `Rendezvous` has this member now.

        Cost: O(K), K keys.
        """
        self._offer(self._rendezvous.numbers[member], member, self._numbers)

    def removed(self, member: str) -> None:
        """The `Rendezvous` does not have this member any more.

        Cost: O(N), N members, for each of its keys.
        """
        keys = self._owned.pop(member, set())
        for key in keys:
            self._best[key] = (0, "")
        for other, number in self._rendezvous.numbers.items():
            self._offer(number, other, keys)

    def _offer(self, its_number: int, member: str, keys: Iterable[str]) -> None:
        """Give a member those of these keys that it wins."""
        best, numbers = self._best, self._numbers
        for key in keys:
            score = numbers[key] * its_number % _PRIME
            its_best = best[key]
            if score >= its_best[0] and (score, member) > its_best:
                best[key] = score, member
                if its_best[1]:
                    self._owned[its_best[1]].discard(key)
                self._owned.setdefault(member, set()).add(key)
