"""What a reader-writer lock promises beyond what every lock does: see also `test_permits.py`, in whose family it is."""

import asyncio
import time
from typing import Any

import anyio
import pytest

from inconcert import AcquireTimeout, Coordinator, InvalidName, Lease, LeaseLost, NotHeld, RWLock, WriteLease
from inconcert._core.permits import Permits
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.raw import raw


@pytest.fixture
def doc(any_concert: Coordinator) -> RWLock:
    """One that is free."""
    return any_concert.rwlock("doc")


@pytest.fixture
def doc_elsewhere(elsewhere: Coordinator) -> RWLock:
    """The same one, as another process sees it."""
    return elsewhere.rwlock("doc")


async def join(doc: RWLock, *sides: Permits[Any]) -> "list[asyncio.Task[Any]]":
    """Stand in line with each of these, one after the other."""
    before = await doc.read().waiters()
    tasks: list[asyncio.Task[Any]] = []
    for side in sides:
        tasks.append(asyncio.create_task(side.acquire()))
        await in_line(doc.read(), before + len(tasks))
    return tasks


async def let_go(*leases: Lease) -> None:
    """Release all of these."""
    for lease in leases:
        await lease.release()


async def lapse(concert: Coordinator, *holders: str) -> None:
    """Let the server's side of these leases end now; nobody is told."""
    await raw(concert).zadd(_holders(concert), dict.fromkeys(holders, 1), xx=True)


async def lease_end(concert: Coordinator, lease: Lease) -> float:
    """When the server ends a lease, in its own milliseconds; 0 if it has none."""
    return float(await raw(concert).zscore(_holders(concert), lease.holder) or 0)


def _holders(concert: Coordinator) -> str:
    return concert.rwlock("doc").read()._keys.holders


# Who may be inside together.


async def test_readers_share(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """As many as come, of all processes."""
    leases = [await side.read().acquire(timeout=0) for side in (doc, doc_elsewhere, doc)]
    assert set(await doc.read().holders()) == {lease.holder for lease in leases}
    assert len({lease.fencing_token for lease in leases}) == 3
    await let_go(*leases)


@pytest.mark.parametrize("inside", ["read", "write"])
async def test_writer_is_alone(doc: RWLock, doc_elsewhere: RWLock, inside: str) -> None:
    """It gets in beside nobody, and nobody beside it."""
    lease = await getattr(doc, inside)().acquire()
    assert await doc_elsewhere.write().try_acquire() is None
    reader = await doc_elsewhere.read().try_acquire()
    assert (reader is None) == (inside == "write")
    if reader is not None:
        await reader.release()
    await lease.release()
    await let_go(await doc_elsewhere.write().acquire(timeout=0))


async def test_a_writer_is_never_inside_with_anyone(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """Thirty readers and ten writers of two processes, and readers do meet."""
    inside: list[str] = []
    most = 0

    async def visit(side: Permits[Any], kind: str) -> None:
        nonlocal most
        async with side:
            inside.append(kind)
            assert inside == ["write"] or "write" not in inside
            most = max(most, len(inside))
            for _ in range(3):
                await asyncio.sleep(0)
            inside.remove(kind)

    visits = [
        visit(each.write() if number % 4 == 0 else each.read(), "write" if number % 4 == 0 else "read")
        for number in range(20)
        for each in (doc, doc_elsewhere)
    ]
    await asyncio.gather(*visits)
    assert most > 1


async def test_token_of_a_writer_is_above_those_of_the_readers_before_it(doc: RWLock) -> None:
    """And theirs are above that of the writer before them: one counter for both sides."""
    tokens: list[int] = []
    for side in (doc.read(), doc.write(), doc.read(), doc.write()):
        lease = await side.acquire()
        tokens.append(lease.fencing_token)
        await lease.release()
    assert tokens == sorted(set(tokens))


# Who is served when.


async def test_neighbours_in_line_read_together_and_a_writer_in_line_closes_the_door(
    doc: RWLock, doc_elsewhere: RWLock
) -> None:
    """R R W R R W behind a writer, across two processes: the first two, the writer alone, the last two, the writer."""
    first = await doc.write().acquire()
    r1, r2, w1, r3, r4, w2 = line = await join(
        doc, doc.read(), doc_elsewhere.read(), doc.write(), doc_elsewhere.read(), doc.read(), doc_elsewhere.write()
    )

    async def entered(*expected: "asyncio.Task[Any]") -> list[Any]:
        """Wait until these are in, and look whether those after them still wait."""
        leases = [await asyncio.wait_for(task, 1) for task in expected]
        rest = line[line.index(expected[-1]) + 1 :]
        await in_line(doc.read(), len(rest))
        assert not any(task.done() for task in rest)
        return leases

    await first.release()
    readers = await entered(r1, r2)
    await readers[0].release()
    assert await doc.write().holders() == []
    await readers[1].release()
    [writer] = await entered(w1)
    assert await doc.write().holders() == [writer.holder]
    await writer.release()
    readers = await entered(r3, r4)
    await let_go(*readers)
    [writer] = await entered(w2)
    await writer.release()


async def test_more_readers_than_one_script_serves_enter_together(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """Those of a process that did not release are told to look for the rest."""
    writer = await doc.write().acquire()
    readers = [asyncio.create_task(doc_elsewhere.read().acquire()) for _ in range(230)]
    await in_line(doc.read(), 230)
    await writer.release()
    with anyio.fail_after(1.5):  # less than a lease that is handed over lasts
        leases = await asyncio.gather(*readers)
    await asyncio.gather(*(lease.release() for lease in leases))


@pytest.mark.parametrize("newcomer", ["read", "write"])
async def test_newcomer_does_not_pass_a_writer_in_line(doc: RWLock, doc_elsewhere: RWLock, newcomer: str) -> None:
    """Although a reader could enter beside those who read now."""
    reader = await doc.read().acquire()
    [waiter] = await join(doc, doc_elsewhere.write())
    assert await getattr(doc, newcomer)().try_acquire() is None
    with pytest.raises(AcquireTimeout, match="rwlock 'doc'"):
        await getattr(doc_elsewhere, newcomer)().acquire(timeout=0)
    assert await doc.read().waiters() == 1
    await reader.release()
    await let_go(await waiter)


async def test_readers_behind_a_writer_that_gives_up_enter_at_once(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """Beside those who read already: the door is open again."""
    reader = await doc.read().acquire()
    writer, behind, other = await join(doc, doc.write(), doc_elsewhere.read(), doc.read())
    writer.cancel()
    await let_go(reader, await behind, await other)


@pytest.mark.parametrize("side", ["read", "write"])
async def test_neither_side_starves(doc: RWLock, doc_elsewhere: RWLock, side: str) -> None:
    """One of a side gets in although the other side never leaves a gap."""
    is_over = False

    async def come_and_go(other: Permits[Any]) -> None:
        while not is_over:
            async with other:
                await asyncio.sleep(0.002)

    others = doc_elsewhere.write() if side == "read" else doc_elsewhere.read()
    crowd = [asyncio.create_task(come_and_go(others)) for _ in range(4)]
    try:
        for _ in range(10):
            await let_go(await getattr(doc, side)().acquire(timeout=2))
    finally:
        is_over = True
        await asyncio.gather(*crowd)


# Leases that lapse.


async def test_readers_get_in_when_a_writer_s_lease_has_lapsed(any_concert: Coordinator, doc: RWLock) -> None:
    """A dead writer holds nobody up for longer."""
    writer = await doc.write().acquire()
    await lapse(any_concert, writer.holder)
    leases = [await doc.read().acquire(timeout=0) for _ in range(2)]
    with pytest.raises(LeaseLost):
        await writer.renew()
    await let_go(*leases)


async def test_writer_gets_in_when_all_readers_leases_have_lapsed(any_concert: Coordinator, doc: RWLock) -> None:
    """Also if they are more than are dropped in one step; not before the last has lapsed."""
    reader = await doc.read().acquire()
    dead = [f"dead.{number}" for number in range(250)]
    end = await lease_end(any_concert, reader)
    await raw(any_concert).zadd(_holders(any_concert), dict.fromkeys(dead, end))
    [writer] = await join(doc, doc.write())
    await lapse(any_concert, *dead)
    assert await doc.read().holders() == [reader.holder]
    await reader.release()
    with anyio.fail_after(2):
        await let_go(await writer)


async def test_writer_waits_out_a_dead_reader(any_concert: Coordinator, doc: RWLock) -> None:
    """By a timer of its own: nobody tells it."""
    seconds, microseconds = await raw(any_concert).time()
    await raw(any_concert).zadd(_holders(any_concert), {"dead.1": seconds * 1000 + microseconds // 1000 + 200})
    began = time.monotonic()
    async with doc.write():
        assert 0.15 < time.monotonic() - began < 1.5


async def test_ttl_is_that_of_both_sides(any_concert: Coordinator) -> None:
    """As given to the lock."""
    doc = any_concert.rwlock("doc", ttl=7)
    for side in (doc.read(), doc.write()):
        async with side as lease:
            assert 6 < lease.remaining <= 7


async def test_body_of_either_side_is_cancelled_when_its_lease_is_lost(concert: Coordinator) -> None:
    """And `async with` raises `LeaseLost`; another reader is not harmed."""
    doc = concert.rwlock("doc", ttl=0.3)
    for side in (doc.read(), doc.write()):

        async def hold(side: Permits[Any]) -> None:
            async with side as lease:
                await lapse(concert, lease.holder)
                await anyio.sleep_forever()

        other = await doc.read().acquire() if side is doc.read() else None
        with pytest.raises(LeaseLost), anyio.fail_after(5):
            await hold(side)
        if other is not None:
            await other.renew()
            await other.release()


# Downgrade.


async def test_downgrade_lets_neighbouring_readers_in_and_keeps_writers_out(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """Those in line before the next writer; the lease and its token stay."""
    lease = await doc.write().acquire()
    token = lease.fencing_token
    r1, r2, writer, r3 = await join(doc, doc_elsewhere.read(), doc.read(), doc_elsewhere.write(), doc.read())
    await lease.downgrade()
    readers = [await r1, await r2]
    assert (lease.fencing_token, lease.is_lost) == (token, False)
    assert set(await doc.read().holders()) == {lease.holder, *(reader.holder for reader in readers)}
    await in_line(doc.read(), 2)
    assert not writer.done()
    assert not r3.done()
    await let_go(*readers)
    assert not writer.done()
    await lease.release()
    await let_go(await writer)
    await let_go(await r3)


async def test_downgrade_lets_newcomers_read(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """If nobody waits."""
    async with doc.write() as lease:
        assert await doc_elsewhere.read().try_acquire() is None
        await lease.downgrade()
        async with doc_elsewhere.read():
            assert await doc_elsewhere.write().try_acquire() is None
    assert not await doc.write().locked()


async def test_downgrade_keeps_the_end_of_the_lease(any_concert: Coordinator, doc: RWLock) -> None:
    """On the server and here."""
    lease = await doc.write().acquire()
    end, deadline = await lease_end(any_concert, lease), lease._state.deadline
    await lease.downgrade()
    assert (await lease_end(any_concert, lease), lease._state.deadline) == (end, deadline)
    await lease.release()


async def test_second_downgrade_changes_nothing(doc: RWLock) -> None:
    """One after the other, or at the same time."""
    lease = await doc.write().acquire()
    await asyncio.gather(lease.downgrade(), lease.downgrade())
    holder = lease.holder
    await lease.downgrade()
    assert await doc.read().holders() == [holder] == [lease.holder]
    await lease.release()


async def test_downgrade_of_what_is_not_held_is_refused(any_concert: Coordinator, doc: RWLock) -> None:
    """`LeaseLost` after a lapse, known here or not, and `NotHeld` after a release; nobody reads by it."""
    for is_known in (False, True):
        lease = await doc.write().acquire()
        await lapse(any_concert, lease.holder)
        if is_known:
            lease._state.lose()
        with pytest.raises(LeaseLost):
            await lease.downgrade()
        assert lease.is_lost
        assert await doc.read().holders() == []
    lease = await doc.write().acquire()
    await lease.release()
    with pytest.raises(NotHeld):
        await lease.downgrade()


async def test_downgrade_amid_renewals_keeps_the_lease(any_concert: Coordinator, doc: RWLock) -> None:
    """Whether they were sent before it or after it."""
    lease = await doc.write().acquire()
    await lapse_almost(any_concert, lease)
    await asyncio.gather(lease.renew(), lease.downgrade(), lease.renew())
    assert not lease.is_lost
    assert lease.remaining > 25
    await lease.release()
    assert await doc.read().holders() == []


async def lapse_almost(concert: Coordinator, lease: Lease) -> None:
    """Let a lease end in 10 s instead of 30, here and there."""
    end = await lease_end(concert, lease)
    await raw(concert).zadd(_holders(concert), {lease.holder: end - 20_000}, xx=True)
    lease._state.deadline -= 20


async def test_renewal_under_a_name_that_was_taken_back_does_no_harm(doc: RWLock) -> None:
    """Sent as a reader, behind a downgrade that was then found not to have been run."""
    lease = await doc.write().acquire()
    writer = lease.holder
    lease._state.go_on_as(writer.removesuffix("w"))
    renewal = lease._state._send_renewal()
    lease._state.go_on_as(writer)
    assert await renewal == 0
    assert not lease.is_lost
    await lease.release()


async def test_downgraded_lease_is_renewed_in_the_background(concert: Coordinator) -> None:
    """Under its new name, also one that was handed over just before and is short."""
    doc = concert.rwlock("doc", ttl=0.6)
    writer = await doc.write().acquire()
    [waiter] = await join(doc, doc.write())
    await writer.release()
    lease: WriteLease = await waiter
    await lease.downgrade()
    end = await lease_end(concert, lease)

    async def lasts_longer() -> bool:
        return await lease_end(concert, lease) > end + 600

    await eventually(lasts_longer)
    await lease.release()
    assert await doc.read().holders() == []


async def test_body_of_a_downgraded_lease_releases_the_reader(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """At its end, to the writer in line."""
    async with doc.write() as lease:
        await lease.downgrade()
        [writer] = await join(doc, doc_elsewhere.write())
    await let_go(await writer)


async def test_body_of_a_downgraded_lease_is_cancelled_when_it_is_lost(concert: Coordinator) -> None:
    """As before."""

    async def hold() -> None:
        async with concert.rwlock("doc", ttl=0.3).write() as lease:
            await lease.downgrade()
            await lapse(concert, lease.holder)
            await anyio.sleep_forever()

    with pytest.raises(LeaseLost), anyio.fail_after(5):
        await hold()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_downgrade_goes_on(doc: RWLock, doc_elsewhere: RWLock, moment: Moment) -> None:
    """Once it has begun it is on its way, and its lease is a reader's."""
    lease = await doc.write().acquire()
    [reader] = await join(doc, doc_elsewhere.read())
    assert await cancel_at(1, moment, lease.downgrade())
    await let_go(await reader)
    await lease.renew()
    assert await doc.read().holders() == [lease.holder]
    await lease.release()
    assert await doc.read().holders() == []


async def test_release_right_behind_a_downgrade_releases(doc: RWLock) -> None:
    """Both are on their way at once."""
    lease = await doc.write().acquire()
    await asyncio.gather(lease.downgrade(), lease.release())
    assert await doc.read().holders() == await doc.write().holders() == []
    assert not lease.is_lost


async def test_release_behind_a_downgrade_that_the_server_had_forgotten_releases(
    any_concert: Coordinator, doc: RWLock
) -> None:
    """The script is sent again, and comes after the release; nobody goes on holding by it."""
    lease = await doc.write().acquire()
    await raw(any_concert).script_flush()
    async with any_concert.lock("other"):
        pass  # so that the server knows again how to release
    await asyncio.gather(lease.downgrade(), lease.release(), return_exceptions=True)

    async def nobody_holds() -> bool:
        return await doc.read().holders() == await doc.write().holders() == []

    await eventually(nobody_holds)


# Inspection.


async def test_each_side_tells_of_its_own_holders(doc: RWLock, doc_elsewhere: RWLock) -> None:
    """And both tell the length of the one line."""
    read, write = doc.read(), doc.write()
    assert [await read.locked(), await write.locked()] == [False, False]
    reader = await doc_elsewhere.read().acquire()
    assert [await read.locked(), await write.locked()] == [False, True]
    assert [await read.holders(), await write.holders()] == [[reader.holder], []]
    [waiter] = await join(doc, doc_elsewhere.write())
    assert [await read.locked(), await write.locked()] == [True, True]
    assert [await read.waiters(), await write.waiters()] == [1, 1]
    await reader.release()
    writer = await waiter
    assert [await read.locked(), await write.locked()] == [True, True]
    assert [await read.holders(), await write.holders()] == [[], [writer.holder]]
    await writer.release()


async def test_lapsed_holders_are_not_told_of(any_concert: Coordinator, doc: RWLock) -> None:
    """Although nobody has dropped them yet."""
    writer = await doc.write().acquire()
    await lapse(any_concert, writer.holder)
    assert await doc.write().holders() == []
    assert not await doc.read().locked()
    assert not await doc.write().locked()
    with pytest.raises(LeaseLost):
        await writer.renew()


async def test_name_is_shared_with_nothing_of_another_kind(any_concert: Coordinator, doc: RWLock) -> None:
    """A lock and a semaphore of the same name are other things."""
    async with doc.write(), any_concert.lock("doc", timeout=0), any_concert.semaphore("doc", limit=1, timeout=0):
        assert await doc.write().holders() != []


async def test_side_may_be_entered_again_and_again(doc: RWLock) -> None:
    """`read()` and `write()` cost nothing, and readers may nest as long as no writer waits."""
    async with doc.read() as outer, doc.read() as inner:
        assert {outer.holder, inner.holder} == set(await doc.read().holders())
    assert repr(doc) == "<RWLock 'doc'>"
    assert "on rwlock 'doc'" in repr(outer)


# Bad input.


@pytest.mark.parametrize("name", ["", "a" * 513, 7])
def test_name_is_checked_before_anything_is_sent(name: Any) -> None:
    """`InvalidName`."""
    with pytest.raises(InvalidName):
        Coordinator().rwlock(name)


def test_times_are_checked_before_anything_is_sent() -> None:
    """`ValueError`."""
    with pytest.raises(ValueError, match="ttl is"):
        Coordinator().rwlock("doc", ttl=0)
    with pytest.raises(ValueError, match="timeout is"):
        Coordinator().rwlock("doc", timeout=-1)
