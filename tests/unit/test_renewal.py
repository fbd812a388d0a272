"""The renewal of leases, without a server."""

import asyncio
import time

from inconcert._core.renewal import Renewal
from inconcert._redis.wire.turns import IN_A_TURN
from tests.support.eventually import eventually


class Kept:
    """A lease that is due at once, and notes in which turn of the loop it is renewed."""

    kind, name = "lock", "test"

    def __init__(self, holder: str, turns: list[int]) -> None:
        self.holder = holder
        self._turns = turns
        self.renew_at = time.monotonic()
        self.deadline = self.renew_at + 60
        self.given_up = False

    def start_renewal(self) -> None:
        self._turns[-1] += 1
        self.renew_at = self.deadline

    def lose(self) -> None:
        raise AssertionError("it has 60 s")

    def give_up(self) -> None:
        self.given_up = True


async def count_turns(turns: list[int]) -> None:
    """Begin a new count in each turn of the loop."""
    while True:
        turns.append(0)
        await asyncio.sleep(0)


async def test_many_leases_are_renewed_in_many_turns_of_the_loop() -> None:
    """200 in each, when they are due and when the server was lost; and all of them."""
    turns = [0]
    counting = asyncio.create_task(count_turns(turns))
    renewal = Renewal()
    leases = [Kept(str(number), turns) for number in range(2001)]
    for lease in leases:
        renewal.add(lease)
    await eventually(lambda: sum(turns) == len(leases))
    assert max(turns) == IN_A_TURN
    for lease in leases:
        lease.renew_at = time.monotonic() + 1
    turns[:] = [0]
    renewal.renew_all()
    await eventually(lambda: sum(turns) == len(leases))
    assert max(turns) == IN_A_TURN
    counting.cancel()
    renewal.close()


async def test_lease_that_is_added_while_others_are_looked_at_is_renewed_in_time() -> None:
    """Though that takes several turns of the loop."""
    renewal = Renewal()
    late = Kept("late", later := [0])

    class AddsAnother(Kept):
        def start_renewal(self) -> None:
            super().start_renewal()
            renewal.add(late)

    leases = [(AddsAnother if number == 300 else Kept)(str(number), [0]) for number in range(2000)]
    for lease in leases:
        renewal.add(lease)
    await eventually(lambda: later == [1])
    renewal.close()


async def test_closed_renewal_keeps_and_renews_nothing() -> None:
    """What comes after the close sets no timer, and what is left is given to whoever closes it."""
    renewal = Renewal()
    early, late = Kept("early", [0]), Kept("late", [0])
    renewal.add(early)
    renewal.close()
    assert [*renewal.take_all()] == [early]
    renewal.add(late)
    assert not renewal.is_needed
    assert renewal.timer is not None
    assert renewal.timer.cancelled()
    assert early.renew_at < early.deadline
