"""What the dashboard costs, with many jobs: the time of its pages, and what viewers add to the server's work.

    python -m benchmarks.dashboard [--quick]

The dashboard is served by this process, the server is another one.  A page is asked for 3 s after the one before, so
that nothing of it is known already.  The server counts commands, with those that scripts run and those that are sent
while nobody looks; CPU is that of its main thread, as a share of one core.
"""

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import httpx
import uvicorn

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.server import commands_processed, cpu_seconds, info, version
from inconcert import Coordinator
from inconcert.dashboard import Dashboard, read_only

PAGES = ("", "queues", "jobs", "jobs?state=delayed", "dead", "locks")
VIEWERS = (0, 1, 10)
QUEUES = 20
NOTHING = (math.nan,) * 3  # where a column does not apply
FRESH = 3.0  # seconds after which the dashboard asks again


@asynccontextmanager
async def served(concert: Coordinator) -> AsyncGenerator[str]:
    """The dashboard's URL."""
    server = uvicorn.Server(uvicorn.Config(Dashboard(concert, allow=read_only), port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    await serving


async def fill(concert: Coordinator, number: int) -> None:
    """Enqueue so many jobs, half of them delayed, and hold some locks."""

    @concert.task(name="send")
    async def send(order_id: int) -> None:
        del order_id

    for begin in range(0, number, 1000):
        options = send.options(queue=f"queue-{begin // 1000 % QUEUES}", delay=3600 if begin // 1000 % 2 else 0)
        await asyncio.gather(*(options.enqueue(begin + n) for n in range(min(1000, number - begin))))


async def look(url: str) -> None:
    """Be a viewer, whose stream comes back when it ends."""
    async with httpx.AsyncClient(base_url=url, timeout=None) as http:  # noqa: S113 - it lasts as long as it is measured
        while True:
            async with http.stream("GET", "live") as stream:
                async for _ in stream.aiter_bytes():
                    pass


async def measure_pages(url: str, rounds: int, table: Table) -> None:
    """How long each page takes, and how large it is."""
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as http:
        for page in PAGES:
            times: list[float] = []
            size = 0
            for _ in range(rounds):
                await asyncio.sleep(FRESH)
                began_at = time.perf_counter()
                answer = (await http.get(page)).raise_for_status()
                times.append(time.perf_counter() - began_at)
                size = len(answer.content)
            table.row(f"/{page}", 1000 * statistics.median(times), size / 1000, *NOTHING)


async def measure_viewers(concert: Coordinator, url: str, seconds: float, table: Table) -> None:
    """What so many viewers cost the server."""
    for number in VIEWERS:
        async with asyncio.TaskGroup() as group:
            looking = [group.create_task(look(url)) for _ in range(number)]
            await asyncio.sleep(FRESH)
            before, began_at = await used(concert), time.monotonic()
            await asyncio.sleep(seconds)
            passed = time.monotonic() - began_at
            scripts, commands, cpu = (now - then for now, then in zip(await used(concert), before, strict=True))
            for task in looking:
                task.cancel()
        table.row(f"viewers: {number}", *NOTHING[:2], scripts / passed, commands / passed, 100 * cpu / passed)


async def used(concert: Coordinator) -> tuple[float, float, float]:
    """Scripts that were called, commands with those that scripts ran, and seconds of the main thread."""
    calls = (await info(concert.redis, "commandstats"))["cmdstat_evalsha"]["calls"]
    return calls, await commands_processed(concert.redis), await cpu_seconds(concert)


async def measure(*, quick: bool) -> Table:
    number = 10_000 if quick else 100_000
    async with Coordinator.embedded(namespace="shop") as concert:
        await fill(concert, number)
        table = Table("ms", "KB", "scripts/s", "commands/s", "CPU, %", width=24)
        table.versions["server"] = await version(concert.redis)
        async with served(concert) as url:
            await measure_pages(url, 1 if quick else 3, table)
            await measure_viewers(concert, url, 5.0 if quick else 20.0, table)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs, once")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "dashboard", asyncio.run(measure(quick=options.quick)))
