"""Several locks as one: all or none, excluding whoever takes one of them alone, and no circle of those who wait."""

import asyncio
from typing import Any

import anyio
import pytest

from inconcert import (
    AcquireTimeout,
    Coordinator,
    InvalidName,
    LeaseLost,
    Leases,
    Locks,
    NotConnected,
    NotHeld,
)
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.raw import raw


async def held(concert: Coordinator, names: str) -> str:
    """Which of these locks, of one character each, are held."""
    return "".join([name for name in names if await concert.lock(name).holders()])


async def lapse(concert: Coordinator, leases: Leases, *names: str) -> None:
    """Let the server's side of some leases end now; nobody is told."""
    for name in names:
        await raw(concert).zadd(concert.lock(name)._keys.holders, {leases[name].holder: 1}, xx=True)


# All or none.


async def test_free_locks_are_taken_together(any_concert: Coordinator) -> None:
    """Each as by `lock`, with a holder and a fencing token of its own."""
    leases = await any_concert.locks("b", "a", "c").acquire()
    assert list(leases) == ["b", "a", "c"]
    for name, lease in leases.items():
        assert (lease.kind, lease.name) == ("lock", name)
        assert await any_concert.lock(name).holders() == [lease.holder]
        assert leases.fencing_tokens[name] == lease.fencing_token > 0
    assert len({lease.holder for lease in leases.values()}) == len(leases) == 3
    assert 29 < leases.remaining <= 30
    await leases.release()
    assert await held(any_concert, "abc") == ""
    assert leases.remaining == 0
    assert not leases.is_lost


@pytest.mark.parametrize("waits_for", ["held", "waited for"])
@pytest.mark.parametrize("busy", ["a", "b", "c"])
async def test_trying_takes_none_if_one_is_not_free(
    any_concert: Coordinator, elsewhere: Coordinator, busy: str, waits_for: str
) -> None:
    """Held, or with someone in line; and one is told what was tried."""
    other, waiter = elsewhere.lock(busy), None
    lease = await other.acquire()
    if waits_for == "waited for":
        waiter = asyncio.create_task(elsewhere.lock(busy).acquire())
        await in_line(other, 1)
        await raw(any_concert).delete(other._keys.holders)
    locks = any_concert.locks("a", "b", "c")
    assert await locks.try_acquire() is None
    with pytest.raises(AcquireTimeout, match="locks 'a, b, c' was not granted within 0 s"):
        await locks.acquire(timeout=0)
    if waiter is None:
        assert await held(any_concert, "abc") == busy
        await lease.release()
    else:
        # On a cluster each is tried for by itself, which serves its line.
        assert await held(any_concert, "abc") == (busy if any_concert._ref.keys.is_sharded else "")
        assert await other.try_acquire() is None  # this serves the line, too
        await (await waiter).release()


async def test_lapsed_lease_is_in_nobody_s_way(any_concert: Coordinator) -> None:
    """All are free when it has ended."""
    leases = await any_concert.locks("a", "b").acquire()
    await lapse(any_concert, leases, "a", "b")
    new = await any_concert.locks("b", "c", "a").try_acquire()
    assert new is not None
    assert all(new[name].fencing_token > leases[name].fencing_token for name in leases)
    with pytest.raises(LeaseLost):
        await leases.renew()
    await new.release()


async def test_one_of_them_cannot_be_had_alone(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Until all are released; who waits for one is handed it then."""
    async with any_concert.locks("a", "b"):
        assert await elsewhere.lock("a").try_acquire() is None
        assert await elsewhere.locks("b", "c").try_acquire() is None
        waiter = asyncio.create_task(elsewhere.lock("b").acquire())
        await in_line(elsewhere.lock("b"), 1)
    await (await waiter).release()
    assert await held(any_concert, "abc") == ""


# Waiting.


async def test_waiting_takes_what_comes_before_and_stands_in_line_for_the_rest(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """In the order of the names, whatever the order in which they were given."""
    lease = await elsewhere.lock("b").acquire()
    first = asyncio.create_task(elsewhere.lock("b").acquire())
    await in_line(elsewhere.lock("b"), 1)
    waiter = asyncio.create_task(any_concert.locks("c", "b", "a").acquire())
    await in_line(elsewhere.lock("b"), 2)
    last = asyncio.create_task(elsewhere.lock("b").acquire())
    await in_line(elsewhere.lock("b"), 3)
    assert await held(any_concert, "abc") == "ab"
    await lease.release()
    await (await first).release()
    leases = await waiter
    assert list(leases) == ["c", "b", "a"]
    assert await held(any_concert, "abc") == "abc"
    assert not last.done()
    await leases.release()
    await (await last).release()


async def test_nobody_waits_in_a_circle(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Forty visitors of two processes want overlapping locks, named in all orders, and some a single one."""
    names = ["a", "b", "c", "d"]
    inside: set[str] = set()

    async def visit(concert: Coordinator, number: int) -> None:
        wanted = [names[(number + step) % 4] for step in range(1 + number % 3)]
        if number % 2:
            wanted.reverse()
        for _ in range(5):
            async with concert.locks(*wanted) if len(wanted) > 1 else concert.lock(wanted[0]):
                assert not inside.intersection(wanted)
                inside.update(wanted)
                await asyncio.sleep(0)
                inside.difference_update(wanted)

    with anyio.fail_after(20):
        await asyncio.gather(*(visit(concert, number) for number in range(20) for concert in (any_concert, elsewhere)))
    assert await held(any_concert, "abcd") == ""


async def test_all_are_had_although_single_ones_are_never_free_together(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """One who wants all keeps a place in each line, so it does not starve."""
    is_over = False

    async def come_and_go(name: str) -> None:
        while not is_over:
            async with elsewhere.lock(name):
                await asyncio.sleep(0.002)

    crowd = [asyncio.create_task(come_and_go(name)) for name in "abab"]
    try:
        for _ in range(5):
            await (await any_concert.locks("a", "b").acquire(timeout=2)).release()
    finally:
        is_over = True
        await asyncio.gather(*crowd)


async def test_timeout_is_that_of_all_together_and_gives_back_what_was_taken(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """By the object or by `acquire`, and the error names all."""
    async with elsewhere.lock("b"):
        with pytest.raises(AcquireTimeout, match=r"locks 'a, b' was not granted within 0\.02 s"):
            async with any_concert.locks("a", "b", timeout=0.02):
                pytest.fail("one of them is held")
        with pytest.raises(AcquireTimeout):
            await any_concert.locks("a", "b").acquire(timeout=0.02)
        await in_line(elsewhere.lock("b"), 0)
        await eventually(lambda: elsewhere.lock("a").try_acquire())


async def test_what_is_lost_while_the_next_is_waited_for_is_taken_again(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """Nobody is given leases of which one is lost."""
    lease = await elsewhere.lock("b").acquire()
    waiter = asyncio.create_task(any_concert.locks("a", "b", ttl=0.3).acquire())
    await in_line(elsewhere.lock("b"), 1)
    [holder] = await elsewhere.lock("a").holders()
    await raw(any_concert).zrem(elsewhere.lock("a")._keys.holders, holder)
    session = any_concert._ref.session
    await eventually(lambda: holder not in session.renewal._kept)
    await lease.release()
    leases = await waiter
    assert not leases.is_lost
    assert await held(any_concert, "ab") == "ab"
    await leases.release()
    assert await held(any_concert, "ab") == ""


# Cancellation.


async def visit(locks: Locks) -> None:
    """The whole of it."""
    async with locks:
        await anyio.sleep(0)
        await anyio.sleep(0)


@pytest.mark.parametrize("how", [(moment, means) for moment in MOMENTS for means in ("task", "scope")], ids=" by ".join)
@pytest.mark.parametrize("busy", ["", "a", "b", "ab"])
async def test_cancellation_at_any_await_leaves_nothing(
    any_concert: Coordinator, elsewhere: Coordinator, busy: str, how: tuple[Moment, Means]
) -> None:
    """Whichever of the locks it had or waited for."""

    async def cancel_once(number: int) -> bool:
        leases = [await elsewhere.lock(name).acquire(timeout=1) for name in busy]
        victim = asyncio.create_task(cancel_at(number, how[0], visit(any_concert.locks("b", "a")), means=how[1]))
        await eventually(lambda: victim.done() or any_concert._ref.session.lines._lines)
        follower = asyncio.create_task(visit(elsewhere.locks("a", "b")))
        for lease in leases:
            await lease.release()
        with anyio.fail_after(1.8):  # less than the life of a lease that is handed over
            await follower
            return await victim

    number = 1
    while await cancel_once(number):

        async def nothing_is_left() -> bool:
            return await held(elsewhere, "ab") == "" and not await elsewhere.lock("a").waiters()

        await eventually(nothing_is_left)
        number += 1
    assert number > 2


# Leases.


async def test_release_gives_back_all_and_then_tells_of_a_loss(any_concert: Coordinator) -> None:
    """Whichever was lost, known here or not."""
    for name in "abc":
        leases = await any_concert.locks("a", "b", "c").acquire()
        await lapse(any_concert, leases, name)
        await (await any_concert.lock(name).acquire(timeout=0)).release()
        with pytest.raises(LeaseLost, match=f"lock '{name}'"):
            await leases.release()
        assert await held(any_concert, "abc") == ""


async def test_second_release_is_refused(any_concert: Coordinator) -> None:
    """And so is one after a part was released alone, once the rest is given back."""
    leases = await any_concert.locks("a", "b").acquire()
    await leases.release()
    for step in (leases.release, leases.renew):
        with pytest.raises(NotHeld, match="lock 'a'"):
            await step()
    leases = await any_concert.locks("a", "b").acquire()
    await leases["b"].release()
    with pytest.raises(NotHeld, match="lock 'b'"):
        await leases.release()
    assert await held(any_concert, "ab") == ""


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_release_releases(any_concert: Coordinator, moment: Moment) -> None:
    """All of them."""
    leases = await any_concert.locks("a", "b").acquire()
    assert await cancel_at(1, moment, leases.release())
    assert await held(any_concert, "ab") == ""


async def test_renew_makes_all_last_longer(any_concert: Coordinator) -> None:
    """By a full ttl from now, on the server and here."""
    leases = await any_concert.locks("a", "b").acquire()
    for lease in leases.values():
        await raw(any_concert).zincrby(lease._state.keys.holders, -20_000, lease.holder)
        lease._state.deadline -= 20
    assert leases.remaining < 11
    await leases.renew()
    assert leases.remaining > 25
    for lease in leases.values():
        ends = await raw(any_concert).zscore(lease._state.keys.holders, lease.holder)
        assert ends / 1000 > (await raw(any_concert).time())[0] + 25
    await leases.release()


async def test_leases_are_lost_when_one_of_them_is(concert: Coordinator) -> None:
    """`is_lost` says so, and `lost()` returns."""
    leases = await concert.locks("a", "b", ttl=0.3).acquire()
    await lapse(concert, leases, "b")
    with anyio.fail_after(5):
        await leases.lost()
    assert leases.is_lost
    assert (leases["a"].is_lost, leases["b"].is_lost) == (False, True)
    assert leases.remaining == 0
    with pytest.raises(LeaseLost, match="lock 'b'"):
        await leases.renew()
    with pytest.raises(LeaseLost, match="lock 'b'"):
        await leases.release()
    assert await held(concert, "ab") == ""


@pytest.mark.parametrize("moment", MOMENTS[:2])
async def test_waiting_for_a_loss_may_be_cancelled(any_concert: Coordinator, moment: Moment) -> None:
    """Without harm."""
    leases = await any_concert.locks("a", "b").acquire()
    assert await cancel_at(1, moment, leases.lost())
    await leases.release()


# Bodies.


@pytest.mark.parametrize("lost", ["a", "b", "ab"])
async def test_body_is_cancelled_when_one_is_lost(concert: Coordinator, lost: str) -> None:
    """`async with` raises `LeaseLost` by itself, the rest is released, and the task goes on unharmed."""

    async def hold() -> None:
        async with concert.locks("a", "b", ttl=0.3) as leases:
            await lapse(concert, leases, *lost)
            await anyio.sleep_forever()

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()
    assert await held(concert, "ab") == ""
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.parametrize("is_lost_first", [False, True])
async def test_cancellation_from_outside_wins_over_a_loss(concert: Coordinator, is_lost_first: bool) -> None:
    """Whoever cancelled the caller is obeyed."""
    entered: asyncio.Future[Leases] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with concert.locks("a", "b") as leases:
            entered.set_result(leases)
            await anyio.sleep_forever()

    task = asyncio.create_task(hold())
    leases = await entered
    if not is_lost_first:
        task.cancel()
    leases["a"]._state.lose()
    leases["b"]._state.lose()
    if is_lost_first:
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_exception_of_the_body_comes_through_unchanged(any_concert: Coordinator) -> None:
    """With a note of each loss."""
    error = RuntimeError("the body's own")

    async def fail() -> None:
        async with any_concert.locks("a", "b", "c") as leases:
            for name in "ac":
                await raw(any_concert).zrem(any_concert.lock(name)._keys.holders, leases[name].holder)
            raise error

    with pytest.raises(RuntimeError) as caught:
        await fail()
    assert caught.value is error
    assert ["was lost" in note for note in error.__notes__] == [True, True]
    assert await held(any_concert, "abc") == ""


async def test_body_may_release_them_itself(any_concert: Coordinator) -> None:
    """One or all, and nothing is raised at the end."""
    async with any_concert.locks("a", "b") as leases:
        await leases["a"].release()
        assert await held(any_concert, "ab") == "b"
    async with any_concert.locks("a", "b") as leases:
        await leases.release()
    assert await held(any_concert, "ab") == ""


async def test_one_object_serves_many_tasks(any_concert: Coordinator) -> None:
    """Each `async with` ends what it began."""
    locks = any_concert.locks("a", "b")
    await asyncio.gather(*(visit(locks) for _ in range(10)))
    assert locks._entered == []
    assert await held(any_concert, "ab") == ""


# Opening and closing.


@pytest.mark.parametrize("verb", ["acquire", "try_acquire", "__aenter__"])
async def test_closed_coordinator_is_not_connected(verb: str) -> None:
    """Whatever is asked of it."""
    with pytest.raises(NotConnected):
        await getattr(Coordinator("redis://127.0.0.1:1/0").locks("a", "b"), verb)()


async def test_waiter_is_sent_away_when_its_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """With `NotConnected`, and what it had is free."""
    async with any_concert.lock("b"):
        waiter = asyncio.create_task(elsewhere.locks("a", "b").acquire())
        await in_line(any_concert.lock("b"), 1)
        await elsewhere.__aexit__(None, None, None)
        with pytest.raises(NotConnected):
            await waiter
        await in_line(any_concert.lock("b"), 0)
        assert await held(any_concert, "ab") == "b"


async def test_closing_releases_what_is_held(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """At once; the leases are not lost."""
    leases = await elsewhere.locks("a", "b").acquire()
    await elsewhere.__aexit__(None, None, None)
    assert not leases.is_lost
    assert await held(any_concert, "ab") == ""


# Bad input: refused before anything is sent, so the coordinator need not be open.


def test_names_are_1_to_100_and_each_comes_once() -> None:
    """Anything else is a `ValueError`."""
    concert = Coordinator()
    with pytest.raises(ValueError, match="is given 0 names"):
        concert.locks()
    with pytest.raises(ValueError, match="is given 101 names"):
        concert.locks(*map(str, range(101)))
    with pytest.raises(ValueError, match="has a name twice"):
        concert.locks("a", "b", "a")
    assert repr(concert.locks("a", "b")) == "<Locks 'a, b'>"


@pytest.mark.parametrize("name", ["", "a" * 513, 7, None, ["a"]])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""
    with pytest.raises(InvalidName):
        Coordinator().locks("a", name)


def test_times_are_checked() -> None:
    """`ValueError`."""
    with pytest.raises(ValueError, match="ttl is"):
        Coordinator().locks("a", ttl=0)
    with pytest.raises(ValueError, match="timeout is"):
        Coordinator().locks("a", timeout=-1)


async def test_a_hundred_locks_are_taken_in_one_step(any_concert: Coordinator) -> None:
    """And given back."""
    names = [f"n{number}" for number in range(100)]
    async with any_concert.locks(*names, timeout=0) as leases:
        assert list(leases) == names
    async with any_concert.locks(*reversed(names), timeout=0):
        pass
