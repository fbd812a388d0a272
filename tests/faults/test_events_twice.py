"""The scripts of events, latches and barriers answer a second run as their TWICE lines say."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from inconcert import Barrier, Coordinator
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from tests.support.raw import raw
from tests.support.scripts import command_of

TTL_MS = 10_000
CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Bench:
    """A server with nothing on it."""

    concert: Coordinator

    async def run(self, name: str, **named: Argument) -> Reply:
        """Run a script of the one event, latch or barrier once."""
        event, latch = self.concert.event("it"), self.concert.latch("it", 9)
        keys = {"events": event._keys, "latches": latch._keys, "barriers": self.barrier._terms.keys}
        return await self.concert._ref.session.run(command_of(name, keys[name.partition("/")[0]], **named))

    async def set(self, request: str) -> Reply:
        """Run the script that sets the event."""
        return await self.run("events/set", request=request, ttl_ms=TTL_MS, changes=CHANGES)

    async def clear(self, request: str) -> Reply:
        """Run the script that clears the event."""
        return await self.run("events/clear", request=request)

    async def is_set(self) -> Reply:
        """Run the script that looks at the event."""
        return (await self.run("events/inspect"))[0]

    async def count_down(self, request: str, n: int) -> Reply:
        """Run the script that counts."""
        return await self.run("latches/count_down", request=request, n=n, ttl_ms=TTL_MS, changes=CHANGES)

    @property
    def barrier(self) -> Barrier:
        """The one barrier."""
        return self.concert.barrier("it", 3)

    async def arrive(self, holder: str, parties: int = 3, *, waits: int = 1) -> Reply:
        """Run the script that takes part."""
        terms = {"parties": parties, "ttl_ms": TTL_MS, "waits": waits}
        return await self.run("barriers/arrive", holder=holder, **terms, changes=CHANGES)

    async def renew(self, holder: str, number: Argument) -> Reply:
        """Run the script that makes a participant's lease last longer."""
        return await self.run("barriers/renew", holder=holder, round=number, ttl_ms=TTL_MS, changes=CHANGES)

    async def leave(self, holder: str) -> Reply:
        """Run the script that takes part no more."""
        return await self.run("barriers/leave", holder=holder)

    async def abort(self, request: str) -> Reply:
        """Run the script that breaks the barrier."""
        return await self.run("barriers/abort", request=request, changes=CHANGES)

    async def reset(self, request: str) -> Reply:
        """Run the script that lets it begin anew."""
        return await self.run("barriers/reset", request=request, changes=CHANGES)

    async def lapse(self, holder: str) -> None:
        """Let the lease of one participant end now."""
        await raw(self.concert).zadd(self.barrier._terms.keys.participants, {holder: 1}, xx=True)

    async def order(self) -> list[bytes]:
        """Who takes part in the open round."""
        found: list[bytes] = await raw(self.concert).zrange(self.barrier._terms.keys.order, 0, -1)
        return found


@pytest.fixture
def bench(any_concert: Coordinator) -> Bench:
    """Nothing is set, counted or waited for."""
    return Bench(any_concert)


# Events.


async def set_(bench: Bench) -> None:
    """Nothing is changed, even if it was cleared in between."""
    assert await bench.set("a") == 1
    assert await bench.set("a") == 1
    await bench.clear("b")
    assert await bench.set("a") == 1
    assert await bench.is_set() == 0


async def clear(bench: Bench) -> None:
    """Nothing is changed, even if it was set in between."""
    await bench.set("a")
    assert await bench.clear("b") == 1
    assert await bench.clear("b") == 1
    await bench.set("c")
    assert await bench.clear("b") == 1
    assert await bench.is_set() == 1


async def look_at_an_event(bench: Bench) -> None:
    """The same."""
    await bench.set("a")
    assert [await bench.is_set() for _ in range(2)] == [1, 1]


# Latches.


async def count_down(bench: Bench) -> None:
    """The same, and nothing more is counted."""
    assert [await bench.count_down("a", 2) for _ in range(2)] == [2, 2]
    assert await bench.count_down("b", 3) == 5
    assert await bench.count_down("a", 2) == 2
    assert await bench.run("latches/inspect") == 5


async def look_at_a_latch(bench: Bench) -> None:
    """The same."""
    assert [await bench.run("latches/inspect") for _ in range(2)] == [0, 0]
    await bench.count_down("a", 2)
    assert [await bench.run("latches/inspect") for _ in range(2)] == [2, 2]


# Barriers.


async def arrive_early(bench: Bench) -> None:
    """The same round, with one place in it."""
    first = await bench.arrive("a")
    assert first[1] == b""
    await bench.arrive("b")
    assert await bench.arrive("a") == first
    assert await bench.order() == [b"a", b"b"]


async def arrive_before_the_round_has_ended(bench: Bench) -> None:
    """What has become of it since, and no place in the next."""
    number, _ = await bench.arrive("a", 2)
    await bench.arrive("b", 2)
    assert await bench.arrive("a", 2) == [number, number + b" passed a b"]
    assert await bench.order() == []


async def arrive_last(bench: Bench) -> None:
    """The same outcome."""
    await bench.arrive("a", 2)
    first = await bench.arrive("b", 2)
    assert first[1].endswith(b" passed a b")
    await bench.arrive("c", 2)
    assert await bench.arrive("b", 2) == first
    assert await bench.order() == [b"c"]


async def arrive_after_leaving(bench: Bench) -> None:
    """Nothing is joined by what was sent before."""
    await bench.leave("a")
    for _ in range(2):
        assert await bench.arrive("a") == [b"", b""]
        assert await bench.order() == []


async def arrive_without_waiting(bench: Bench) -> None:
    """Refused again, or the same outcome."""
    for _ in range(2):
        assert await bench.arrive("a", 2, waits=0) == [b"", b""]
    assert await bench.order() == []
    await bench.arrive("b", 2)
    first = await bench.arrive("c", 2, waits=0)
    assert first[1].endswith(b" passed b c")
    assert await bench.arrive("c", 2, waits=0) == first


async def arrive_after_a_death(bench: Bench) -> None:
    """The round that was begun by it, once."""
    number, _ = await bench.arrive("a")
    await bench.lapse("a")
    first = await bench.arrive("b")
    assert int(first[0]) == int(number) + 1
    assert await bench.arrive("b") == first
    assert await bench.arrive("a") == [number, number + b" broken a"]
    assert await bench.order() == [b"b"]


async def renew(bench: Bench) -> None:
    """The same, counted from the second run."""
    number, _ = await bench.arrive("a")
    participants = bench.barrier._terms.keys.participants
    for _ in range(2):
        await raw(bench.concert).zincrby(participants, -5_000, "a")
        short = await raw(bench.concert).zscore(participants, "a")
        assert await bench.renew("a", number) == 1
        assert await raw(bench.concert).zscore(participants, "a") - short > 4_000


async def renew_beside_a_dead_one(bench: Bench) -> None:
    """The outcome, and no other round is broken."""
    number, _ = await bench.arrive("a")
    await bench.arrive("b")
    await bench.lapse("a")
    assert await bench.renew("b", number) == number + b" broken a"
    await bench.arrive("c")
    assert await bench.renew("b", number) == number + b" broken a"
    assert await bench.order() == [b"c"]


async def renew_what_is_forgotten(bench: Bench) -> None:
    """Nothing is known, and nothing is joined."""
    for _ in range(2):
        assert await bench.renew("a", "1") == b""
    assert await bench.order() == []


async def leave(bench: Bench) -> None:
    """0, and nothing is changed."""
    await bench.arrive("a")
    await bench.arrive("b")
    assert [await bench.leave("a") for _ in range(2)] == [1, 0]
    assert await bench.order() == [b"b"]


async def abort(bench: Bench) -> None:
    """The same, and nothing more is broken."""
    number, _ = await bench.arrive("a")
    assert [await bench.abort("x") for _ in range(2)] == [1, 1]
    assert [await bench.abort("y") for _ in range(2)] == [0, 0]
    await bench.reset("z")
    await bench.arrive("b")
    assert [await bench.abort(request) for request in "xy"] == [1, 0]
    assert await bench.order() == [b"b"]
    assert await bench.renew("a", number) == number + b" aborted"


async def reset(bench: Bench) -> None:
    """The same; what was aborted in between stays so, and a round that was begun in between goes on."""
    assert [await bench.reset("w") for _ in range(2)] == [0, 0]
    await bench.abort("x")
    assert [await bench.reset("y") for _ in range(2)] == [1, 1]
    await bench.arrive("a")
    assert await bench.reset("y") == 1
    assert await bench.order() == [b"a"]
    await bench.abort("z")
    assert [await bench.reset(request) for request in "wy"] == [0, 1]
    number, outcome = await bench.arrive("b")
    assert outcome == number + b" aborted"


async def arrive_while_it_is_aborted(bench: Bench) -> None:
    """The same, even if it was reset in between."""
    await bench.abort("x")
    told = await bench.arrive("a")
    assert told == [told[0], told[0] + b" aborted"]
    await bench.reset("y")
    assert await bench.arrive("a") == told
    assert await bench.order() == []


async def count(bench: Bench) -> None:
    """The same."""
    await bench.arrive("a")
    await bench.arrive("b")
    await bench.lapse("b")
    assert [await bench.run("barriers/count") for _ in range(2)] == [1, 1]


TWICE: dict[str, list[Callable[[Bench], Awaitable[None]]]] = {
    "barriers/abort": [abort],
    "barriers/reset": [reset],
    "barriers/arrive": [
        arrive_early,
        arrive_before_the_round_has_ended,
        arrive_last,
        arrive_after_leaving,
        arrive_without_waiting,
        arrive_after_a_death,
        arrive_while_it_is_aborted,
    ],
    "barriers/count": [count],
    "barriers/leave": [leave],
    "barriers/renew": [renew, renew_beside_a_dead_one, renew_what_is_forgotten],
    "events/clear": [clear],
    "events/inspect": [look_at_an_event],
    "events/set": [set_],
    "latches/count_down": [count_down],
    "latches/inspect": [look_at_a_latch],
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
