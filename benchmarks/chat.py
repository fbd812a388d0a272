"""Group chat beside the textbook's recipe, on one private server, in one run.

python -m benchmarks.chat [--quick]
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import redis.asyncio

from benchmarks import results
from benchmarks.contestants.textbook_chat import TextbookChat
from benchmarks.figures import Table, ratio
from benchmarks.server import info, version
from inconcert import Coordinator

TEXT = "Shall we meet at the harbour at noon?"
MEMBERS = 100
PENDING = 1_000


class Chat(Protocol):
    """What both can do."""

    async def create(self, sender: str, recipients: list[str], text: str) -> str:
        """Make a chat with a first message."""
        ...

    async def send(self, chat: str, sender: str, text: str) -> object:
        """Add a message."""
        ...

    async def fetch(self, user: str) -> int:
        """How many messages were new; they count as read."""
        ...


class OurChat:
    """`concert.chat`."""

    def __init__(self, concert: Coordinator) -> None:
        self.chat = concert.chat

    async def create(self, sender: str, recipients: list[str], text: str) -> str:
        return await self.chat.create(sender, recipients, text, max_messages=1_000_000)

    async def send(self, chat: str, sender: str, text: str) -> object:
        return await self.chat.send(chat, sender, text)

    async def fetch(self, user: str) -> int:
        return sum(len(batch.messages) for batch in await self.chat.fetch(user))


class Bench:
    """Both contestants on one server, each in a database of its own."""

    def __init__(self, chat: Chat, client: redis.asyncio.Redis) -> None:
        self.chat = chat
        self.client = client

    async def group(self, members: int) -> str:
        """A new chat of user-0, user-1, ... who have all read its first message."""
        await self.client.flushdb()
        users = [f"user-{number}" for number in range(members)]
        chat_id = await self.chat.create(users[0], users[1:], TEXT)
        for user in users[:MEMBERS]:  # of a larger group the rest stays behind, as in life
            await self.chat.fetch(user)
        return chat_id

    async def sends(self, senders: int, count: int, members: int = MEMBERS) -> float:
        """Messages per second into one chat, by so many coroutines."""
        chat_id = await self.group(members)

        async def send(number: int) -> None:
            for _ in range(count // senders):
                await self.chat.send(chat_id, f"user-{number % members}", TEXT)

        started_at = time.perf_counter()
        await asyncio.gather(*(send(number) for number in range(senders)))
        return count / (time.perf_counter() - started_at)

    async def fetch_pending(self, readers: int) -> tuple[float, float]:
        """Milliseconds in which a member fetches 1,000 messages, and bytes that the server needs for each message."""
        chat_id = await self.group(MEMBERS)
        before = (await info(self.client, "memory"))["used_memory"]
        for _ in range(PENDING // 10):
            await asyncio.gather(*(self.chat.send(chat_id, "user-0", TEXT) for _ in range(10)))
        grown = (await info(self.client, "memory"))["used_memory"] - before
        took: list[float] = []
        for number in range(readers):
            started_at = time.perf_counter()
            assert await self.chat.fetch(f"user-{number}") == PENDING
            took.append((time.perf_counter() - started_at) * 1000)
        return statistics.median(took), grown / PENDING

    async def fetch_among(self, chats: int, rounds: int) -> tuple[float, float]:
        """Milliseconds, and commands on the server, with which a member of so many chats fetches one new message."""
        await self.client.flushdb()
        chat_ids = [await self.chat.create("ann", ["bob"], TEXT) for _ in range(chats)]
        assert await self.chat.fetch("bob") == chats
        took: list[float] = []
        for number in range(rounds):
            await self.chat.send(chat_ids[number * 7 % chats], "ann", TEXT)
            started_at = time.perf_counter()
            assert await self.chat.fetch("bob") == 1
            took.append((time.perf_counter() - started_at) * 1000)
        await asyncio.sleep(0.1)
        await self.chat.send(chat_ids[0], "ann", TEXT)
        await self.client.config_resetstat()
        assert await self.chat.fetch("bob") == 1
        await asyncio.sleep(0.1)  # what is sent to the server afterwards counts, too
        stats = await info(self.client, "commandstats")
        not_theirs = {"cmdstat_config", "cmdstat_info"}
        commands = sum(of["calls"] for name, of in stats.items() if name.split("|")[0] not in not_theirs)
        return statistics.median(took), commands


async def in_turns(
    benches: Sequence[Bench], rounds: int, measure_one: Callable[..., Awaitable[float | tuple[float, ...]]], *args: int
) -> list[tuple[float, ...]]:
    """The medians of each contestant's figures."""
    figures: list[list[tuple[float, ...]]] = [[] for _ in benches]
    for _ in range(rounds):
        for found, bench in zip(figures, benches, strict=True):
            value = await measure_one(bench, *args)
            found.append(value if isinstance(value, tuple) else (value,))
    return [tuple(statistics.median(column) for column in zip(*found, strict=True)) for found in figures]


async def measure(*, quick: bool) -> Table:
    rounds = 1 if quick else 5
    count = 1_000 if quick else 5_000
    async with Coordinator.embedded() as concert:
        assert concert.url
        client = redis.asyncio.Redis.from_url(concert.url, db=1)
        ours = Bench(OurChat(concert), concert.redis)
        both = ours, Bench(TextbookChat(client), client)
        table = Table("inconcert", "textbook", "ratio", width=56)
        table.versions["server"] = await version(client)

        for senders in 1, 25:
            (mine,), (theirs,) = await in_turns(both, rounds, Bench.sends, senders, count)
            table.row(f"messages/s, {MEMBERS} members, {senders} at a time", mine, theirs, ratio(mine, theirs))
        (mine, bytes_), (theirs, other_bytes) = await in_turns(both, rounds, Bench.fetch_pending, MEMBERS)
        table.row(f"a member fetches {PENDING:,} messages, ms", mine, theirs, ratio(mine, theirs))
        table.row("bytes for each message", bytes_, other_bytes, ratio(bytes_, other_bytes))
        (mine, commands), (theirs, others) = await in_turns(both, 1, Bench.fetch_among, 1_000, 20 if quick else 100)
        table.row("a member of 1,000 chats fetches one new message, ms", mine, theirs, ratio(mine, theirs))
        table.row("    commands, those in scripts counted", commands, others, ratio(commands, others))

        for members in 10, 100, 1_000, 10_000:
            rate = await ours.sends(25, count, members)
            table.row(f"messages/s, 25 at a time, {members:,} members", rate)
        for messages in 10, 100, 1_000, 10_000, 100_000:
            await grow(ours, concert, messages, table)
        await client.aclose()
    return table


async def grow(bench: Bench, concert: Coordinator, messages: int, table: Table) -> None:
    """How it goes when so many messages lie there that nobody reads but one member, who is up to date."""
    chat_id = await bench.group(2)
    while (await concert.chat.send(chat_id, "user-0", TEXT)).id < messages:
        pass
    await concert.chat.fetch("user-1")
    send: list[float] = []
    fetch: list[float] = []
    for _ in range(200):
        started_at = time.perf_counter()
        await concert.chat.send(chat_id, "user-0", TEXT)
        sent_at = time.perf_counter()
        [batch] = await concert.chat.fetch("user-1")
        fetch.append((time.perf_counter() - sent_at) * 1000)
        send.append((sent_at - started_at) * 1000)
        assert len(batch.messages) == 1
    table.row(f"with {messages:,} unread by another: send one, ms", statistics.median(send))
    table.row(f"with {messages:,} unread by another: fetch one, ms", statistics.median(fetch))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    results.add_option(parser)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    results.save(options.json, "chat", asyncio.run(measure(quick=options.quick)))


if __name__ == "__main__":
    main()
