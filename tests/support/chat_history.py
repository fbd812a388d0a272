"""What happened in a chat, as its users saw it, and what is wrong with it.

Each process records its events in their order; a call that was cut off by a kill has none.  Where an event cannot know
how far the chat had come just then, it has what is certain: the latest id before the call, and after it.

    Sent(user, id)                       send() returned
    Joined(user, earliest, latest)       join() returned; the position at which it began lies between these ids
    Left(user, earliest, latest)         leave() returned, or they were found to be gone; it took effect between these
    Fetched(user, ids, missed, last_id)  a batch of fetch() or listen() arrived
    Seen(user, position)                 a read position, as members() told it

All checkers are plain functions and answer what is wrong, one line for each.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Event", "Fetched", "Joined", "Left", "Seen", "Sent", "all_violations", "as_event"]


class Sent(NamedTuple):
    """A message is in the chat."""

    user: str
    id: int


class Joined(NamedTuple):
    """Someone is a member; of a new chat from 0 on."""

    user: str
    earliest: int
    latest: int


class Left(NamedTuple):
    """Someone is a member no more."""

    user: str
    earliest: int
    latest: int


class Fetched(NamedTuple):
    """A batch arrived."""

    user: str
    ids: list[int]
    missed: int
    last_id: int


class Seen(NamedTuple):
    """A member's read position."""

    user: str
    position: int


Event = Sent | Joined | Left | Fetched | Seen
_KINDS = {kind.__name__: kind for kind in (Sent, Joined, Left, Fetched, Seen)}


def as_event(name: str, *values: object) -> Event:
    """The event, from what a process told of it."""
    return _KINDS[name](*values)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Stay:
    """A user's time in the chat, from one join to the next leave, or to the end."""

    user: str
    joined: Joined
    left: Left | None = None
    fetched: list[Fetched] = field(default_factory=list[Fetched])
    positions: list[int] = field(default_factory=list[int])


def all_violations(events: Sequence[Event]) -> list[str]:
    """Everything that is wrong. A user's own events must be in their order; those of different users need not be."""
    return [*gaps_in_ids(events), *lost(events), *strange(events), *disordered(events), *fallen_positions(events)]


def gaps_in_ids(events: Iterable[Event]) -> list[str]:
    """Each id that two messages have, and each below the highest known one that was never seen."""
    sent = [event.id for event in events if isinstance(event, Sent)]
    doubled = [f"message {id_} was sent twice" for id_, times in Counter(sent).items() if times > 1]
    known = {*sent, *(id_ for event in events if isinstance(event, Fetched) for id_ in event.ids)}
    told = {id_ for event in events if isinstance(event, Fetched) for id_ in _missed(event)}
    return doubled + [f"message {id_} never was" for id_ in range(1, max(known, default=0)) if id_ not in known | told]


def lost(events: Iterable[Event]) -> list[str]:
    """C1, C4: each message that a member should have got, and neither got nor was told to have missed."""
    events = list(events)
    latest = max((event.id for event in events if isinstance(event, Sent)), default=0)
    found: list[str] = []
    for stay in _stays(events):
        got = {id_ for batch in stay.fetched for id_ in (*batch.ids, *_missed(batch))}
        end = latest if stay.left is None else stay.left.earliest
        if stay.left is not None:  # what they had not fetched when they left was theirs to leave
            end = min(end, max(got, default=0))
        found += [f"{stay.user} never got {id_}" for id_ in range(stay.joined.latest + 1, end + 1) if id_ not in got]
    return found


def strange(events: Iterable[Event]) -> list[str]:
    """C1: each message that someone got who was no member when it was sent."""
    return [
        f"{stay.user} got {id_}, and was no member"
        for stay in _stays(events)
        for batch in stay.fetched
        for id_ in batch.ids
        if id_ <= stay.joined.earliest or (stay.left is not None and id_ > stay.left.latest)
    ]


def disordered(events: Iterable[Event]) -> list[str]:
    """C1: each batch that is not ids in a row, up to the one that it ends with."""
    return [
        f"{event.user} got {event.ids} of a batch up to {event.last_id}"
        for event in events
        if isinstance(event, Fetched) and event.ids
        if event.ids != list(range(event.ids[0], event.last_id + 1))
    ]


def fallen_positions(events: Iterable[Event]) -> list[str]:
    """C2: each time that a member's read position was seen below where it had been."""
    return [
        f"the position of {stay.user} fell from {before} to {after}"
        for stay in _stays(events)
        for before, after in zip(stay.positions, stay.positions[1:], strict=False)
        if after < before
    ]


def _missed(batch: Fetched) -> range:
    """The messages that a batch says were dropped: those right before it."""
    first = batch.ids[0] if batch.ids else batch.last_id + 1
    return range(first - batch.missed, first)


def _stays(events: Iterable[Event]) -> Iterator[_Stay]:
    stays: defaultdict[str, list[_Stay]] = defaultdict(list)
    for event in events:
        if isinstance(event, Joined):
            stays[event.user].append(_Stay(event.user, event))
        elif isinstance(event, Left):
            if stays[event.user] and stays[event.user][-1].left is None:
                stays[event.user][-1].left = event
        elif isinstance(event, Fetched):
            stays[event.user][-1].fetched.append(event)
        elif isinstance(event, Seen):
            stays[event.user][-1].positions.append(event.position)
    for of_user in stays.values():
        yield from of_user
