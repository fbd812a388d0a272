"""What a latch promises: it opens when enough was counted, by whomever, and stays open."""

import asyncio
from math import inf, nan
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, InvalidName, Latch, NotConnected
from inconcert._core.channel_subscription import ChannelSubscription
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.raw import listeners, publish, raw


@pytest.fixture
def latch(any_concert: Coordinator) -> Latch:
    """One for three things."""
    return any_concert.latch("import", 3)


@pytest.fixture
def latch_elsewhere(elsewhere: Coordinator) -> Latch:
    """The same, as another process sees it."""
    return elsewhere.latch("import", 3)


async def listening(concert: Coordinator, latch: Latch, number: int = 1) -> None:
    """Return when so many processes listen for it."""

    async def so_many() -> bool:
        count = await listeners(concert, latch._changes)
        return bool(count == number)

    await eventually(so_many)


async def test_waiter_passes_with_the_last_count(
    any_concert: Coordinator, latch: Latch, latch_elsewhere: Latch
) -> None:
    """And not before, whoever counts."""
    waiter = asyncio.create_task(latch_elsewhere.wait())
    await listening(any_concert, latch)
    assert [await latch.count_down(), await latch_elsewhere.count_down()] == [2, 1]
    assert await latch_elsewhere.remaining() == 1
    assert not waiter.done()
    assert await latch.count_down() == 0
    with anyio.fail_after(5):
        await waiter


async def test_open_latch_stays_open(latch: Latch, latch_elsewhere: Latch) -> None:
    """Late waiters pass, and counting more changes nothing."""
    assert await latch.count_down(2) == 1
    assert await latch.count_down(5) == 0
    assert await latch_elsewhere.count_down() == 0
    assert await latch_elsewhere.remaining() == 0
    await latch_elsewhere.wait()
    await latch_elsewhere.wait(timeout=0)


async def test_count_that_comes_just_before_one_listens_is_seen(
    latch: Latch, latch_elsewhere: Latch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost between the first look and the first message that can be heard."""
    enter = ChannelSubscription.__aenter__

    async def count_and_enter(listening: ChannelSubscription) -> ChannelSubscription:
        await latch_elsewhere.count_down(3)
        return await enter(listening)

    monkeypatch.setattr(ChannelSubscription, "__aenter__", count_and_enter)
    await latch.wait(timeout=5)


async def test_each_is_judged_by_its_own_count(any_concert: Coordinator, latch: Latch) -> None:
    """The server knows only how many were counted."""
    lax, strict = any_concert.latch("import", 2), any_concert.latch("import", 4)
    waiters = [asyncio.create_task(each.wait()) for each in (lax, latch, strict)]
    await listening(any_concert, latch)
    await latch.count_down(2)
    await waiters[0]
    assert [await each.remaining() for each in (lax, latch, strict)] == [0, 1, 2]
    await latch.count_down()
    await waiters[1]
    assert not waiters[2].done()
    await latch.count_down()
    await waiters[2]


async def test_latch_for_nothing_is_open(any_concert: Coordinator) -> None:
    """From the start."""
    await any_concert.latch("import", 0).wait(timeout=0)


async def test_many_count_at_once(latch: Latch, latch_elsewhere: Latch, any_concert: Coordinator) -> None:
    """Each counts once."""
    left = await asyncio.gather(*(each.count_down() for each in (latch, latch_elsewhere) for _ in range(100)))
    assert sorted(left, reverse=True)[:4] == [2, 1, 0, 0]
    assert await any_concert.latch("import", 201).remaining() == 1


async def test_wait_gives_up_after_its_timeout(latch: Latch) -> None:
    """With a `TimeoutError` that says what was waited for."""
    await latch.count_down()
    with pytest.raises(TimeoutError, match=r"latch 'import' was not open within 0\.02 s"):
        await latch.wait(timeout=0.02)
    with pytest.raises(TimeoutError, match=r"within 0 s"):
        await latch.wait(timeout=0)


async def test_latch_is_forgotten_after_its_ttl(any_concert: Coordinator, latch: Latch) -> None:
    """Counted from the last count; a count with a shorter ttl takes nothing away."""
    await any_concert.latch("brief", 1, ttl=0.02).count_down()

    async def is_forgotten() -> bool:
        return await any_concert.latch("brief", 1).remaining() == 1

    await eventually(is_forgotten)
    await latch.count_down()
    await any_concert.latch("import", 3, ttl=0.02).count_down()
    assert await raw(any_concert).pttl(latch._keys.counted) > 80_000_000


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_count_down_counts_once(latch: Latch, moment: Moment) -> None:
    """Once it has begun it is on its way, whatever becomes of its caller."""
    assert await cancel_at(1, moment, latch.count_down())

    async def is_counted() -> bool:
        return await latch.remaining() == 2

    await eventually(is_counted)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_wait_may_be_cancelled_at_every_await(any_concert: Coordinator, moment: Moment) -> None:
    """Nothing is left, and the next one passes as ever."""
    number = 1
    while True:
        latch = any_concert.latch(f"import {number}", 1)
        counter = asyncio.create_task(count_down_soon(latch))
        was_cancelled = await cancel_at(number, moment, latch.wait())
        await counter
        await listening(any_concert, latch, 0)
        if not was_cancelled:
            break
        number += 1
    assert number >= 4


async def count_down_soon(latch: Latch) -> None:
    """A moment later than now."""
    await anyio.sleep(0.02)
    await latch.count_down()


@pytest.mark.parametrize("text", [b"", b"hello", b"-1", b"\xff", b"1000", b"9" * 5000], ids=lambda text: repr(text[:5]))
async def test_message_of_another_is_ignored(
    any_concert: Coordinator, latch: Latch, latch_elsewhere: Latch, text: bytes
) -> None:
    """Whoever publishes on the channel by hand opens nothing, and disturbs nobody."""
    waiter = asyncio.create_task(latch_elsewhere.wait())
    await listening(any_concert, latch)
    await publish(any_concert, latch._changes, text)
    assert await latch.count_down(2) == 1
    assert not waiter.done()
    await latch.count_down()
    with anyio.fail_after(5):
        await waiter


# Opening and closing.


@pytest.mark.parametrize("verb", ["count_down", "remaining", "wait"])
async def test_closed_coordinator_is_not_connected(verb: str) -> None:
    """Whatever is asked of it."""
    with pytest.raises(NotConnected):
        await getattr(Coordinator("redis://127.0.0.1:1/0").latch("import", 1), verb)()


async def test_waiter_is_sent_away_when_its_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator, latch_elsewhere: Latch
) -> None:
    """With `NotConnected`."""
    waiter = asyncio.create_task(latch_elsewhere.wait())
    await listening(any_concert, latch_elsewhere)
    await elsewhere.__aexit__(None, None, None)
    with pytest.raises(NotConnected):
        await waiter


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.parametrize("count", [-1, 1_000_000_001, 1.0, True, "3", None])
def test_count_is_a_whole_number_from_0(count: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="count of latch 'import' is"):
        Coordinator().latch("import", count)


@pytest.mark.parametrize("n", [0, -1, 1_000_000_001, 1.0, True, "3", None])
async def test_n_is_a_whole_number_from_1(n: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="n is"):
        await Coordinator().latch("import", 3).count_down(n)


@pytest.mark.parametrize("ttl", [0, -1, nan, inf, True, "30", None])
def test_ttl_is_a_time_above_0(ttl: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="ttl is"):
        Coordinator().latch("import", 3, ttl=ttl)


@pytest.mark.parametrize("timeout", [-1, nan, inf, False, "1"])
async def test_timeout_is_a_time_from_0(timeout: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="timeout is"):
        await Coordinator().latch("import", 3).wait(timeout=timeout)


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", 1, None])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""
    with pytest.raises(InvalidName):
        Coordinator().latch(name, 3)
