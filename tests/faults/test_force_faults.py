"""Releasing by force while replies are lost and the operator is cancelled: the holder is told, whatever happens."""

import pytest

from inconcert import Coordinator
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.proxy import Proxy


async def test_lost_reply_is_no_failure(proxy: Proxy, namespace: str, concert: Coordinator) -> None:
    """It is sent again, and finds that it has taken the lock already."""
    for steps in range(1, 4):
        lease = await concert.lock("x").acquire()
        async with Coordinator(proxy.url, namespace=namespace) as operator:
            await operator.ping()
            proxy.cut_after_replies(steps - 1, lose_next=True)
            assert await operator.release_by_force("lock", "x") == [lease.holder]
        await proxy.heal()
        await eventually(lambda: lease.is_lost)  # noqa: B023 - asked at once


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_at_any_await_it_is_done_or_not(
    concert: Coordinator, elsewhere: Coordinator, moment: Moment
) -> None:
    """And if the lock was taken, its holder knows."""
    number, was_under_way = 1, True
    while was_under_way:
        lease = await elsewhere.lock("x").acquire()
        was_under_way = await cancel_at(number, moment, concert.release_by_force("lock", "x"))
        if await concert.lock("x").holders():
            await lease.release()
        else:
            await eventually(lambda: lease.is_lost)  # noqa: B023 - asked at once
        number += 1
    assert number > 2
