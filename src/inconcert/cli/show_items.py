"""`inconcert show items:NAME`: how much is in a queue of items, what comes next, and what was dead-lettered."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass

from inconcert._rules.payloads import JSON
from inconcert.cli.tables import ago, print_json, print_table, seconds
from inconcert.coordinator import Coordinator
from inconcert.queues.queue import DeadItem, QueueCounts

_MOST = 10  # of the next items, and of those that were dead-lettered
_LONGEST = 200  # characters of an item in a table


@dataclass(frozen=True, slots=True)
class ShownItems:
    """The contents of a queue of items."""

    name: str
    counts: QueueCounts  # how many there are, and where
    oldest_age: float | None  # how long the oldest that may be taken has been there, in seconds; None if there is none
    next: Sequence[JSON]  # those that come next, at most 10; null also stands for one that cannot be read
    latest_dead: Sequence[DeadItem[JSON]]  # the latest of those that were dead-lettered, at most 10


async def read_items(concert: Coordinator, name: str) -> ShownItems:
    """The contents of this queue now."""
    queue = concert.queue(name)
    counts, oldest_age, items, dead = await asyncio.gather(
        queue.counts(), queue.oldest_age(), queue.peek(limit=_MOST), queue.dead(limit=_MOST)
    )
    return ShownItems(name, counts, oldest_age, items, dead)


def print_items(shown: ShownItems, *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        print_json(shown)
        return
    counts = shown.counts
    known: list[tuple[str, object]] = [
        ("state", "shut down" if counts.is_shut_down else None),
        ("ready", counts.ready),
        ("oldest", seconds(shown.oldest_age)),
        ("delayed", counts.delayed),
        ("claimed", counts.claimed),
        ("dead", counts.dead),
    ]
    known += [("next", _text(item)) for item in shown.next]
    for item in shown.latest_dead:
        known += [(f"dead {item.id}", f"{item.reason}, {ago(item.died_at)} ago"), ("", _text(item.item))]
    print_table(("items", shown.name), ((what, value) for what, value in known if value is not None), empty="")


def _text(item: JSON) -> str:
    return json.dumps(item, ensure_ascii=False)[:_LONGEST]
