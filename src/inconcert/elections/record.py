"""The current leader, as the server reports it to callers and to watchers."""

from dataclasses import dataclass
from typing import NamedTuple, Self


@dataclass(frozen=True, slots=True)
class ElectionRecord:
    """The leader, and since when it leads.

    Attributes:
        candidate: The leader, by its candidate name.
        number: Its term: the `Term.number`, which grows from term to term.
        since: When the term was proclaimed, in seconds since 1970, by the server's clock.
    """

    candidate: str
    number: int
    since: float


class LeaderView(NamedTuple):
    """The state of an election at one moment."""

    at_us: int  # by the server's clock
    lasts: float | None  # seconds until the record lapses unless it is renewed; None if there is none
    record: ElectionRecord | None

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parse a script's reply: 'NOW_US LEFT_MS HOLDER NUMBER SINCE_MS CANDIDATE', 'NOW_US 0 ' without a leader."""
        at_us, left_ms, proclaimed = text.decode().split(" ", 2)
        if not proclaimed:
            return cls(int(at_us), None, None)
        _, number, since_ms, candidate = proclaimed.split(" ", 3)
        record = ElectionRecord(candidate, int(number), int(since_ms) / 1000)
        return cls(int(at_us), int(left_ms) / 1000, record)
