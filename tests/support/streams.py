"""Streams of jobs as their readers get them."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from inconcert import Gap, Job, Restarted, StreamItem

__all__ = ["WITHIN", "check", "followed", "followed_until"]

WITHIN = 5.0  # seconds


async def followed(job: Job[Any], **options: Any) -> list[Any]:
    """What a stream gives, without the ids: values, restarts and gaps."""
    async with asyncio.timeout(WITHIN):
        items = [item async for item in job.stream(**options)]
    return [item.value if isinstance(item, StreamItem) else item for item in items]


async def followed_until(error: type[Exception], job: Job[Any]) -> list[StreamItem[Any]]:
    """The items of a stream that ends with this error."""
    found: list[Any] = []

    async def follow() -> None:
        async for item in job.stream():
            found.append(item)  # noqa: PERF401 - they count although it raises

    async with asyncio.timeout(WITHIN):
        with pytest.raises(error):
            await follow()
    return found


def check(history: Sequence[Any]) -> list[Any]:
    """The values of the last run of a stream that somebody followed; raises AssertionError if it contradicts itself."""
    run, number, values = "", 0, list[Any]()
    for item in history:
        if isinstance(item, Restarted):
            run, number, values = "", 0, []
        elif isinstance(item, Gap):
            assert item.missed
            number += item.missed
        else:
            found: StreamItem[Any] = item
            its_run, _, its_number = found.id.partition("-")
            assert run in ("", its_run), f"{found} came without a restart"
            assert int(its_number) == number + 1, f"{found} came behind number {number}"
            run, number = its_run, number + 1
            values.append(found.value)
    return values
