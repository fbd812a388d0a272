"""Results of a group's members: read by its callback in pages, kept until that has ended, and dropped then."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from inconcert import (
    Coordinator,
    Group,
    GroupNotFound,
    GroupResultsGone,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStatus,
    MemberResult,
    Task,
    UnreadablePayload,
    current_job,
)
from inconcert.tasks.following import group_results as module
from inconcert.tasks.running.sweeper import Sweeper
from tests.support.groups import Tasks, nothing_is_kept
from tests.support.raw import raw


@dataclass
class Page:
    """A result with a type of its own."""

    number: int
    text: str


class Reading:
    """The tasks of these tests: members that return pages, and a callback that reads them."""

    def __init__(self, concert: Coordinator) -> None:
        self.tasks = Tasks(concert)
        self.seen: list[list[MemberResult]] = []
        self.failures = 0  # how many attempts of the callback fail

        @concert.task(name="make", queue="q", max_attempts=1, result_ttl=0)
        async def make(number: int, length: int = 1) -> Page:
            return Page(number, "x" * length)

        @concert.task(name="read", queue="r", max_attempts=2, backoff=lambda _: 0)
        async def read() -> None:
            group = current_job().group
            assert group is not None
            self.seen.append([each async for each in group.results()])
            if len(self.seen) <= self.failures:
                raise ValueError("not yet")

        self.make: Task[..., Any] = make
        self.read: Task[[], Any] = read


@pytest.fixture
async def reading(any_concert: Coordinator) -> AsyncIterator[Reading]:
    """On each server; and of a group that has ended nothing stays."""
    yield Reading(any_concert)
    await nothing_is_kept(any_concert)


async def count_kept(concert: Coordinator, group: Group) -> int:
    """How many results the server has of this group."""
    client: Any = raw(concert)
    names = await client.hkeys(concert._jobs.of_id(group.id).groups)
    return sum(name.startswith(group.id.rpartition(".")[0].encode() + b"~") for name in names)


async def test_callback_reads_results_beside_failures(any_concert: Coordinator, reading: Reading) -> None:
    """In the order in which the members were given, one for each, and whatever their `result_ttl`."""
    tasks = reading.tasks
    calls = [reading.make.call(0), tasks.fail.call(), tasks.send.options(delay=3600).call(2), reading.make.call(3)]
    group = await any_concert.group(calls, then=reading.read.call(), when="ended", keep_results=True)
    await group.member(2).cancel()
    await tasks.drain()
    [[first, failed, cancelled, last]] = reading.seen
    assert [each.number for each in reading.seen[0]] == [0, 1, 2, 3]
    assert [each.id for each in reading.seen[0]] == [group.member(number).id for number in range(4)]
    assert first.result() == {"number": 0, "text": "x"}
    assert last.result(Page) == Page(3, "x")
    assert (first.exception(), last.status) == (None, JobStatus.SUCCEEDED)
    with pytest.raises(UnreadablePayload):
        last.result(int)
    assert failed.status is JobStatus.FAILED
    with pytest.raises(JobFailed, match="no luck"):
        failed.result()
    assert isinstance(failed.exception(), JobFailed)
    assert cancelled.status is JobStatus.CANCELLED
    assert isinstance(cancelled.exception(), JobCancelled)


async def test_pages_are_bounded_by_number_and_by_volume(
    any_concert: Coordinator, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left out or repeated between them; and reading may begin at any member."""
    monkeypatch.setattr(module, "_PAGE", 4)
    calls = [reading.make.call(number, 400_000 if number in (1, 2, 3, 4) else 5_000) for number in range(11)]
    group = await any_concert.group(calls, then=reading.read.call(), keep_results=True)
    await any_concert.run_worker("q", burst=True)
    assert [each.number async for each in group.results(start=7)] == [7, 8, 9, 10]
    assert [each.number async for each in group.results(start=11)] == []
    await reading.tasks.drain()
    assert [each.result(Page).number for each in reading.seen[0]] == list(range(11))


async def test_results_are_let_go_when_the_callback_has_ended(any_concert: Coordinator, reading: Reading) -> None:
    """Not before: a second attempt reads the same. They are dropped in portions, and the numbers stay for a day."""
    reading.failures = 1
    group = await any_concert.group(
        (reading.make.call(number) for number in range(1_203)), then=reading.read.call(), keep_results=True
    )
    await any_concert.run_worker("q", burst=True)
    sweeper = Sweeper(any_concert._ref.session, any_concert._jobs)
    await sweeper.sweep()
    assert await count_kept(any_concert, group) == 1_203
    await reading.tasks.drain()
    first, second = reading.seen
    assert first == second
    assert len(second) == 1_203
    for _ in range(2):
        with pytest.raises(GroupResultsGone, match="its callback has ended") as raised:
            await anext(aiter(group.results()))
        assert (raised.value.group_id, raised.value.were_kept) == (group.id, True)
        await sweeper.sweep()
        assert await count_kept(any_concert, group) == 0
    assert (await group.progress()).succeeded == 1_203


async def test_dead_callback_keeps_results_for_its_replay(any_concert: Coordinator, reading: Reading) -> None:
    """And lets them go once it is purged."""
    reading.failures = 5
    group = await any_concert.group([reading.make.call(0)], then=reading.read.call(), keep_results=True)
    await reading.tasks.drain()
    assert await group.callback.status() is JobStatus.FAILED
    await _let_days_pass(any_concert)
    await any_concert.tasks.replay(group.callback.id)
    await reading.tasks.drain()
    assert [each.result(Page).number for each in reading.seen[-1]] == [0]
    assert len(reading.seen) == 4
    await any_concert.tasks.purge(group.callback.id)
    with pytest.raises(GroupResultsGone):
        await anext(aiter(group.results()))
    await _let_days_pass(any_concert)
    assert await count_kept(any_concert, group) == 0


async def test_cancelled_callback_lets_results_go(any_concert: Coordinator, reading: Reading) -> None:
    """What ends or comes in later leaves none."""
    group = await any_concert.group(then=reading.read.call(), keep_results=True)
    await group.add([reading.make.call(0)])
    await any_concert.run_worker("q", burst=True)
    await group.add([reading.make.call(1), reading.tasks.fail.call()])
    await group.callback.cancel()
    await reading.tasks.drain()
    await group.add([reading.make.call(3)])
    await group.close()
    await reading.tasks.drain()
    with pytest.raises(GroupResultsGone):
        await anext(aiter(group.results()))
    await Sweeper(any_concert._ref.session, any_concert._jobs).sweep()
    assert await count_kept(any_concert, group) == 0
    assert (await group.progress()).succeeded == 3


async def test_reading_that_is_overtaken_by_the_end_says_so(
    any_concert: Coordinator, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of leaving members out."""
    monkeypatch.setattr(module, "_PAGE", 2)
    group = await any_concert.group(
        [reading.make.call(number) for number in range(4)], then=reading.read.call(), keep_results=True
    )
    await any_concert.run_worker("q", burst=True)
    results = aiter(group.results())
    assert [(await anext(results)).number for _ in range(2)] == [0, 1]
    await reading.tasks.drain()
    with pytest.raises(GroupResultsGone):
        await anext(results)


async def test_purged_member_was_cancelled_and_one_that_runs_has_its_state(
    any_concert: Coordinator, reading: Reading
) -> None:
    """Whoever has the group may look before its end."""
    tasks = reading.tasks
    calls = [tasks.fail.call(), reading.make.call(1), reading.make.options(delay=3600).call(2)]
    group = await any_concert.group(calls, then=reading.read.call(), when="ended", keep_results=True)
    async with any_concert.consume("q") as jobs:
        async with await anext(jobs) as job:
            await job.nack()
        async with await anext(jobs):
            now = [each async for each in any_concert.tasks.group(group.id).results()]
            assert [each.status for each in now] == [JobStatus.FAILED, JobStatus.RUNNING, JobStatus.DELAYED]
            with pytest.raises(TimeoutError, match="it is running"):
                now[1].result()
            with pytest.raises(TimeoutError, match="it is delayed"):
                now[2].exception()
    await any_concert.tasks.purge_all()
    await any_concert.tasks.promote_all()
    await tasks.drain()
    assert [each.status.value for each in reading.seen[0]] == ["cancelled", "succeeded", "succeeded"]


async def test_member_that_was_not_added_is_unknown(any_concert: Coordinator, reading: Reading) -> None:
    """Its number is there, so that results and calls can be laid side by side."""
    if len(any_concert._jobs.partitions) > 1:
        pytest.skip("members have no unique names there")
    live = await reading.tasks.send.options(unique="u", delay=3600).enqueue(0)
    calls = [reading.make.call(0), reading.make.options(unique="u").call(1)]
    group = await any_concert.group(calls, then=reading.read.call(), keep_results=True)
    await reading.tasks.drain()
    [[made, other]] = reading.seen
    assert (made.result(Page).number, other.status) == (0, JobStatus.UNKNOWN)
    assert isinstance(other.exception(), JobNotFound)
    await live.cancel()
    assert (await group.progress()).total == 1


async def test_replayed_member_has_its_later_result(any_concert: Coordinator, reading: Reading) -> None:
    """And a callback that waits for it reads that."""
    tasks = reading.tasks
    group = await any_concert.group([tasks.fail.call()], then=reading.read.call(), keep_results=True)
    await tasks.drain()
    assert [each.status async for each in group.results()] == [JobStatus.FAILED]
    tasks.failing = False
    await any_concert.tasks.replay_all()
    await tasks.drain()
    assert [each.result() for each in reading.seen[0]] == [None]


async def test_group_without_callback_keeps_results_for_a_day(any_concert: Coordinator, reading: Reading) -> None:
    """Then it is forgotten, and they with it."""
    group = await any_concert.group([reading.make.call(n) for n in range(3)], keep_results=True)
    await reading.tasks.drain()
    await Sweeper(any_concert._ref.session, any_concert._jobs).sweep()
    assert [each.result(Page).number async for each in group.results()] == [0, 1, 2]
    await _let_days_pass(any_concert)
    with pytest.raises(GroupNotFound):
        await anext(aiter(group.results()))
    assert await count_kept(any_concert, group) == 0


async def test_member_delivered_at_most_once_has_no_result(any_concert: Coordinator, reading: Reading) -> None:
    """It has succeeded when it is handed out."""
    group = await any_concert.group([reading.make.call(0)], then=reading.read.call(), keep_results=True)
    async with any_concert.consume("q", delivery="at_most_once") as jobs, await anext(jobs):
        pass
    await reading.tasks.drain()
    [[only]] = reading.seen
    assert (only.id, only.status, only.result()) == (group.member(0).id, JobStatus.SUCCEEDED, None)


async def test_callback_delivered_at_most_once_has_ended_before_it_can_read(
    any_concert: Coordinator, reading: Reading
) -> None:
    """So its results are let go by then, and it is told."""
    group = await any_concert.group([reading.make.call(0)], then=reading.read.call(), keep_results=True)
    await any_concert.run_worker("q", burst=True)
    async with any_concert.consume("r", delivery="at_most_once") as jobs, await anext(jobs) as job:
        assert job.group is not None
        assert job.group.id == group.id
        with pytest.raises(GroupResultsGone):
            await anext(aiter(job.group.results()))


async def test_bad_input_is_refused(any_concert: Coordinator, reading: Reading) -> None:
    """A number before anything is sent; a group that has no results by the first page."""
    group = await any_concert.group([reading.make.call(0)], then=reading.read.call(), keep_results=True)
    for start in (-1, 1.5, True):
        with pytest.raises(ValueError, match="start"):
            group.results(start=start)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(GroupNotFound, match="nobody"):
        await anext(aiter(any_concert.tasks.group("nobody.15.0").results()))
    plain = await any_concert.group([reading.make.call(0)])
    with pytest.raises(GroupResultsGone, match="keep_results=True") as raised:
        await anext(aiter(plain.results()))
    assert not raised.value.were_kept
    await reading.tasks.drain()
    assert await count_kept(any_concert, plain) == 0


async def test_groups_of_all_partitions_keep_their_results(spread: Coordinator) -> None:
    """Each in its own."""
    reading = Reading(spread)
    groups = [
        await spread.group([reading.make.call(n), reading.make.call(7)], then=reading.read.call(), keep_results=True)
        for n in range(9)
    ]
    await reading.tasks.drain()
    assert len({spread._jobs.of_id(group.id).number for group in groups}) > 1
    assert sorted(each[0].result(Page).number for each in reading.seen) == list(range(9))
    await nothing_is_kept(spread)


async def _let_days_pass(concert: Coordinator) -> None:
    client: Any = raw(concert)
    for keys in concert._jobs.partitions:
        for group in await client.zrange(keys.settled, 0, -1):
            await client.zadd(keys.settled, {group: 1})
    await Sweeper(concert._ref.session, concert._jobs).sweep()
