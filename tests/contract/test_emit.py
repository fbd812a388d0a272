"""Items that a body emits are its job's stream, although it is no async generator."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    InvalidPayload,
    JobFailed,
    NotClaimed,
    Restarted,
    Retry,
    StreamItem,
    current_job,
    durable,
)
from inconcert.tasks.running.stream_writer import append_items
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import lapse_all
from tests.support.streams import WITHIN, followed, followed_until

NOW = Retry(after=0)


async def test_items_come_while_the_job_runs(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each is there when the call returns; the result is beside them."""
    may_go_on = asyncio.Event()

    @any_concert.task(name="build")
    async def build() -> int:
        await current_job().emit("begun")
        await may_go_on.wait()
        await current_job().emit({"parts": 2})
        return 7

    job = await build.enqueue()
    async with in_background(any_concert.run_worker("default")), asyncio.timeout(WITHIN):
        items = elsewhere.tasks.job(job.id).stream()
        first = await anext(items)
        assert isinstance(first, StreamItem)
        may_go_on.set()
        rest = [item.value async for item in items if isinstance(item, StreamItem)]
        assert (first.value, rest, await job.result(timeout=WITHIN)) == ("begun", [{"parts": 2}], 7)


async def test_plain_function_emits_from_its_thread(any_concert: Coordinator) -> None:
    """The call returns when the item is there."""

    @any_concert.task(name="count")
    def count() -> None:
        for number in range(3):
            current_job().emit(number)

    async with in_background(any_concert.run_worker("default")):
        assert await followed(await count.enqueue()) == [0, 1, 2]


async def test_items_of_several_tasks_come_in_the_order_of_the_calls(any_concert: Coordinator) -> None:
    """They share scripts, also if they are more than one script takes."""

    @any_concert.task(name="many")
    async def many() -> None:
        async def emit(number: int) -> None:
            await current_job().emit(number)

        async with anyio.create_task_group() as group:
            for number in range(1200):
                group.start_soon(emit, number)

    async with in_background(any_concert.run_worker("default")):
        assert await followed(await many.enqueue()) == list(range(1200))


async def test_new_attempt_begins_the_stream_anew_with_its_first_item(any_concert: Coordinator) -> None:
    """What the one before had emitted does not count any more."""

    @any_concert.task(name="twice", max_attempts=2)
    async def twice() -> None:
        await current_job().emit(current_job().attempt)
        if current_job().attempt == 1:
            await anyio.sleep(0)
            raise NOW

    job = await twice.enqueue()
    async with in_background(any_concert.run_worker("default")):
        found = await followed(job)
        await job.result(timeout=WITHIN)
    assert found in ([1, Restarted(2), 2], [Restarted(2), 2], [2])
    assert await followed(job) == [2]


async def test_cancelled_call_leaves_no_gap(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its item keeps its number: it comes with the next one, once, whether or not it had arrived."""
    calls: list[int] = []

    async def cut(*args: Any) -> None:
        calls.append(args[1])
        if len(calls) == 2:  # before it is sent
            await anyio.sleep_forever()
        await append_items(*args)
        if len(calls) == 4:  # when it has arrived
            await anyio.sleep_forever()

    monkeypatch.setattr("inconcert.tasks.running.emitter.append_items", cut)

    @any_concert.task(name="cut")
    async def emitting() -> None:
        for number in range(6):
            with anyio.move_on_after(0.05 if number in (1, 3) else WITHIN):
                await current_job().emit(number)

    async with in_background(any_concert.run_worker("default")):
        assert await followed(await emitting.enqueue()) == [0, 1, 2, 3, 4, 5]
    assert calls == [1, 2, 2, 4, 4, 6]


async def test_what_json_cannot_hold_is_refused_and_the_body_goes_on(any_concert: Coordinator) -> None:
    """Nothing is added for it."""

    @any_concert.task(name="refused")
    async def refused() -> None:
        for item in ("one", object(), "x" * 2**20, "two"):
            try:
                await current_job().emit(item)
            except InvalidPayload:
                await current_job().emit("refused")

    async with in_background(any_concert.run_worker("default")):
        assert await followed(await refused.enqueue()) == ["one", "refused", "refused", "two"]


async def test_items_before_a_death_are_there(any_concert: Coordinator) -> None:
    """The end comes behind them."""

    @any_concert.task(name="dies", max_attempts=1)
    async def dies() -> None:
        await current_job().emit("last words")
        raise ValueError

    async with in_background(any_concert.run_worker("default")):
        found = await followed_until(JobFailed, await dies.enqueue())
    assert [item.value for item in found] == ["last words"]


async def test_late_twin_emits_nothing(concert: Coordinator, elsewhere: Coordinator) -> None:
    """The stream is that of the next claim."""
    job = await concert.enqueue("t")
    async with concert.consume("default") as stopped, elsewhere.consume("default") as jobs:
        late = await anext(stopped)
        await late.emit("early")
        await lapse_all(concert)
        again = await anext(jobs)
        await again.emit("again")
        with pytest.raises(NotClaimed):
            await late.emit("late")
        await again.ack()
        with pytest.raises(NotClaimed):
            await again.emit("after the end")
    assert [item.value for item in await job.items()] == ["again"]


async def test_cancelled_job_emits_until_it_is_stopped(any_concert: Coordinator) -> None:
    """What it had emitted stays in the stream."""
    running = asyncio.Event()

    @any_concert.task(name="stopped")
    async def stopped() -> None:
        await current_job().emit("begun")
        running.set()
        await anyio.sleep_forever()

    job = await stopped.enqueue()
    async with in_background(any_concert.run_worker("default")):
        await eventually(running.is_set)
        assert await job.cancel()
    assert [item.value for item in await job.items()] == ["begun"]


async def test_job_that_is_undone_emits_nothing_again(any_concert: Coordinator) -> None:
    """Its stream is that of the attempt that failed."""

    @any_concert.task(name="undone", max_attempts=1)
    async def undone() -> None:
        await current_job().emit("begun")
        async with durable.undo() as undo:
            undo.later("back", int, 1)
            raise ValueError

    job = await undone.enqueue()
    await any_concert.run_worker("default", burst=True)
    assert [(item.attempt, item.value) for item in await job.items()] == [(1, "begun")]


async def test_generator_yields_instead(any_concert: Coordinator) -> None:
    """Both would number its items."""

    @any_concert.task(name="both", max_attempts=1)
    async def both() -> AsyncIterator[str]:
        try:
            await current_job().emit("one")
        except RuntimeError as error:
            yield str(error)

    async with in_background(any_concert.run_worker("default")):
        [said] = await followed(await both.enqueue())
    assert "use yield" in said


async def test_job_that_is_delivered_at_most_once_has_no_stream(concert: Coordinator) -> None:
    """It has ended before its body began."""
    await concert.enqueue("t")
    async with concert.consume("default", delivery="at_most_once") as jobs:
        with pytest.raises(RuntimeError, match="at most once"):
            await (await anext(jobs)).emit("one")


async def test_items_are_signed(server: Any, namespace: str) -> None:
    """As those of generators are."""
    async with Coordinator(server.url, namespace=namespace, signing_keys={"now": "a secret of the service"}) as signing:

        @signing.task(name="signs")
        async def signs() -> None:
            await current_job().emit("signed")

        async with in_background(signing.run_worker("default")):
            assert await followed(await signs.enqueue()) == ["signed"]
