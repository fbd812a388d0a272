"""The scripts of events, latches and barriers answer a second run as their TWICE lines say; see `test_twice`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from inconcert import Coordinator
from inconcert._redis.commands import Argument
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import load
from tests.support.raw import raw

LUA = Path(__file__).parents[2] / "src/inconcert/_lua"
PARTS = {
    "events": ("flag", "recent", "older"),
    "latches": ("counted", "recent", "older"),
    "barriers": ("participants", "order", "rounds", "recent", "older"),
}
TTL_MS = 10_000
CHANGES = "changes"


@dataclass(frozen=True, slots=True)
class Bench:
    """A server with nothing on it."""

    concert: Coordinator

    def keys(self, folder: str) -> tuple[str, ...]:
        """The keys of the one event, latch or barrier."""
        return self.concert._access.keys.of(folder, "it", *PARTS[folder])

    async def run(self, name: str, *args: Argument) -> Reply:
        """Run a script once."""
        return await self.concert._access.session.run(load(name), self.keys(name.partition("/")[0]), *args)

    async def arrive(self, holder: str, parties: int = 3, *, waits: int = 1) -> Reply:
        """Run the script that takes part."""
        return await self.run("barriers/arrive", holder, parties, TTL_MS, waits, CHANGES)

    async def lapse(self, holder: str) -> None:
        """Let the lease of one participant end now."""
        await raw(self.concert).zadd(self.keys("barriers")[0], {holder: 1}, xx=True)

    async def order(self) -> list[bytes]:
        """Who takes part in the open round."""
        found: list[bytes] = await raw(self.concert).zrange(self.keys("barriers")[1], 0, -1)
        return found


@pytest.fixture
def bench(any_concert: Coordinator) -> Bench:
    """Nothing is set, counted or waited for."""
    return Bench(any_concert)


# Events.


async def set_(bench: Bench) -> None:
    """Nothing is changed, even if it was cleared in between."""
    assert await bench.run("events/set", "a", TTL_MS, CHANGES) == 1
    assert await bench.run("events/set", "a", TTL_MS, CHANGES) == 1
    await bench.run("events/clear", "b")
    assert await bench.run("events/set", "a", TTL_MS, CHANGES) == 1
    assert (await bench.run("events/look"))[0] == 0


async def clear(bench: Bench) -> None:
    """Nothing is changed, even if it was set in between."""
    await bench.run("events/set", "a", TTL_MS, CHANGES)
    assert await bench.run("events/clear", "b") == 1
    assert await bench.run("events/clear", "b") == 1
    await bench.run("events/set", "c", TTL_MS, CHANGES)
    assert await bench.run("events/clear", "b") == 1
    assert (await bench.run("events/look"))[0] == 1


async def look_at_an_event(bench: Bench) -> None:
    """The same."""
    await bench.run("events/set", "a", TTL_MS, CHANGES)
    assert [(await bench.run("events/look"))[0] for _ in range(2)] == [1, 1]


# Latches.


async def count_down(bench: Bench) -> None:
    """The same, and nothing more is counted."""
    assert [await bench.run("latches/count_down", "a", 2, TTL_MS, CHANGES) for _ in range(2)] == [2, 2]
    assert await bench.run("latches/count_down", "b", 3, TTL_MS, CHANGES) == 5
    assert await bench.run("latches/count_down", "a", 2, TTL_MS, CHANGES) == 2
    assert await bench.run("latches/look") == 5


async def look_at_a_latch(bench: Bench) -> None:
    """The same."""
    assert [await bench.run("latches/look") for _ in range(2)] == [0, 0]
    await bench.run("latches/count_down", "a", 2, TTL_MS, CHANGES)
    assert [await bench.run("latches/look") for _ in range(2)] == [2, 2]


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
    await bench.run("barriers/leave", "a")
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
    participants = bench.keys("barriers")[0]
    for _ in range(2):
        await raw(bench.concert).zincrby(participants, -5_000, "a")
        short = await raw(bench.concert).zscore(participants, "a")
        assert await bench.run("barriers/renew", "a", number, TTL_MS, CHANGES) == 1
        assert await raw(bench.concert).zscore(participants, "a") - short > 4_000


async def renew_beside_a_dead_one(bench: Bench) -> None:
    """The outcome, and no other round is broken."""
    number, _ = await bench.arrive("a")
    await bench.arrive("b")
    await bench.lapse("a")
    assert await bench.run("barriers/renew", "b", number, TTL_MS, CHANGES) == number + b" broken a"
    await bench.arrive("c")
    assert await bench.run("barriers/renew", "b", number, TTL_MS, CHANGES) == number + b" broken a"
    assert await bench.order() == [b"c"]


async def renew_what_is_forgotten(bench: Bench) -> None:
    """Nothing is known, and nothing is joined."""
    for _ in range(2):
        assert await bench.run("barriers/renew", "a", "1", TTL_MS, CHANGES) == b""
    assert await bench.order() == []


async def leave(bench: Bench) -> None:
    """0, and nothing is changed."""
    await bench.arrive("a")
    await bench.arrive("b")
    assert [await bench.run("barriers/leave", "a") for _ in range(2)] == [1, 0]
    assert await bench.order() == [b"b"]


async def abort(bench: Bench) -> None:
    """The same, and nothing more is broken."""
    number, _ = await bench.arrive("a")
    assert [await bench.run("barriers/abort", "x", CHANGES) for _ in range(2)] == [1, 1]
    assert [await bench.run("barriers/abort", "y", CHANGES) for _ in range(2)] == [0, 0]
    await bench.run("barriers/reset", "z", CHANGES)
    await bench.arrive("b")
    assert [await bench.run("barriers/abort", request, CHANGES) for request in "xy"] == [1, 0]
    assert await bench.order() == [b"b"]
    assert await bench.run("barriers/renew", "a", number, TTL_MS, CHANGES) == number + b" aborted"


async def reset(bench: Bench) -> None:
    """The same; what was aborted in between stays so, and a round that was begun in between goes on."""
    assert [await bench.run("barriers/reset", "w", CHANGES) for _ in range(2)] == [0, 0]
    await bench.run("barriers/abort", "x", CHANGES)
    assert [await bench.run("barriers/reset", "y", CHANGES) for _ in range(2)] == [1, 1]
    await bench.arrive("a")
    assert await bench.run("barriers/reset", "y", CHANGES) == 1
    assert await bench.order() == [b"a"]
    await bench.run("barriers/abort", "z", CHANGES)
    assert [await bench.run("barriers/reset", request, CHANGES) for request in "wy"] == [0, 1]
    number, outcome = await bench.arrive("b")
    assert outcome == number + b" aborted"


async def arrive_while_it_is_aborted(bench: Bench) -> None:
    """The same, even if it was reset in between."""
    await bench.run("barriers/abort", "x", CHANGES)
    told = await bench.arrive("a")
    assert told == [told[0], told[0] + b" aborted"]
    await bench.run("barriers/reset", "y", CHANGES)
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
    "events/look": [look_at_an_event],
    "events/set": [set_],
    "latches/count_down": [count_down],
    "latches/look": [look_at_a_latch],
}


@pytest.mark.parametrize("case", [case for cases in TWICE.values() for case in cases], ids=lambda case: case.__name__)
async def test_second_run_answers_as_the_header_says(bench: Bench, case: Callable[[Bench], Awaitable[None]]) -> None:
    """See each case."""
    await case(bench)


def test_every_script_is_run_twice() -> None:
    """None was forgotten."""
    scripts = {path.relative_to(LUA).with_suffix("").as_posix() for folder in PARTS for path in LUA.glob(f"{folder}/*")}
    assert scripts == set(TWICE)
