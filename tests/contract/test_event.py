"""What an event promises: it lets everyone pass while it is set, whoever waits, comes late or sits elsewhere."""

import asyncio
from datetime import timedelta
from math import inf, nan
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Event, InvalidName, NotConnected
from inconcert._core.channel_subscription import ChannelMessage, ChannelSubscription
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import topics_of
from tests.support.raw import commands_processed, listeners, publish, raw


@pytest.fixture
def event(any_concert: Coordinator) -> Event:
    """One that is clear."""
    return any_concert.event("ready")


@pytest.fixture
def event_elsewhere(elsewhere: Coordinator) -> Event:
    """The same, as another process sees it."""
    return elsewhere.event("ready")


async def listening(concert: Coordinator, event: Event, number: int = 1) -> None:
    """Return when so many processes listen for it."""

    async def so_many() -> bool:
        count = await listeners(concert, event._changes)
        return bool(count == number)

    await eventually(so_many)


async def test_waiter_passes_when_another_process_sets_it(
    any_concert: Coordinator, event: Event, event_elsewhere: Event
) -> None:
    """Without asking the server again."""
    waiter = asyncio.create_task(event_elsewhere.wait())
    await listening(any_concert, event)
    await event.set()
    with anyio.fail_after(5):
        assert await waiter is True


async def test_late_waiter_passes(event: Event, event_elsewhere: Event) -> None:
    """Any number of times, for the event stays set."""
    await event.set()
    for _ in range(2):
        assert await event_elsewhere.wait() is True
        assert await event_elsewhere.wait(timeout=0) is True
    assert await event_elsewhere.is_set()


async def test_waiter_waits_again_after_clear(event: Event, event_elsewhere: Event) -> None:
    """As if it had never been set."""
    assert not await event_elsewhere.is_set()
    await event.set()
    await event.clear()
    assert not await event_elsewhere.is_set()
    with pytest.raises(TimeoutError):
        await event_elsewhere.wait(timeout=0.02)


async def test_waiter_passes_although_it_is_cleared_at_once(
    any_concert: Coordinator, event: Event, event_elsewhere: Event
) -> None:
    """Whoever waited when it was set has been told, as asyncio's event does."""
    waiters = [asyncio.create_task(each.wait()) for each in (event, event_elsewhere)]
    await listening(any_concert, event, 2)
    await asyncio.gather(event.set(), event.clear())
    with anyio.fail_after(5):
        await asyncio.gather(*waiters)
    assert not await event.is_set()


async def test_message_from_before_one_waited_lets_nobody_pass(any_concert: Coordinator, event: Event) -> None:
    """It was set, and cleared, before the wait began: the message about it came late."""
    waiter = asyncio.create_task(event.wait())
    await listening(any_concert, event)
    await publish(any_concert, event._changes, "1")
    with pytest.raises(TimeoutError):
        await event.wait(timeout=0.05)
    assert not waiter.done()
    await event.set()
    with anyio.fail_after(5):
        await waiter


async def test_event_that_is_set_just_before_one_listens_is_seen(
    event: Event, event_elsewhere: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost between the first look and the first message that can be heard."""
    enter = ChannelSubscription.__aenter__

    async def set_and_enter(listening: ChannelSubscription) -> ChannelSubscription:
        await event_elsewhere.set()
        return await enter(listening)

    monkeypatch.setattr(ChannelSubscription, "__aenter__", set_and_enter)
    assert await event.wait(timeout=5)


async def test_second_set_makes_it_last_longer_and_tells_nobody(any_concert: Coordinator, event: Event) -> None:
    """For those who wait have passed."""
    await any_concert.event("ready", ttl=1.0).set()
    async with ChannelSubscription(any_concert._ref.session, event._changes) as heard:
        await event.set()
        await publish(any_concert, event._changes, "the end")
        said = await heard.next()
        assert isinstance(said, ChannelMessage)
        assert said.text == b"the end"
    assert await raw(any_concert).pttl(event._keys.flag) > 80_000_000


async def test_set_event_lapses_after_its_ttl(any_concert: Coordinator, event: Event) -> None:
    """It is clear then, and can be set again."""
    await any_concert.event("ready", ttl=timedelta(milliseconds=20)).set()

    async def is_clear() -> bool:
        return not await event.is_set()

    await eventually(is_clear)
    waiter = asyncio.create_task(event.wait())
    await listening(any_concert, event)
    await event.set()
    await waiter


async def test_wait_gives_up_after_its_timeout(event: Event) -> None:
    """With a `TimeoutError` that says what was waited for."""
    with pytest.raises(TimeoutError, match=r"event 'ready' was not set within 0\.02 s"):
        await event.wait(timeout=timedelta(seconds=0.02))
    with pytest.raises(TimeoutError, match=r"within 0 s"):
        await event.wait(timeout=0)


async def test_thousand_waiters_pass_by_one_message(concert: Coordinator) -> None:
    """Nobody asks the server anything more."""
    event = concert.event("ready")
    waiters = [asyncio.create_task(event.wait()) for _ in range(1000)]
    session = concert._ref.session
    await eventually(lambda: [len(topic.listeners) for topic in topics_of(session)] == [1000])
    await event.is_set()  # after the last look of each
    before = await commands_processed(concert)
    await event.set()
    with anyio.fail_after(10):
        await asyncio.gather(*waiters)
    assert await commands_processed(concert) - before < 100


async def test_nobody_listens_when_nobody_waits(any_concert: Coordinator, event: Event) -> None:
    """Whether the wait ended by itself or was cut short."""
    waiters = [asyncio.create_task(event.wait()) for _ in range(3)]
    await listening(any_concert, event)
    waiters[0].cancel()
    await event.set()
    await asyncio.gather(*waiters, return_exceptions=True)
    await listening(any_concert, event, 0)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_wait_may_be_cancelled_at_every_await(any_concert: Coordinator, event: Event, moment: Moment) -> None:
    """Nothing is left, and the next one passes as ever."""
    number, was_cancelled = 1, True
    while was_cancelled:
        waiter = asyncio.create_task(cancel_at(number, moment, event.wait()))

        async def listens_or_has_ended() -> bool:
            return waiter.done() or bool(await listeners(any_concert, event._changes))  # noqa: B023 - asked at once

        await eventually(listens_or_has_ended)
        await event.set()
        was_cancelled = await waiter
        await listening(any_concert, event, 0)
        await event.clear()
        number += 1
    assert number > 4


async def test_different_names_do_not_meet(any_concert: Coordinator) -> None:
    """Not even names that look like a part of another's keys."""
    await any_concert.event("a").set()
    for name in ["a}", "{a}", "a}:flag", "a:flag", "\0", "ä", "a" * 512]:
        assert not await any_concert.event(name).is_set()


@pytest.mark.parametrize(
    "text", [b"", b"hello", b"-1", b"\xff", b"9" * 17, b"9" * 5000], ids=lambda it: f"{len(it)} bytes"
)
async def test_message_of_another_is_ignored(
    any_concert: Coordinator, event: Event, event_elsewhere: Event, text: bytes
) -> None:
    """Whoever publishes on the channel by hand wakes nobody, and disturbs nobody."""
    waiter = asyncio.create_task(event_elsewhere.wait())
    await listening(any_concert, event)
    await publish(any_concert, event._changes, text)
    await event_elsewhere.is_set()  # what was published is heard, and looked at, before the second of these is answered
    await event_elsewhere.is_set()
    assert not waiter.done()
    await event.set()
    with anyio.fail_after(5):
        assert await waiter


# Opening and closing.


@pytest.mark.parametrize("verb", ["set", "clear", "is_set", "wait"])
async def test_closed_coordinator_is_not_connected(verb: str) -> None:
    """Whatever is asked of it."""
    with pytest.raises(NotConnected):
        await getattr(Coordinator("redis://127.0.0.1:1/0").event("ready"), verb)()


async def test_waiter_is_sent_away_when_its_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator, event_elsewhere: Event
) -> None:
    """With `NotConnected`."""
    waiter = asyncio.create_task(event_elsewhere.wait())
    await listening(any_concert, event_elsewhere)
    await elsewhere.__aexit__(None, None, None)
    with pytest.raises(NotConnected):
        await waiter


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.parametrize("ttl", [0, -1, nan, inf, True, "30", None])
def test_ttl_is_a_time_above_0(ttl: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="ttl is"):
        Coordinator().event("ready", ttl=ttl)


@pytest.mark.parametrize("timeout", [-1, nan, inf, False, "1"])
async def test_timeout_is_a_time_from_0(timeout: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="timeout is"):
        await Coordinator().event("ready").wait(timeout=timeout)


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", 1, None])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""
    with pytest.raises(InvalidName):
        Coordinator().event(name)
