"""What the dashboard costs, with many jobs and locks: the time of its pages, and what viewers add to the server's work.

    python -m benchmarks.dashboard [--quick]

The dashboard is served by this process, the server is another one, and ten others hold locks.  A page is asked for 3 s
after the one before, so that nothing of it is known already; then a browser opens it, if chromium and playwright are
there: its first paint is that of its first text.  The server counts commands, with those that scripts run and those
that are sent while nobody looks; CPU is that of its main thread, as a share of one core.
"""

import argparse
import asyncio
import math
import os
import shutil
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec

import httpx
import uvicorn

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.processes import next_line, start
from benchmarks.server import calls_of_scripts, commands_processed, cpu_seconds, info, version
from inconcert import Coordinator
from inconcert.dashboard import Dashboard, read_only

PAGES = ("", "queues", "jobs", "jobs?state=delayed", "dead", "locks", "others")
VIEWERS = (0, 1, 10)
QUEUES = 20
PROCESSES = 10  # that hold locks: each tells of 1,000 at most
LIFE = 3600.0  # seconds; of a lock, so that none is renewed while it is measured
NOTHING = (math.nan,) * 3  # where a column does not apply
PAINT = """() => new Promise(done => new PerformanceObserver(list => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({type: "paint", buffered: true}))"""
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
    """Enqueue so many jobs, half of them delayed."""

    @concert.task(name="send")
    async def send(order_id: int) -> None:
        del order_id

    for begin in range(0, number, 1000):
        options = send.options(queue=f"queue-{begin // 1000 % QUEUES}", delay=3600 if begin // 1000 % 2 else 0)
        await asyncio.gather(*(options.enqueue(begin + n) for n in range(min(1000, number - begin))))


async def hold(url: str, locks: int) -> None:
    """In a process of its own: hold so many locks, say so, and keep them until it is killed."""
    async with Coordinator(url, namespace="shop") as concert, AsyncExitStack() as held:
        for number in range(locks):
            await held.enter_async_context(concert.lock(f"{os.getpid()}:{number}", ttl=LIFE))
        print("held", flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def holders(url: str, locks: int) -> AsyncGenerator[None]:
    """Processes that hold so many locks together."""
    children = [await start("dashboard", "hold", url, locks // PROCESSES) for _ in range(PROCESSES)]
    try:
        await asyncio.gather(*map(next_line, children))
        yield
    finally:
        for child in children:
            child.kill()
            await child.wait()


Paint = Callable[[str], Awaitable[float]]
"""Opens a page in a browser: milliseconds until its first text is there."""


@asynccontextmanager
async def browser() -> AsyncGenerator[Paint]:
    """A browser; without one nothing is measured."""

    async def no_paint(url: str) -> float:
        del url
        return math.nan

    chromium = shutil.which("chromium")
    if chromium is None or find_spec("playwright") is None:
        yield no_paint
        return
    from playwright.async_api import async_playwright  # noqa: PLC0415 - only where it is installed

    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await opened.new_page()

        async def paint(url: str) -> float:
            await page.goto(url, timeout=60_000)
            return float(await page.evaluate(PAINT))

        yield paint
        await opened.close()


async def look(url: str) -> None:
    """Be a viewer, whose stream comes back when it ends."""
    async with httpx.AsyncClient(base_url=url, timeout=None) as http:  # noqa: S113 - it lasts as long as it is measured
        while True:
            async with http.stream("GET", "live") as stream:
                async for _ in stream.aiter_bytes():
                    pass


async def measure_pages(url: str, rounds: int, table: Table) -> None:
    """How long each page takes, until it has come and until it is painted, and how large it is."""
    async with httpx.AsyncClient(base_url=url, timeout=60.0) as http, browser() as paint:
        await paint(url)  # which starts it
        for page in PAGES:
            times: list[float] = []
            paints: list[float] = []
            size = 0
            for _ in range(rounds):
                await asyncio.sleep(FRESH)
                began_at = time.perf_counter()
                answer = (await http.get(page)).raise_for_status()
                times.append(time.perf_counter() - began_at)
                size = len(answer.content)
                await asyncio.sleep(FRESH)
                paints.append(await paint(url + page))
            table.row(f"/{page}", 1000 * statistics.median(times), statistics.median(paints), size / 1000, *NOTHING)


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
        table.row(f"viewers: {number}", *NOTHING, scripts / passed, commands / passed, 100 * cpu / passed)


async def used(concert: Coordinator) -> tuple[float, float, float]:
    """Scripts that were called, commands with those that scripts ran, and seconds of the main thread."""
    calls = calls_of_scripts(await info(concert.redis, "commandstats"))
    return calls, await commands_processed(concert.redis), await cpu_seconds(concert)


async def measure(*, quick: bool) -> Table:
    jobs, locks = (10_000, 1_000) if quick else (1_000_000, 10_000)
    async with Coordinator.embedded(namespace="shop") as concert:
        assert concert.url is not None
        await fill(concert, jobs)
        table = Table("ms", "first paint, ms", "KB", "scripts/s", "commands/s", "CPU, %", width=24)
        table.versions["server"] = await version(concert.redis)
        async with holders(concert.url, locks), served(concert) as url:
            await measure_pages(url, 1 if quick else 3, table)
            await measure_viewers(concert, url, 5.0 if quick else 20.0, table)
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run, or of a process that a run starts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs and locks, once")
    results.add_option(parser)
    holding = parser.add_subparsers(dest="process", title="processes that a run starts").add_parser("hold")
    holding.add_argument("url")
    holding.add_argument("locks", type=int)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.process == "hold":
        asyncio.run(hold(options.url, options.locks))
    else:
        results.save(options.json, "dashboard", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
