"""Elections beside those of `grelmicro`, on one private server, in one run.

python benchmarks/elections.py [--quick]        # needs the extra `bench`
"""

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Self

import anyio
from grelmicro.sync.leaderelection import LeaderElection
from grelmicro.sync.redis import RedisSyncBackend

from inconcert import Coordinator

TTL = 2.0  # seconds; of both. The other's further times are in the proportion of its defaults

Measured = Callable[[str, str], Awaitable[float]]


def say(what: str) -> None:
    print(what, time.monotonic(), flush=True)


async def lead(url: str, end: asyncio.Event) -> None:
    """With this library: lead until told to end."""
    async with Coordinator(url) as concert, concert.election("bench", ttl=TTL):
        say("leads")
        await end.wait()
        say("ended")


async def lead_with_grelmicro(url: str, end: asyncio.Event) -> None:
    """With the other."""
    backend = RedisSyncBackend(url)
    election = LeaderElection(
        "bench",
        backend=backend,
        lease_duration=TTL,
        renew_deadline=TTL * 10 / 15,
        retry_interval=TTL * 2 / 15,
        backend_timeout=TTL * 5 / 15,
    )
    async with backend, anyio.create_task_group() as tasks:
        await tasks.start(election)
        async with election:
            say("leads")
            await end.wait()
            say("ended")
        tasks.cancel_scope.cancel()


CONTESTANTS = {"inconcert": lead, "grelmicro": lead_with_grelmicro}


async def stand(name: str, url: str) -> None:
    """One process of a measurement."""
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    say("stands")
    await CONTESTANTS[name](url, end)


class Candidate:
    """A process that stands for election."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def __aenter__(self) -> Self:
        await self.when("stands")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.communicate()

    async def when(self, what: str) -> float:
        """Wait until it says so, and return the time by the machine's monotonic clock."""
        assert self.process.stdout
        said, at = (await self.process.stdout.readline()).split()
        assert said.decode() == what, said
        return float(at)


async def candidate(name: str, url: str) -> Candidate:
    return Candidate(
        await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--candidate", name, url, stdout=asyncio.subprocess.PIPE
        )
    )


async def fail_over(name: str, url: str) -> float:
    """Milliseconds from `kill -9` of the leader to the next one's lead."""
    async with await candidate(name, url) as leader:
        await leader.when("leads")
        async with await candidate(name, url) as follower:
            await asyncio.sleep(1 + random.random() * TTL / 2)  # so that it waits, and at any point of a renewal
            killed_at = time.monotonic()
            leader.process.kill()
            took = await follower.when("leads") - killed_at
            follower.process.terminate()
            await follower.process.wait()
    return took * 1000


async def hand_over(name: str, url: str) -> float:
    """Milliseconds from the end of the leader's work to the next one's lead."""
    async with await candidate(name, url) as leader:
        await leader.when("leads")
        async with await candidate(name, url) as follower:
            await asyncio.sleep(1 + random.random() * TTL / 2)
            leader.process.terminate()
            ended_at = await leader.when("ended")
            took = await follower.when("leads") - ended_at
            follower.process.terminate()
            await follower.process.wait()
    return took * 1000


async def measure(*, quick: bool) -> None:
    rounds = 3 if quick else 10
    print(f"lease: {TTL:g} s, {rounds} rounds\n\n{'':36}" + "".join(f"{name:>12}" for name in CONTESTANTS))
    async with Coordinator.embedded() as server:
        assert server.url
        for title, measure_one in (("fail-over after kill -9", fail_over), ("hand-over after a clean exit", hand_over)):
            figures: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
            for _ in range(rounds):
                for name, values in figures.items():
                    values.append(await measure_one(name, server.url))
            for kind, choose in (("p50", statistics.median), ("max", max)):
                row = "".join(f"{choose(values):12,.1f}" for values in figures.values())
                print(f"{f'{title}, {kind} ms':36}{row}")


def main() -> None:
    if "--candidate" in sys.argv:
        asyncio.run(stand(*sys.argv[sys.argv.index("--candidate") + 1 :]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asyncio.run(measure(quick=parser.parse_args().quick))


if __name__ == "__main__":
    main()
