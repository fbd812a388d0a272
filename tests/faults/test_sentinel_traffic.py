"""Locks, a queue and tasks under failovers: what was promised is checked in the recorded history."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import redis

from inconcert import AcquireTimeout, Coordinator, LeaseLost, OutcomeUnknown, Unavailable
from inconcert.errors import NotHeld
from tests.support.eventually import eventually
from tests.support.fenced import FencedRegister
from tests.support.histories import (
    Attempt,
    Write,
    fallen_tokens,
    misdeliveries,
    stale_writes,
    strandings,
    too_many_holders,
)
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer

pytestmark = [pytest.mark.torture]

TTL = GUARD = 2.0  # seconds
SETTLED = 15.0  # seconds in which a failover, the guard and a dead holder's lease are over, on a busy machine
FAILURES = (Unavailable, OutcomeUnknown, LeaseLost, NotHeld, AcquireTimeout, TimeoutError)


def killed(sentinels: SentinelSet, before: RealServer) -> None:
    """The old master is gone, and comes back with what its file has."""
    before.kill()
    sentinels.wait_for_new_master(before)
    before.start()


def paused(sentinels: SentinelSet, before: RealServer) -> None:
    """It stands still, and comes back as if nothing had happened."""
    before.pause()
    sentinels.wait_for_new_master(before)
    before.resume()


def manual(sentinels: SentinelSet, before: RealServer) -> None:
    """It would serve on for a while."""
    assert sentinels.fail_over() is not before


def cut_off_with_a_sentinel(sentinels: SentinelSet, before: RealServer) -> None:
    """The Sentinel that most listen to is, too."""
    sentinels.sentinels[0].pause()
    paused(sentinels, before)
    sentinels.sentinels[0].resume()


def without_a_sentinel(sentinels: SentinelSet, before: RealServer) -> None:
    """Two of three are enough."""
    sentinels.sentinels[1].kill()
    killed(sentinels, before)
    sentinels.sentinels[1].start()


def behind(sentinels: SentinelSet, before: RealServer) -> None:
    """The replica that is promoted lacks the last half second."""
    [replica] = sentinels.replicas
    replica.command("CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
    replica.command("CLIENT", "KILL", "TYPE", "master")
    time.sleep(0.5)
    before.kill()
    sentinels.wait_for_new_master(before)
    replica.command("CONFIG", "SET", "masteruser", "", "masterauth", "")
    before.start()


FAULTS: list[Callable[[SentinelSet, RealServer], None]] = [
    behind,
    killed,
    paused,
    manual,
    cut_off_with_a_sentinel,
    without_a_sentinel,
]


class Traffic:
    """Everything that is done, and what came of it."""

    def __init__(self, namespace: str, register: FencedRegister, seed: int) -> None:
        self.namespace = namespace
        self.attempts: list[Attempt] = []
        self.writes: list[Write] = []
        self.due: dict[str, float] = {}  # what a replica has acknowledged
        self.handled: list[tuple[str, float]] = []
        self.random = random.Random(seed)
        self._register = register

    async def hold(self, concert: Coordinator, who: str) -> None:
        """Take the lock, and write under it."""
        attempt = Attempt(who, time.monotonic())
        self.attempts.append(attempt)
        try:
            async with concert.lock("door", ttl=TTL, timeout=SETTLED) as lease:
                attempt.answered_at, attempt.is_granted, attempt.token = time.monotonic(), True, lease.fencing_token
                try:
                    accepted = self._register.write(lease.fencing_token, who)
                    self.writes.append(Write(attempt, time.monotonic(), accepted))
                    await asyncio.sleep(self.random.choice([0.01, 0.01, 0.01, 1.5 * TTL]))
                finally:
                    attempt.stopped_at = time.monotonic()
        finally:
            attempt.gone_at = time.monotonic()
            attempt.answered_at = min(attempt.answered_at, attempt.gone_at)

    async def put(self, concert: Coordinator, who: str) -> None:
        """Put an item, or a job; it counts if the replica has it."""
        name = f"{who} {len(self.due)} {self.random.random()}"
        before = node_of(concert)
        if "queue" in who:
            await concert.queue("items").put(name)
        else:
            await concert.enqueue("handle", [name], queue="jobs")
        if before is not None and before == node_of(concert) and await asyncio.to_thread(is_replicated, before):
            self.due[name] = 0.0
        await asyncio.sleep(0.005)

    async def get(self, concert: Coordinator, who: str) -> None:
        """Handle items or jobs."""
        if "queue" in who:
            delivery = await concert.queue("items", ttl=TTL).get(timeout=1)
            self.handled.append((str(delivery.item), time.monotonic()))
            await delivery.ack()
            return
        async with concert.consume("jobs") as jobs:
            async for job in jobs:
                self.handled.append((str(job.args[0]), time.monotonic()))
                await job.ack()


def node_of(concert: Coordinator) -> tuple[str, int] | None:
    """The server to which commands go now."""
    channel: Any = concert._ref.session.channel
    return channel._wire.node if channel._wire is not None else None


def is_replicated(node: tuple[str, int]) -> bool:
    """Whether a replica has all that this server has written until now."""
    with suppress(redis.RedisError):  # it is down: then it says nothing
        client: Any = redis.Redis(host=node[0], port=node[1], socket_timeout=2, decode_responses=True)
        with client:
            client.set("mark", 1, px=1000)  # WAIT is about the writes of its own connection
            return bool(client.wait(1, 500)) and client.role()[0] == "master"
    return False


@asynccontextmanager
async def at_work(parts: Sequence[Awaitable[None]]) -> AsyncGenerator[None]:
    """Run parts in the background."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        yield
        ended = [task for task in tasks if task.done()]
        assert not ended, ended
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def again_and_again(step: Callable[[Coordinator, str], Awaitable[None]], concert: Coordinator, who: str) -> None:
    """Do one step after the other, whatever fails."""
    while True:
        with suppress(*FAILURES):
            await step(concert, who)
        await asyncio.sleep(0)


async def test_nothing_is_lost_that_replicas_have_and_nobody_holds_twice(
    server: RealServer, namespace: str, request: pytest.FixtureRequest
) -> None:
    """With a guard and a replica that acknowledges, whatever happens to masters and Sentinels."""
    options = request.config.option
    register = FencedRegister(server.admin_url, namespace)
    traffic = Traffic(namespace, register, options.seed)
    until = time.monotonic() + options.seconds
    done: list[str] = []
    with SentinelSet(appendonly="yes", appendfsync="always") as sentinels:

        def concert() -> Coordinator:
            return Coordinator(sentinels.url, namespace=namespace, timeout=4, failover_guard=GUARD, replicas=1)

        async with concert() as one, concert() as two, concert() as three:
            concerts = {"one": one, "two": two, "three": three}
            holders = [again_and_again(traffic.hold, c, f"{n} {i}") for n, c in concerts.items() for i in range(3)]
            getters = [
                again_and_again(traffic.get, c, f"{n} {k}") for n, c in concerts.items() for k in ("queue", "task")
            ]
            putters = [
                again_and_again(traffic.put, c, f"{n} {k}") for n, c in concerts.items() for k in ("queue", "task")
            ]
            async with at_work(getters):
                async with at_work([*holders, *putters]):
                    while time.monotonic() < until:
                        fault = traffic.random.choice(FAULTS)
                        await asyncio.sleep(traffic.random.uniform(0, 2))
                        await asyncio.to_thread(fault, sentinels, sentinels.master)
                        done.append(fault.__name__)
                        await asyncio.to_thread(sentinels.settle)
                    await asyncio.sleep(GUARD)
                    ended_at = time.monotonic()
                await eventually(lambda: traffic.due.keys() <= {name for name, _ in traffic.handled}, timeout=30)
    register.close()
    granted = [attempt for attempt in traffic.attempts if attempt.is_granted]
    request.node.add_report_section(
        "call",
        "history",
        f"{len(done)} faults: {done}; {len(granted)} grants, {len(traffic.due)} of {len(traffic.handled)} replicated",
    )
    assert len(granted) > len(done)
    assert len(traffic.due) > len(done)
    assert too_many_holders(traffic.attempts) == []
    assert fallen_tokens(traffic.attempts) == []
    assert stale_writes(traffic.writes) == []
    assert strandings(traffic.attempts, within=SETTLED, until=ended_at) == []
    assert [lost for lost in misdeliveries(traffic.due, traffic.handled) if lost.kind == "never handled"] == []
