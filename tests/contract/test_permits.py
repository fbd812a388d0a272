"""What everything that lets only so many in at once promises, whichever it is: a lock, a semaphore.

A new primitive of this kind adds itself to `FAMILY`, and every test here is its own.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from math import inf, nan
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from inconcert import AcquireTimeout, Coordinator, InvalidName, Lease, LeaseLost, NotConnected, NotHeld, testing
from inconcert._core import body as body_module
from inconcert._core import permits as permits_module
from inconcert._core.permits import Permits
from tests.support.background import in_background
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.in_threads import IN_THREADS, threads_at
from tests.support.lines import in_line
from tests.support.permits import FAMILY, Member, fill, lapse
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.servers import RealServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with all members of the family, and some from threads, too."""
    if "member" in metafunc.fixturenames:
        more = IN_THREADS if metafunc.definition.get_closest_marker("also_in_threads") else []
        metafunc.parametrize("member", [*FAMILY, *more], ids=lambda member: str(member.title), indirect=True)


@pytest.fixture
def member(request: pytest.FixtureRequest, server: RealServer | RealCluster) -> Iterator[Member]:
    """Each member of the family in turn."""
    with threads_at(server.url):
        yield request.param


@pytest.fixture
def permits(any_concert: Coordinator, member: Member) -> Permits[Lease]:
    """One of them, free."""
    return member.make(any_concert, "door")


@pytest.fixture
def permits_here(concert: Coordinator, member: Member) -> Permits[Lease]:
    """One of them on a real server, free."""
    return member.make(concert, "door")


@pytest.fixture
async def other(concert: Coordinator, server: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """A second session on the same real server, as another process has it."""
    async with Coordinator(server.url, namespace=namespace) as opened:
        yield opened


@pytest.fixture
def permits_elsewhere(elsewhere: Coordinator, member: Member) -> Permits[Lease]:
    """The same permits, as another process sees them."""
    return member.make(elsewhere, "door")


async def lease_end(concert: Coordinator, permits: Permits[Lease], lease: Lease) -> float:
    """When the server ends a lease, in its own milliseconds; 0 if it has none."""
    end = await raw(concert).zscore(permits._keys.holders, lease.holder)
    return float(end or 0)


async def ended(task: "asyncio.Task[Any]") -> BaseException | None:
    """Wait for the end of a task, and return what it raised."""
    await asyncio.wait([task], timeout=10)
    assert task.done()
    return asyncio.CancelledError() if task.cancelled() else task.exception()


# Exclusion and order.


@pytest.mark.also_in_threads
async def test_never_more_than_the_limit_are_inside(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """Forty tasks of two processes want in, and as many as may are inside at the busiest moment, not one more."""
    inside, most, is_full = 0, 0, asyncio.Event()

    async def visit(door: Permits[Lease]) -> None:
        nonlocal inside, most
        async with door:
            inside += 1
            most = max(most, inside)
            if inside == member.limit:
                is_full.set()
            await is_full.wait()
            for _ in range(3):
                await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(30):
        await asyncio.gather(*(visit(door) for _ in range(20) for door in (permits, permits_elsewhere)))
    assert most == member.limit


@pytest.mark.also_in_threads
async def test_those_who_wait_are_served_in_the_order_of_their_arrival(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """Across two processes."""
    leases = await fill(permits, member)
    served: list[int] = []

    async def wait(number: int) -> Lease:
        lease = await (permits, permits_elsewhere)[number % 2].acquire()
        served.append(number)
        return lease

    tasks: list[asyncio.Task[Lease]] = []
    for number in range(8):
        tasks.append(asyncio.create_task(wait(number)))
        await in_line(permits, number + 1)
    for number, task in enumerate(tasks):
        await leases.pop(0).release()
        leases.append(await task)
        assert served == list(range(number + 1))
    for lease in leases:
        await lease.release()


@pytest.mark.also_in_threads
async def test_released_permit_goes_to_the_first_in_line(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """By the release itself: who holds it afterwards is known before the waiter hears of it."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    await leases[0].release()
    holders = await permits.holders()
    lease = await waiter
    assert lease.holder in holders
    assert len(holders) == member.limit
    for held in [*leases[1:], lease]:
        await held.release()


@pytest.mark.also_in_threads
async def test_newcomer_does_not_overtake_the_line(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """Neither one who waits nor one who tries, at the moment of the release."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    newcomer = asyncio.create_task(permits.acquire())
    await in_line(permits, 2)
    release = asyncio.create_task(leases[0].release())
    assert await permits.try_acquire() is None
    await release
    lease = await waiter
    assert not newcomer.done()
    await lease.release()
    for held in [*leases[1:], await newcomer]:
        await held.release()


@pytest.mark.also_in_threads
async def test_newcomer_does_not_overtake_the_line_when_all_leases_have_lapsed(
    any_concert: Coordinator, permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """Also when the key that held them is gone: it serves those in line before it takes what is left."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    await raw(any_concert).delete(permits._keys.holders)
    newcomer = await permits.try_acquire()
    assert (newcomer is None) == (member.limit == 1)
    with anyio.fail_after(2):
        lease = await waiter
    for held in [lease, newcomer]:
        if held is not None:
            await held.release()
    for lost in leases:
        with pytest.raises(LeaseLost):
            await lost.release()


async def test_caller_with_a_larger_limit_does_not_overtake(any_concert: Coordinator) -> None:
    """Each is judged by its own limit, and all stand in one line."""
    strict, lax = any_concert.semaphore("door", limit=1), any_concert.semaphore("door", limit=3)
    lease = await strict.acquire()
    first = asyncio.create_task(strict.acquire())
    await in_line(strict, 1)
    assert await lax.try_acquire() is None
    second = asyncio.create_task(lax.acquire())
    await in_line(strict, 2)
    await lease.release()
    lease = await first
    third = await second  # the first is in, and for this one there is room beside it
    await third.release()
    await lease.release()


async def test_one_that_wants_many_permits_is_not_starved(any_concert: Coordinator) -> None:
    """It gets all of them or none, in its turn: what is free meanwhile waits for it."""
    semaphore = any_concert.semaphore("door", limit=4)
    two, one = await semaphore.acquire(permits=2), await semaphore.acquire()
    many = asyncio.create_task(semaphore.acquire(permits=4))
    await in_line(semaphore, 1)
    assert await semaphore.try_acquire() is None
    behind = asyncio.create_task(semaphore.acquire())
    await in_line(semaphore, 2)
    await two.release()
    await in_line(semaphore, 2)
    await one.release()
    lease = await many
    assert await semaphore.holders() == [lease.holder]
    assert await semaphore.locked()
    await lease.renew()
    assert not behind.done()
    await lease.release()
    await (await behind).release()
    async with any_concert.semaphore("door", limit=4, permits=3), semaphore as fourth:
        assert await semaphore.try_acquire(permits=1) is None
        assert fourth.holder in await semaphore.holders()
    with pytest.raises(AcquireTimeout):
        async with semaphore:
            await semaphore.acquire(permits=4, timeout=0)
    await (await semaphore.acquire(permits=4, timeout=0)).release()


async def test_all_permits_of_a_holder_end_together(any_concert: Coordinator) -> None:
    """When its lease lapses, and when it is released by force."""
    semaphore = any_concert.semaphore("door", limit=3)
    lease = await semaphore.acquire(permits=3)
    await testing.lapse(lease)
    assert lease.is_lost
    lease = await semaphore.acquire(permits=3, timeout=0)
    assert await any_concert.release_by_force("semaphore", "door") == [lease.holder]
    await (await semaphore.acquire(permits=3, timeout=0)).release()


async def test_cancelled_waiter_for_many_permits_lets_the_next_in(any_concert: Coordinator) -> None:
    """And leaves nothing behind."""
    semaphore = any_concert.semaphore("door", limit=2)
    lease = await semaphore.acquire()
    many = asyncio.create_task(semaphore.acquire(permits=2))
    await in_line(semaphore, 1)
    one = asyncio.create_task(semaphore.acquire())
    await in_line(semaphore, 2)
    many.cancel()
    await (await one).release()
    await lease.release()
    assert await semaphore.holders() == []


async def test_second_in_line_is_served_when_the_first_gives_up(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """One who left the line is not waited for."""
    leases = await fill(permits, member)
    first = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    second = asyncio.create_task(permits.acquire())
    await in_line(permits, 2)
    first.cancel()
    await in_line(permits, 1)
    await leases[0].release()
    lease = await second
    for held in [*leases[1:], lease]:
        await held.release()


@pytest.mark.also_in_threads
async def test_different_names_do_not_meet(any_concert: Coordinator, member: Member) -> None:
    """Not even names that look like a part of another's keys."""
    async with AsyncExitStack() as stack:
        for name in ["a", "a}", "{a", "{a}", "a}:holders", "a:holders", "\0", "ä", " ", "\n", "a" * 512]:
            for _ in range(member.limit):
                assert await stack.enter_async_context(member.make(any_concert, name, timeout=0))


# Waiting and trying.


@pytest.mark.also_in_threads
async def test_acquire_with_timeout_0_tries_once(permits: Permits[Lease], member: Member) -> None:
    """It raises `AcquireTimeout` when none is free, and never stands in line."""
    leases = await fill(permits, member)
    with pytest.raises(AcquireTimeout):
        await permits.acquire(timeout=0)
    assert await permits.waiters() == 0
    for lease in leases:
        await lease.release()


@pytest.mark.also_in_threads
async def test_acquire_gives_up_after_its_timeout(permits: Permits[Lease], member: Member) -> None:
    """Not before, and it leaves the line."""
    leases = await fill(permits, member)
    began = time.monotonic()
    with pytest.raises(AcquireTimeout):
        await permits.acquire(timeout=0.05)
    assert 0.049 <= time.monotonic() - began < 1.0
    await in_line(permits, 0)
    for lease in leases:
        await lease.release()


@pytest.mark.also_in_threads
async def test_acquire_timeout_says_what_was_not_free(permits: Permits[Lease], member: Member) -> None:
    """Kind, name and seconds, in the message and as attributes; it is a `TimeoutError`, too."""
    leases = await fill(permits, member)
    with pytest.raises(TimeoutError, match=r"'door' was not granted within 0\.02 s") as caught:
        await permits.acquire(timeout=timedelta(milliseconds=20))
    assert isinstance(caught.value, AcquireTimeout)
    assert (caught.value.kind, caught.value.name, caught.value.timeout) == (leases[0].kind, "door", 0.02)
    for lease in leases:
        await lease.release()


@pytest.mark.also_in_threads
async def test_timeout_of_the_object_is_that_of_acquire_and_async_with(
    any_concert: Coordinator, member: Member
) -> None:
    """Unless `acquire` is given another."""
    impatient = member.make(any_concert, "door", timeout=0.01)
    leases = await fill(impatient, member)
    with pytest.raises(AcquireTimeout, match=r"within 0\.01 s"):
        await impatient.acquire()
    with pytest.raises(AcquireTimeout, match=r"within 0\.01 s"):
        async with impatient:
            pytest.fail("nobody else may be inside")
    patient = asyncio.create_task(impatient.acquire(timeout=None))
    await in_line(impatient, 1)
    await anyio.sleep(0.03)
    await leases[0].release()
    for lease in [*leases[1:], await patient]:
        await lease.release()


@pytest.mark.also_in_threads
async def test_try_acquire_takes_what_is_free_and_never_waits(permits: Permits[Lease], member: Member) -> None:
    """A lease, or None when all are held."""
    leases = [await permits.try_acquire() for _ in range(member.limit)]
    assert await permits.try_acquire() is None
    assert await permits.waiters() == 0
    for lease in leases:
        assert lease is not None
        await lease.release()


# Leases.


@pytest.mark.also_in_threads
async def test_lease_says_what_it_is(permits: Permits[Lease]) -> None:
    """Its name, its holder, unique each time, its token and the time that it has left."""
    first = await permits.acquire()
    assert first.name == "door"
    assert isinstance(first.fencing_token, int)
    assert 25 < first.remaining <= 30
    assert not first.is_lost
    assert str(first.fencing_token) in repr(first)
    await first.release()
    assert first.remaining == 0
    assert not first.is_lost
    second = await permits.acquire()
    assert second.holder != first.holder
    await second.release()


@pytest.mark.also_in_threads
async def test_second_release_raises_not_held(permits: Permits[Lease]) -> None:
    """And renewing what was released does."""
    lease = await permits.acquire()
    await lease.release()
    with pytest.raises(NotHeld, match="'door' was released before"):
        await lease.release()
    with pytest.raises(NotHeld):
        await lease.renew()


@pytest.mark.also_in_threads
async def test_release_after_a_lapse_raises_lease_lost(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """The error has the facts, and nothing is left."""
    lease = await permits.acquire()
    await raw(any_concert).delete(permits._keys.holders)
    with pytest.raises(LeaseLost) as caught:
        await lease.release()
    assert (caught.value.name, caught.value.fencing_token) == ("door", lease.fencing_token)
    assert await permits.holders() == []


@pytest.mark.also_in_threads
async def test_lapsed_permit_is_free(
    any_concert: Coordinator, permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """Whoever comes after the lease's end gets it, and one who lost it cannot disturb them."""
    leases = await fill(permits, member)
    await lapse(any_concert, permits, leases[0])
    assert leases[0].holder not in await permits.holders()
    lease = await permits_elsewhere.acquire(timeout=0)
    with pytest.raises(LeaseLost):
        await leases[0].release()
    assert lease.holder in await permits.holders()
    for held in [*leases[1:], lease]:
        await held.release()


@pytest.mark.also_in_threads
async def test_waiter_gets_in_when_a_dead_holder_s_lease_lapses(
    any_concert: Coordinator, permits: Permits[Lease]
) -> None:
    """Nobody tells it: it looks by itself when the lease should have ended."""
    seconds, microseconds = await raw(any_concert).time()
    end = seconds * 1000 + microseconds // 1000 + 200
    await raw(any_concert).zadd(permits._keys.holders, {f"dead.{number}": end for number in range(5)})
    began = time.monotonic()
    async with permits:
        assert 0.15 < time.monotonic() - began < 1.5


@pytest.mark.also_in_threads
async def test_waiter_gets_in_when_a_lease_lapses_that_others_outlast(
    any_concert: Coordinator, permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """The nearest end counts, also that of one who got its permit from the line's head."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    await lapse(any_concert, permits, leases[0])
    assert await permits.try_acquire() is None  # but it serves the line
    lease = await waiter
    with pytest.raises(LeaseLost):
        await leases[0].renew()
    for held in [*leases[1:], lease]:
        await held.release()


@pytest.mark.also_in_threads
async def test_renew_makes_a_lease_last_a_full_ttl_from_now(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """On the server and here."""
    lease = await permits.acquire()
    end = await lease_end(any_concert, permits, lease)
    await raw(any_concert).zadd(permits._keys.holders, {lease.holder: end - 20_000}, xx=True)
    lease._state.deadline -= 20
    await lease.renew()
    assert await lease_end(any_concert, permits, lease) >= end
    assert lease.remaining > 25
    await lease.release()


@pytest.mark.also_in_threads
async def test_renew_after_a_lapse_raises_lease_lost(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """A lapsed lease is not brought back to life, even if nobody took the permit."""
    lease = await permits.acquire()
    await lapse(any_concert, permits, lease)
    with pytest.raises(LeaseLost):
        await lease.renew()
    assert lease.is_lost
    assert await permits.holders() == []


@pytest.mark.also_in_threads
async def test_lease_is_renewed_in_the_background(concert: Coordinator, member: Member) -> None:
    """As long as it is held, it does not end."""
    permits = member.make(concert, "door", ttl=0.3)
    async with permits as lease:
        end = await lease_end(concert, permits, lease)

        async def lasts_longer() -> bool:
            return await lease_end(concert, permits, lease) > end + 300

        await eventually(lasts_longer)
        assert not lease.is_lost
    assert await permits.holders() == []


async def test_body_is_cancelled_when_its_lease_is_lost(concert: Coordinator, member: Member) -> None:
    """And `async with` raises `LeaseLost`, by itself and in no group."""
    permits = member.make(concert, "door", ttl=0.3)
    stopped: list[Lease] = []

    async def hold() -> None:
        async with permits as lease:
            await lapse(concert, permits, lease)
            try:
                await anyio.sleep_forever()
            finally:
                stopped.append(lease)

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()
    assert stopped[0].is_lost


async def test_task_goes_on_unharmed_after_a_loss(concert: Coordinator, member: Member) -> None:
    """The cancellation was the body's alone: none is left for later, and none is counted."""
    permits = member.make(concert, "door", ttl=0.3)
    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold_until_lost(concert, permits)
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    async with permits:
        await asyncio.sleep(0)


async def hold_until_lost(concert: Coordinator, permits: Permits[Lease]) -> None:
    """Enter a body whose lease lapses on the server, and stay in it."""
    async with permits as lease:
        await lapse(concert, permits, lease)
        await anyio.sleep_forever()


async def test_body_that_swallows_its_cancellation_is_told_at_its_end(
    concert: Coordinator, member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cancelled again while it goes on, and however it ends, `LeaseLost` is raised."""
    monkeypatch.setattr(body_module, "CANCEL_AGAIN", 0.05)
    permits = member.make(concert, "door", ttl=0.3)
    swallowed = 0

    async def hold() -> None:
        nonlocal swallowed
        async with permits as lease:
            await lapse(concert, permits, lease)
            for _ in range(3):
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    swallowed += 1

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()
    assert swallowed == 3


async def test_inner_body_is_stopped_when_an_outer_lease_is_lost(concert: Coordinator, member: Member) -> None:
    """The outer `async with` raises `LeaseLost`, and the inner lease is released."""
    outer = member.make(concert, "outer", ttl=0.3)
    inner = member.make(concert, "inner")

    async def hold() -> None:
        async with outer as lease, inner:
            await lapse(concert, outer, lease)
            await anyio.sleep_forever()

    with pytest.raises(LeaseLost, match="'outer'"), anyio.fail_after(5):
        await hold()
    assert await inner.holders() == []


async def test_outermost_loss_is_told_when_both_leases_are_lost(concert: Coordinator, member: Member) -> None:
    """Nothing of the body's cancellation is left."""
    outer = member.make(concert, "outer", ttl=0.3)
    inner = member.make(concert, "inner", ttl=0.3)

    async def hold() -> None:
        async with outer as one, inner as other:
            await lapse(concert, outer, one)
            await lapse(concert, inner, other)
            await anyio.sleep_forever()

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()
    await asyncio.sleep(0)


@pytest.mark.parametrize("is_lost_first", [False, True])
async def test_cancellation_from_outside_wins_over_a_loss(
    concert: Coordinator, member: Member, is_lost_first: bool
) -> None:
    """Whoever cancelled the caller is obeyed, also if the lease is lost at that moment."""
    permits = member.make(concert, "door")
    entered = asyncio.Event()
    leases: list[Lease] = []

    async def hold() -> None:
        async with permits as lease:
            leases.append(lease)
            entered.set()
            await anyio.sleep_forever()

    task = asyncio.create_task(hold())
    await entered.wait()
    if not is_lost_first:
        task.cancel()
    leases[0]._state.lose()
    if is_lost_first:
        task.cancel()
    assert isinstance(await ended(task), asyncio.CancelledError)


async def test_body_in_a_task_group_is_stopped_when_its_lease_is_lost(concert: Coordinator, member: Member) -> None:
    """With all tasks in it, of asyncio's kind and of anyio's."""
    permits = member.make(concert, "door", ttl=0.3)
    stopped: list[str] = []

    async def work(kind: str) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(kind)

    async def hold() -> None:
        async with permits as lease, asyncio.TaskGroup() as group, anyio.create_task_group() as other:
            await lapse(concert, permits, lease)
            group.create_task(work("asyncio"))
            other.start_soon(work, "anyio")

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()
    assert sorted(stopped) == ["anyio", "asyncio"]


async def test_lost_returns_when_the_lease_is_lost(concert: Coordinator, member: Member) -> None:
    """For leases without a body; at once if it is lost already."""
    permits = member.make(concert, "door", ttl=0.3)
    lease = await permits.acquire()
    await lapse(concert, permits, lease)
    with anyio.fail_after(5):
        await lease.lost()
        await lease.lost()
    assert lease.is_lost
    with pytest.raises(LeaseLost):
        await lease.renew()


async def test_abandoned_lease_lapses(concert: Coordinator, member: Member, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody renews what nobody holds on to, and the log says so."""
    permits = member.make(concert, "door", ttl=1)
    for _ in range(member.limit):
        await permits.acquire()
    gc.collect()
    async with permits as lease:

        async def others_are_gone() -> bool:
            return await permits.holders() == [lease.holder]

        await eventually(others_are_gone)
    assert f"lease on {lease.kind} 'door' was dropped without a release" in caplog.text


async def test_lease_that_is_held_is_not_taken_for_abandoned(concert: Coordinator, member: Member) -> None:
    """`async with` without `as` keeps it."""
    permits = member.make(concert, "door", ttl=3.0)  # it is renewed after a second, or after two on a busy machine
    async with permits:
        gc.collect()
        (_, first_end), *_ = await raw(concert).zrange(permits._keys.holders, 0, -1, withscores=True)

        async def is_renewed_beyond_it() -> bool:
            ends = await raw(concert).zrange(permits._keys.holders, 0, -1, withscores=True)
            return all(end > first_end for _, end in ends)

        await eventually(is_renewed_beyond_it)


# Fencing tokens.


async def _release(concert: Coordinator, permits: Permits[Lease], held: list[Lease]) -> None:
    for lease in held:
        await lease.release()


async def _hand_over(concert: Coordinator, permits: Permits[Lease], held: list[Lease]) -> None:
    waiter = asyncio.create_task(permits.acquire())
    await in_line(permits, 1)
    await _release(concert, permits, held)
    lease = await waiter
    assert lease.fencing_token > max(old.fencing_token for old in held)
    await lease.release()


async def _lapse(concert: Coordinator, permits: Permits[Lease], held: list[Lease]) -> None:
    for lease in held:
        await lapse(concert, permits, lease)


async def _delete_keys(concert: Coordinator, permits: Permits[Lease], held: list[Lease]) -> None:
    await raw(concert).delete(*permits._keys)


async def _flush_all(concert: Coordinator, permits: Permits[Lease], held: list[Lease]) -> None:
    await raw(concert).flushall()


async def _flush_scripts(concert: Coordinator, permits: Permits[Lease], held: list[Lease]) -> None:
    await _release(concert, permits, held)
    await raw(concert).script_flush()


@pytest.mark.also_in_threads
@pytest.mark.parametrize("happening", [_release, _hand_over, _lapse, _delete_keys, _flush_all, _flush_scripts])
async def test_fencing_token_rises(
    any_concert: Coordinator, permits: Permits[Lease], member: Member, happening: Callable[..., Awaitable[None]]
) -> None:
    """With every grant, whatever came between it and the one before."""
    tokens: list[int] = []
    for _ in range(3):
        held = await fill(permits, member)
        tokens += [lease.fencing_token for lease in held]
        await happening(any_concert, permits, held)
    assert tokens == sorted(set(tokens))


@pytest.mark.also_in_threads
async def test_fencing_token_rises_although_the_server_s_clock_went_back(
    any_concert: Coordinator, permits: Permits[Lease]
) -> None:
    """The counter is ahead of the clock, and is counted on from."""
    lease = await permits.acquire()
    ahead = lease.fencing_token + 3_600_000_000
    await raw(any_concert).set(permits._keys.fence, ahead, px=60_000)
    await lease.release()
    for number in (1, 2):
        async with permits as lease:
            assert lease.fencing_token == ahead + number


# Cancellation.


@pytest.mark.parametrize("moment", MOMENTS[:2])
async def test_cancelled_waiter_leaves_the_line(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member, moment: Moment
) -> None:
    """Nobody has to wait for it, and the permits are free when their holders have gone."""
    leases = await fill(permits, member)
    assert await cancel_at(1, moment, permits_elsewhere.acquire())
    await in_line(permits, 0)
    for lease in leases:
        await lease.release()
    assert await permits.holders() == []


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_acquire_gives_back_what_it_was_granted(permits: Permits[Lease], moment: Moment) -> None:
    """A grant whose reply comes too late holds up nobody."""
    assert await cancel_at(1, moment, permits.acquire())

    async def nobody_holds_it() -> bool:
        return await permits.holders() == []

    await eventually(nobody_holds_it)


@pytest.mark.parametrize("scoped", [False, True])
async def test_cancelled_body_releases(permits: Permits[Lease], scoped: bool) -> None:
    """By asyncio's cancellation and by anyio's scopes, and the cancellation goes on."""
    entered = asyncio.Event()
    scope = anyio.CancelScope()

    async def hold() -> None:
        with scope:
            async with permits:
                entered.set()
                await anyio.sleep_forever()

    task = asyncio.create_task(hold())
    await entered.wait()
    (scope if scoped else task).cancel()
    error = await ended(task)
    assert scope.cancelled_caught if scoped else isinstance(error, asyncio.CancelledError)

    async def nobody_holds_it() -> bool:
        return await permits.holders() == []

    await eventually(nobody_holds_it)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_release_releases(permits: Permits[Lease], moment: Moment) -> None:
    """Once it has begun it is on its way, whatever becomes of its caller."""
    lease = await permits.acquire()
    assert await cancel_at(1, moment, lease.release())

    async def nobody_holds_it() -> bool:
        return await permits.holders() == []

    await eventually(nobody_holds_it)
    with pytest.raises(NotHeld):
        await lease.release()


# Bodies.


@pytest.mark.also_in_threads
async def test_one_object_serves_many_tasks(permits: Permits[Lease], member: Member) -> None:
    """Each `async with` ends its own lease, whoever shares the object."""
    tokens: set[int] = set()

    async def visit() -> None:
        async with permits as lease:
            await asyncio.sleep(0)
            assert lease.holder in await permits.holders()
            tokens.add(lease.fencing_token)
        assert lease.remaining == 0

    await asyncio.gather(*(visit() for _ in range(20)))
    assert len(tokens) == 20
    assert permits._entered == []


@pytest.mark.also_in_threads
async def test_one_task_may_hold_as_many_as_there_are(permits: Permits[Lease], member: Member) -> None:
    """Nested `async with` on one object, each with a lease of its own, ended from the inside out."""
    async with AsyncExitStack() as stack:
        leases = [await stack.enter_async_context(permits) for _ in range(member.limit)]
        assert await permits.try_acquire() is None
    assert len({lease.holder for lease in leases}) == member.limit
    assert await permits.holders() == []


async def test_nested_body_ends_the_lease_that_it_began(any_concert: Coordinator) -> None:
    """The inner one's, when the inner one ends."""
    semaphore = any_concert.semaphore("door", limit=2)
    async with semaphore as outer:
        async with semaphore as inner:
            assert set(await semaphore.holders()) == {outer.holder, inner.holder}
        assert await semaphore.holders() == [outer.holder]


@pytest.mark.also_in_threads
async def test_exception_of_the_body_comes_through_unchanged(permits: Permits[Lease]) -> None:
    """Itself, in no group, and the permit is released."""
    error = RuntimeError("the body's own")

    async def fail() -> None:
        async with permits:
            raise error

    with pytest.raises(RuntimeError) as caught:
        await fail()
    assert caught.value is error
    assert await permits.holders() == []


@pytest.mark.also_in_threads
async def test_exception_of_the_body_wins_over_a_lost_lease(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """Which is added to it as a note."""

    async def fail() -> None:
        async with permits as lease:
            await raw(any_concert).zrem(permits._keys.holders, lease.holder)
            raise RuntimeError("the body's own")

    with pytest.raises(RuntimeError, match="the body's own") as caught:
        await fail()
    assert ["was lost" in note for note in caught.value.__notes__] == [True]


async def test_exception_of_the_body_wins_over_a_cancelled_scope(permits: Permits[Lease]) -> None:
    """A body that fails while it is being cancelled has failed, and that is what its caller learns."""

    async def fail() -> None:
        with anyio.CancelScope() as scope:
            async with permits:
                scope.cancel()
                raise RuntimeError("the body's own")

    with pytest.raises(RuntimeError, match="the body's own"):
        await fail()
    assert await permits.holders() == []


@pytest.mark.also_in_threads
async def test_body_may_release_its_lease_itself(permits: Permits[Lease]) -> None:
    """Early, and nothing is raised at the end."""
    async with permits as lease:
        await lease.release()
        assert await permits.holders() == []


# Inspection.


@pytest.mark.also_in_threads
async def test_locked_tells_whether_all_are_held(permits: Permits[Lease], member: Member) -> None:
    """True exactly when `acquire` would have to wait."""
    assert not await permits.locked()
    leases = await fill(permits, member)
    assert await permits.locked()
    await leases.pop().release()
    assert not await permits.locked()
    for lease in leases:
        await lease.release()


@pytest.mark.also_in_threads
async def test_holders_are_those_whose_leases_have_not_lapsed(
    any_concert: Coordinator, permits: Permits[Lease], member: Member
) -> None:
    """In the order in which they end."""
    assert await permits.holders() == []
    leases = await fill(permits, member)
    for number, lease in enumerate(leases):
        end = await lease_end(any_concert, permits, lease)
        await raw(any_concert).zadd(permits._keys.holders, {lease.holder: end - 1000 * number}, xx=True)
    assert await permits.holders() == [lease.holder for lease in reversed(leases)]
    await lapse(any_concert, permits, leases[-1])
    assert leases[-1].holder not in await permits.holders()
    with pytest.raises(LeaseLost):
        await leases.pop().renew()
    for lease in leases:
        await lease.release()


async def test_waiters_counts_those_in_line(
    permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """Of all processes."""
    leases = await fill(permits, member)
    tasks = [asyncio.create_task(door.acquire()) for door in (permits, permits_elsewhere, permits_elsewhere)]
    await in_line(permits, 3)
    for task in tasks:
        task.cancel()
    await in_line(permits, 0)
    for lease in leases:
        await lease.release()


# Handing over.


def ends_in(server: RealServer | RealCluster, permits: Permits[Lease], holder: str) -> float:
    """Seconds until the server ends a lease, asked while the event loop stands still."""
    owner = server.owner(permits._keys.holders) if isinstance(server, RealCluster) else server
    seconds, microseconds = (int(part) for part in owner.command("TIME"))
    end = float(owner.command("ZSCORE", permits._keys.holders, holder))
    return end / 1000 - (seconds + microseconds / 1e6)


async def wait_long(concert: Coordinator, permits: Permits[Lease]) -> None:
    """Let all in line have joined a minute ago: the server cannot know whether they still run."""
    waiters = permits._keys.waiters
    for place, ticket in await raw(concert).zrange(waiters, 0, -1, withscores=True):
        await raw(concert).zadd(waiters, {place: ticket - 60_000_000})


@pytest.mark.parametrize("waits_long", [True, False])
async def test_lease_that_was_handed_over_lasts_its_ttl_before_the_body_runs(
    concert: Coordinator, other: Coordinator, server: RealServer | RealCluster, member: Member, waits_long: bool
) -> None:
    """It is long at once, or its extension is on its way when the first line runs, which may block the event loop."""
    permits = member.make(concert, "door", ttl=30)

    async def enter() -> None:
        async with permits as lease:
            deadline = time.monotonic() + 5  # not an await: the loop stands still until the server has it
            while ends_in(server, permits, lease.holder) < 25:
                assert time.monotonic() < deadline, "the lease was not extended"

    leases = await fill(member.make(other, "door"), member)
    waiter = asyncio.create_task(enter())
    await in_line(permits, 1)
    if waits_long:
        await wait_long(concert, permits)
    for lease in leases:
        await lease.release()
    await waiter


@pytest.mark.parametrize("awaits", [True, False])
async def test_body_that_blocks_the_loop_after_a_hand_over_is_safe_for_its_ttl(
    concert: Coordinator, other: Coordinator, member: Member, monkeypatch: pytest.MonkeyPatch, awaits: bool
) -> None:
    """It holds longer than the short lease that it began with, and is not taken for lost when the loop turns again."""
    monkeypatch.setattr(permits_module, "_HANDOFF", 0.1)
    permits = member.make(concert, "door", ttl=30)

    async def block() -> None:
        async with permits as lease:
            assert lease.remaining < 0.1
            time.sleep(0.15)
            if awaits:
                await anyio.lowlevel.checkpoint()
                await anyio.lowlevel.checkpoint()
                assert not lease.is_lost

    leases = await fill(member.make(other, "door"), member)
    waiter = asyncio.create_task(block())
    await in_line(permits, 1)
    await wait_long(concert, permits)
    for lease in leases:
        await lease.release()
    await waiter


async def test_permit_that_is_handed_to_nobody_is_given_back_at_once(
    concert: Coordinator, permits_here: Permits[Lease], member: Member
) -> None:
    """A place was left in line by a call that came late: its process, which lives, declines."""
    leases = await fill(permits_here, member)
    stray = f"{leases[0].holder.partition('.')[0]}.0"
    await raw(concert).zadd(permits_here._keys.waiters, {f"{member.limit}:2000:30000 {stray}": 1})
    waiter = asyncio.create_task(permits_here.acquire())
    await in_line(permits_here, 2)
    with anyio.fail_after(1.5):
        for lease in leases:
            await lease.release()
        await (await waiter).release()
    assert await permits_here.waiters() == 0


async def test_permit_that_is_held_already_is_not_declined(
    concert: Coordinator, permits_here: Permits[Lease], member: Member
) -> None:
    """What was said of it may be heard twice, by a reply and by a message."""
    lease = await permits_here.acquire()
    end = await lease_end(concert, permits_here, lease)
    told = f"{lease.holder} permit 1 0 {end:.0f} 2000 {member.limit}:2000:30000 {permits_here._keys.holders}"
    concert._ref.session.inbox.dispatch(told)
    await permits_here.holders()
    assert await lease_end(concert, permits_here, lease) == end
    await lease.release()


async def test_release_takes_out_a_place_that_came_back_late(
    any_concert: Coordinator, permits: Permits[Lease], member: Member
) -> None:
    """A look was held up on the way until its lease had lapsed and another held, so it stands in line again."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits.acquire())
    await in_line(permits, 1)
    [place] = await raw(any_concert).zrange(permits._keys.waiters, 0, -1)
    await leases.pop().release()
    handed = await waiter
    end = await lease_end(any_concert, permits, handed)
    await raw(any_concert).zadd(permits._keys.holders, {"dead.1": end})
    await raw(any_concert).zrem(permits._keys.holders, handed.holder)
    await raw(any_concert).zadd(permits._keys.waiters, {place: 1})
    with pytest.raises(LeaseLost):
        await handed.release()
    assert await permits.waiters() == 0
    for lease in leases:
        await lease.release()


@pytest.mark.one_server("a proxy is in front of one; tests/faults/test_cluster_links.py has those of a cluster")
@pytest.mark.parametrize("gives_up", ["try_acquire", "acquire"])
async def test_one_try_ends_though_its_ttl_is_shorter_than_the_way_to_the_server(
    server: RealServer, namespace: str, member: Member, gives_up: str
) -> None:
    """What it was granted has ended when it hears of it."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as concert:
        permits = member.make(concert, "door", ttl=0.05)
        proxy.delay(0.03)
        with anyio.fail_after(2):
            if gives_up == "try_acquire":
                assert await permits.try_acquire() is None
            else:
                with pytest.raises(AcquireTimeout):
                    await permits.acquire(timeout=0)


# Opening and closing.


@pytest.mark.parametrize("verb", ["acquire", "try_acquire", "__aenter__", "locked", "holders", "waiters"])
async def test_closed_coordinator_is_not_connected(member: Member, verb: str) -> None:
    """Whatever is asked of it."""
    permits = member.make(Coordinator("redis://127.0.0.1:1/0"), "door")
    with pytest.raises(NotConnected):
        await getattr(permits, verb)()


async def test_waiter_is_sent_away_when_its_coordinator_closes(
    permits: Permits[Lease], elsewhere: Coordinator, permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """With `NotConnected`, and it leaves the line."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    await elsewhere.__aexit__(None, None, None)
    assert isinstance(await ended(waiter), NotConnected)
    await in_line(permits, 0)
    for lease in leases:
        await lease.release()


async def test_closing_releases_what_is_held(
    permits: Permits[Lease], elsewhere: Coordinator, permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """At once, to those who wait elsewhere; nobody has lost a lease of it."""
    leases = await fill(permits_elsewhere, member)
    waiter = asyncio.create_task(permits.acquire())
    await in_line(permits, 1)
    await elsewhere.__aexit__(None, None, None)
    lease = await waiter
    assert await permits.holders() == [lease.holder]
    assert not any(closed.is_lost for closed in leases)
    await lease.release()


async def test_body_under_a_lease_is_stopped_when_its_coordinator_closes(
    elsewhere: Coordinator, permits_elsewhere: Permits[Lease]
) -> None:
    """With `LeaseLost`."""
    entered = asyncio.Event()

    async def hold() -> None:
        async with permits_elsewhere:
            entered.set()
            await anyio.sleep_forever()

    task = asyncio.create_task(hold())
    await entered.wait()
    await elsewhere.__aexit__(None, None, None)
    assert isinstance(await ended(task), LeaseLost)


async def test_lost_lease_is_told_even_when_its_coordinator_closed_meanwhile(
    elsewhere: Coordinator, permits_elsewhere: Permits[Lease]
) -> None:
    """A body that tidies up for long after a loss is not told that all was well."""
    lost, closed = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with permits_elsewhere as lease:
            await raw(elsewhere).delete(permits_elsewhere._keys.holders)
            try:
                await lease.renew()
            finally:
                lost.set()
                with anyio.CancelScope(shield=True):
                    await closed.wait()

    task = asyncio.create_task(hold())
    await lost.wait()
    await elsewhere.__aexit__(None, None, None)
    closed.set()
    assert isinstance(await ended(task), LeaseLost)


# Bad input: refused before anything is sent, so the coordinator need not be open.


@pytest.mark.also_in_threads
@pytest.mark.parametrize("ttl", [0, -1, nan, inf, 0.0001, True, "30", None, timedelta(seconds=-1)])
def test_ttl_is_a_time_above_0(member: Member, ttl: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="ttl is"):
        member.make(Coordinator(), "door", ttl=ttl)


@pytest.mark.also_in_threads
@pytest.mark.parametrize("timeout", [-1, -0.001, nan, inf, False, "1", timedelta(seconds=-1)])
async def test_timeout_is_a_time_from_0(member: Member, timeout: Any) -> None:
    """Anything else but None is a `ValueError`, of the object and of `acquire`."""
    with pytest.raises(ValueError, match="timeout is"):
        member.make(Coordinator(), "door", timeout=timeout)
    with pytest.raises(ValueError, match="timeout is"):
        await member.make(Coordinator(), "door").acquire(timeout=timeout)


@pytest.mark.also_in_threads
@pytest.mark.parametrize("name", ["", "a" * 513, "ä" * 257, "\ud800", b"door", 7, None])
def test_name_is_a_string_of_1_to_512_bytes(member: Member, name: Any) -> None:
    """Anything else is `InvalidName`, which is a `ValueError`."""
    with pytest.raises(InvalidName) as caught:
        member.make(Coordinator(), name)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "1", None, 100_001])
def test_limit_of_a_semaphore_is_a_whole_number_above_0(limit: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match="limit of semaphore 'door' is"):
        Coordinator().semaphore("door", limit=limit)


@pytest.mark.parametrize("limit", [True, 1.0])
async def test_limit_that_was_refused_is_not_kept(concert: Coordinator, elsewhere: Coordinator, limit: Any) -> None:
    """Though it equals that of a lock, and terms are kept for all that ask for equal ones."""
    ttl = 28.0 + isinstance(limit, bool)  # which no other test asks for
    with pytest.raises(ValueError, match="limit of semaphore 'door' is"):
        concert.semaphore("door", limit=limit, ttl=ttl)
    lease = await concert.lock("door", ttl=ttl).acquire()
    async with in_background(elsewhere.lock("door", ttl=ttl).acquire()) as waits:
        await eventually(concert.lock("door").waiters)
        await lease.release()
        await (await waits).release()


@pytest.mark.parametrize("permits", [0, -1, True, 1.0, "1", 4])
async def test_permits_are_a_whole_number_up_to_the_limit(permits: Any) -> None:
    """Anything else is a `ValueError`, before anything is sent."""
    with pytest.raises(ValueError, match=r"permits of semaphore 'door' is .* from 1 to 3"):
        Coordinator().semaphore("door", limit=3, permits=permits)
    semaphore = Coordinator().semaphore("door", limit=3)
    with pytest.raises(ValueError, match="permits of semaphore 'door' is"):
        await semaphore.acquire(permits=permits)
    with pytest.raises(ValueError, match="permits of semaphore 'door' is"):
        await semaphore.try_acquire(permits=permits)
    with pytest.raises(ValueError, match="from 1 to 1,000"):
        await Coordinator().semaphore("door", limit=100_000).acquire(permits=1_001)
