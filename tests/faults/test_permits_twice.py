"""The scripts of locks and permits answer a second run as their TWICE lines say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from inconcert import Coordinator
from inconcert._core.permit_state import PermitKeys
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from tests.support.raw import raw
from tests.support.scripts import command_of


@dataclass(frozen=True, slots=True)
class Bench:
    """A server with nothing on it, and who stands before it."""

    concert: Coordinator
    keys: PermitKeys
    inboxes: str
    me: str  # in the process of the test, so that what it is granted is in the answer
    other: str

    @property
    def writer(self) -> str:
        """A holder beside whom nobody may hold."""
        return f"{self.me}9w"

    async def run(self, name: str, **named: Argument | tuple[Argument, ...]) -> Reply:
        """Run a script once."""
        return await self.concert._ref.session.run(command_of(name, self.keys, **named))

    async def acquire(self, holder: str, *, ticket: int = 0, limit: int = 1) -> Reply:
        """Run the script that acquires; joins the line by default."""
        line = f"{limit}:2000 {ticket} {self.inboxes}"
        reply = await self.run("permits/acquire", holder=holder, ttl_ms=30_000, line=line)
        return [reply, 0] if isinstance(reply, int) else reply

    async def release(self, place: str = "", *, ended: str = "") -> Reply:
        """Run the script that gives back what was never waited for; or with a place what was, or leaves the line."""
        special: Any = (place, ended) if place or ended else ()
        reply = await self.run("permits/release", holder=self.me, inboxes=self.inboxes, special=special)
        return [reply] if isinstance(reply, int) else reply

    async def renew(self) -> Reply:
        """Run the script that renews."""
        return await self.run("permits/renew", holder=self.me, ttl_ms=30_000)

    async def downgrade(self) -> Reply:
        """Run the script that makes a writer a reader."""
        reply = await self.run("permits/downgrade", holder=self.writer, inboxes=self.inboxes, heir=self.me)
        return [reply] if isinstance(reply, int) else reply

    async def acquire_several(self, first: PermitKeys, second: PermitKeys, *holders: str) -> Reply:
        """Run the script that acquires two locks at once."""
        command = command_of("locks/acquire", locks=(*first, *second), ttl_ms=30_000, holders=holders)
        return await self.concert._ref.session.run(command)

    async def holders(self) -> list[str]:
        """Who holds, in the order in which their leases end."""
        return [holder.decode() for holder in await raw(self.concert).zrange(self.keys.holders, 0, -1)]

    async def waiters(self) -> list[tuple[str, float]]:
        """Who stands in line, with their tickets."""
        places = await raw(self.concert).zrange(self.keys.waiters, 0, -1, withscores=True)
        return [(place.decode().split(" ")[1], ticket) for place, ticket in places]


@pytest.fixture
async def bench(any_concert: Coordinator) -> Bench:
    """A lock that nobody has."""
    session = any_concert._ref.session
    keys = any_concert._ref.keys.of(PermitKeys, "lock", "door")
    return Bench(any_concert, keys, session.inboxes(""), session.new_address(), session.new_address())


async def acquire_free(bench: Bench) -> None:
    """A holder stays one, with a full lease and a new, larger token."""
    first = (await bench.acquire(bench.me))[0]
    await raw(bench.concert).zincrby(bench.keys.holders, -20_000, bench.me)
    short = await raw(bench.concert).zscore(bench.keys.holders, bench.me)
    second = (await bench.acquire(bench.me))[0]
    assert second > first
    assert await bench.holders() == [bench.me]
    full = await raw(bench.concert).zscore(bench.keys.holders, bench.me)
    assert full - short > 19_000
    assert await bench.waiters() == []


async def acquire_several_permits(bench: Bench) -> None:
    """It has them once; all are renewed, and given back, together."""
    wide = f"{bench.me}x3"
    entries = [wide, f"{wide}+2", f"{wide}+3"]
    first = (await bench.acquire(wide, limit=4))[0]
    [second, *_] = await bench.acquire(wide, limit=4)
    assert second > first
    assert await bench.holders() == entries
    assert await bench.run("permits/inspect") == [0, 3, wide.encode()]
    for entry in entries:
        await raw(bench.concert).zincrby(bench.keys.holders, -20_000, entry)
    short = await raw(bench.concert).zscore(bench.keys.holders, wide)
    for _ in range(2):
        assert await bench.run("permits/renew", holder=wide, ttl_ms=30_000) == 1
        assert len(await raw(bench.concert).zrangebyscore(bench.keys.holders, short + 19_000, "+inf")) == 3
    for held in 1, 0:
        assert await bench.run("permits/release", holder=wide, inboxes=bench.inboxes, special=("", "")) == held
        assert await bench.holders() == []


async def acquire_after_a_loss(bench: Bench) -> None:
    """It is told again, and the next holder is not."""
    await bench.acquire(bench.other)
    await raw(bench.concert).zadd(bench.keys.holders, {bench.other: 1})
    assert [(await bench.acquire(bench.me))[1] for _ in range(2)] == [1, 1]
    assert await bench.renew() == 1
    assert (await bench.acquire(bench.me))[1] == 1
    await bench.release()
    assert (await bench.acquire(bench.me))[1] == 0


async def acquire_held(bench: Bench) -> None:
    """A waiter keeps its place."""
    await bench.acquire(bench.other)
    first = await bench.acquire(bench.me)
    line = await bench.waiters()
    third = bench.concert._ref.session.new_address()
    await bench.acquire(third)
    second = await bench.acquire(bench.me)
    assert (first[0], second[0]) == (0, 0)
    assert (first[4], second[4]) == (1, 0)
    assert first[3] == second[3] == line[0][1]
    assert [holder for holder, _ in await bench.waiters()] == [bench.me, third]


async def acquire_held_without_waiting(bench: Bench) -> None:
    """Who is refused is refused again, and stands in no line."""
    await bench.acquire(bench.other)
    for _ in range(2):
        assert (await bench.acquire(bench.me, ticket=-1))[0] == 0
    assert await bench.waiters() == []
    assert await bench.holders() == [bench.other]


async def acquire_with_a_ticket(bench: Bench) -> None:
    """One who was skipped has its place back, once."""
    await bench.acquire(bench.other)
    ticket = (await bench.acquire(bench.me))[3]
    third = bench.concert._ref.session.new_address()
    await bench.acquire(third)
    await raw(bench.concert).zrem(bench.keys.waiters, f"1:2000:30000 {bench.me}")
    assert [(await bench.acquire(bench.me, ticket=ticket))[3:5] for _ in range(2)] == [[ticket, 1], [ticket, 0]]
    assert [holder for holder, _ in await bench.waiters()] == [bench.me, third]


async def release(bench: Bench) -> None:
    """{0}: it is not held any more."""
    await bench.acquire(bench.me)
    assert await bench.release() == [1]
    assert await bench.release() == [0]
    assert await bench.holders() == []


async def drop(bench: Bench) -> None:
    """0: it is not held any more."""
    await bench.acquire(bench.me)
    assert await bench.run("permits/drop", holder=bench.me) == 1
    assert await bench.run("permits/drop", holder=bench.me) == 0
    assert await bench.holders() == []


async def evict(bench: Bench) -> None:
    """0 for each, and who has it by then keeps it."""
    await bench.acquire(bench.me)
    evicted: Any = [bench.me, "session.9"]
    assert await bench.run("permits/evict", inboxes=bench.inboxes, evicted=evicted) == [0, 1, 0]
    await bench.acquire(bench.other)
    assert await bench.run("permits/evict", inboxes=bench.inboxes, evicted=evicted) == [0, 0, 0]
    assert await bench.holders() == [bench.other]


async def release_what_was_lost(bench: Bench) -> None:
    """{0}, and the loss is told once."""
    for ended in "late", "lost":
        await bench.acquire(bench.me)
        await raw(bench.concert).zadd(bench.keys.holders, {bench.me: 1})
        held = await bench.release(ended=ended)
        assert held == ([0] if ended == "late" else [1])
        assert await bench.release(ended=ended) == [0]
        assert (await bench.acquire(bench.other))[1] == 1
        assert (await bench.acquire(bench.other))[1] == 1
        await bench.run("permits/drop", holder=bench.other)
        assert (await bench.acquire(bench.other))[1] == 0
        await bench.run("permits/drop", holder=bench.other)


async def release_what_nobody_used(bench: Bench) -> None:
    """{0}, and the loss is still to be told, once."""
    await bench.acquire(bench.other)
    await raw(bench.concert).zadd(bench.keys.holders, {bench.other: 1})
    assert (await bench.acquire(bench.me))[1] == 1
    assert [await bench.release(ended="unused") for _ in range(2)] == [[1], [0]]
    assert (await bench.acquire(bench.me))[1] == 1
    assert [await bench.release() for _ in range(2)] == [[1], [0]]
    assert (await bench.acquire(bench.me))[1] == 0
    assert [await bench.release(ended="unused") for _ in range(2)] == [[1], [0]]
    assert (await bench.acquire(bench.me))[1] == 0


async def release_to_one_who_waits(bench: Bench) -> None:
    """{0, ...}, and nobody else gets what was handed over."""
    await bench.acquire(bench.me)
    await bench.acquire(bench.other)
    third = bench.concert._ref.session.new_address()
    await bench.acquire(third)
    first = await bench.release()
    second = await bench.release()
    assert (first[0], second[0]) == (1, 0)
    assert [grant.decode().split()[0] for grant in first[2:]] == [bench.other]
    assert second[2:] == []
    assert await bench.holders() == [bench.other]
    assert [holder for holder, _ in await bench.waiters()] == [third]


async def withdraw_from_the_line(bench: Bench) -> None:
    """{0, ...}: there is nothing to leave any more."""
    await bench.acquire(bench.other)
    await bench.acquire(bench.me)
    for _ in range(2):
        assert (await bench.release(f"1:2000:30000 {bench.me}"))[0] == 0
        assert await bench.waiters() == []
        assert await bench.holders() == [bench.other]


async def withdraw_what_was_granted(bench: Bench) -> None:
    """{1, ...} with who has it next, then {0, ...} and nobody more."""
    await bench.acquire(bench.me)
    await bench.acquire(bench.other)
    first = await bench.release(f"1:2000:30000 {bench.me}")
    second = await bench.release(f"1:2000:30000 {bench.me}")
    assert first[0] == 1
    assert [grant.decode().split()[0] for grant in first[2:]] == [bench.other]
    assert second == [0]
    assert await bench.holders() == [bench.other]


async def renew(bench: Bench) -> None:
    """The same, counted from the second run."""
    await bench.acquire(bench.me)
    for _ in range(2):
        await raw(bench.concert).zincrby(bench.keys.holders, -20_000, bench.me)
        short = await raw(bench.concert).zscore(bench.keys.holders, bench.me)
        assert await bench.renew() == 1
        full = await raw(bench.concert).zscore(bench.keys.holders, bench.me)
        assert full - short > 19_000


async def renew_many(bench: Bench) -> None:
    """The same, counted from the second run; also beside one that has lapsed, and a key that is not ours."""
    await bench.acquire(bench.me)
    held, foreign = bench.keys.holders, f"{bench.keys.holders}:foreign"
    await raw(bench.concert).set(foreign, "x")
    leases = (bench.me, 30_000, "nobody.1", 30_000, "nobody.2", 30_000)
    command = command_of("permits/renew_many", holders=(held, held, foreign), leases=leases)
    for _ in range(2):
        await raw(bench.concert).zincrby(held, -20_000, bench.me)
        short = await raw(bench.concert).zscore(held, bench.me)
        assert await bench.concert._ref.session.run(command) == [1, 0, -1]
        assert await raw(bench.concert).zscore(held, bench.me) - short > 19_000
        assert await bench.holders() == [bench.me]
    await raw(bench.concert).delete(foreign)


async def renew_what_is_not_held(bench: Bench) -> None:
    """0 and 0, and nothing is held by it."""
    for _ in range(2):
        assert await bench.renew() == 0
    assert await bench.holders() == []


async def inspect(bench: Bench) -> None:
    """The same; nothing is changed."""
    await bench.acquire(bench.me)
    await bench.acquire(bench.other)
    for _ in range(2):
        assert await bench.run("permits/inspect") == [1, 1, bench.me.encode()]


async def downgrade(bench: Bench) -> None:
    """1 and 1, under the name of the heir, for as long as the lease had left."""
    await bench.acquire(bench.writer)
    ends = await raw(bench.concert).zscore(bench.keys.holders, bench.writer)
    for _ in range(2):
        assert await bench.downgrade() == [1]
        assert await bench.holders() == [bench.me]
        assert await raw(bench.concert).zscore(bench.keys.holders, bench.me) == ends


async def downgrade_before_one_who_waits(bench: Bench) -> None:
    """It enters by the first run; the writer behind it waits on."""
    await bench.acquire(bench.writer)
    await bench.acquire(bench.other, limit=100)
    await bench.acquire(f"{bench.other}9w")
    first = await bench.downgrade()
    second = await bench.downgrade()
    assert (first[0], second[0]) == (1, 1)
    assert [grant.decode().split()[0] for grant in first[2:]] == [bench.other]
    assert second[2:] == []
    assert set(await bench.holders()) == {bench.me, bench.other}
    assert [holder for holder, _ in await bench.waiters()] == [f"{bench.other}9w"]


async def downgrade_what_is_not_held(bench: Bench) -> None:
    """0 and 0, and nobody holds by it."""
    for _ in range(2):
        assert await bench.downgrade() == [0]
        assert await bench.holders() == []


async def acquire_several(bench: Bench) -> None:
    """What they hold they go on holding, with full leases and new, larger tokens, also when someone waits by now."""
    gate = bench.concert._ref.keys.of(PermitKeys, "lock", "gate")
    first = await bench.acquire_several(bench.keys, gate, bench.me, bench.other)
    await raw(bench.concert).zincrby(bench.keys.holders, -20_000, bench.me)
    short = await raw(bench.concert).zscore(bench.keys.holders, bench.me)
    third = bench.concert._ref.session.new_address()
    await bench.acquire(third)
    second = await bench.acquire_several(bench.keys, gate, bench.me, bench.other)
    assert all(new > old for new, old in zip(second[::2], first[::2], strict=True))
    assert await raw(bench.concert).zscore(bench.keys.holders, bench.me) - short > 19_000
    assert await bench.holders() == [bench.me]
    assert [holder for holder, _ in await bench.waiters()] == [third]


async def acquire_several_of_which_one_is_held(bench: Bench) -> None:
    """None and none."""
    gate = bench.concert._ref.keys.of(PermitKeys, "lock", "gate")
    await bench.acquire(bench.other)
    for _ in range(2):
        assert await bench.acquire_several(gate, bench.keys, bench.me, bench.me) == []
        assert await raw(bench.concert).exists(*gate) == 0
        assert await bench.holders() == [bench.other]


TWICE: dict[str, list[Callable[[Bench], Awaitable[None]]]] = {
    "permits/acquire": [
        acquire_free,
        acquire_several_permits,
        acquire_after_a_loss,
        acquire_held,
        acquire_held_without_waiting,
        acquire_with_a_ticket,
    ],
    "permits/downgrade": [downgrade, downgrade_before_one_who_waits, downgrade_what_is_not_held],
    "permits/drop": [drop],
    "permits/evict": [evict],
    "permits/inspect": [inspect],
    "permits/release": [
        release,
        release_what_was_lost,
        release_what_nobody_used,
        release_to_one_who_waits,
        withdraw_from_the_line,
        withdraw_what_was_granted,
    ],
    "permits/renew": [renew, renew_what_is_not_held],
    "permits/renew_many": [renew_many],
    "locks/acquire": [acquire_several, acquire_several_of_which_one_is_held],
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.__name__, marks=pytest.mark.twice(name))
        for name, cases in TWICE.items()
        for case in cases
    ],
)
async def test_second_run_answers_as_the_header_says(bench: Bench, case: Callable[[Bench], Awaitable[None]]) -> None:
    """See each case."""
    await case(bench)
