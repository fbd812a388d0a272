"""Loops over many items: later attempts go on after the last item that is known to be done."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from inconcert import Coordinator, InvalidName, JobFailed, JobStatus, NotClaimed, Retry, current_job, durable
from inconcert.tasks.durable import loop
from tests.support.background import in_background
from tests.support.durable import kept
from tests.support.eventually import eventually
from tests.support.jobs import status

NOW = Retry(after=0)  # another attempt, at once
WITHIN = 5.0  # seconds


def itself(item: Any) -> Any:
    """The key of an item that is its own."""
    return item


async def count(to: int) -> AsyncGenerator[int, None]:
    """So many numbers, as from a database."""
    for number in range(to):
        yield number


async def run(concert: Coordinator, function: Callable[..., Any], attempts: int = 2) -> Any:
    """Run it as a job of so many attempts, and return its result."""
    task = concert.task(name=f"run {function.__name__}", max_attempts=attempts)(function)
    async with in_background(concert.run_worker("default")):
        job = await task.enqueue()
        return await job.result(timeout=WITHIN)


@pytest.mark.parametrize("items", [lambda: range(9), lambda: count(9), lambda: iter(range(9))])
async def test_attempt_that_fails_is_gone_on_with(any_concert: Coordinator, items: Callable[[], Any]) -> None:
    """From the item that failed; a loop that came to its end is passed over; the position goes with the job."""
    done: list[int] = []
    begun: list[int] = []

    async def body() -> None:
        async for item in durable.each("first", items(), key=itself):
            begun.append(item)
            if item == 4 and current_job().attempt == 1:
                raise NOW
            done.append(item)
        async for item in durable.each("second", items(), key=lambda item: {"id": item}):
            if item == 6 and current_job().attempt == 2:
                raise NOW
            done.append(item)

    await run(any_concert, body, attempts=3)
    assert done == [*range(9), *range(9)]
    assert begun == [0, 1, 2, 3, 4, *range(4, 9)]
    assert await kept(any_concert) == {}


async def test_loop_that_was_left_before_its_end_goes_on_in_a_later_attempt(any_concert: Coordinator) -> None:
    """With the item in which it was left, because that is not known to be done."""
    begun: list[int] = []

    async def body() -> list[int]:
        async for item in durable.each("all", range(5), key=itself):
            begun.append(item)
            if item == 2 and current_job().attempt == 1:
                break
        await durable.step("behind", int)
        if current_job().attempt == 1:
            raise NOW
        return begun

    assert await run(any_concert, body) == [0, 1, 2, 2, 3, 4]


async def test_position_is_kept_each_second(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """So much is done again after a crash; a step is taken once, however many positions are kept."""
    monkeypatch.setattr(loop, "_SAVE_EVERY", 0.0)

    @any_concert.task()
    async def body() -> None:
        async for item in durable.each("all", range(2000), key=itself):
            if item == 1500:
                await asyncio.sleep(60)

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()

        async def is_there() -> bool:
            steps = await job.steps()
            return bool(steps) and steps[0].value == [1500, "1499", False, 0]

        await eventually(is_there)
        [step] = await job.steps()
        assert (step.name, step.function) == ("all", "durable.each")
        assert await job.cancel(timeout=WITHIN)
    assert await kept(any_concert) == {}


async def test_position_is_kept_when_the_worker_stops(any_concert: Coordinator) -> None:
    """The next one goes on with the item that was under way."""
    begun: list[int] = []

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async for item in durable.each("all", range(5), key=itself):
            begun.append(item)
            if begun == [0, 1, 2, 3]:
                await asyncio.sleep(60)

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        await eventually(lambda: len(begun) == 4)
    async with in_background(any_concert.run_worker("default")):
        await job.result(timeout=WITHIN)
    assert begun == [0, 1, 2, 3, 3, 4]


async def test_position_is_kept_when_the_job_leaves_to_wait(any_concert: Coordinator) -> None:
    """In the midst of a loop."""
    begun: list[int] = []

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async for item in durable.each("all", range(3), key=itself):
            begun.append(item)
            await durable.wait_for(f"message {item}", int, timeout=60)

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        for number in range(3):
            await status(any_concert, job, JobStatus.DELAYED)
            assert await job.send(f"message {number}", number)
        await job.result(timeout=WITHIN)
    assert begun == [0, 0, 1, 1, 2, 2]


async def test_changed_items_go_on_after_the_one_that_was_done(any_concert: Coordinator) -> None:
    """What was put in behind it counts; if it is gone, the job is dead-lettered."""
    lists = iter([["a", "b", "c"], ["new", "a", "b", "x", "d"], ["a", "b"]])
    done: list[str] = []

    async def body() -> None:
        async for item in durable.each("all", next(lists), key=itself):
            if item in {"c", "d"}:
                raise NOW
            done.append(item)

    with pytest.raises(JobFailed, match=r'StepChanged.* the item with key "x".* no item with this key') as failed:
        await run(any_concert, body, attempts=9)
    assert failed.value.attempts == 3
    assert done == ["a", "b", "x"]


async def test_loop_that_was_cut_short_begins_again(any_concert: Coordinator) -> None:
    """In the same attempt, with the item that was under way, as in the next one."""
    begun: list[int] = []

    async def body() -> None:
        for _ in range(4):
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    async for item in durable.each("all", range(4), key=itself):
                        begun.append(item)
                        if begun in ([0, 1], [0, 1, 1, 2]):
                            limit.reschedule(0)
                            await asyncio.sleep(60)
        raise AssertionError

    with pytest.raises(JobFailed, match=r"StepRefused: .*'all' of job .* used before in this attempt"):
        await run(any_concert, body, attempts=1)
    assert begun == [0, 1, 1, 2, 2, 3]


async def test_loop_whose_items_fail_is_not_at_its_end(any_concert: Coordinator) -> None:
    """A generator that has failed gives nothing more; the loop may begin again with another one."""
    done: list[int] = []

    async def failing(to: int) -> AsyncGenerator[int, None]:
        for number in range(to):
            yield number
        raise ConnectionError

    async def body() -> None:
        loop = durable.each("all", failing(3), key=itself)
        done.extend([await anext(loop) for _ in range(3)])
        with pytest.raises(ConnectionError):
            await anext(loop)
        with pytest.raises(RuntimeError, match=r"the items of 'all' in job .* ended behind an error"):
            await anext(loop)
        done.extend([item async for item in durable.each("all", count(5), key=itself)])

    await run(any_concert, body, attempts=1)
    assert done == [0, 1, 2, 3, 4]


async def test_loop_is_gone_through_by_one_task(any_concert: Coordinator) -> None:
    """While one does, its name is used."""

    async def body() -> None:
        async for _ in durable.each("all", range(3), key=itself):
            await anext(durable.each("all", range(3), key=itself))

    with pytest.raises(JobFailed, match=r"StepRefused: .* used before in this attempt"):
        await run(any_concert, body)


async def test_event_loop_runs_while_what_is_done_is_passed_over(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much that is."""
    monkeypatch.setattr(loop, "_LONGEST_TURN", 0.0)
    turns, seen = itertools.count(), list[int]()

    def items() -> Iterator[int]:
        for number in range(100):
            seen.append(next(turns))
            yield number

    async def run_on() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    async def body() -> None:
        async for item in durable.each("all", items(), key=itself):
            if item == 99 and current_job().attempt == 1:
                raise NOW

    async with in_background(run_on()):
        await run(any_concert, body)
    assert seen[99] - seen[0] == 99  # nothing waits
    assert seen[199] - seen[100] > 150


async def test_late_twin_keeps_no_position(concert: Coordinator) -> None:
    """A job that another worker has, or that has ended, is left at the next position that is to be kept."""
    await concert.enqueue("t")
    async with concert.consume("default") as jobs:
        async with await anext(jobs) as job:
            each = durable.each("all", [1], key=itself)
            assert await anext(each) == 1
            await job.give_back()
            with pytest.raises(NotClaimed):
                await anext(each)
        async with await anext(jobs):
            assert [item async for item in durable.each("all", [1], key=itself)] == [1]


def test_loops_are_for_jobs() -> None:
    """Elsewhere they say so at once."""
    with pytest.raises(RuntimeError, match="no job runs here"):
        durable.each("all", [1], key=itself)


async def test_bad_loop_is_refused(any_concert: Coordinator) -> None:
    """With a bad name, with keys that are not JSON, or of a step that was none; and its name is used once."""

    async def body(key: Callable[[Any], object] = lambda _: object()) -> None:
        with pytest.raises(InvalidName):
            durable.each("x" * 513, [1], key=itself)
        async for _ in durable.each("all", [1], key=key):
            raise AssertionError

    async def twice() -> None:
        for _ in range(2):
            async for _item in durable.each("all", [], key=itself):
                raise AssertionError

    async def then_a_loop() -> None:
        if current_job().attempt == 1:
            await durable.now("all")
            raise NOW
        await anext(durable.each("all", [1], key=itself))

    for function, says in (
        (body, "InvalidPayload: the key of an item of 'all' in job"),
        (twice, "StepRefused: .* used before in this attempt"),
        (then_a_loop, r"StepChanged: .* ran now\(\).* runs durable.each\(\)"),
    ):
        with pytest.raises(JobFailed, match=says):
            await run(any_concert, function, attempts=9)
