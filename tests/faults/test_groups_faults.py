"""Groups, while processes are killed, replies are lost and callers cancelled: the callback is started once."""

import asyncio
import random
from typing import Any

import pytest

from inconcert import Coordinator, Draft, Group, JobStatus, WrongState, current_job
from inconcert.tasks.following import group_results
from inconcert.tasks.running.sweeper import Sweeper
from inconcert.tasks.sending import group as group_module
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

HERE = "tests.faults.test_groups_faults"
LEASE = 1.0  # seconds of a heartbeat, here
MEMBERS, PORTION = 12, 3
FAILING = 5  # the member that fails in its first attempt, if one is to fail
LOG = "{log}:"  # a list for each namespace: what has happened, in all processes
WITHIN = 30.0


def calls(concert: Coordinator, namespace: str) -> tuple[list[Draft[Any]], Draft[Any]]:
    """The members and the callback of a run; defines their tasks."""
    log = raw(concert)

    @concert.task(name="member", max_attempts=1)
    async def member(number: int, fails: bool) -> None:
        seen = await log.rpush(LOG + namespace, f"member {number}")
        if fails and not await log.getset(LOG + namespace + ":failed", "1"):
            raise ValueError(f"the first time, entry {seen}")

    @concert.task(name="callback", max_attempts=100)
    async def callback() -> None:
        await log.rpush(LOG + namespace, f"callback {current_job().id} {current_job().attempt}")

    fails = namespace.endswith("-fails")
    members = [member.call(number, fails and number == FAILING) for number in range(MEMBERS)]
    return members, callback.call()


async def add_and_work(url: str, namespace: str) -> None:
    """In a child: begin a group, add its members, close it, and run them, until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        members, callback = calls(concert, namespace)
        log: Any = raw(concert)
        tell("works")
        async with in_background(concert.run_worker("default", concurrency=2)):
            group = await concert.group(then=callback)
            await log.set(LOG + namespace + ":id", group.id)
            await log.rpush(LOG + namespace, "opened")
            for first in range(0, MEMBERS, PORTION):
                await group.add(members[first : first + PORTION], start=first)
                await log.rpush(LOG + namespace, "added")
            await group.close()
            await log.rpush(LOG + namespace, "closed")
            await asyncio.Event().wait()


@pytest.mark.parametrize("runs", [4, *(pytest.param(20, marks=pytest.mark.torture, id=f"20-{n}") for n in range(25))])
async def test_callback_is_started_once_though_its_process_is_killed(namespace: str, runs: int) -> None:
    """Kill -9 at any moment of adding, closing, working and starting the callback; another process goes on."""
    numbers = iter(range(runs))

    async def lane(url: str) -> None:
        for number in numbers:
            kind = ("all", "fails")[number % 2]
            await _run(url, f"{namespace}-{number}-{kind}")

    with RealServer() as own:
        await asyncio.gather(*(lane(own.url) for _ in range(4)))
    assert next(numbers, None) is None


async def _run(url: str, namespace: str) -> None:
    """One group, whose process is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        members, _ = calls(concert, namespace)
        client: Any = raw(concert)
        length = random.randint(1, 2 + MEMBERS // PORTION + MEMBERS)
        async with spawn(f"{HERE}:add_and_work", url, namespace) as child:
            await child.wait_for("works")
            await eventually(lambda: _is_as_long(client, namespace, length), timeout=WITHIN)
            child.kill()
        group = concert.tasks.group((await client.get(LOG + namespace + ":id")).decode())
        await group.add(members, start=0)
        await group.close()
        async with in_background(concert.run_worker("default", concurrency=2)):
            if namespace.endswith("-fails"):
                await eventually(lambda: _has_ended(group), timeout=WITHIN)
                if (await group.progress()).failed:  # otherwise its process was killed while it failed
                    assert await group.callback.status() is JobStatus.WAITING
                    await concert.tasks.replay_all()
            await group.callback.result(timeout=WITHIN)
        seen = await group.progress()
        assert (seen.total, seen.succeeded, seen.left) == (MEMBERS, MEMBERS, 0)
        entries = [entry.decode() for entry in await client.lrange(LOG + namespace, 0, -1)]
        first = next(n for n, entry in enumerate(entries) if entry.startswith("callback"))
        assert {f"member {number}" for number in range(MEMBERS)} <= set(entries[:first]), "it came too early"
        ran = [entry for entry in entries if entry.startswith("callback")]
        # Killed in its body, it runs again as any job does, and as another attempt.
        assert len(set(ran)) == len(ran) <= 2, entries
        assert {entry.split()[1] for entry in ran} == {group.callback.id}


async def _is_as_long(client: Any, namespace: str, length: int) -> bool:
    found: int = await client.llen(LOG + namespace)
    return found >= length


async def _has_ended(group: Group) -> bool:
    return (await group.progress()).is_done


def reading_calls(concert: Coordinator, pages: int) -> tuple[list[Draft[Any]], Draft[Any]]:
    """Members with results, and a callback that reads this many pages, and then says so and waits."""

    @concert.task(name="square", result_ttl=0)
    async def square(number: int) -> int:
        return number * number

    @concert.task(name="sum", max_attempts=1)
    async def add_up() -> int:
        group = current_job().group
        assert group is not None
        total = 0
        async for member in group.results():
            total += member.result(int)
            if member.number == pages * group_results._PAGE:
                tell("read")
                await asyncio.Event().wait()
        return total

    return [square.call(number) for number in range(MEMBERS)], add_up.call()


async def read_some_pages(url: str, namespace: str, pages: int) -> None:
    """In a child: run the members and the callback, until it is killed."""
    group_results._PAGE = PORTION
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        reading_calls(concert, pages)
        await concert.run_worker("default")


@pytest.mark.parametrize("pages", [1, 3])
async def test_callback_that_is_killed_between_pages_reads_all_of_them_again(
    namespace: str, server: RealServer | RealCluster, pages: int
) -> None:
    """Elsewhere, from the first one: its results are kept until it has ended."""
    async with with_lease(Coordinator(server.url, namespace=namespace), LEASE) as concert:
        members, callback = reading_calls(concert, MEMBERS)
        group = await concert.group(members, then=callback, keep_results=True)
        async with spawn(f"{HERE}:read_some_pages", server.url, namespace, pages) as child:
            await child.wait_for("read")
            child.kill()
        async with in_background(concert.run_worker("default")):
            total = await group.callback.result(int, timeout=WITHIN)
        assert total == sum(number * number for number in range(MEMBERS))


@pytest.mark.torture
@pytest.mark.timeout(600)
async def test_callback_reads_a_hundred_thousand_results(concert: Coordinator) -> None:
    """One page is in memory at a time, and nothing of them stays."""
    count = 100_000

    @concert.task(name="square", result_ttl=0)
    async def square(number: int) -> int:
        return number * number

    @concert.task(name="sum", max_attempts=1)
    async def add_up() -> int:
        group = current_job().group
        assert group is not None
        total = expected = 0
        async for member in group.results():
            assert member.number == expected
            total, expected = total + member.result(int), expected + 1
        assert expected == count
        return total

    group = await concert.group((square.call(n) for n in range(count)), then=add_up.call(), keep_results=True)
    await concert.run_worker("default", burst=True)
    assert await group.callback.result(int) == sum(n * n for n in range(count))
    await Sweeper(concert._ref.session, concert._jobs).sweep()
    client: Any = raw(concert)
    assert await client.hkeys(concert._jobs.of_id(group.id).groups) == [group.id.encode()]


class Story:
    """A group of a few members, made and run through a coordinator that may lose replies."""

    def __init__(self) -> None:
        self.members: list[int] = []
        self.callbacks = 0

    def calls(self, concert: Coordinator) -> tuple[list[Draft[Any]], Draft[Any]]:
        """The members and the callback."""

        @concert.task(name="member", queue="q")
        async def member(number: int) -> None:
            self.members.append(number)

        @concert.task(name="callback", queue="q")
        async def callback() -> None:
            self.callbacks += 1

        return [member.call(number) for number in range(4)], callback.call()


async def test_reply_lost_at_each_step_adds_and_starts_nothing_twice(
    proxy: Proxy, namespace: str, concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not answered is sent again, and finds what the first sending did."""
    monkeypatch.setattr(group_module, "_MOST", 2)
    story = Story()
    story.calls(concert)
    for steps in range(10):
        story.members.clear()
        story.callbacks = 0
        async with Coordinator(proxy.url, namespace=namespace) as bad:
            members, callback = story.calls(bad)
            proxy.cut_after_replies(steps, lose_next=True)
            group = await bad.group(then=callback)
            assert await group.add(members) == 4
            await group.close()
            await bad.run_worker("q", burst=True)
        await proxy.heal()
        await concert.run_worker("q", burst=True)
        assert (sorted(story.members), story.callbacks) == ([0, 1, 2, 3], 1)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_adding_that_is_cancelled_at_any_await_can_go_on(
    concert: Coordinator, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all calls again."""
    monkeypatch.setattr(group_module, "_MOST", 1)
    monkeypatch.setattr(group_module, "_MOST_AT_ONCE", 2)
    story = Story()
    members, callback = story.calls(concert)
    number = 1
    while True:
        group = await concert.group(then=callback)
        came_so_far = await cancel_at(number, moment, group.add(members))
        await group.add(members, start=0)
        await group.close()
        await concert.run_worker("q", burst=True)
        assert (sorted(story.members), story.callbacks) == ([0, 1, 2, 3], 1)
        story.members.clear()
        story.callbacks = 0
        if not came_so_far:
            break
        number += 1
    assert number > 3


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelling_that_is_cancelled_at_any_await_can_go_on(concert: Coordinator, moment: Moment) -> None:
    """The second call cancels the rest."""
    story = Story()
    members, callback = story.calls(concert)
    number, came_so_far = 1, True
    while came_so_far:
        group = await concert.group(members, then=callback)
        came_so_far = await cancel_at(number, moment, group.cancel())
        await group.cancel()
        seen = await group.progress()
        assert (seen.cancelled, seen.is_done) == (4, True)
        number += 1
    await concert.run_worker("q", burst=True)
    assert (story.members, story.callbacks) == ([], 0)
    assert number > 3


@pytest.mark.parametrize("part", ["groups", "settled"])
async def test_foreign_key_leaves_members_claimed_until_it_is_gone(concert: Coordinator, part: str) -> None:
    """Nothing is done by halves: a member does not end while it cannot be counted."""
    story = Story()
    members, callback = story.calls(concert)
    group = await concert.group(members[:1], then=callback)
    keys = concert._jobs.of_id(group.id)
    client: Any = raw(concert)
    key = getattr(keys, part)
    async with concert.consume("q") as jobs:
        claimed = await anext(jobs)
        has_it = await client.exists(key)
        if has_it:
            await client.rename(key, f"{key}:kept")
        await client.set(key, "foreign")
        async with claimed:
            pass
        assert await group.member(0).status() is JobStatus.RUNNING
        if part == "groups":
            with pytest.raises(WrongState):
                await group.progress()
        await client.delete(key)
        if has_it:
            await client.rename(f"{key}:kept", key)
    assert (await group.progress()).is_done  # the worker repeats what was not confirmed, at its end
    await concert.run_worker("q", burst=True)
    assert story.callbacks == 1
