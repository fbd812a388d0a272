"""What every contestant does: it enqueues, or it works, each in a process of its own and with its own packages.

    python -m benchmarks.contestants.with_arq URL enqueue noop 10000 --at-once 100
    python -m benchmarks.contestants.with_arq URL send 200 --pause 0.03 --delay 1
    python -m benchmarks.contestants.with_arq URL work --concurrency 100 --drain 10000

A contestant is known by nothing but the lines that it prints, so it may be any program.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

__all__ = ["BODIES", "Body", "Contestant", "main", "with_context"]

NAP = 0.01  # seconds
LONG = 1.0  # seconds; longer than it takes to claim 50 jobs and to kill who claimed them


class Body(Protocol):
    """What a job does, by the name of its task."""

    __name__: str

    def __call__(self, number: float, /) -> Coroutine[object, object, None]: ...


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


def report(*words: object) -> None:
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
            report(cls.expected / (time.monotonic() - cls.began_at))


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
    report((time.monotonic() - due_at) * 1000)  # a clock that all processes of a machine share


async def last(number: float) -> None:
    report("began", int(number), time.monotonic())
    await asyncio.sleep(LONG)
    report("ended", int(number), time.monotonic())


BODIES: tuple[Body, ...] = noop, nap, arrive, last


def with_context(body: Body) -> Callable[[object, float], Coroutine[object, object, None]]:
    """The body for a peer that passes a context before the arguments."""

    async def call(context: object, number: float) -> None:
        del context
        await body(number)

    return call


# What it is told to do.


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
    """Jobs that report how late they are, one after the other; the worker is idle in between."""
    for _ in range(count):
        if delay:
            seconds = delay * random.uniform(1, 2)
            await contestant.enqueue_later(seconds, "arrive", time.monotonic() + seconds)
        else:
            await contestant.enqueue("arrive", time.monotonic())
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the process is to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("enqueue")
    command.add_argument("task", choices=[body.__name__ for body in BODIES])
    command.add_argument("count", type=int)
    command.add_argument("--at-once", type=int)
    command = commands.add_parser("send")
    command.add_argument("count", type=int)
    command.add_argument("--pause", type=float)
    command.add_argument("--delay", type=float)
    command = commands.add_parser("work")
    command.add_argument("--concurrency", type=int)
    command.add_argument("--drain", type=int)
    return parser.parse_args(arguments)


def main(connect: Callable[[str], AbstractAsyncContextManager[Contestant]]) -> None:
    """Do what the command line says."""
    options = parse()

    async def run() -> None:
        async with connect(options.url) as contestant:
            if options.command == "enqueue":
                with suppress(NotImplementedError):
                    report(await enqueue(contestant, options.task, options.count, options.at_once))
            elif options.command == "send":
                await send(contestant, options.count, options.pause, options.delay)
            else:
                Drain.expected = options.drain
                await contestant.work(options.concurrency)

    asyncio.run(run())
