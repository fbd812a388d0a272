"""The newest job of a name wins, while replies are lost and workers are killed: never two at once, and the last runs.

Bodies note when they begin and end in a list of the server, so all of them are in one order.
"""

import asyncio
import os
import random
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Job, JobStatus, Retry, Snooze, Task, durable
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer, command
from tests.support.short_lease import with_lease

SECRET = {"one": "0123456789abcdef"}
WORKERS = 2
LEASE = 1.0  # seconds of a heartbeat, here
WITHIN = 30.0
HOUR = 3600.0


def register(concert: Coordinator, url: str, seen: str) -> Task[[int, int], Any]:
    """A task whose jobs note when they begin and end; some fail, some ignore that they are cancelled, some rest."""

    def note(what: str) -> None:  # at once: no cancellation comes in between
        command(url, "RPUSH", seen, what)

    @concert.task(name="newest", max_attempts=50, max_crashes=50, backoff=lambda _: random.random() / 50)
    async def newest(name: int, version: int) -> None:
        me = f"{name} {version} {os.getpid()}"
        note(f"{me} begins")
        try:
            match version % 5:
                case 0:
                    await ignoring(random.random() / 10)
                case 1 if random.random() < 0.5:
                    raise Retry(after=random.random() / 20)
                case 2:
                    await durable.step("one", anyio.sleep, random.random() / 20)
                    await durable.wait_for("word", str, timeout=random.random() / 20)
                case 3 if random.random() < 0.5:
                    raise Snooze(random.random() / 20)
                case _:
                    await anyio.sleep(random.random() / 10)
        finally:
            note(f"{me} ends")

    return newest


async def ignoring(seconds: float) -> None:
    """Sleep so long, whatever cancels this."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(left)


async def work(url: str, namespace: str, seen: str) -> None:
    """In a process of its own: run these jobs until it is killed."""
    async with Coordinator(url, namespace=namespace, signing_keys=SECRET) as concert:
        register(with_lease(concert, LEASE), url, seen)
        await concert.run_worker("default", "other", concurrency=20)


def overlaps(events: list[str]) -> list[str]:
    """Where a job of a name began while another one of it ran; those of a process that was killed run no more."""
    runs: dict[str, tuple[str, str]] = {}
    killed: set[str] = set()
    wrong: list[str] = []
    for event in events:
        name, version, process, what = event.split()
        if what == "killed":
            killed.add(process)
            runs = {each: run for each, run in runs.items() if run[1] != process}
        elif process in killed:
            continue
        elif what == "ends":
            del runs[name]
        elif name in runs:
            wrong.append(f"{name} {version} begins while {runs[name][0]} runs")
        else:
            runs[name] = (version, process)
    return wrong


def some_options() -> dict[str, Any]:
    """Of one call."""
    options: dict[str, Any] = {"queue": random.choice(["default", "other"])}
    if random.random() < 0.2:
        options["delay"] = random.random() / 20
    if random.random() < 0.2:
        options["priority"] = random.randrange(10)
    return options


async def has_grown(client: Any, seen: str, length: int) -> None:
    """Wait until so much has happened."""

    async def is_longer() -> bool:
        return bool(await client.llen(seen) >= length)

    await eventually(is_longer, timeout=WITHIN)


def test_observer_sees_two_at_once() -> None:
    """Otherwise it would prove nothing."""
    assert overlaps(["a 1 10 begins", "a 2 11 begins", "b 1 10 begins"]) == ["a 2 begins while 1 runs"]
    assert overlaps(["a 1 10 begins", "a 1 10 ends", "a 2 11 begins"]) == []
    assert overlaps(["a 1 10 begins", "- - 10 killed", "a 2 11 begins"]) == []


@pytest.mark.parametrize(
    ("names", "calls", "kills"),
    [
        (3, 60, 1),
        pytest.param(4, 200, 4, marks=pytest.mark.torture),
        pytest.param(50, 5_000, 30, marks=[pytest.mark.torture, pytest.mark.timeout(1800)]),
    ],
)
async def test_never_two_of_a_name_at_once_and_the_last_runs_though_workers_are_killed(
    server: RealServer, namespace: str, *, names: int, calls: int, kills: int
) -> None:
    """Through failed attempts, sleeps, messages and bodies that ignore their cancellation, in two queues."""
    seen = f"{namespace} seen"
    children = [await asyncio.to_thread(Forked, work, server.url, namespace, seen) for _ in range(WORKERS)]
    async with Coordinator(server.url, namespace=namespace, signing_keys=SECRET) as concert:
        newest = register(concert, server.url, seen)
        client = raw(concert)

        async def kill_one() -> None:
            child = children[-WORKERS]
            await asyncio.to_thread(child.kill)
            await client.rpush(seen, f"- - {child.pid} killed")
            children.append(await asyncio.to_thread(Forked, work, server.url, namespace, seen))

        async def call(name: int, version: int, **options: Any) -> Job[None]:
            chosen: Any = {"unique": f"name {name}", "newest": "replaces"} | options
            job: Job[None] = await newest.options(**chosen).enqueue(name, version)
            if version % 37 == 0:
                await job.cancel(timeout=0)
            return job

        try:
            await call(0, 4)
            await has_grown(client, seen, 1)
            kill_at = {calls * number // (kills + 1) for number in range(1, kills + 1)}
            for number in range(calls):
                await call(random.randrange(names), number, **some_options())
                await anyio.sleep(random.random() / 50)  # so that some begin meanwhile
                if number in kill_at:
                    await has_grown(client, seen, await client.llen(seen) + 1)
                    await kill_one()
            last = [await call(name, 10_000 * 5 + 4, delay=0) for name in range(names)]
            for job in last:
                await job.result(timeout=WITHIN)
        finally:
            for child in children:
                child.kill()
            events = [event.decode() for event in await client.lrange(seen, 0, -1)]
            await client.delete(seen)
    assert overlaps(events) == []
    begun = [event.split() for event in events if event.endswith(" begins")]
    assert {name: version for name, version, *_ in begun} == {str(name): "50004" for name in range(names)}
    assert len(begun) > names + kills


@pytest.mark.parametrize("keys", [None, SECRET], ids=["unsigned", "signed"])
@pytest.mark.parametrize("state", ["waits", "has begun", "runs"])
async def test_reply_lost_at_each_step_neither_doubles_nor_loses_a_call(
    server: RealServer, proxy: Proxy, namespace: str, keys: dict[str, str] | None, state: str
) -> None:
    """A call that was not answered is sent again: each counts once, and the last one is what runs."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as good, good.consume("default") as jobs:
        for steps in range(6):
            first = await good.enqueue("build", [0], unique="one", delay=HOUR * (state == "waits"))
            claimed = None if state == "waits" else await anext(jobs)
            if claimed and state == "has begun":
                async with claimed:
                    await claimed.nack(delay=HOUR)
            async with Coordinator(proxy.url, namespace=namespace, signing_keys=keys) as bad:
                proxy.cut_after_replies(steps, lose_next=True)
                found = [await bad.enqueue("build", [n], unique="one", newest="replaces") for n in range(1, 4)]
            await proxy.heal()
            assert [job.created for job in found] == [state != "waits", False, False]
            last = await good.enqueue("build", [9], unique="one", newest="replaces")
            assert {job.id for job in (*found, last)} == {first.id if state == "waits" else last.id}
            if claimed and state == "runs":
                assert await last.status() is JobStatus.WAITING
                async with claimed:
                    await anyio.sleep_forever()
            with anyio.fail_after(WITHIN):
                async with await anext(jobs) as job:
                    assert (job.id, job.args) == (last.id, [9])
            assert await first.status() is (JobStatus.SUCCEEDED if state == "waits" else JobStatus.CANCELLED)
            assert (await good.tasks.stats("default")).queues["default"].ready == 0
