"""Members of a group: how soon all know of a change, how keys are divided, and what is sent while nothing changes.

    python -m benchmarks.members [--quick]

All members are in one process, in coordinators that have connections of their own; the server is another process.
"""

import argparse
import asyncio
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from benchmarks import results
from benchmarks.figures import Table
from benchmarks.server import commands_processed, version
from inconcert import Coordinator, Joined, Left, Member, Members, NotHeld

TTL = 600.0  # seconds; nobody renews during a round
QUIET = 5.0  # seconds in which nothing changes


class Group:
    """The members of all coordinators.

    Args:
        groups: The group, as each coordinator sees it.
    """

    def __init__(self, groups: Sequence[Members]) -> None:
        self.groups = groups
        self.has: dict[str, set[str]] = {}  # member -> its keys
        self.changed = asyncio.Event()
        self.known: dict[str, list[float]] = {}  # 'joined ID' or 'left ID' -> when each coordinator knew it

    async def watch(self, group: Members) -> None:
        """Note when a coordinator knows of a change."""
        async for change in group.watch():
            if isinstance(change, Joined | Left):
                kind = type(change).__name__
                self.known.setdefault(f"{kind} {change.member}", []).append(time.perf_counter())
                self.changed.set()

    async def share(self, member: Member, keys: Sequence[str]) -> None:
        """Note which keys a member has."""
        with suppress(NotHeld):  # it has left
            async for found in member.shares(keys):
                self.has[member.id] = set(found)
                self.changed.set()

    async def known_to_all(self, change: str) -> float:
        """When the last coordinator knew of a change."""
        while len(self.known.get(change, [])) < len(self.groups):
            self.changed.clear()
            await self.changed.wait()
        return max(self.known[change])

    async def all_had(self, keys: int) -> float:
        """When each key has an owner."""
        while sum(map(len, self.has.values())) < keys:
            self.changed.clear()
            await self.changed.wait()
        return time.perf_counter()


async def changes(group: Group, rounds: int, *, keys: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds until all know that one has joined, that it has left, and until keys of one that left are had again."""
    joined: list[float] = []
    left: list[float] = []
    handed: list[float] = []
    for number in range(rounds):
        began_at = time.perf_counter()
        member = await group.groups[number % len(group.groups)].join()
        joined.append(await group.known_to_all(f"Joined {member.id}") - began_at)
        sharing = asyncio.create_task(group.share(member, [f"site:{key}" for key in range(keys)]))
        while not group.has.get(member.id):
            group.changed.clear()
            await group.changed.wait()
        await group.all_had(keys)
        began_at = time.perf_counter()
        del group.has[member.id]
        await member.release()
        left.append(await group.known_to_all(f"Left {member.id}") - began_at)
        handed.append(await group.all_had(keys) - began_at)
        await asyncio.wait([sharing])
    return joined, left, handed


async def commands_while_quiet(concert: Coordinator) -> float:
    """Commands per second while nothing changes, without the two that count them."""
    before = await commands_processed(concert.redis)
    await asyncio.sleep(QUIET)
    return (await commands_processed(concert.redis) - before - 1) / QUIET


async def measure(*, quick: bool) -> Table:
    members, keys, processes, rounds = (100, 1_000, 5, 5) if quick else (1_000, 10_000, 20, 20)
    table = Table("p50, s", "longest, s", width=46)
    async with AsyncExitStack() as stack:
        concert = await stack.enter_async_context(Coordinator.embedded())
        table.versions["server"] = await version(concert.redis)
        assert concert.url
        others = [await stack.enter_async_context(Coordinator(concert.url)) for _ in range(processes)]
        group = Group([other.members("crawlers", ttl=TTL) for other in others])
        tasks = [asyncio.create_task(group.watch(each)) for each in group.groups]
        joined = [await group.groups[number % processes].join() for number in range(members)]
        names = [f"site:{number}" for number in range(keys)]
        began_at = time.perf_counter()
        tasks += [asyncio.create_task(group.share(member, names)) for member in joined]
        title = f"{keys:,} keys of {members:,} members"
        table.row(f"{title}, first division", await group.all_had(keys) - began_at, math.nan)
        came, went, handed = await changes(group, rounds, keys=keys)
        for what, seconds in ("a member joins, known to all", came), ("a member leaves, known to all", went):
            table.row(what, statistics.median(seconds), max(seconds))
        table.row("keys of one that left are had again", statistics.median(handed), max(handed))
        table.row("commands per second, nothing changes", await commands_while_quiet(concert), math.nan)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.gather(*(member.release() for member in joined))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer members and keys")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "members", asyncio.run(measure(quick=options.quick)))
