"""The marketplace at work: a service, two workers and a crowd. One worker is killed in the middle.

    python -m examples.marketplace.demo

It starts its own server, and ends with a list of facts that it has checked. The exit status is 1 if one is wrong.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import httpx
from redis.asyncio import Redis

from examples.marketplace import outside
from examples.marketplace.customers import SELLERS, Customers
from examples.marketplace.facts import Evidence, facts, report
from examples.marketplace.processes import Processes
from inconcert import Coordinator

BUYERS = [f"buyer-{number}" for number in range(50)]
PATIENCE = 30.0  # seconds to wait for what takes 10 at most: the lease of a dead worker's heartbeat
IDLE = 3.0  # seconds to watch the server when everything is done

T = TypeVar("T")


class Demo:
    """One run of the demo, and what was observed."""

    def __init__(self, redis: Redis, http: httpx.AsyncClient, purchases: int) -> None:
        self.redis = redis
        self.http = http
        self.customers = Customers(http)
        self.wishes = [f"item-{number * 2 // 3}" for number in range(purchases)]  # every other item is wanted twice
        self.items = set(self.wishes)
        self.started_at = time.monotonic()
        self.connections = (0, 0)

    async def run(self, victim: int) -> Evidence:
        """Let the crowd in, kill a worker, wait until all is done, and collect the evidence."""
        await until(self.is_up)
        self.say("a service and two workers are up")
        await self.customers.offer(self.items)
        self.say(f"{len(self.items)} items are on offer, and {len(BUYERS)} buyers want {len(self.wishes)}")

        left_behind: set[str] = set()
        recovered_after: float | None = None
        async with anyio.create_task_group() as background:
            background.start_soon(self.tell_news)
            async with anyio.create_task_group() as crowd:
                wishes = iter(self.wishes)
                for buyer in BUYERS:
                    crowd.start_soon(self.customers.shop, buyer, wishes)
                await until(self.is_well_under_way)
                left_behind, recovered_after = await self.kill(victim)
            self.say(f"the crowd has gone; {self.customers.refused} purchases came too late")
            await until(self.has_sent_all_mail)
            background.cancel_scope.cancel()

        for user in BUYERS + SELLERS:
            await self.customers.read(user)
        await self.count_connections()
        self.say(f"everything is done; counting commands for {IDLE:g} s while all is idle")
        idle_commands = await self.count_idle_commands()
        charges, most_payments = await outside.account(self.redis)
        return Evidence(
            wanted=self.items,
            sold=self.customers.sold,
            charges=charges,
            most_payments=most_payments,
            mail=await outside.sent_mail(self.redis),
            refused_mail=int(await self.redis.get("post:refused") or 0),
            killed=victim,
            left_behind=left_behind,
            recovered_after=recovered_after,
            said=self.customers.said,
            heard=self.customers.heard,
            connections=self.connections,
            idle_commands=idle_commands,
        )

    async def kill(self, victim: int) -> tuple[set[str], float | None]:
        """Kill a worker with a job in its hands; returns which, and after how many seconds it was done anyway."""

        async def job_in_hand() -> set[str]:
            os.kill(victim, signal.SIGSTOP)  # so that it does not finish while we look
            jobs = await outside.mail_at_the_counter(self.redis, victim)
            if not jobs:
                os.kill(victim, signal.SIGCONT)
            return jobs

        async def is_done() -> bool:
            return await outside.are_sent(self.redis, jobs)

        jobs = await until(job_in_hand)
        if not jobs:
            return jobs, None
        os.kill(victim, signal.SIGKILL)
        killed_at = time.monotonic()
        self.say(f"one worker is killed, while it sends {len(jobs)} e-mail")
        if not await until(is_done):
            return jobs, None
        self.say("the other worker has sent that e-mail")
        return jobs, time.monotonic() - killed_at

    # Waiting for facts.

    async def is_up(self) -> bool:
        try:
            return (await self.http.get("/stats")).is_success
        except httpx.TransportError:
            return False

    async def is_well_under_way(self) -> bool:
        return len(self.customers.sold) > len(self.items) / 4

    async def has_sent_all_mail(self) -> bool:
        return await self.redis.hlen("post:sent") >= 3 * len(self.items)

    # Reporting and counting.

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.started_at:5.1f} s  {text}", flush=True)

    async def tell_news(self) -> None:
        while True:
            await self.count_connections()
            sold, mail = len(self.customers.sold), await self.redis.hlen("post:sent")
            self.say(f"  {sold} items sold, {mail} e-mails sent")
            await asyncio.sleep(2.0)

    async def count_connections(self) -> None:
        """Count the service's connections: scripts and messages coordinate; the others are for its own commands."""
        clients = await self.redis.client_list()  # pyright: ignore[reportUnknownMemberType] - redis-py's own
        commands = [client["cmd"] for client in clients if client["name"] == "service"]
        shared = sum(command in ("evalsha", "subscribe") for command in commands)
        self.connections = max(self.connections, (shared, len(commands) - shared))

    async def count_idle_commands(self) -> float:
        """How many commands per second the server gets from all processes together; a script counts as one."""
        before = await self.count_reads()
        await asyncio.sleep(IDLE)
        return (await self.count_reads() - before - 1) / IDLE

    async def count_reads(self) -> int:
        """How often the server has read what clients sent."""
        stats = await self.redis.info("stats")  # pyright: ignore[reportUnknownMemberType] - redis-py's own
        return int(stats["total_reads_processed"])


async def until(fact: Callable[[], Awaitable[T]]) -> T:
    """Ask until the answer is true or time is up; returns the last answer."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := await fact()) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return answer


async def main(purchases: int) -> int:
    """Start everything, run the demo, and print the summary; returns the exit status."""
    evidence: Evidence | None = None
    with anyio.CancelScope() as scope:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, scope.cancel)
        async with started() as (redis, http, victim):
            evidence = await Demo(redis, http, purchases).run(victim)
    if evidence is None or scope.cancelled_caught:
        print("\nstopped; nothing is left running")
        return 130
    return report(facts(evidence))


@asynccontextmanager
async def started() -> AsyncGenerator[tuple[Redis, httpx.AsyncClient, int]]:
    """Run a server, a service and two workers; yields clients of the first two, and the process id of one worker."""
    async with Coordinator.embedded() as concert:
        with tempfile.TemporaryDirectory() as folder, Processes() as processes:

            def start(name: str, module: str, *args: str) -> int:
                url = f"{concert.url}?client_name={name}"
                return processes.start(module, *args, env={"INCONCERT_URL": url, "INCONCERT_NAMESPACE": "marketplace"})

            socket = str(Path(folder, "socket"))
            start("service", "uvicorn", "examples.marketplace.app:app", "--uds", socket, "--log-level", "warning")
            victim, _ = [start(name, "examples.marketplace.worker") for name in ("worker-1", "worker-2")]
            transport = httpx.AsyncHTTPTransport(uds=socket)
            async with httpx.AsyncClient(transport=transport, base_url="http://marketplace", timeout=30) as http:
                yield concert.redis, http, victim


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.marketplace.demo")
    parser.add_argument("--purchases", type=int, default=600, help="how often the buyers try to buy (default: 600)")
    sys.exit(asyncio.run(main(parser.parse_args().purchases)))
