"""The rate limiter against a small model, to the microsecond: on a clock that stands still unless it is moved."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from fakeredis.aioredis import FakeRedis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inconcert import Coordinator
from inconcert._redis.scripts import load

TAKE, GIVE_BACK = load("rate_limits/take"), load("rate_limits/give_back")
BEGAN = 1_800_000_000_000_000  # microseconds; its digits are those of the years to come
LONGEST = 10**13


@dataclass(frozen=True, slots=True)
class Take:
    """Permits for somebody who waits as long as this."""

    cost: int
    longest: int


@dataclass(frozen=True, slots=True)
class Again:
    """The script of an earlier step is run a second time."""

    which: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Somebody does not use what was taken in an earlier step."""

    which: int


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    microseconds: int


Step = Take | Again | GiveBack | Pass


@dataclass(slots=True)
class Taken:
    """What is known of one who took permits."""

    request: str
    cost: int
    at: int  # from when on they may be used
    end: int  # when all that were taken up to it are back


@dataclass(slots=True)
class Model:
    """The generic cell rate algorithm, in its plainest form."""

    interval: int
    burst: int
    now: int = BEGAN
    takers: list[Taken] = field(default_factory=list[Taken])
    given_back: set[str] = field(default_factory=set[str])

    @property
    def full_at(self) -> int:
        return max([self.now, *(each.end for each in self.takers if each.request not in self.given_back)])

    def taker(self, which: int) -> Taken | None:
        return self.takers[which % len(self.takers)] if self.takers else None

    def take(self, request: str, cost: int, longest: int) -> list[int]:
        end = self.full_at + cost * self.interval
        wait = max(0, end - self.burst * self.interval - self.now)
        if wait <= longest:
            self.takers.append(Taken(request, cost, self.now + wait, end))
        return [int(wait <= longest), wait, self.full_at - self.now]

    def check(self) -> None:
        """In no time span are more permits used than may be; and those who wait are served in their order."""
        used = [each for each in self.takers if each.request not in self.given_back]
        assert sorted(each.at for each in used) == [each.at for each in used]
        for first in range(len(used)):
            count = 0
            for each in used[first:]:
                count += each.cost
                assert (count - self.burst) * self.interval <= each.at - used[first].at


steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(Take, st.integers(1, 4), st.sampled_from([0, 0, 1500, LONGEST, LONGEST])),
        st.builds(Again, st.integers(0, 30)),
        st.builds(GiveBack, st.integers(0, 30)),
        st.builds(Pass, st.sampled_from([1, 999, 1000, 1001, 2500, 10_000, 90_000_000])),
    ),
    max_size=30,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The time of the server, in microseconds; fakeredis takes it from here."""
    now = [BEGAN]
    monkeypatch.setattr(time, "time", lambda: now[0] / 1_000_000)
    yield now
    monkeypatch.undo()


@given(steps=steps, burst=st.integers(4, 6))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_server_agrees_with_the_model(clock: list[int], steps: list[Step], burst: int) -> None:
    """Whatever is taken, given back and sent again, and whenever."""
    clock[0] = BEGAN
    asyncio.run(play(clock, steps, Model(interval=1000, burst=burst)))


async def play(clock: list[int], steps: list[Step], model: Model) -> None:
    """Take the steps on both sides."""
    client = FakeRedis()
    async with Coordinator.from_client(client) as concert:
        keys = concert.rate_limiter("api", 1000, 1.0, burst=model.burst)._keys
        session = concert._access.session
        burst_us = model.burst * model.interval
        for number, step in enumerate(steps):
            match step:
                case Take(cost, longest):
                    reply = await session.run(TAKE, keys, f"me.{number}", cost * model.interval, burst_us, longest)
                    assert reply == model.take(f"me.{number}", cost, longest)
                case Again(which) if taker := model.taker(which):
                    if model.now < taker.at + 50_000_000:  # while the server remembers
                        reply = await session.run(TAKE, keys, taker.request, taker.cost * model.interval, burst_us, 0)
                        assert reply == [1, max(0, taker.at - model.now), model.full_at - model.now]
                case GiveBack(which) if taker := model.taker(which):
                    was_given_back = await session.run(GIVE_BACK, keys[:1], taker.request)
                    may_be = taker.request not in model.given_back
                    assert (may_be and model.now < taker.at) <= was_given_back <= may_be
                    model.given_back |= {taker.request} if was_given_back else set()
                case Pass(microseconds):
                    model.now += microseconds
                    clock[0] = model.now
                case _:  # nobody has taken any
                    pass
        model.check()
    await client.aclose()
