"""`inconcert bench`: what this machine and this server do together."""

import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from inconcert.cli.server import Json, Namespace, Url, ask
from inconcert.cli.tables import print_json, print_table
from inconcert.coordinator import Coordinator

_COROUTINES = 100
_QUEUE = "inconcert-bench"  # always the same, so that all runs together are one queue in the statistics


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement."""

    what: str
    value: float
    unit: str


def bench(
    *,
    seconds: Annotated[float, typer.Option(help="How long each measurement takes.", min=0.1, max=60.0)] = 1.0,
    url: Url = None,
    namespace: Namespace = None,
    as_json: Json = False,
) -> None:
    """Measure this machine and this server together: round trips, locks and jobs."""
    figures = ask(url, namespace, lambda concert: _figures(concert, seconds))
    if as_json:
        print_json(figures)
        return
    print_table(("what", "value", "unit"), ((one.what, _rounded(one.value), one.unit) for one in figures), empty="")


async def _figures(concert: Coordinator, duration: float) -> list[Figure]:
    pings = await _repeat(duration, concert.ping)
    alone, together = [await _pairs(concert, duration, coroutines) for coroutines in (1, _COROUTINES)]
    waits = await _hand_overs(concert, duration)
    enqueued, run = await _jobs(concert, duration)
    return [
        Figure("round trip, p50", 1e3 * statistics.median(pings), "ms"),
        Figure("round trip, p99", 1e3 * sorted(pings)[len(pings) * 99 // 100], "ms"),
        Figure("hand-over of a lock to the next in line, p50", 1e3 * statistics.median(waits), "ms"),
        Figure("locks acquired and released, one by one", alone, "per s"),
        Figure(f"locks acquired and released, by {_COROUTINES} coroutines", together, "per s"),
        Figure(f"jobs enqueued, by {_COROUTINES} coroutines", enqueued, "per s"),
        Figure(f"jobs run, {_COROUTINES} at once", run, "per s"),
    ]


async def _repeat(duration: float, ask: Callable[[], Awaitable[object]]) -> list[float]:
    """The durations of these calls, in seconds, one after the other for so long."""
    taken: list[float] = []
    ends_at = time.perf_counter() + duration
    while not taken or time.perf_counter() < ends_at:
        began_at = time.perf_counter()
        await ask()
        taken.append(time.perf_counter() - began_at)
    return taken


async def _pairs(concert: Coordinator, duration: float, coroutines: int) -> float:
    """Locks acquired and released in a second, by so many coroutines that each have a lock of their own."""

    async def work() -> list[float]:
        lock = concert.lock(_new_name())

        async def pair() -> None:
            async with lock:
                pass

        return await _repeat(duration, pair)

    began_at = time.perf_counter()
    done = await asyncio.gather(*(work() for _ in range(coroutines)))
    return sum(map(len, done)) / (time.perf_counter() - began_at)


async def _hand_overs(concert: Coordinator, duration: float) -> list[float]:
    """Seconds from a release to the return of the next in line."""
    lock = concert.lock(_new_name())
    waits: list[float] = []
    released_at, ends_at = 0.0, time.perf_counter() + duration

    async def take_turns() -> None:
        nonlocal released_at
        while time.perf_counter() < ends_at or not waits:
            async with lock:
                if released_at:
                    waits.append(time.perf_counter() - released_at)
                await asyncio.sleep(0.002)  # so that the other is in line again
                released_at = time.perf_counter()

    await asyncio.gather(take_turns(), take_turns())
    return waits


async def _jobs(concert: Coordinator, duration: float) -> tuple[float, float]:
    """Jobs enqueued in a second, and run in a second."""
    ran = 0

    @concert.task(name=_QUEUE, queue=_QUEUE, result_ttl=0)
    async def run() -> None:
        nonlocal ran
        ran += 1

    try:
        began_at = time.perf_counter()
        done = await asyncio.gather(*(_repeat(duration, run.enqueue) for _ in range(_COROUTINES)))
        enqueued = sum(map(len, done)) / (time.perf_counter() - began_at)
        began_at = time.perf_counter()
        await concert.run_worker(_QUEUE, concurrency=_COROUTINES, burst=True)
        return enqueued, ran / (time.perf_counter() - began_at)
    finally:
        await concert.tasks.drain(_QUEUE)  # if it was stopped before the end


def _rounded(value: float) -> int | float:
    return round(value) if value >= 100 else round(value, 2)


def _new_name() -> str:
    return f"{_QUEUE}-{secrets.token_hex(4)}"
