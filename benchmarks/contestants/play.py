"""What every contestant plays: it enqueues, or it works, each in a process of its own and with its own packages.

    python contestants/with_arq.py URL enqueue 10000 --at-once 100
    python contestants/with_arq.py URL send 200 --pause 0.03 --delay 1
    python contestants/with_arq.py URL work --concurrency 100 --drain 10000

A contestant is known by nothing but the lines that it prints, so it may be any program.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

__all__ = ["BODIES", "Contestant", "play"]

NAP = 0.01  # seconds
LONG = 1.0  # seconds; longer than it takes to claim 50 jobs and to kill who claimed them


class Contestant(Protocol):
    """A task queue, connected."""

    async def enqueue(self, task: str, number: float) -> object:
        """Add one job."""

    async def enqueue_later(self, seconds: float, task: str, number: float) -> object:
        """Add a job that is due in so many seconds."""

    async def enqueue_many(self, task: str, numbers: Sequence[float]) -> object:
        """Add many jobs at once; NotImplementedError if there is no way to."""

    async def work(self, concurrency: int) -> object:
        """Run jobs, without end."""


def say(*words: object) -> None:
    print(*words, flush=True)


# The bodies of the tasks.


class Drain:
    """Jobs that ended, and the first of them began."""

    expected = ended = 0
    began_at = 0.0

    @classmethod
    def begin(cls) -> None:
        if not cls.began_at:
            cls.began_at = time.monotonic()

    @classmethod
    def end(cls) -> None:
        cls.ended += 1
        if cls.ended == cls.expected:
            say(cls.expected / (time.monotonic() - cls.began_at))


async def noop(number: float) -> None:
    del number
    Drain.begin()
    Drain.end()


async def nap(number: float) -> None:
    del number
    Drain.begin()
    await asyncio.sleep(NAP)
    Drain.end()


async def arrive(due_at: float) -> None:
    say((time.monotonic() - due_at) * 1000)  # a clock that all processes of a machine share


async def last(number: float) -> None:
    say("began", int(number), time.monotonic())
    await asyncio.sleep(LONG)
    say("ended", int(number), time.monotonic())


BODIES = noop, nap, arrive, last


# The parts to play.


async def enqueue(contestant: Contestant, task: str, count: int, at_once: int) -> float:
    """Jobs per second; `at_once` 0 is for the contestant's own way of adding many."""

    async def one_by_one(numbers: range) -> None:
        for number in numbers:
            await contestant.enqueue(task, number)

    started_at = time.perf_counter()
    if at_once:
        await asyncio.gather(*(one_by_one(range(start, count, at_once)) for start in range(at_once)))
    else:
        await contestant.enqueue_many(task, range(count))
    return count / (time.perf_counter() - started_at)


async def send(contestant: Contestant, count: int, pause: float, delay: float) -> None:
    """Jobs that say how late they are, one after the other; the worker is idle in between."""
    for _ in range(count):
        if delay:
            seconds = delay * random.uniform(1, 2)
            await contestant.enqueue_later(seconds, "arrive", time.monotonic() + seconds)
        else:
            await contestant.enqueue("arrive", time.monotonic())
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))


def play(connect: Callable[[str], AbstractAsyncContextManager[Contestant]]) -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parts = parser.add_subparsers(dest="part", required=True)
    part = parts.add_parser("enqueue")
    part.add_argument("task")
    part.add_argument("count", type=int)
    part.add_argument("--at-once", type=int)
    part = parts.add_parser("send")
    part.add_argument("count", type=int)
    part.add_argument("--pause", type=float)
    part.add_argument("--delay", type=float)
    part = parts.add_parser("work")
    part.add_argument("--concurrency", type=int)
    part.add_argument("--drain", type=int)
    arguments = parser.parse_args()

    async def run() -> None:
        async with connect(arguments.url) as contestant:
            if arguments.part == "enqueue":
                with suppress(NotImplementedError):
                    say(await enqueue(contestant, arguments.task, arguments.count, arguments.at_once))
            elif arguments.part == "send":
                await send(contestant, arguments.count, arguments.pause, arguments.delay)
            else:
                Drain.expected = arguments.drain
                await contestant.work(arguments.concurrency)

    asyncio.run(run())
