"""Following the stream of a job: its items from any position on, until the job has ended.

The id of an item is `RUN-NUMBER`: which run of the generator yielded it, and its number in it, from 1. A run is named
by when it began, by the server's clock, so no two have the same name, even if the server has forgotten the first.

Source: docs/explanation/streams.md
"""

import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from inconcert._core.channel_subscription import Gap
from inconcert._core.retry import retry_until_answered
from inconcert._core.session import SessionRef
from inconcert._rules.conversion import Converter
from inconcert.tasks.following.feed import Page
from inconcert.tasks.following.watch import Watches
from inconcert.tasks.records.status import read_outcome

_log = logging.getLogger("inconcert.tasks")

T = TypeVar("T")

_ID = re.compile(r"(\d{1,15})-(\d{1,15})", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamItem(Generic[T]):
    """The stream of a job.

    Attributes:
        id: Which item; `Job.stream(after=id)` goes on behind it.
        attempt: The attempt of the job that yielded it.
        value: As yielded.
    """

    id: str
    attempt: int
    value: T


@dataclass(frozen=True, slots=True)
class Restarted:
    """The generator begins again: items before no longer count.

    Attributes:
        attempt: Which attempt of the job this is; the same as before if the job was requeued, or has slept.
    """

    attempt: int


Stream: TypeAlias = AsyncGenerator[StreamItem[T] | Restarted | Gap, None]


class Position(NamedTuple):
    """A position in a stream: behind this item, of this run; the run is empty for the beginning."""

    run: str
    number: int

    @property
    def id(self) -> str:
        """The id of that item, which `position_of` reads."""
        return f"{self.run}-{self.number}"


def position_of(item_id: str | None) -> Position:
    """The position behind the item with this id; None means the beginning.

    Raises:
        ValueError: This cannot be the id of an item.
    """
    if item_id is None:
        return Position("", 0)
    found = _ID.fullmatch(item_id) if isinstance(item_id, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if found is None:
        raise ValueError(f"after is {item_id!r}, which cannot be the id of an item; give `StreamItem.id`, or None")
    return Position(found[1], int(found[2]))


async def follow(
    ref: SessionRef, watches: Watches, job_id: str, position: Position, converter: Converter
) -> Stream[Any]:
    """The items behind a position; see `Job.stream`."""
    run, number = position
    watch = watches.join(ref.session, job_id)
    try:
        feed = await watch.follow()
        what = f"following job {job_id}"
        page: Page = await feed.read(run, number)
        while True:
            items = page.items
            if items.run and items.run != run:
                if run:
                    yield Restarted(items.attempt)
                run, number = items.run, 0
            if items.first > number + 1:
                yield Gap(items.first - 1 - number)
                number = items.first - 1
            for text in items.texts:
                number += 1
                yield StreamItem(Position(run, number).id, items.attempt, converter.read(text))
            if number >= items.last:
                if page.seen.has_ended:
                    watch.is_noted = False
                    read_outcome(job_id, page.seen.status, page.seen.about, None)
                    return
                await feed.woken(page.changed)
            page = await retry_until_answered(_log, what, partial(feed.read, run, number))
    finally:
        watches.leave(watch)
