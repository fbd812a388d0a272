"""What a barrier promises: all pass together or none does, round after round, and the dead are named."""

import asyncio
from math import inf, nan
from typing import Any

import anyio
import pytest

from inconcert import Barrier, BarrierBroken, Coordinator, InconcertError, InvalidName, NotConnected
from inconcert._redis.wire.call import Call
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.raw import publish, raw


@pytest.fixture
def barrier(any_concert: Coordinator) -> Barrier:
    """One for three."""
    return any_concert.barrier("epoch", 3)


@pytest.fixture
def barrier_elsewhere(elsewhere: Coordinator) -> Barrier:
    """The same, as another process sees it."""
    return elsewhere.barrier("epoch", 3)


async def waiting(barrier: Barrier, number: int) -> None:
    """Return when so many wait."""

    async def so_many() -> bool:
        return await barrier.n_waiting() == number

    await eventually(so_many)


async def arrive(barrier: Barrier, number: int) -> "asyncio.Task[int]":
    """Let one more wait, as the `number`-th."""
    task = asyncio.create_task(barrier.wait())
    await waiting(barrier, number)
    return task


async def lapse(concert: Coordinator, barrier: Barrier) -> str:
    """Let the lease of the first to arrive end now, and return who that is."""
    keys = barrier._terms.keys
    [first] = await raw(concert).zrange(keys.order, 0, 0)
    await raw(concert).zadd(keys.participants, {first: 1}, xx=True)
    return str(first.decode())


async def ended(task: "asyncio.Task[Any]") -> BaseException | None:
    """Wait for the end of a task, and return what it raised."""
    await asyncio.wait([task], timeout=10)
    assert task.done()
    return asyncio.CancelledError() if task.cancelled() else task.exception()


# Rounds.


async def test_nobody_passes_before_all_are_there(barrier: Barrier, barrier_elsewhere: Barrier) -> None:
    """Then all do, each with its place in the order of arrival."""
    first = await arrive(barrier_elsewhere, 1)
    second = await arrive(barrier, 2)
    assert not first.done()
    assert not second.done()
    with anyio.fail_after(5):
        assert [await barrier_elsewhere.wait(), await first, await second] == [2, 0, 1]
    assert await barrier.n_waiting() == 0


async def test_next_round_begins_when_this_one_is_full(barrier: Barrier, barrier_elsewhere: Barrier) -> None:
    """Three parties go through twenty rounds in step, and every round has each position once."""
    steps = [0, 0, 0]
    positions: list[list[int]] = [[] for _ in range(20)]

    async def work(number: int, each: Barrier) -> None:
        for step in range(20):
            steps[number] = step
            positions[step].append(await each.wait())
            assert min(steps) >= step

    with anyio.fail_after(20):
        await asyncio.gather(
            *(work(number, each) for number, each in enumerate((barrier, barrier_elsewhere, barrier_elsewhere)))
        )
    assert all(sorted(places) == [0, 1, 2] for places in positions)


async def test_more_workers_than_parties_pass_in_groups(barrier: Barrier, barrier_elsewhere: Barrier) -> None:
    """Nine that come at once are three rounds."""
    with anyio.fail_after(5):
        places = await asyncio.gather(
            *(each.wait() for each in (barrier, barrier_elsewhere, barrier) for _ in range(3))
        )
    assert sorted(places) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("any_concert", ["real"], indirect=True)  # for so many fakeredis takes too long
async def test_thousand_pass_together(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Of two processes, each with a position of its own."""
    barriers = [each.barrier("epoch", 1000) for each in (any_concert, elsewhere)]
    with anyio.fail_after(30):
        places = await asyncio.gather(*(barrier.wait() for barrier in barriers for _ in range(500)))
    assert sorted(places) == list(range(1000))


async def test_one_party_passes_at_once(any_concert: Coordinator) -> None:
    """It is the first and the last."""
    assert [await any_concert.barrier("epoch", 1).wait() for _ in range(2)] == [0, 0]


async def test_async_with_gives_the_position(barrier: Barrier) -> None:
    """And leaving it does nothing, whatever the body did."""

    async def enter() -> int:
        async with barrier as position:
            return position

    assert sorted(await asyncio.gather(*(enter() for _ in range(3)))) == [0, 1, 2]
    assert barrier.parties == 3


async def test_different_names_do_not_meet(any_concert: Coordinator) -> None:
    """Not even names that look like a part of another's keys."""
    waiter = await arrive(any_concert.barrier("a", 2), 1)
    for name in ["a}", "{a}", "a}:order", "a:order", "\0", "ä", "a" * 512]:
        with pytest.raises(TimeoutError):
            await any_concert.barrier(name, 2).wait(timeout=0)
    await any_concert.barrier("a", 2).wait()
    await waiter


# Leaving.


async def test_one_that_gives_up_is_waited_for_again(barrier: Barrier, barrier_elsewhere: Barrier) -> None:
    """The others wait on, and close ranks."""
    first = await arrive(barrier, 1)
    with pytest.raises(TimeoutError, match=r"barrier 'epoch': not all 3 parties arrived within 0\.05 s"):
        await barrier_elsewhere.wait(timeout=0.05)
    await waiting(barrier, 1)
    second = await arrive(barrier_elsewhere, 2)
    first.cancel()
    await waiting(barrier, 1)
    third = await arrive(barrier, 2)
    assert [await barrier.wait(), await second, await third] == [2, 0, 1]


async def test_timeout_0_passes_only_as_the_last(barrier: Barrier) -> None:
    """It takes no part otherwise, not even for a moment."""
    with pytest.raises(TimeoutError, match=r"within 0 s"):
        await barrier.wait(timeout=0)
    tasks = [await arrive(barrier, number) for number in (1, 2)]
    assert await barrier.wait(timeout=0) == 2
    assert [await task for task in tasks] == [0, 1]


async def test_timeout_of_the_barrier_is_that_of_wait_and_async_with(any_concert: Coordinator) -> None:
    """Unless `wait` is given another."""
    impatient = any_concert.barrier("epoch", 2, timeout=0.01)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        await impatient.wait()
    with pytest.raises(TimeoutError):
        async with impatient:
            pytest.fail("nobody else is there")
    patient = asyncio.create_task(impatient.wait(timeout=None))
    await waiting(impatient, 1)
    assert await any_concert.barrier("epoch", 2).wait() == 1
    assert await patient == 0


@pytest.mark.parametrize("moment", MOMENTS)
async def test_wait_may_be_cancelled_at_every_await(any_concert: Coordinator, moment: Moment) -> None:
    """It leaves the round on the server, too, unless that has passed: then nothing is undone."""
    number = 1
    while True:
        barrier = any_concert.barrier(f"epoch {number}", 2)
        other = asyncio.create_task(wait_soon(barrier))
        was_cancelled = await cancel_at(number, moment, barrier.wait())

        async def is_alone_or_has_passed(barrier: Barrier = barrier, other: "asyncio.Task[int]" = other) -> bool:
            return other.done() or await barrier.n_waiting() == 1

        await eventually(is_alone_or_has_passed)
        other.cancel()
        await asyncio.wait([other])
        await waiting(barrier, 0)
        if not was_cancelled:
            break
        number += 1
    assert number > 2


async def wait_soon(barrier: Barrier) -> int:
    """A moment later than now."""
    await anyio.sleep(0.02)
    return await barrier.wait()


async def test_one_that_left_is_not_renewed_any_more(barrier: Barrier) -> None:
    """Not even if a renewal was under way just then."""
    task = await arrive(barrier, 1)
    [participant] = all_participants(barrier)
    participant.start_renewal()
    task.cancel()
    await asyncio.wait([task])
    await waiting(barrier, 0)
    assert all_participants(barrier) == []


# Broken rounds.


async def test_lapsed_participant_breaks_the_round_for_all(
    any_concert: Coordinator, barrier: Barrier, barrier_elsewhere: Barrier
) -> None:
    """Whoever renews next finds it, and each is told who has died."""
    tasks = [await arrive(each, number) for number, each in enumerate((barrier, barrier_elsewhere), 1)]
    dead = await lapse(any_concert, barrier)
    for participant in list(all_participants(barrier_elsewhere)):
        participant.start_renewal()
    for task in tasks:
        error = await ended(task)
        assert isinstance(error, BarrierBroken)
        assert isinstance(error, asyncio.BrokenBarrierError)
        assert isinstance(error, InconcertError)
        assert (error.name, error.holder) == ("epoch", dead)
        assert dead in str(error)
    assert await barrier.n_waiting() == 0


def all_participants(barrier: Barrier) -> list[Any]:
    """Those of one session that wait."""
    kept = barrier._ref.session.renewal._kept.values()
    return [participant for reference, *_ in kept if (participant := reference()) is not None]


async def test_lapsed_participant_is_found_by_renewals_alone(concert: Coordinator) -> None:
    """Nobody arrives, and nobody asks."""
    barrier = concert.barrier("epoch", 3, ttl=0.3)
    tasks = [await arrive(barrier, number) for number in (1, 2)]
    dead = await lapse(concert, barrier)
    for task in tasks:
        error = await ended(task)
        assert isinstance(error, BarrierBroken)
        assert error.holder == dead


async def test_participants_that_live_wait_longer_than_their_leases(concert: Coordinator) -> None:
    """For they renew them."""
    barrier = concert.barrier("epoch", 2, ttl=2.0)  # longer than a busy machine stands still
    first = await arrive(barrier, 1)
    [before] = await raw(concert).zrange(barrier._terms.keys.participants, 0, 0, withscores=True)

    async def is_renewed_beyond_it() -> bool:
        [after] = await raw(concert).zrange(barrier._terms.keys.participants, 0, 0, withscores=True)
        return bool(after[1] > before[1] + 2000)

    await eventually(is_renewed_beyond_it)
    assert await barrier.wait() == 1
    assert await first == 0


async def test_arrival_after_a_death_begins_a_new_round(
    any_concert: Coordinator, barrier: Barrier, barrier_elsewhere: Barrier
) -> None:
    """Even the one that would have made it full."""
    tasks = [await arrive(each, number) for number, each in enumerate((barrier, barrier_elsewhere), 1)]
    await lapse(any_concert, barrier)
    third = await arrive(barrier_elsewhere, 1)
    assert [type(await ended(task)) for task in tasks] == [BarrierBroken, BarrierBroken]
    fourth = await arrive(barrier, 2)
    assert [await barrier.wait(), await third, await fourth] == [2, 0, 1]


async def test_round_that_is_full_is_not_broken_afterwards(any_concert: Coordinator, barrier: Barrier) -> None:
    """One that cannot hear of it learns that it has passed, however late it asks."""
    first, second = [await arrive(barrier, number) for number in (1, 2)]
    participants = all_participants(barrier)
    numbers = [participant._round for participant in participants]
    for participant in participants:
        participant._round = b"another"  # so that it does not understand what it hears
    assert await barrier.wait() == 2
    for _ in range(50):
        await any_concert.barrier("epoch", 1).wait()
    for participant, number in zip(participants, numbers, strict=True):
        participant._round = number
        participant.lose()  # its lease has ended by its own clock
    assert [await first, await second] == [0, 1]


async def test_participant_that_the_server_forgot_is_told(any_concert: Coordinator, barrier: Barrier) -> None:
    """As soon as it asks."""
    task = await arrive(barrier, 1)
    await raw(any_concert).flushall()
    [participant] = all_participants(barrier)
    participant.start_renewal()
    error = await ended(task)
    assert isinstance(error, BarrierBroken)
    assert error.holder == participant.holder


async def test_abort_breaks_the_barrier_until_it_is_reset(barrier: Barrier, barrier_elsewhere: Barrier) -> None:
    """Those who wait are told, and so is a party that is still at work, whenever it arrives."""
    tasks = [await arrive(each, number) for number, each in enumerate((barrier, barrier_elsewhere), 1)]
    await barrier_elsewhere.abort()
    for task in tasks:
        error = await ended(task)
        assert isinstance(error, BarrierBroken)
        assert (error.name, error.holder) == ("epoch", None)
        assert "it was aborted" in str(error)
    for timeout in (None, 0):
        with pytest.raises(BarrierBroken):
            await barrier.wait(timeout=timeout)
    assert await barrier.n_waiting() == 0
    await barrier.abort()
    await barrier.reset()
    assert sorted(await asyncio.gather(*(each.wait() for each in (barrier, barrier_elsewhere, barrier_elsewhere)))) == [
        0,
        1,
        2,
    ]


async def test_abort_tells_those_who_come_though_nobody_waits(
    any_concert: Coordinator, barrier: Barrier, barrier_elsewhere: Barrier
) -> None:
    """The first of all, and one day long after the last."""
    await barrier.abort()
    rounds = barrier._terms.keys.rounds
    await raw(any_concert).pexpire(rounds, 1000)
    with pytest.raises(BarrierBroken):
        await barrier_elsewhere.wait()
    assert await raw(any_concert).pttl(rounds) > 86_000_000
    assert not all_participants(barrier_elsewhere)


async def test_reset_breaks_a_round_in_which_others_wait(barrier: Barrier, barrier_elsewhere: Barrier) -> None:
    """As `asyncio.Barrier` does; without any it does nothing."""
    await barrier.reset()
    task = await arrive(barrier_elsewhere, 1)
    await barrier.reset()
    error = await ended(task)
    assert isinstance(error, BarrierBroken)
    assert error.holder is None
    assert sorted(await asyncio.gather(*(each.wait() for each in (barrier, barrier_elsewhere, barrier_elsewhere)))) == [
        0,
        1,
        2,
    ]


async def test_only_the_last_hundred_outcomes_are_kept(any_concert: Coordinator) -> None:
    """Beside the number of the open round."""
    barrier = any_concert.barrier("epoch", 1)
    for _ in range(105):
        await barrier.wait()
    assert await raw(any_concert).hlen(barrier._terms.keys.rounds) == 101


@pytest.mark.parametrize("text", [b"", b"hello", b"-1", b"\xff", b"9" * 5000], ids=lambda text: repr(text[:5]))
async def test_message_of_another_is_ignored(
    any_concert: Coordinator, barrier: Barrier, barrier_elsewhere: Barrier, text: bytes
) -> None:
    """Whoever publishes on the channel by hand ends no round, and disturbs nobody."""
    first, second = await arrive(barrier_elsewhere, 1), await arrive(barrier_elsewhere, 2)
    await publish(any_concert, barrier._terms.changes, text)
    assert await barrier.wait() == 2
    assert [await first, await second] == [0, 1]


# Opening and closing.


@pytest.mark.parametrize("verb", ["wait", "__aenter__", "n_waiting", "abort", "reset"])
async def test_closed_coordinator_is_not_connected(verb: str) -> None:
    """Whatever is asked of it."""
    with pytest.raises(NotConnected):
        await getattr(Coordinator("redis://127.0.0.1:1/0").barrier("epoch", 2), verb)()


async def test_closing_leaves_the_round(barrier: Barrier, elsewhere: Coordinator, barrier_elsewhere: Barrier) -> None:
    """The waiter gets `NotConnected`, and the others wait on."""
    task = await arrive(barrier_elsewhere, 1)
    await elsewhere.__aexit__(None, None, None)
    assert isinstance(await ended(task), NotConnected)
    assert await barrier.n_waiting() == 0


async def test_closing_while_one_arrives_leaves_the_round(
    barrier: Barrier, elsewhere: Coordinator, barrier_elsewhere: Barrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arrival is taken back, although nobody has heard yet that it has arrived."""
    channel = elsewhere._ref.session.channel
    submit = channel.submit
    closing: list[asyncio.Task[None]] = []

    def submit_and_close(call: Call) -> None:
        submit(call)
        if call.command.script.name == "barriers/arrive":
            closing.append(asyncio.create_task(elsewhere.__aexit__(None, None, None)))

    monkeypatch.setattr(channel, "submit", submit_and_close)
    with pytest.raises(NotConnected):
        await barrier_elsewhere.wait()
    await closing[0]
    assert await barrier.n_waiting() == 0


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.parametrize("parties", [0, -1, 10_001, 1.0, True, "3", None])
def test_parties_is_a_whole_number_from_1(parties: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="parties of barrier 'epoch' is"):
        Coordinator().barrier("epoch", parties)


@pytest.mark.parametrize("ttl", [0, -1, nan, inf, True, "30", None])
def test_ttl_is_a_time_above_0(ttl: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="ttl is"):
        Coordinator().barrier("epoch", 3, ttl=ttl)


@pytest.mark.parametrize("timeout", [-1, nan, inf, False, "1"])
async def test_timeout_is_a_time_from_0(timeout: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="timeout is"):
        Coordinator().barrier("epoch", 3, timeout=timeout)
    with pytest.raises(ValueError, match="timeout is"):
        await Coordinator().barrier("epoch", 3).wait(timeout=timeout)


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", 1, None])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""
    with pytest.raises(InvalidName):
        Coordinator().barrier(name, 3)
