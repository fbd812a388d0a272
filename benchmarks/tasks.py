"""Tasks beside arq, docket, saq, streaq and taskiq, on one private server, in one run.

    python -m benchmarks.tasks [--quick] [--only inconcert lists arq ...] [--patience SECONDS]

Each contestant enqueues and works in processes of its own, which run `contestants/with_NAME.py` and print what they
measured.  A peer has an environment of its own in `.venv/peers`, because the peers' requirements do not agree;
`make bench` installs them, and one that is not there is skipped.
"""

import argparse
import asyncio
import math
import shutil
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import redis.asyncio

from benchmarks import results
from benchmarks.figures import Table, percentile, ratio
from benchmarks.processes import ROOT, all_numbers, next_line, start
from benchmarks.server import info, version
from inconcert import Coordinator

PEERS = ROOT / ".venv" / "peers"
OURS, FLOOR = "inconcert", "lists"
NAMES = OURS, FLOOR, "arq", "docket", "saq", "streaq", "taskiq"

JOBS = 2_000  # in a drain; a slow contestant takes 5 s for them
MORE_JOBS = 20_000  # in a drain of a fast one, which would be over in the blink of an eye
LONGEST_DRAIN = 120.0  # seconds; a worker that takes longer hangs
CONCURRENCY = 100
IN_FLIGHT, LONG_JOBS = 50, 200  # when a worker is killed

Figures = dict[str, dict[str, list[float]]]  # title -> contestant -> one for each round


class Server:
    """The server, and the processes of contestants that use it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.asyncio.Redis.from_url(url)

    async def start(self, name: str, *arguments: object) -> Process:
        return await start(f"contestants.with_{name}", self.url, *arguments, python=python_of(name))

    async def produce(self, name: str, *arguments: object) -> float:
        """Let one enqueue, and return what it prints; nan for nothing, because it cannot do this."""
        numbers = await all_numbers(await self.start(name, *arguments))
        return numbers[0] if numbers else math.nan

    @asynccontextmanager
    async def working(self, name: str, *, concurrency: int = CONCURRENCY, drain: int = 0) -> AsyncGenerator[Process]:
        """One that works, until the body ends."""
        child = await self.start(name, "work", "--concurrency", concurrency, "--drain", drain)
        try:
            yield child
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()

    async def drain(self, name: str, count: int, *, concurrency: int = CONCURRENCY) -> float:
        """Let one run so many jobs, and return how many per second it ran."""
        async with self.working(name, concurrency=concurrency, drain=count) as worker:
            async with asyncio.timeout(LONGEST_DRAIN):
                return float(await next_line(worker))

    @asynccontextmanager
    async def counting(self) -> AsyncGenerator["Commands"]:
        """What the server runs until the body ends, by its own report of each command."""
        reader, writer = await asyncio.open_unix_connection(
            self.url.removeprefix("unix://"), limit=2**26
        )  # a command is one line, whatever its length
        commands = Commands()
        writer.write(b"MONITOR\r\n")
        await reader.readline()
        counting = asyncio.create_task(commands.count(reader))
        yield commands
        await self.client.echo(Commands.LAST)
        await counting
        writer.close()

    async def memory(self) -> int:
        return int((await info(self.client, "memory"))["used_memory"])


class Commands:
    """Commands of clients, and those inside scripts; without those with which a connection begins."""

    LAST = "no more commands"
    SETTING_UP = b'"HELLO"', b'"CLIENT"'

    def __init__(self) -> None:
        self.of_clients = self.in_scripts = 0

    async def count(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            command = line[line.index(b"]") + 2 :].rstrip()  # after the time and the client's address
            if command == f'"ECHO" "{self.LAST}"'.encode():
                return
            if b" lua] " in line:
                self.in_scripts += 1
            elif not command.startswith(self.SETTING_UP):
                self.of_clients += 1


def python_of(name: str) -> Path:
    return Path(sys.executable) if name in {OURS, FLOOR} else PEERS / name / "bin" / "python"


async def version_of(name: str) -> str:
    """The version of a contestant, in its own environment."""
    package = {"docket": "pydocket", "taskiq": "taskiq-redis"}.get(name, name)
    asked = f"from importlib.metadata import version; print(version({package!r}))"
    child = await asyncio.create_subprocess_exec(python_of(name), "-c", asked, stdout=PIPE)
    output, _ = await child.communicate()
    return output.decode().strip()


def jobs_of(name: str) -> int:
    return MORE_JOBS if name in {OURS, FLOOR} else JOBS


# What is measured, each of one contestant, on an empty server.


async def measure_enqueue(server: Server, name: str, figures: Figures) -> None:
    figures["enqueue/s, one by one"][name].append(await server.produce(name, "enqueue", "noop", 2_000, "--at-once", 1))
    await server.client.flushall()
    many = await server.produce(name, "enqueue", "noop", jobs_of(name), "--at-once", 0)
    figures["enqueue/s, in bulk"][name].append(many)


async def measure_drain(server: Server, name: str, figures: Figures) -> None:
    jobs = jobs_of(name)
    before = await server.memory()
    at_once = await server.produce(name, "enqueue", "noop", jobs, "--at-once", 100)
    figures["enqueue/s, 100 at a time"][name].append(at_once)
    figures["bytes for each queued job"][name].append((await server.memory() - before) / jobs)
    figures["drain/s, nothing to do"][name].append(await server.drain(name, jobs))
    await server.client.flushall()
    await server.produce(name, "enqueue", "nap", JOBS, "--at-once", 100)
    figures["drain/s, jobs of 10 ms"][name].append(await server.drain(name, JOBS))


async def measure_commands(server: Server, name: str, figures: Figures) -> None:
    for title, jobs, concurrency in ("100 at a time", 1_000, 100), ("one at a time", 100, 1):
        await server.client.flushall()
        async with server.counting() as commands:
            await server.produce(name, "enqueue", "noop", jobs, "--at-once", concurrency)
            await server.drain(name, jobs, concurrency=concurrency)
            await asyncio.sleep(0.2)  # what comes after the last body
        figures[f"commands for each job, {title}"][name].append(commands.of_clients / jobs)
        figures[f"  and inside scripts, {title}"][name].append(commands.in_scripts / jobs)


async def measure_latency(server: Server, name: str, figures: Figures, *, count: int) -> None:
    async def send(delay: float) -> list[float]:
        async with server.working(name) as worker:
            await server.produce(name, "send", 3, "--pause", 0.1, "--delay", 0)
            for _ in range(3):  # now it listens, and has done everything once
                await next_line(worker)
            producing = asyncio.create_task(server.produce(name, "send", count, "--pause", 0.03, "--delay", delay))
            late = [float(await next_line(worker)) for _ in range(count)]
            await producing
            return late

    for what, delay in ("pick-up by an idle worker", 0.0), ("a delayed job is late", 1.0):
        if delay and name == FLOOR:
            return
        late = await send(delay)
        figures[f"{what}, p50 ms"][name].append(statistics.median(late))
        figures[f"{what}, p99 ms"][name].append(percentile(late, 0.99))
        if delay:
            figures[f"{what}, least ms"][name].append(min(late))
        await server.client.flushall()


async def measure_idle(server: Server, name: str, figures: Figures, *, seconds: float) -> None:
    async with server.working(name) as worker:
        await server.produce(name, "send", 1, "--pause", 0.1, "--delay", 0)
        await next_line(worker)
        await asyncio.sleep(1)
        async with server.counting() as commands:
            await asyncio.sleep(seconds)
    figures["commands/s of an idle worker"][name].append(commands.of_clients / seconds)
    figures["  and inside scripts, idle"][name].append(commands.in_scripts / seconds)


async def measure_kill(server: Server, name: str, figures: Figures, *, patience: float) -> None:
    """Kill a worker with jobs in flight, and start another."""
    began: set[str] = set()
    ended: list[str] = []
    back_after = done_after = math.nan
    async with server.working(name, concurrency=IN_FLIGHT) as first:
        await server.produce(name, "enqueue", "last", LONG_JOBS, "--at-once", 100)
        while len(began) < IN_FLIGHT:
            _, number, _ = (await next_line(first)).split()
            began.add(number)
        first.kill()
        killed_at = time.monotonic()
    async with server.working(name, concurrency=IN_FLIGHT) as second:
        while len(set(ended)) < LONG_JOBS:
            try:
                line = await asyncio.wait_for(next_line(second), killed_at + patience - time.monotonic())
            except TimeoutError:
                break
            event, number, at = line.split()
            after = float(at) - killed_at
            if event == "ended":
                ended.append(number)
                done_after = after if len(set(ended)) == LONG_JOBS else math.nan
            elif number in began and math.isnan(back_after):
                back_after = after
    figures["kill -9, 50 in flight: jobs of 200 done"][name].append(len(set(ended)))
    figures["  the first of the 50 again after s"][name].append(back_after)
    figures["  all done after s"][name].append(done_after)
    figures["  done twice"][name].append(len(ended) - len(set(ended)))


# The run.


@asynccontextmanager
async def private_server() -> AsyncGenerator[str]:
    """The URL of a server for this run: the `redis-server` of the machine, or else the embedded Valkey."""
    binary = shutil.which("redis-server")
    if binary is None:
        async with Coordinator.embedded() as embedded:
            assert embedded.url is not None
            yield embedded.url
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/redis.sock"
        server = await asyncio.create_subprocess_exec(
            *(binary, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"), stdout=PIPE
        )
        while not Path(socket).exists():
            await asyncio.sleep(0.01)
        yield f"unix://{socket}"
        server.terminate()
        await server.communicate()


async def measure(names: Sequence[str], *, quick: bool, patience: float) -> Table:
    figures: Figures = defaultdict(lambda: defaultdict(list))
    async with AsyncExitStack() as stack:
        server = Server(await stack.enter_async_context(private_server()))
        stack.push_async_callback(server.client.aclose)
        versions = {"server": await version(server.client)} | {
            name: await version_of(name) for name in names if name != FLOOR
        }
        print(", ".join(f"{name}: {of}" for name, of in versions.items()))

        async def each(
            title: str, measure_one: Callable[..., Awaitable[None]], *, rounds: int = 1, **options: float
        ) -> None:
            for number in range(rounds):
                for name in names:
                    print(f"{title}, round {number + 1}: {name}" + " " * 20, end="\r", file=sys.stderr, flush=True)
                    await server.client.flushall()
                    await measure_one(server, name, figures, **options)

        await each("enqueue", measure_enqueue, rounds=1 if quick else 3)
        await each("drain", measure_drain, rounds=1 if quick else 3)
        await each("commands", measure_commands)
        await each("latency", measure_latency, count=50 if quick else 200)
        await each("idle", measure_idle, seconds=5 if quick else 20)
        await each("kill -9", measure_kill, patience=patience)
    table = show(figures, names)
    table.versions = versions
    return table


def show(figures: Figures, names: Sequence[str]) -> Table:
    """A row for each figure: the medians, and how ours compares with the best of the peers, and with the floor."""
    print()
    table = Table(*names, "to the best", "to the floor")
    for title, of in figures.items():
        medians = {name: statistics.median(of[name] or [math.nan]) for name in (*names, OURS, FLOOR)}
        peers = [medians[name] for name in names if name not in {OURS, FLOOR} and not math.isnan(medians[name])]
        best = (max if "/s, " in title else min)(peers, default=math.nan)
        ratios = ratio(medians[OURS], best), ratio(medians[OURS], medians[FLOOR])
        table.row(title, *(medians[name] for name in names), *ratios)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, and fewer jobs")
    results.add_option(parser)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="contestants")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds to wait for jobs after kill -9")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    names = [name for name in options.only if name in {OURS, FLOOR} or (PEERS / name / ".installed").exists()]
    for name in set(options.only) - set(names):
        print(f"{name} is skipped: it is not installed; `make bench` installs the peers")
    table = asyncio.run(measure(names, quick=options.quick, patience=options.patience))
    results.save(options.json, "tasks", table)


if __name__ == "__main__":
    main()
