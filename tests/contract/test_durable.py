"""Durable steps: each runs once for its job, and later attempts get what was kept."""

import asyncio
import time
import uuid as uuids
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio.from_thread
import pytest

from inconcert import (
    Coordinator,
    InvalidName,
    InvalidPayload,
    JobFailed,
    JobStatus,
    NotClaimed,
    Retry,
    StepChanged,
    StepRefused,
    WrongState,
    current_job,
    durable,
)
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.conversion import Converter
from inconcert.tasks.durable.kept_step import StepCall, to_keep
from inconcert.tasks.running.claimed_job import state_of
from inconcert.testing import drain
from tests.support.background import in_background
from tests.support.durable import kept, pile_up_steps, wake
from tests.support.eventually import eventually
from tests.support.jobs import make_due, status
from tests.support.raw import raw
from tests.support.world import world

NOW = Retry(after=0)  # another attempt, at once
WITHIN = 20.0  # seconds
LARGEST = 2**20 - 2  # characters of a text that has 1 MiB as JSON


@dataclass(frozen=True)
class Payment:
    """A result with a type of its own."""

    id: str
    at: datetime


async def run(concert: Coordinator, function: Callable[..., Any], *args: Any, attempts: int = 2) -> Any:
    """Run it as a job of so many attempts, and return its result."""
    task = concert.task(name=f"run {function.__name__}", max_attempts=attempts)(function)
    async with in_background(concert.run_worker("default")):
        job = await task.enqueue(*args)
        return await job.result(timeout=WITHIN)


async def test_step_that_was_kept_does_not_run_again(any_concert: Coordinator) -> None:
    """Later attempts get its result, as the type that its function returns; it goes when the job ends."""
    ran: list[str] = []

    async def charge(order: int) -> Payment:
        ran.append("charge")
        return Payment(f"p{order}", datetime(2026, 11, 23, tzinfo=UTC))

    def ship(payment: Payment) -> str:
        ran.append("ship")
        return f"shipped {payment.id}"

    async def fulfil(order: int) -> list[str]:
        payment = await durable.step("charge", charge, order)
        assert payment == Payment(f"p{order}", datetime(2026, 11, 23, tzinfo=UTC))
        shipped = await durable.step("ship", ship, payment)
        if current_job().attempt < 3:
            raise NOW
        return [shipped, *ran]

    assert await run(any_concert, fulfil, 7, attempts=3) == ["shipped p7", "charge", "ship"]
    assert await kept(any_concert) == {}


@dataclass
class _Plus:
    """Equal to others of its kind, and so without a hash."""

    amount: int

    def __call__(self, number: int) -> int:
        return number + self.amount


@pytest.mark.parametrize(
    "function", [partial(int.__add__, 2), _Plus(2), (2).__add__], ids=["partial", "unhashable", "builtin"]
)
async def test_whatever_can_be_called_may_be_a_step(any_concert: Coordinator, function: Callable[[int], int]) -> None:
    """Also what can neither be hashed nor referred to weakly."""

    async def add() -> int:
        return await durable.step("add", function, 1)

    assert await run(any_concert, add) == 3


async def test_step_that_raises_keeps_nothing(any_concert: Coordinator) -> None:
    """It runs again in the next attempt, or in this one if the body catches the error."""
    tries: list[int] = []

    async def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError
        return len(tries)

    async def body() -> int:
        try:
            return await durable.step("flaky", flaky)
        except ConnectionError:
            if current_job().attempt == 1:
                raise NOW from None
        return await durable.step("flaky", flaky)

    assert await run(any_concert, body) == 3


async def test_steps_may_run_at_once_and_in_threads(any_concert: Coordinator) -> None:
    """Names tell them apart, in whatever order they end; a plain task takes steps, too."""
    ran: list[int] = []

    def slow(number: int) -> int:
        ran.append(number)
        return number * number

    def body() -> list[int]:
        async def all_at_once() -> list[int]:
            return await asyncio.gather(*(durable.step(f"step {number}", slow, number) for number in range(20)))

        found: list[int] = anyio.from_thread.run(all_at_once)
        if current_job().attempt == 1:
            raise NOW
        return found

    assert await run(any_concert, body) == [number * number for number in range(20)]
    assert sorted(ran) == list(range(20))


async def test_step_on_another_event_loop_is_refused(any_concert: Coordinator) -> None:
    """A plain task has none of its own; waiting on a new one would never end."""

    def plainly() -> int:
        return int(asyncio.run(durable.step("one", number)))

    async def then() -> None:
        await durable.step("one", number)
        with pytest.raises(RuntimeError, match=r"runs on another event loop; .* `anyio.from_thread.run\("):
            await asyncio.to_thread(asyncio.run, durable.step("two", number))

    with pytest.raises(JobFailed, match="runs on another event loop"):
        await run(any_concert, plainly, attempts=1)
    await run(any_concert, then)


async def test_last_attempt_drops_steps_that_it_did_not_ask_for(any_concert: Coordinator) -> None:
    """It ends before it comes to them."""

    async def body() -> None:
        if current_job().attempt == 1:
            await durable.step("one", number)
            raise NOW
        assert len(await kept(any_concert)) == 1

    await run(any_concert, body)
    assert await kept(any_concert) == {}


async def test_replayed_job_goes_on_where_it_failed(any_concert: Coordinator) -> None:
    """The dead letter keeps the steps; purging it drops them."""
    ran: list[str] = []
    is_fixed = False

    async def first() -> str:
        ran.append("first")
        return "kept"

    @any_concert.task(name="fails", max_attempts=1)
    async def fails() -> str:
        value = await durable.step("first", first)
        if not is_fixed:
            raise ValueError
        return value

    async with in_background(any_concert.run_worker("default")):
        job, purged = [await fails.enqueue() for _ in range(2)]
        for each in (job, purged):
            with pytest.raises(JobFailed):
                await each.result(timeout=WITHIN)
        is_fixed = True
        await any_concert.tasks.replay(job.id)
        assert await job.result(timeout=WITHIN) == "kept"
    assert ran == ["first", "first"]
    assert [key.partition(b" ")[2].decode() for key in await kept(any_concert)] == [purged.id]
    await any_concert.tasks.purge(purged.id)
    assert await kept(any_concert) == {}


async def test_cancelled_job_drops_its_steps(any_concert: Coordinator) -> None:
    """Whether it runs or waits for another attempt."""

    async def nothing() -> None:
        pass

    reached = asyncio.Event()

    @any_concert.task(name="waits")
    async def waits(after: float | None) -> None:
        await durable.step("nothing", nothing)
        reached.set()
        if after is not None:
            raise Retry(after=after)
        await asyncio.Event().wait()

    async with in_background(any_concert.run_worker("default")):
        for after in (None, 3600):
            reached.clear()
            job = await waits.enqueue(after)
            await reached.wait()
            assert len(await kept(any_concert)) == 1
            assert await job.cancel(timeout=WITHIN)
            assert await kept(any_concert) == {}


async def test_purging_all_drops_all_steps(any_concert: Coordinator) -> None:
    """A thousand of each job."""
    keys = any_concert._jobs.partitions[0]

    @any_concert.task(name="fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError

    put = [await fails.enqueue() for _ in range(3)]
    async with in_background(any_concert.run_worker("default")):
        for job in put:
            with pytest.raises(JobFailed):
                await job.result(timeout=WITHIN)
    for job in put:
        if any_concert._jobs.of_id(job.id) is keys:
            await pile_up_steps(any_concert, job.id, range(1, 1001))
    assert await any_concert.tasks.purge_all() == 3
    assert await kept(any_concert) == {}


# Recorded values.


async def test_recorded_values_are_the_same_in_all_attempts(any_concert: Coordinator) -> None:
    """An instant, a UUID, a number, and the idempotency key."""
    seen: list[Any] = []

    async def body() -> None:
        values = await durable.now(), await durable.uuid(), await durable.random(), await durable.random("other")
        seen.append((*values, durable.key("charge")))
        if current_job().attempt < 2:
            raise NOW

    await run(any_concert, body)
    assert seen[0] == seen[1]
    now, uuid, number, other, key = seen[0]
    assert isinstance(now, float)
    assert isinstance(uuid, uuids.UUID)
    assert uuid.version == 4
    assert 0 <= number < 1
    assert number != other
    assert key.endswith(":charge")


# Changed code.


async def test_changed_step_sets_the_job_aside(any_concert: Coordinator) -> None:
    """Another function, other arguments, another type; on_change="keep" takes what was kept."""

    async def old(number: int) -> int:
        return number

    async def new(number: int) -> int:
        return -number

    async def text(number: int) -> str:
        return str(number)

    text.__qualname__ = old.__qualname__

    async def body(change: str) -> int | str:
        if current_job().attempt == 1:
            await durable.step("s", old, 1)
            raise NOW
        match change:
            case "function":
                return await durable.step("s", new, 1)
            case "arguments":
                return await durable.step("s", old, 2)
            case "type":
                return await durable.step("s", text, 1)
            case _:
                return await durable.step("s", new, 2, on_change="keep")

    task = any_concert.task(name="changes", max_attempts=9)(body)
    async with in_background(any_concert.run_worker("default")):
        assert await (await task.enqueue("nothing")).result(timeout=WITHIN) == 1
        for change, says in (
            ("function", r"'s' of job .* ran .*old\(\), and now runs .*new\(\)"),
            ("arguments", "with others"),
            ("type", "another type"),
        ):
            job = await task.enqueue(change)
            with pytest.raises(JobFailed, match=f"StepChanged.*{says}") as failed:
                await job.result(timeout=WITHIN)
            assert failed.value.attempts == 2


@pytest.mark.parametrize("change", [{"of": 2}, {"of": 1, "more": 1}, {"more": 1}, {}])
async def test_changed_keyword_argument_sets_the_job_aside(any_concert: Coordinator, change: dict[str, int]) -> None:
    """As a changed position does; their order does not count."""

    async def use(**named: int) -> int:
        return len(named)

    @any_concert.task(max_attempts=9)
    async def body() -> None:
        is_first = current_job().attempt == 1
        await durable.step("same", use, **({"a": 1, "b": 2} if is_first else {"b": 2, "a": 1}))
        await durable.step("changed", use, **({"of": 1} if is_first else change))
        if is_first:
            raise NOW

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        with pytest.raises(JobFailed, match=r"StepChanged: step 'changed'.*with others") as failed:
            await job.result(timeout=WITHIN)
    assert failed.value.attempts == 2


async def test_arguments_without_json_are_not_compared(any_concert: Coordinator) -> None:
    """A connection is another object each time."""

    async def use(connection: object, number: int) -> int:
        return number

    async def body() -> int:
        found = await durable.step("use", use, object(), number=1)
        if current_job().attempt == 1:
            raise NOW
        return found

    assert await run(any_concert, body) == 1


# Bad input.


async def refusal(concert: Coordinator, body: Callable[[], Any], error: type[Exception], match: str) -> JobFailed:
    """Run a body that ends with this error, and return why its job was dead-lettered."""
    caught: list[Exception] = []

    async def catch() -> None:
        try:
            await body()
        except error as found:
            caught.append(found)
            raise

    with pytest.raises(JobFailed, match=match) as failed:
        await run(concert, catch, attempts=9)
    assert len(caught) == 1
    return failed.value


async def number(value: object = 1) -> Any:
    """Whatever it is given."""
    return value


async def test_name_is_used_once_in_an_attempt(any_concert: Coordinator) -> None:
    """A loop that gives each turn the same name would get the first result each time."""

    async def body() -> None:
        await durable.step("one", number)
        await durable.step("one", number)

    why = await refusal(any_concert, body, StepRefused, "'one' of job .* used before in this attempt")
    assert why.attempts == 1
    assert len(await kept(any_concert)) == 1


async def test_job_has_a_thousand_steps_at_most(any_concert: Coordinator) -> None:
    """The next is refused before it runs, and all others are kept."""
    ran: list[int] = []

    async def body() -> None:
        for step in range(1001):
            await durable.step(f"{step}", partial(number, step))
            ran.append(step)

    says = r"step '1000' of job \S+ was refused: the job has 1000 steps already; do more in each, or enqueue other jobs"
    await refusal(any_concert, body, StepRefused, says)
    assert len(ran) == len(await kept(any_concert)) == 1000


async def test_steps_have_16_mib_at_most(any_concert: Coordinator) -> None:
    """Read in portions of 1 MiB by the next attempt."""
    ran: list[int] = []

    async def large(step: int) -> str:
        ran.append(step)
        return "x" * 1_000_000

    async def body() -> None:
        for step in range(17):
            assert len(await durable.step(f"{step}", large, step)) == 1_000_000
            if current_job().attempt == 1 and step == 8:
                raise NOW

    with pytest.raises(JobFailed, match=r"StepRefused.*more than 16777216 bytes"):
        await run(any_concert, body, attempts=9)
    assert ran == list(range(17))
    assert len(await kept(any_concert)) == 16


async def test_steps_fill_16_mib_to_the_last_byte(any_concert: Coordinator) -> None:
    """Also if they end at once; the next attempt reads all of them, and what undoes has room of its own."""
    sizes = [LARGEST] * 15
    undone: list[int] = []

    async def text(size: int) -> str:
        return "x" * size

    async def body() -> None:
        async with durable.undo() as undo:
            undo.later("undo", lambda: undone.append(1))
            results = await asyncio.gather(*(durable.step(f"{n}", text, size) for n, size in enumerate(sizes)))
            if len(sizes) == 15:
                steps = state_of(current_job()).steps
                empty = to_keep("15", StepCall(text.__qualname__, "0" * 16, Converter("", str)), b'""')
                sizes.append(16 * 2**20 - steps.journal._bytes - len(empty))
                raise NOW
            assert [len(result) for result in results] == sizes
            assert state_of(current_job()).steps.journal._bytes == 16 * 2**20
            if current_job().attempt == 2:
                raise NOW
            await durable.step("one more", number)

    with pytest.raises(JobFailed, match=r"StepRefused.*more than 16777216 bytes") as failed:
        await run(any_concert, body, attempts=9)
    assert failed.value.attempts == 3
    assert undone == [1]
    assert await kept(any_concert) == {}


def nested(levels: int) -> Any:
    """So many lists and dictionaries in each other."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


async def test_deep_and_large_results_are_the_same_in_later_attempts(any_concert: Coordinator) -> None:
    """Up to 100 levels, and 1 MiB; also as others see them."""
    values = [nested(100), "x" * LARGEST, list(range(150_000))]

    async def body() -> None:
        for step, value in enumerate(values):
            assert await durable.step(f"{step}", number, value) == value
            assert await durable.step(f"typed {step}", partial(typed, value)) == value
        if current_job().attempt == 1:
            raise NOW
        steps = await any_concert.tasks.job(current_job().id).steps()
        assert [step.value for step in steps] == [value for value in values for _ in range(2)]

    async def typed(value: Any) -> dict[str, Any] | str | list[Any]:
        typed: dict[str, Any] | str | list[Any] = value
        return typed

    await run(any_concert, body)


async def test_arguments_of_any_depth_may_be_given_to_a_step(any_concert: Coordinator) -> None:
    """They are not kept; what JSON cannot hold is not compared."""
    endless: list[Any] = []
    endless.append(endless)
    values = [nested(500), nested(100_000), endless]

    async def body() -> None:
        for step, value in enumerate(values):
            assert await durable.step(f"{step}", size, value) == 1
        if current_job().attempt == 1:
            raise NOW

    async def size(value: Any) -> int:
        return len(value)

    await run(any_concert, body)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "object"),
        ({1: 2}, "key"),
        (float("nan"), "nan"),
        ("x" * 2**20, "1048576"),
        (b"x", "bytes"),
        (nested(500), "more than 100 levels"),
    ],
)
async def test_result_that_is_not_json_sets_the_job_aside(any_concert: Coordinator, value: object, says: str) -> None:
    """Another attempt would repeat what the step has done."""

    async def body() -> None:
        await durable.step("one", partial(number, value))

    why = await refusal(any_concert, body, InvalidPayload, "the result of step 'one' of job")
    assert says in why.reason
    assert await kept(any_concert) == {}


async def test_result_must_have_the_annotated_type(any_concert: Coordinator) -> None:
    """So that later attempts can read it."""

    async def lies() -> int:
        return await number("one")  # type: ignore[no-any-return]

    async def body() -> None:
        await durable.step("one", lies)

    await refusal(any_concert, body, InvalidPayload, "does not fit int")


@pytest.mark.parametrize("name", ["", "x" * 513, "\ud800", 7])
async def test_bad_name_is_refused(any_concert: Coordinator, name: Any) -> None:
    """Before anything runs."""
    ran: list[str] = []

    async def body() -> None:
        for verb in (durable.now, durable.uuid, durable.random):
            with pytest.raises(InvalidName):
                await verb(name)
        with pytest.raises(InvalidName):
            await durable.step(name, ran.append, "ran")
        with pytest.raises(InvalidName):
            durable.key(name)
        await durable.step("x" * 512, number)

    await run(any_concert, body)
    assert ran == []


async def test_steps_are_for_jobs() -> None:
    """Elsewhere they say so, before anything runs."""
    ran: list[int] = []
    with pytest.raises(RuntimeError, match="no job runs here"):
        await durable.step("one", ran.append, 1)
    for verb in (durable.now, durable.uuid, durable.random):
        with pytest.raises(RuntimeError, match="no job runs here"):
            await verb()
    with pytest.raises(RuntimeError, match="no job runs here"):
        durable.key("one")
    assert ran == []


async def test_steps_are_for_jobs_that_may_run_again(any_concert: Coordinator) -> None:
    """Not for those that are delivered at most once; nor after the job has ended; and options are checked."""
    ran: list[int] = []
    await any_concert.enqueue("t")
    await any_concert.enqueue("t")
    async with any_concert.consume("default", delivery="at_most_once") as jobs, await anext(jobs):
        with pytest.raises(RuntimeError, match="at most once"):
            await durable.step("one", ran.append, 1)
    async with any_concert.consume("default") as jobs, await anext(jobs) as job:
        with pytest.raises(ValueError, match="on_change is 'drop'"):
            await durable.step("one", ran.append, 1, on_change="drop")  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
        await job.ack()
        with pytest.raises(NotClaimed):
            await durable.step("one", ran.append, 1)
    assert ran == []


def test_changed_and_refused_say_what_they_are_about() -> None:
    """As attributes, which survive pickling; see `tests/unit/test_errors.py`."""
    changed = StepChanged("1.1", "pay", "ran a()", "runs b()")
    assert (changed.job_id, changed.step, changed.was, changed.now) == ("1.1", "pay", "ran a()", "runs b()")
    refused = StepRefused("1.1", "pay", "because")
    assert (refused.job_id, refused.step) == ("1.1", "pay")


async def test_job_without_steps_asks_for_none(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command and no key."""
    loaded: list[str] = []
    pack = Command.pack

    def note(command: Command) -> bytes:
        loaded.append(command.script.name)
        return pack(command)

    monkeypatch.setattr(Command, "pack", note)

    async def body() -> int:
        return 1

    assert await run(any_concert, body) == 1
    assert "claims/ack" in loaded
    assert not {"tasks/read_steps", "tasks/commit_step"} & set(loaded)


# Sleeping.


async def test_long_sleep_leaves_its_place(any_concert: Coordinator) -> None:
    """The job is delayed, and comes back as the same attempt; its `finally` blocks run, and its steps do not."""
    ran: list[str] = []
    left: list[int] = []

    async def note(text: str) -> None:
        ran.append(text)

    @any_concert.task(name="sleeps", max_attempts=1)
    async def sleeps() -> int:
        try:
            await durable.step("before", note, "before")
            await durable.sleep("a week", timedelta(days=7))
            await durable.step("after", note, "after")
            await durable.sleep("another", 3600, in_memory_below=4000)
        except Exception:
            ran.append("caught")
            raise
        finally:
            left.append(current_job().attempt)
        return current_job().attempt

    [keys] = any_concert._jobs.partitions if len(any_concert._jobs.partitions) == 1 else [None]
    async with in_background(any_concert.run_worker("default", concurrency=1)):
        job = await sleeps.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        client: Any = raw(any_concert)
        if keys is not None:
            [(_, due_ms)] = await client.zrange(keys.queue("default").delayed, 0, -1, withscores=True)
            now_s, now_us = await client.time()
            assert 604_790 < due_ms / 1000 - now_s - now_us / 1e6 <= 604_801
        await make_due(any_concert, "default")  # too early: it goes on sleeping
        await eventually(lambda: len(left) == 2)
        await status(any_concert, job, JobStatus.DELAYED)
        assert ran == ["before"]
        await wake(any_concert, job, "a week")
        await make_due(any_concert, "default")
        await eventually(lambda: ran == ["before", "after"])
        await status(any_concert, job, JobStatus.RUNNING)  # the second one is short enough to wait for here
        await wake(any_concert, job, "another")
        assert await job.cancel(timeout=WITHIN)
    assert left == [1, 1, 1]


async def _in_body(concert: Coordinator) -> AsyncGenerator[None]:
    async with concert.lock("orders/7"):
        yield


async def _without_body(concert: Coordinator) -> AsyncGenerator[None]:
    lease = await concert.lock("orders/7").acquire()
    yield
    await lease.release()


async def _of_many(concert: Coordinator) -> AsyncGenerator[None]:
    async with concert.locks("orders/7", "orders/8"):
        yield


async def _reading(concert: Coordinator) -> AsyncGenerator[None]:
    async with concert.rwlock("orders/7").read():
        yield


async def _leading(concert: Coordinator) -> AsyncGenerator[None]:
    async with concert.election("orders/7"):
        yield


async def _taking_part(concert: Coordinator) -> AsyncGenerator[None]:
    async with concert.members("orders/7"):
        yield


HELD = [_in_body, _without_body, _of_many, _reading, _leading, _taking_part]


@pytest.mark.parametrize("hold", HELD, ids=[hold.__name__.strip("_") for hold in HELD])
@pytest.mark.parametrize("pause", ["sleep", "wait_for"])
async def test_body_that_holds_a_lease_cannot_leave(
    any_concert: Coordinator, hold: Callable[[Coordinator], AsyncGenerator[None]], pause: str
) -> None:
    """It is refused, with the name of what it holds; the same body may leave once that is released."""
    refused: list[WrongState] = []

    async def leave() -> None:
        if pause == "sleep":
            await durable.sleep("packed", timedelta(days=7))
        else:
            await durable.wait_for("packed", str, timeout=None)

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async with aclosing(hold(any_concert)) as held:
            async for _ in held:
                with pytest.raises(WrongState, match="orders/7") as error:
                    await asyncio.create_task(leave())  # a task of the body is part of it
                refused.append(error.value)
        await leave()

    async with in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        [error] = refused
        assert (error.operation, error.kind, error.name) == (pause, "job", job.id)
        assert await job.cancel(timeout=WITHIN)


async def test_lease_of_another_job_keeps_nobody_from_leaving(any_concert: Coordinator) -> None:
    """Nor one that was released, nor a short sleep inside of a lock."""

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async with any_concert.lock("mine"):
            await durable.sleep("short", 0.01)
        await durable.sleep("long", timedelta(days=7))

    async with any_concert.lock("of the worker"), in_background(any_concert.run_worker("default")):
        job = await body.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.cancel(timeout=WITHIN)


@pytest.mark.skipif(world().least_rights, reason="the user of the tests has no SCAN, which drain() sends")
async def test_lease_keeps_a_body_from_leaving_where_tests_end_its_sleeps(any_concert: Coordinator) -> None:
    """So that a test finds it."""

    @any_concert.task(max_attempts=1)
    async def body() -> None:
        async with any_concert.lock("orders/7"):
            await durable.sleep("long", timedelta(days=7))

    await body.enqueue()
    with pytest.raises(WrongState, match=r"holds lock 'orders/7'; release it before"):
        await drain(any_concert, delayed=True)


async def test_short_sleep_is_waited_for(any_concert: Coordinator) -> None:
    """Later attempts wait for the rest of it."""
    loop = asyncio.get_running_loop()
    slept: list[float] = []

    async def body() -> None:
        began_at = loop.time()
        await durable.sleep("short", 0.3)
        slept.append(loop.time() - began_at)
        if current_job().attempt == 1:
            raise NOW

    await run(any_concert, body)
    assert slept[0] >= 0.29
    assert slept[1] < 0.2


@pytest.mark.parametrize("is_plain", [False, True])
async def test_body_that_was_stopped_behind_a_step_gets_what_was_kept(any_concert: Coordinator, is_plain: bool) -> None:
    """A function that has run is kept, and its result is there for a body that catches the cancellation."""
    ran: list[str] = []

    async def pay() -> str:
        def charge_plainly() -> str:
            ran.append("charge")
            anyio.from_thread.run_sync(limit.reschedule, 0)
            return "paid"

        async def charge() -> str:
            ran.append("charge")
            limit.reschedule(0)  # it is stopped where it waits next: while its result is being kept
            return "paid"

        function: Callable[[], Any] = charge_plainly if is_plain else charge
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                await durable.step("charge", function)
        return str(await durable.step("charge", function))

    assert await run(any_concert, pay, attempts=1) == "paid"
    assert ran == ["charge"]


async def test_sleep_that_is_cut_short_goes_on(any_concert: Coordinator) -> None:
    """A body may do something else in between; it sleeps for the rest."""

    async def naps() -> float:
        began_at = time.monotonic()
        with anyio.move_on_after(0.05):
            await durable.sleep("nap", 0.5)
        await durable.sleep("nap", 3600)
        return time.monotonic() - began_at

    assert 0.4 < await run(any_concert, naps, attempts=1) < WITHIN


async def test_sleeping_in_a_task_group_or_a_thread_leaves_too(any_concert: Coordinator) -> None:
    """The job comes back once the sleep has ended, here after a moment."""

    async def in_group() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(durable.sleep("one", 0.05, in_memory_below=0))
            group.create_task(durable.sleep("two", 0.1, in_memory_below=0))
        return "woke"

    def in_thread() -> str:
        anyio.from_thread.run(partial(durable.sleep, "one", 0.05, in_memory_below=0))
        return "woke"

    assert await run(any_concert, in_group, attempts=1) == "woke"
    assert await run(any_concert, in_thread, attempts=1) == "woke"


async def suppressing(sleep: Awaitable[None]) -> None:
    """Catch whatever it raises."""
    with suppress(BaseException):
        await sleep


async def gathering(sleep: Awaitable[None]) -> None:
    """Take what it raises for a result."""
    await asyncio.gather(sleep, return_exceptions=True)


@pytest.mark.parametrize("catching", [suppressing, gathering])
async def test_body_that_catches_a_sleep_goes_no_further(
    any_concert: Coordinator, catching: Callable[[Awaitable[None]], Awaitable[None]]
) -> None:
    """No step begins before the sleep is over, and at the end of the body the job leaves nevertheless."""
    moments: list[float] = []

    async def note() -> None:
        moments.append(time.monotonic())

    async def body() -> None:
        await durable.step("before", note)
        await catching(durable.sleep("one", 0.2, in_memory_below=0))
        await durable.step("behind", note)
        await catching(durable.sleep("two", 0.2, in_memory_below=0))
        await note()

    await run(any_concert, body, attempts=1)
    before, behind, *ends = moments
    assert behind - before > 0.19
    assert len(ends) == 2  # it came to its end twice
    assert ends[1] - behind > 0.19


async def test_error_beside_a_sleep_is_a_failure(any_concert: Coordinator) -> None:
    """Also in a group that has both."""

    async def body() -> None:
        async def fail() -> None:
            raise ValueError("no")

        try:
            await durable.sleep("long", 3600)
        finally:
            await fail()

    with pytest.raises(JobFailed, match="ValueError: no"):
        await run(any_concert, body, attempts=1)


async def test_sleeping_job_may_be_cancelled(any_concert: Coordinator) -> None:
    """Its steps go with it."""

    @any_concert.task(name="sleeps")
    async def sleeps() -> None:
        await durable.sleep("long", 3600)

    async with in_background(any_concert.run_worker("default")):
        job = await sleeps.enqueue()
        await status(any_concert, job, JobStatus.DELAYED)
        assert await job.cancel(timeout=WITHIN)
        assert await job.status() is JobStatus.CANCELLED
    assert await kept(any_concert) == {}


async def test_sleep_beyond_the_expiry_sets_the_job_aside(any_concert: Coordinator) -> None:
    """When it expires, not when it would wake; a replay sleeps for the rest."""

    @any_concert.task(name="sleeps", expires=0.7)
    async def sleeps() -> str:
        await durable.sleep("long", 1.0, in_memory_below=0)
        return "woke"

    async with in_background(any_concert.run_worker("default")):
        job = await sleeps.enqueue()
        with pytest.raises(JobFailed, match="JobExpired"):
            await job.result(timeout=WITHIN)
        assert len(await kept(any_concert)) == 1
        await any_concert.tasks.replay(job.id)
        assert await job.result(timeout=WITHIN) == "woke"


async def test_bad_sleep_is_refused(any_concert: Coordinator) -> None:
    """Before anything is kept; and where no job runs."""

    async def body() -> None:
        for bad in (-1, float("nan"), 1e12, "1", None):
            with pytest.raises(ValueError, match="seconds"):
                await durable.sleep("s", bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            with pytest.raises(ValueError, match="in_memory_below"):
                await durable.sleep("s", 1, in_memory_below=bad)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidName):
            await durable.sleep("", 1)
        assert await kept(any_concert) == {}

    await run(any_concert, body)
    with pytest.raises(RuntimeError, match="no job runs here"):
        await durable.sleep("s", 1)
