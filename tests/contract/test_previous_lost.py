"""A holder knows whether one before it has lost its lease instead of releasing it."""

import asyncio
from typing import cast

import pytest

from inconcert import Coordinator, Lease, LeaseLost, testing
from inconcert._core.lease import state_of
from inconcert._core.permits import Permits
from inconcert.reports.force import Forcible
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.permits import FAMILY, Member, fill, lapse
from tests.support.raw import raw

DAY_MS = 86_400_000


@pytest.fixture(params=FAMILY, ids=lambda member: str(member.title))
def member(request: pytest.FixtureRequest) -> Member:
    """Each member of the family in turn."""
    found: Member = request.param
    return found


@pytest.fixture
def permits(any_concert: Coordinator, member: Member) -> Permits[Lease]:
    """One of them, free."""
    return member.make(any_concert, "door")


@pytest.fixture
def permits_elsewhere(elsewhere: Coordinator, member: Member) -> Permits[Lease]:
    """The same permits, as another process sees them."""
    return member.make(elsewhere, "door")


async def told(permits: Permits[Lease]) -> bool:
    """What the next holder knows, which releases."""
    async with permits as lease:
        return lease.previous_lost


async def test_release_is_not_a_loss(permits: Permits[Lease]) -> None:
    """Nor is it if nobody held before."""
    assert [await told(permits) for _ in range(3)] == [False, False, False]


async def test_lapse_is_told_once(
    any_concert: Coordinator, permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """To the next holder, in whichever process."""
    leases = await fill(permits, member)
    await lapse(any_concert, permits, leases[0])
    assert [await told(permits_elsewhere), await told(permits_elsewhere)] == [True, False]
    await raw(any_concert).delete(permits._keys.holders)


async def test_loss_of_many_permits_is_told_once(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Though the server drops a hundred of them at a time."""
    wide = any_concert.semaphore("door", limit=300, permits=250)
    await testing.lapse(await wide.acquire())
    one = elsewhere.semaphore("door", limit=300)
    assert [await told(one) for _ in range(4)] == [True, False, False, False]


async def test_renewal_does_not_hide_a_loss_from_a_second_run(
    any_concert: Coordinator, permits: Permits[Lease], member: Member
) -> None:
    """A holder that was told, and asks again since the reply was lost, is told again."""
    lease = (await fill(permits, member))[0]
    await lapse(any_concert, permits, lease)
    async with permits as after:
        assert after.previous_lost
        await after.renew()
        end = await raw(any_concert).zscore(permits._keys.holders, after.holder)
        assert end is not None
        assert end % 0.5 == 0.25
    await raw(any_concert).delete(permits._keys.holders)


async def test_loss_outlives_the_lease_by_a_day(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """Also one that lapses where nobody is in line, and one that was renewed."""
    lease = await permits.acquire()
    assert await raw(any_concert).pttl(permits._keys.holders) > DAY_MS
    await raw(any_concert).pexpire(permits._keys.holders, 1000)
    await lease.renew()
    assert await raw(any_concert).pttl(permits._keys.holders) > DAY_MS
    await lease.release()


async def test_loss_is_told_to_one_that_waited(
    any_concert: Coordinator, permits: Permits[Lease], permits_elsewhere: Permits[Lease], member: Member
) -> None:
    """It has the place of a holder whose lease was released by force."""
    leases = await fill(permits, member)
    waiter = asyncio.create_task(permits_elsewhere.acquire())
    await in_line(permits, 1)
    await any_concert.release_by_force(cast("Forcible", leases[0].kind), "door", holder=leases[0].holder)
    assert (await waiter).previous_lost
    await (await waiter).release()
    for lease in leases[1:]:
        await lease.release()


async def test_release_by_force_is_told_later(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """Where nobody waits: the loss is noted beside the fencing token, which outlives it."""
    lease = await permits.acquire()
    await any_concert.release_by_force(cast("Forcible", lease.kind), "door")
    assert await raw(any_concert).pttl(permits._keys.fence) > DAY_MS
    after = await permits.acquire()
    assert after.previous_lost
    assert after.fencing_token > lease.fencing_token
    await after.release()
    await eventually(lambda: lease.is_lost)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_acquire_passes_the_loss_on(
    any_concert: Coordinator, permits: Permits[Lease], member: Member, moment: Moment
) -> None:
    """It never came as far as its body, so the next one is told."""
    leases = await fill(permits, member)
    await lapse(any_concert, permits, leases[0])
    assert await cancel_at(1, moment, permits.acquire())
    assert await told(permits)
    await raw(any_concert).delete(permits._keys.holders)


@pytest.mark.parametrize("moment", MOMENTS[:2])
async def test_cancelled_waiter_leaves_no_loss(permits: Permits[Lease], member: Member, moment: Moment) -> None:
    """Those before it released."""
    leases = await fill(permits, member)
    assert await cancel_at(1, moment, permits.acquire())
    for lease in leases:
        await lease.release()
    assert not await told(permits)


async def test_holder_that_is_late_has_lost(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """It stood still beyond its lease, and releases before anyone has looked."""
    lease = await permits.acquire()
    await lapse(any_concert, permits, lease)
    state_of(lease).deadline = 0.0
    with pytest.raises(LeaseLost):
        await lease.release()
    assert await told(permits)


async def test_holder_that_is_stopped_has_lost(any_concert: Coordinator, permits: Permits[Lease]) -> None:
    """It learns of the loss by a renewal."""
    lease = await permits.acquire()
    await lapse(any_concert, permits, lease)
    with pytest.raises(LeaseLost):
        await lease.renew()
    with pytest.raises(LeaseLost):
        await lease.release()
    assert await told(permits)


async def test_lease_that_is_open_when_its_coordinator_closes_is_told_to_the_next(
    permits: Permits[Lease], elsewhere: Coordinator, member: Member
) -> None:
    """Nobody has released it."""
    lease = await member.make(elsewhere, "door").acquire()
    await elsewhere.__aexit__(None, None, None)
    assert not lease.is_lost
    assert await told(permits)
    await elsewhere.__aenter__()


async def test_each_of_several_locks_is_told_of_its_own(any_concert: Coordinator) -> None:
    """Those of `locks()` are the same as the single ones."""
    lock = any_concert.lock("b")
    lease = await lock.acquire()
    await lapse(any_concert, lock, lease)
    async with any_concert.locks("a", "b") as leases:
        assert [leases[name].previous_lost for name in "ab"] == [False, True]
    async with any_concert.locks("a", "b") as leases:
        assert [leases[name].previous_lost for name in "ab"] == [False, False]


async def test_writer_is_told_of_a_reader(any_concert: Coordinator) -> None:
    """A reader-writer lock tells the next holder of either side, once."""
    doc = any_concert.rwlock("doc")
    reader = await doc.read().acquire()
    await lapse(any_concert, doc.read(), reader)
    assert [await told(doc.write()), await told(doc.read())] == [True, False]
