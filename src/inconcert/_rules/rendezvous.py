"""The member that a key belongs to: the same in every process, and with every version of Python.

Each pair of a member and a key has a score, and the key belongs to the member with the highest one.  So a member that
comes takes over only the keys that it wins, from each other about the same share, and the keys of one that goes are
spread over all others: no other key moves.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on Networking
6(1), 1998. The score here is a product modulo a prime, so that a pair costs a multiplication and not a hash.
"""

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b

_PRIME = 2**30 - 35  # the largest of which Python multiplies and divides in its quickest way


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
    """Some keys, divided among the members of a `Rendezvous`, and divided again when some come or go.

    It is done in steps, because there may be many: 10,000 keys and 1,000 members are 10,000,000 pairs.

    Args:
        rendezvous: The members; code that adds or removes one notes it here, too.
    """

    __slots__ = (
        "__weakref__",
        "_noted",
        "_numbers",
        "_owned",
        "_owners",
        "_rendezvous",
        "_scores",
        "keys",
    )

    def __init__(self, keys: Iterable[str], rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        self.keys = [*keys]
        self._numbers = [_number(key) for key in self.keys]
        self._scores = [0] * len(self.keys)  # of each key's owner
        self._owners = [""] * len(self.keys)
        self._owned: dict[str, set[int]] = {}  # member -> indexes of its keys
        self._noted = dict.fromkeys(rendezvous.numbers)  # that came or went since

    def note(self, member: str) -> None:
        """The `Rendezvous` has this member now, or has it no more: a later step divides its keys."""
        self._noted[member] = None

    def steps(self) -> Iterator[None]:
        """Divide the keys again, a member in each step; several may do so in turn, and share the work.

        Cost: O(K) for a member that has come, K keys. O(N) for each key of one that has gone, N members.
        """
        while self._noted:
            member, _ = self._noted.popitem()
            number = self._rendezvous.numbers.get(member)
            if number is None:  # perhaps before its step, and yet with keys of one that went before
                self._divide(self._owned.pop(member, set()))
            else:  # perhaps it is back before its step, and keys were divided without it
                self._offer(number, member, range(len(self.keys)))
            yield

    def of(self, member: str) -> set[str]:
        """The keys of a member, when all steps are done."""
        return {self.keys[index] for index in self._owned.get(member, ())}

    # Private.

    def _divide(self, indexes: Collection[int]) -> None:
        """Give keys that have lost their owner to others."""
        for index in indexes:
            self._scores[index], self._owners[index] = 0, ""
        if indexes:
            for member, number in self._rendezvous.numbers.items():
                self._offer(number, member, indexes)

    def _offer(self, its_number: int, member: str, indexes: Iterable[int]) -> None:
        """Give a member those of these keys that it wins."""
        numbers, scores = self._numbers, self._scores
        for index in [index for index in indexes if numbers[index] * its_number % _PRIME >= scores[index]]:
            its_best, owner = (numbers[index] * its_number % _PRIME, member), self._owners[index]
            if its_best > (scores[index], owner):
                self._scores[index], self._owners[index] = its_best
                if owner:
                    self._owned[owner].discard(index)
                self._owned.setdefault(member, set()).add(index)
