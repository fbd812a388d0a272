"""Jobs of tasks with limits and rates: how many run at once, how many wait, and how many a rate allowed."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio

from inconcert import Coordinator, Rate, current_job
from tests.support.raw import raw

__all__ = ["A_MOMENT", "WITHIN", "Running", "begun_at", "excess", "first", "in_line", "places"]

WITHIN = 10.0  # seconds
A_MOMENT = 0.1  # jobs; the server's clock counts milliseconds here


def first(key: str, *_: object) -> str:
    """The key of a job whose first argument it is."""
    return key


class Running:
    """Jobs that run until they are let go, counted by what they are called."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.began: list[Any] = []
        self.changed = asyncio.Event()
        self.free = asyncio.Event()

    async def run(self, name: str, number: object = None) -> None:
        """One of them."""
        self.now[name] += 1
        self.most[name] = max(self.most[name], self.now[name])
        self.began.append(number)
        self.changed.set()
        try:
            await self.free.wait()
        finally:
            self.now[name] -= 1

    async def until(self, count: int) -> None:
        """Wait until so many have begun."""
        with anyio.fail_after(WITHIN):
            while len(self.began) < count:
                self.changed.clear()
                await self.changed.wait()


async def places(concert: Coordinator) -> int:
    """How many places are taken, and how many jobs wait for one."""
    found = 0
    for keys in concert._jobs.partitions:
        found += await raw(concert).hlen(keys.places) + await raw(concert).zcard(keys.held_back)
    return found


async def in_line(concert: Coordinator, count: int) -> bool:
    """Whether so many jobs wait for a place."""
    found = [await raw(concert).zcard(keys.held_back) for keys in concert._jobs.partitions]
    return bool(sum(found) == count)


def excess(claimed_at: Sequence[float], rate: Rate) -> float:
    """By how many jobs a time span had more than the rate allows; at most 0 if none had."""
    assert isinstance(rate.per, float)
    burst, per_second = rate.jobs if rate.burst is None else rate.burst, rate.jobs / rate.per
    return max(
        count - burst - (until - since) * per_second
        for place, since in enumerate(claimed_at)
        for count, until in enumerate(claimed_at[place:], 1)
    )


def begun_at() -> float:
    """When the current job was claimed, by the server's clock."""
    claimed_at: float = current_job()._state.claimed_at
    return claimed_at
