"""Streams: what an async generator yields is followed from anywhere while it runs, and ends with the job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    Gap,
    InvalidPayload,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStatus,
    NotConnected,
    Restarted,
    Retry,
    StreamItem,
    current_job,
    durable,
)
from inconcert.tasks.following import feed
from inconcert.tasks.following.feed import Feed, Page
from inconcert.tasks.running import stream_writer
from inconcert.testing.keys import client_of
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.streams import WITHIN, followed, followed_until

NOW = Retry(after=0)  # another attempt, at once
DAY = 86_400_000  # milliseconds


@dataclass(frozen=True)
class Token:
    """An item with a type of its own."""

    text: str
    at: datetime


async def ids(job: Job[Any]) -> list[str]:
    """The ids of the items that are kept."""
    return [item.id async for item in job.stream() if isinstance(item, StreamItem)]


async def keys_of(concert: Coordinator, job: Job[Any]) -> dict[str, int]:
    """How long the keys of a stream live, in ms; without those that are not there."""
    keys, client = concert._jobs.of_id(job.id), raw(concert)
    ttls = {key: await client.pttl(key) for key in (keys.stream(job.id), keys.items(job.id))}
    return {key: ttl for key, ttl in ttls.items() if ttl != -2}


async def test_items_come_while_the_job_runs(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Typed as it yields them; in another process, too; and afterwards, from any position."""
    go_on = asyncio.Event()

    @any_concert.task(name="write")
    async def write(*words: str) -> AsyncIterator[Token]:
        for word in words:
            yield Token(word, datetime(2026, 11, 23, tzinfo=UTC))
            await go_on.wait()

    async with in_background(any_concert.run_worker("default")):
        job = await write.enqueue("one", "two", "three")
        async with aclosing(job.stream()) as items, asyncio.timeout(WITHIN):
            first = await anext(items)
            assert isinstance(first, StreamItem)
            assert (first.attempt, first.value) == (1, Token("one", datetime(2026, 11, 23, tzinfo=UTC)))
            assert await job.status() is JobStatus.RUNNING
            go_on.set()
            assert [item.value.text async for item in items if isinstance(item, StreamItem)] == ["two", "three"]
        assert await job.result() is None
    other = elsewhere.tasks.job(job.id)
    assert [value["text"] for value in await followed(other)] == ["one", "two", "three"]
    assert [value.text for value in await followed(other, as_type=Token)] == ["one", "two", "three"]
    _, second, _ = await ids(other)
    assert [value["text"] for value in await followed(other, after=second)] == ["three"]
    assert await followed(other, after=(await ids(other))[-1]) == []


async def test_latest_items_are_listed(any_concert: Coordinator) -> None:
    """While it runs and afterwards, with the ids from which a stream goes on."""
    go_on = asyncio.Event()

    @any_concert.task(name="count")
    async def count(most: int) -> AsyncIterator[int]:
        for number in range(most):
            yield number
        await go_on.wait()

    async with in_background(any_concert.run_worker("default")):
        job = await count.enqueue(5)
        await eventually(partial(has_items, job, 5))
        fourth, fifth = await job.items(limit=2)
        go_on.set()
        await job.result()
    assert [(item.attempt, item.value) for item in (fourth, fifth)] == [(1, 3), (1, 4)]
    assert await followed(job, after=fourth.id) == [4]
    assert [item.id for item in await job.items()] == await ids(job)
    assert await any_concert.tasks.job("0123456789abcdef.1.0").items() == []
    with pytest.raises(ValueError, match="limit"):
        await job.items(limit=1001)


async def has_items(job: Job[Any], number: int) -> bool:
    """Whether it has yielded so many."""
    return len(await job.items()) == number


async def test_stream_of_a_job_that_yields_nothing_ends_with_it(any_concert: Coordinator) -> None:
    """Also that of a task that is no generator."""

    @any_concert.task(name="nothing")
    async def nothing() -> AsyncIterator[int]:
        for number in range(0):
            yield number

    @any_concert.task(name="plain")
    async def plain() -> int:
        return 7

    async with in_background(any_concert.run_worker("default")):
        assert await followed(await nothing.enqueue()) == []
        assert await followed(await plain.enqueue()) == []


async def test_end_of_the_job_is_told_behind_its_last_item(any_concert: Coordinator) -> None:
    """As `result()` tells it."""

    @any_concert.task(name="fails", max_attempts=1)
    async def fails() -> AsyncIterator[int]:
        yield 1
        raise ValueError("it broke")

    async with in_background(any_concert.run_worker("default")):
        job = await fails.enqueue()
        found = await followed_until(JobFailed, job)
        assert [item.value for item in found] == [1]
        with pytest.raises(JobFailed, match="it broke"):
            await followed(any_concert.tasks.job(job.id), after=found[0].id)
    with pytest.raises(JobNotFound):
        await followed(any_concert.tasks.job("0123456789abcdef.1.0"))


@pytest.mark.parametrize("after", ["", "1", "1-", "-1", "1-2-3", "a-1", "1-1 ", 7, "٣-1"])
async def test_position_that_cannot_be_is_refused_at_once(concert: Coordinator, after: Any) -> None:
    """Before anything is sent, and before the first `anext`."""
    job = concert.tasks.job("0123456789abcdef.1.0")
    with pytest.raises(ValueError, match="cannot be the id of an item"):
        job.stream(after=after)


async def test_new_attempt_begins_the_stream_anew(any_concert: Coordinator) -> None:
    """Its followers are told, at once; later ones get the latest attempt only."""
    go_on = asyncio.Event()

    @any_concert.task(name="write", max_attempts=3)
    async def write() -> AsyncIterator[str]:
        attempt = current_job().attempt
        if attempt == 2:
            await go_on.wait()
        yield f"first of {attempt}"
        if attempt < 3:
            await go_on.wait()
            raise NOW
        yield "last"

    async with in_background(any_concert.run_worker("default")), asyncio.timeout(WITHIN):
        job = await write.enqueue()
        async with aclosing(job.stream()) as items:
            first = await anext(items)
            assert isinstance(first, StreamItem)
            go_on.set()
            found = [first, *[item async for item in items]]
        restarts = [item for item in found if isinstance(item, Restarted)]
        assert Restarted(3) in restarts
        assert [item.attempt for item in restarts] == sorted(item.attempt for item in restarts)
        last = found.index(Restarted(3))
        assert [item.value for item in found[last + 1 :] if isinstance(item, StreamItem)] == ["first of 3", "last"]
        assert await followed(job) == ["first of 3", "last"]
        assert await followed(job, after=first.id) == [Restarted(3), "first of 3", "last"]


async def test_attempt_without_items_is_a_restart_too(any_concert: Coordinator) -> None:
    """What the one before had yielded is not there any more."""

    @any_concert.task(name="write", max_attempts=2)
    async def write() -> AsyncIterator[str]:
        if current_job().attempt == 1:
            yield "void"
            raise NOW

    async with in_background(any_concert.run_worker("default")):
        job = await write.enqueue()
        await job.result(timeout=WITHIN)
        assert await followed(job) == []


async def test_oldest_items_go_and_a_gap_says_how_many(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 items stay."""

    @any_concert.task(name="count")
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(1, to + 1):
            yield number

    async with in_background(any_concert.run_worker("default")):
        job = await count.enqueue(10_120)
        await job.result(timeout=WITHIN)
        found = await followed(job)
        assert found == [Gap(120), *range(121, 10_121)]
        run, _, _ = (await ids(job))[0].partition("-")
        assert (await followed(job, after=f"{run}-100"))[:2] == [Gap(20), 121]
        assert (await followed(job, after=f"{run}-120"))[0] == 121
        assert await followed(job, after=f"{run}-20000") == []


async def test_no_more_than_16_mib_are_kept(any_concert: Coordinator) -> None:
    """However few items that are."""

    @any_concert.task(name="large")
    async def large() -> AsyncIterator[str]:
        for letter in "abcdefghijklmnopqrstuvw":
            yield letter if letter == "a" else letter * 900_000

    async with in_background(any_concert.run_worker("default")):
        job = await large.enqueue()
        await job.result(timeout=WITHIN)
        gap, *kept = await followed(job)
    assert gap == Gap(5)
    assert [value[0] for value in kept] == list("fghijklmnopqrstuvw")


async def test_what_json_cannot_hold_dead_letters_the_job(any_concert: Coordinator) -> None:
    """Another attempt would yield it again; what came before is there, and `finally` has run."""
    ended: list[str] = []

    @any_concert.task(name="bad", max_attempts=5)
    async def bad(size: int) -> AsyncIterator[object]:
        try:
            yield "good"
            yield "x" * size if size else object()
            yield "not reached"
        finally:
            ended.append("finally")

    async with in_background(any_concert.run_worker("default")):
        for size in (0, 2**20):
            job = await bad.enqueue(size)
            with pytest.raises(JobFailed, match=r"item 2 of the stream of job .*"):
                await job.result(timeout=WITHIN)
            assert [item.value for item in await followed_until(JobFailed, job)] == ["good"]
    assert ended == ["finally"] * 2


async def test_item_that_is_not_of_the_type_is_refused(any_concert: Coordinator) -> None:
    """By whoever reads it as that type."""

    @any_concert.task(name="wrong")
    async def wrong() -> AsyncIterator[int]:
        yield "text"  # type: ignore[misc]

    async with in_background(any_concert.run_worker("default")):
        job = await wrong.enqueue()
        with pytest.raises(InvalidPayload, match=r"an item of the stream of job .* does not fit int"):
            await followed(job)
        assert await followed(any_concert.tasks.job(job.id)) == ["text"]


async def test_steps_run_once_inside_a_generator(any_concert: Coordinator) -> None:
    """And one that sleeps for long leaves its place, and begins its stream anew when it comes back."""
    ran: list[str] = []

    async def think(question: str) -> str:
        ran.append(question)
        return question.upper()

    @any_concert.task(name="agent")
    async def agent(question: str) -> AsyncIterator[str]:
        yield await durable.step("think", think, question)
        await durable.sleep("rest", 0.2, in_memory_below=0.0)
        yield "rested"

    async with in_background(any_concert.run_worker("default")):
        job = await agent.enqueue("why")
        found = await followed(job)
        assert found[-3:] == [Restarted(1), "WHY", "rested"]
    assert ran == ["why"]


@pytest.mark.parametrize("how", ["ack", "nack", "ack too early"])
async def test_generator_may_end_its_job_itself(
    any_concert: Coordinator, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has yielded by then is in the stream, and what it yields afterwards ends it."""
    closed: list[int] = []

    @any_concert.task(name="answer")
    async def answer() -> AsyncIterator[int]:
        for number in range(3):
            yield number
        if current_job().attempt == 1 and how == "nack":
            await current_job().nack(delay=0)
            return
        await current_job().ack()
        try:
            if how == "ack too early":
                yield 3
        finally:
            closed.append(3)

    async with in_background(any_concert.run_worker("default")):
        job = await answer.enqueue()
        found = await followed(job)
    assert found[-3:] == [0, 1, 2]
    assert [item.value for item in await job.items() if isinstance(item, StreamItem)] == [0, 1, 2]
    assert closed == [3]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == (how == "ack too early")


async def test_cancelled_generator_is_closed(any_concert: Coordinator) -> None:
    """Its `finally` runs, where it waits and where it yields; its followers get what it had yielded, and are told."""
    began, ended = asyncio.Event(), list[str]()

    @any_concert.task(name="endless")
    async def endless() -> AsyncIterator[int]:
        try:
            yield 1
            began.set()
            await anyio.sleep_forever()
        finally:
            ended.append("finally")

    async with in_background(any_concert.run_worker("default")):
        job = await endless.enqueue()
        items = job.stream()
        async with asyncio.timeout(WITHIN):
            assert isinstance(await anext(items), StreamItem)
            await began.wait()
            assert await job.cancel(timeout=WITHIN)
            with pytest.raises(JobCancelled):
                await anext(items)
    assert ended == ["finally"]


async def test_generator_that_takes_too_long_is_closed(any_concert: Coordinator) -> None:
    """Its time limit counts for the whole of it."""
    ended: list[str] = []

    @any_concert.task(name="slow", time_limit=0.05, max_attempts=1)
    async def slow() -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep_forever()
        finally:
            ended.append("finally")

    async with in_background(any_concert.run_worker("default")):
        job = await slow.enqueue()
        with pytest.raises(JobFailed, match="ran longer than"):
            await followed(job)
    assert ended == ["finally"]


async def test_generator_does_not_outrun_its_writes(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits when 500 items are not sent yet, or more than 1 MiB."""
    held, yielded = asyncio.Event(), list[int]()
    send = stream_writer._Writer._send

    async def slow(writer: Any, batch: list[bytes]) -> None:
        if batch:
            await held.wait()
        await send(writer, batch)

    monkeypatch.setattr(stream_writer._Writer, "_send", slow)

    @any_concert.task(name="flood")
    async def flood(count: int, size: int) -> AsyncIterator[str]:
        for number in range(count):
            yielded.append(number)
            yield "x" * size

    async with in_background(any_concert.run_worker("default")):
        for count, size, most in ((3000, 1, 1000), (30, 200_000, 12)):
            held.clear()
            yielded.clear()
            job = await flood.enqueue(count, size)
            await eventually(lambda: bool(yielded))
            for _ in range(100):
                await asyncio.sleep(0)
            held.set()
            assert 1 < len(yielded) <= most
            await job.result(timeout=WITHIN)


async def test_generator_fails_with_the_error_of_its_writes(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: also when it waits for room."""

    async def broken(writer: Any, batch: list[bytes]) -> None:
        if batch:
            raise ZeroDivisionError("a defect")

    monkeypatch.setattr(stream_writer._Writer, "_send", broken)

    @any_concert.task(name="flood", max_attempts=1)
    async def flood(count: int) -> AsyncIterator[int]:
        for number in range(count):
            yield number

    async with in_background(any_concert.run_worker("default")):
        for count in (1, 3000):
            job = await flood.enqueue(count)
            with pytest.raises(JobFailed, match="a defect"):
                await job.result(timeout=WITHIN)


async def test_generator_that_does_not_await_is_seen_as_it_goes(any_concert: Coordinator) -> None:
    """It lets the event loop run every few milliseconds."""
    seen = asyncio.Event()

    @any_concert.task(name="busy")
    async def busy() -> AsyncIterator[int]:
        number = 0
        while not seen.is_set():
            number += 1
            yield number

    async with in_background(any_concert.run_worker("default")):
        job = await busy.enqueue()
        async with aclosing(job.stream()) as items, asyncio.timeout(WITHIN):
            await anext(items)
            seen.set()
        await job.result(timeout=WITHIN)


async def test_stream_lives_as_long_as_the_result(any_concert: Coordinator) -> None:
    """While the job runs, for a day behind its last item; and for a minute at least, so that nobody misses the end."""
    go_on = asyncio.Event()

    @any_concert.task(name="write")
    async def write() -> AsyncIterator[int]:
        yield 1
        await go_on.wait()

    async with in_background(any_concert.run_worker("default")):
        for ttl, longest in ((3600.0, 3_600_000), (0.0, 60_000), (1e6, 1e9)):
            go_on.clear()
            job = await write.options(result_ttl=ttl).enqueue()
            async with aclosing(job.stream()) as items, asyncio.timeout(WITHIN):
                await anext(items)
                lives = await keys_of(any_concert, job)
                assert len(lives) == 2
                assert all(max(DAY, ttl * 1000) - 60_000 < life <= max(DAY, ttl * 1000) for life in lives.values())
                go_on.set()
                assert [item async for item in items] == []
            lives = await keys_of(any_concert, job)
            assert all(longest - 30_000 < life <= longest for life in lives.values())


async def test_all_followers_of_a_process_share_what_is_read(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One subscription, and one look at the server for each batch."""
    go_on, reads, read = asyncio.Event(), list[int](), Feed._read

    async def counted(feed: Feed, run: str, number: int) -> Page:
        reads.append(number)
        return await read(feed, run, number)

    monkeypatch.setattr(Feed, "_read", counted)

    @concert.task(name="write")
    async def write() -> AsyncIterator[int]:
        yield 1
        await go_on.wait()
        yield 2

    async with in_background(concert.run_worker("default")):
        job = await write.enqueue()
        streams = [concert.tasks.job(job.id).stream() for _ in range(200)]
        async with asyncio.timeout(WITHIN):
            for stream in streams:
                assert isinstance(await anext(stream), StreamItem)
            rest = asyncio.gather(*(anext(stream) for stream in streams))
            for _ in range(3):
                await asyncio.sleep(0)
            reads.clear()
            go_on.set()
            assert [item.value for item in await rest if isinstance(item, StreamItem)] == [2] * 200
            assert len(reads) <= 2
        for stream in streams:
            await stream.aclose()
    assert list(concert.tasks._watches) == []


async def test_follower_registers_again_though_items_come_all_the_time(
    any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server forgets after 3 minutes who waits for the end, and the result may be gone when it has not said so."""
    monkeypatch.setattr(feed, "_RECHECK_AFTER", 0.1)
    is_over = asyncio.Event()

    @any_concert.task(name="count", result_ttl=0)
    async def count() -> AsyncIterator[int]:
        number = 0
        while not is_over.is_set():
            yield number
            number += 1
            await anyio.sleep(0.01)

    async with in_background(any_concert.run_worker("default")):
        job = await count.enqueue()
        keys, client = any_concert._jobs.of_id(job.id), raw(any_concert)
        async with in_background(followed(job)) as following:

            async def is_registered() -> bool:
                return bool(await client.exists(keys.watchers))

            for _ in range(2):
                await eventually(is_registered)
                await client.delete(keys.watchers)
            await eventually(is_registered)
            is_over.set()
            assert await following


async def test_follower_that_leaves_early_leaves_nothing(any_concert: Coordinator) -> None:
    """No subscription, no wait for the end; cancelled or closed."""

    @any_concert.task(name="endless")
    async def endless() -> AsyncIterator[int]:
        yield 1
        await anyio.sleep_forever()

    async with in_background(any_concert.run_worker("default")):
        job = await endless.enqueue()
        async with aclosing(job.stream()) as items, asyncio.timeout(WITHIN):
            await anext(items)
        waiting = asyncio.create_task(followed(job))
        await eventually(lambda: bool(list(any_concert.tasks._watches)))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert list(any_concert.tasks._watches) == []
        keys, client = any_concert._jobs.of_id(job.id), raw(any_concert)

        async def nobody_waits() -> bool:
            return not await client.exists(keys.watchers)

        await eventually(nobody_waits)
        await job.cancel(timeout=WITHIN)


async def test_follower_ends_when_its_coordinator_closes(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """With the error that all waits end with."""

    @any_concert.task(name="endless")
    async def endless() -> AsyncIterator[int]:
        yield 1
        await anyio.sleep_forever()

    async with in_background(any_concert.run_worker("default")):
        job = await endless.enqueue()
        items = elsewhere.tasks.job(job.id).stream()
        async with asyncio.timeout(WITHIN):
            await anext(items)
            following = asyncio.ensure_future(anext(items))
            await asyncio.sleep(0)
            await elsewhere.__aexit__(None, None, None)
            with pytest.raises(NotConnected):
                await following
        await elsewhere.__aenter__()
        await job.cancel(timeout=WITHIN)


async def test_stream_of_a_dead_job_begins_anew_when_it_is_replayed(any_concert: Coordinator) -> None:
    """What it had yielded stays until then."""
    broken = [True]

    @any_concert.task(name="write", max_attempts=1)
    async def write() -> AsyncIterator[str]:
        yield "broken" if broken else "whole"
        if broken:
            raise ValueError

    async with in_background(any_concert.run_worker("default")):
        job = await write.enqueue()
        with pytest.raises(JobFailed):
            await job.result(timeout=WITHIN)
        assert len(await keys_of(any_concert, job)) == 2
        broken.clear()
        await any_concert.tasks.replay(job.id)
        await job.result(timeout=WITHIN)
        assert await followed(job) == ["whole"]


async def test_coroutines_and_other_generators_stay_what_they_were(concert: Coordinator) -> None:
    """A plain generator function is refused, and says what to do."""

    def generator() -> Any:
        yield 1

    with pytest.raises(TypeError, match="write it with async def"):
        concert.task(generator)

    async def yields_two() -> AsyncIterator[int]:
        yield 1
        yield 2

    task = concert.task(name="two")(yields_two)
    assert [value async for value in task()] == [1, 2]


async def test_item_that_was_changed_is_not_read(any_concert: Coordinator, namespace: str) -> None:
    """Each is signed with its number, its attempt and the id of its job."""
    keys = {"k": "x" * 32}
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace, signing_keys=keys) as signing:

        @signing.task(name="count")
        async def count() -> AsyncIterator[int]:
            for number in range(3):
                yield number

        async with in_background(signing.run_worker("default")):
            job = await count.enqueue()
            assert await followed(job) == [0, 1, 2]
        items = signing._jobs.of_id(job.id).items(job.id)
        client: Any = raw(any_concert)
        first, second, _ = await client.lrange(items, 0, -1)
        await client.lset(items, 0, second)
        for read in (followed(job), job.items()):
            with pytest.raises(InvalidPayload, match="the item was not signed with key 'k' for its id"):
                await read
        await client.lset(items, 0, first[:-1] + b"7")
        with pytest.raises(InvalidPayload, match="or was changed since"):
            await followed(job)
    assert await followed(any_concert.tasks.job(job.id)) == [7, 1, 2]  # without keys, nothing is checked
