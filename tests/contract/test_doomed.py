"""What must dead-letter a durable job does so, whatever its body makes of the error."""

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobStatus,
    Retry,
    StepChanged,
    StepRefused,
    UnreadablePayload,
    current_job,
    durable,
)
from tests.support.background import in_background
from tests.support.durable import forge_step, kept
from tests.support.jobs import status
from tests.support.streams import followed_until
from tests.support.undo import Shop, is_clean, marks

NOW = Retry(after=0)  # another attempt, at once
WITHIN = 10.0  # seconds

Doom = Callable[[], Coroutine[Any, Any, object]]


@pytest.fixture
def shop() -> Shop:
    """A new one."""
    return Shop()


async def value(of: object = 1) -> Any:
    """Whatever it is given."""
    return of


# What dooms an attempt.


async def changed() -> object:
    """The argument of a step is another one in each attempt."""
    return await durable.step("charge", value, current_job().attempt)


async def used_twice() -> object:
    """A name is given to two steps."""
    await durable.step("again", value)
    return await durable.step("again", value)


async def unkept() -> object:
    """JSON cannot hold the result."""
    return await durable.step("unkept", value, object())


async def moved_items() -> None:
    """The item that was done last is gone."""
    first = current_job().attempt == 1
    async for item in durable.each("items", [1, 2, 3] if first else [3], key=lambda item: item):
        if first and item == 2:
            raise NOW


async def bad_key() -> None:
    """JSON cannot hold the key of an item."""
    async for _ in durable.each("keys", [1], key=lambda _: object()):
        pass


async def misread() -> object:
    """A message has another type."""
    return await durable.wait_for("packed", int, timeout=60)


async def forged() -> object:
    """What was kept cannot be read."""
    return await durable.step("charge", value, 1)


DOOMS: list[tuple[Doom, type[Exception]]] = [
    (changed, StepChanged),
    (used_twice, StepRefused),
    (unkept, InvalidPayload),
    (moved_items, StepChanged),
    (bad_key, InvalidPayload),
    (misread, UnreadablePayload),
    (forged, UnreadablePayload),
]


# What bodies make of it.


async def handling(doom: Doom, apology: Doom) -> None:
    """Take it for a failure of the step."""
    try:
        await doom()
    except Exception:  # noqa: BLE001 - as users do
        await apology()


async def suppressing(doom: Doom, apology: Doom) -> None:
    """Go on, and return."""
    with suppress(Exception):
        await doom()
    with suppress(Exception):
        await apology()


async def trying_again(doom: Doom, apology: Doom) -> None:
    """Try other things in a loop."""
    for again in (doom, apology, doom, apology):
        with suppress(Exception):
            await again()
            break


async def gathering(doom: Doom, apology: Doom) -> None:
    """Take it for a result, also in a task of the body."""
    await asyncio.gather(doom(), return_exceptions=True)
    await asyncio.gather(apology(), return_exceptions=True)


async def grouping(doom: Doom, apology: Doom) -> None:
    """Handle it as one of the group, and raise something else."""
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(doom)
    except* Exception:  # noqa: BLE001 - as users do
        with suppress(Exception):
            await apology()
        raise ValueError("sorry") from None


async def ending(doom: Doom, apology: Doom) -> None:
    """End the job otherwise."""
    with suppress(Exception):
        await doom()
    for end in (current_job().ack, current_job().nack, current_job().give_back, apology):
        with suppress(Exception):
            await end()


async def waiting(doom: Doom, apology: Doom) -> None:
    """Leave the worker beside it, and sleep behind it."""
    with suppress(BaseException):
        async with anyio.create_task_group() as group:
            group.start_soon(doom)
            group.start_soon(durable.sleep, "beside", 3600)
    with suppress(BaseException):
        await durable.sleep("behind", 3600)
    with suppress(BaseException):
        await apology()


CATCHING = [handling, suppressing, trying_again, gathering, grouping, ending, waiting]


@pytest.mark.parametrize("catching", CATCHING)
@pytest.mark.parametrize(("doom", "error"), DOOMS)
async def test_body_that_catches_a_doom_begins_nothing_more_and_is_dead_lettered(
    concert: Coordinator,
    doom: Doom,
    error: type[Exception],
    catching: Callable[[Doom, Doom], Awaitable[None]],
) -> None:
    """With the error that has doomed it, at once, although there are attempts left."""
    did: list[str] = []

    async def say_sorry() -> None:
        did.append("sorry")

    async def apology() -> None:
        await durable.step("apology", say_sorry)

    @concert.task(max_attempts=9)
    async def order() -> str:
        if current_job().attempt == 1:
            await durable.step("charge", value, 1)
            if doom is moved_items:
                await doom()
            if doom is forged:
                await forge_step(concert, current_job().id, 1, "forged")
            raise NOW
        await catching(doom, apology)
        did.append("end")
        return "done"

    async with in_background(concert.run_worker("default")):
        job = await order.enqueue()
        await job.send("packed", "box")
        with pytest.raises(JobFailed, match=error.__name__) as failed:
            await job.result(timeout=WITHIN)
    assert failed.value.attempts == 2
    assert did in ([], ["end"])


async def test_loop_of_tries_does_not_stand_still_and_keeps_one_traceback(any_concert: Coordinator) -> None:
    """A time limit ends it, and the job is dead with the error that has doomed it."""
    depths: set[int] = set()

    @any_concert.task(max_attempts=9, time_limit=0.3)
    async def order() -> None:
        while True:
            try:
                await unkept()
            except InvalidPayload as error:
                depths.add(len(traceback.extract_tb(error.__traceback__)))

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match=r"InvalidPayload: the result of step 'unkept'") as failed:
            await (await order.enqueue()).result(timeout=WITHIN)
    assert failed.value.attempts == 1
    assert max(depths) < 20


async def test_generator_that_catches_a_doom_yields_nothing_more(any_concert: Coordinator) -> None:
    """What it had yielded before stays in the stream."""

    @any_concert.task(max_attempts=9)
    async def report() -> AsyncGenerator[int, None]:
        yield 1
        with suppress(Exception):
            await unkept()
        yield 2

    async with in_background(any_concert.run_worker("default")):
        items = await followed_until(JobFailed, await report.enqueue())
    assert [item.value for item in items] == [1]


async def test_doomed_job_that_is_cancelled_is_cancelled(any_concert: Coordinator) -> None:
    """Also if its body returns."""
    is_doomed = asyncio.Event()

    @any_concert.task(max_attempts=9)
    async def order() -> None:
        with suppress(Exception):
            await unkept()
        is_doomed.set()
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()

    async with in_background(any_concert.run_worker("default")):
        job = await order.enqueue()
        await is_doomed.wait()
        assert await job.cancel(timeout=WITHIN)
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)


async def test_doomed_job_whose_worker_stops_is_dead_lettered(any_concert: Coordinator) -> None:
    """Another attempt would end likewise."""
    is_doomed = asyncio.Event()

    @any_concert.task(max_attempts=9)
    async def order() -> None:
        with suppress(Exception):
            await unkept()
        is_doomed.set()
        await anyio.sleep_forever()

    async with in_background(any_concert.run_worker("default")):
        job = await order.enqueue()
        await is_doomed.wait()
    await status(any_concert, job, JobStatus.FAILED)
    assert "InvalidPayload" in (await any_concert.tasks.dead())[0].error


async def test_log_names_the_error_that_a_body_has_caught(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else would say why the job is dead."""

    @any_concert.task(max_attempts=9)
    async def order() -> None:
        with suppress(Exception):
            await unkept()

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed):
            await (await order.enqueue()).result(timeout=WITHIN)
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "although its body went on: the result of step 'unkept'" in record.getMessage()


# What was begun is undone first.


async def test_changed_step_is_undone_before_its_job_is_dead_lettered(any_concert: Coordinator, shop: Shop) -> None:
    """With what was kept, which the code of today did not pay."""
    price = ["tea"]

    @any_concert.task(max_attempts=9)
    async def buy() -> None:
        async with durable.undo() as undo:
            payment = await durable.step("charge", shop.charge, price[0])
            undo.later("refund", shop.refund, payment)
            if current_job().attempt == 1:
                price[0] = "cup"
                raise NOW

    async with in_background(any_concert.run_worker("default")):
        with pytest.raises(JobFailed, match=r"StepChanged.*with others"):
            await (await buy.enqueue()).result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea"]
    assert await is_clean(any_concert)


async def test_job_whose_step_cannot_be_read_keeps_everything(any_concert: Coordinator, shop: Shop) -> None:
    """Nothing is undone out of order; a replay with a release that can read it goes on undoing."""
    reads_text = [True]

    async def number(what: str) -> int:
        raise NotImplementedError(what)

    number.__qualname__ = Shop.charge.__qualname__

    @any_concert.task(max_attempts=9)
    async def buy() -> None:
        async with durable.undo() as undo:
            undo.later("stock", shop.refund, "stock")
            charge: Any = shop.charge if reads_text[0] else number
            payment = await durable.step("charge", charge, "tea")
            undo.later("refund", shop.refund, str(payment))
            if current_job().attempt == 1:
                reads_text[0] = False
                raise NOW

    async with in_background(any_concert.run_worker("default")):
        job = await buy.enqueue()
        with pytest.raises(JobFailed, match=r"StepChanged.*another type"):
            await job.result(timeout=WITHIN)
        assert shop.did == ["charge tea"]
        assert await kept(any_concert)
        assert await marks(any_concert)
        reads_text[0] = True
        assert await any_concert.tasks.replay(job.id) == []
        with pytest.raises(JobFailed, match=r"StepChanged.*another type"):
            await job.result(timeout=WITHIN)
    assert shop.did == ["charge tea", "refund p-tea", "refund stock"]
    assert await is_clean(any_concert)
