"""The rate limiter against a small model, to the microsecond: on a clock that stands still unless it is moved."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakeredis.aioredis import FakeRedis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inconcert import Coordinator
from tests.support.scripts import command_of
from tests.support.world import examples

BEGAN = 1_800_000_000_000_000  # microseconds; its digits are those of the years to come
LONGEST = 10**13
INTERVAL = 10_000
AHEAD = 5_000  # how early one in line is granted its permits, to be used when their time has come


@dataclass(frozen=True, slots=True)
class Take:
    """Permits for somebody who waits as long as this."""

    cost: int
    longest: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody from an earlier step asks again, from its place in the line or because the reply was lost."""

    which: int
    has_ticket: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Somebody from an earlier step leaves the line, or does not use what was granted."""

    which: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Somebody has used more than was taken, or less."""

    by: int  # permits


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    microseconds: int


Step = Take | Ask | GiveUp | Settle | Pass


@dataclass(slots=True, eq=False)
class Caller:
    """What is known of one who came for permits, and was not refused."""

    request: str
    cost: int  # microseconds, in which these permits come back
    ticket: int = 0
    at: int | None = None  # from when on they may be used; None while in line
    end: int = 0  # when all that were granted up to it are back
    has_given_up: bool = False


@dataclass(slots=True)
class Model:
    """The generic cell rate algorithm with a line before it, in its plainest form."""

    burst: int  # microseconds
    now: int = BEGAN
    end: int = 0  # when all that were granted are back
    line: list[Caller] = field(default_factory=list[Caller])
    granted: list[Caller] = field(default_factory=list[Caller])
    callers: list[Caller] = field(default_factory=list[Caller])
    has_settled_less: bool = False
    kept_until: int = BEGAN  # without anybody who asks a line lives for a minute longer than it would need

    def caller(self, which: int) -> Caller | None:
        return self.callers[which % len(self.callers)] if self.callers else None

    def lapse(self) -> None:
        if self.now > self.kept_until:
            self.callers = [each for each in self.callers if each not in self.line]
            self.line = []

    def keep(self, before: tuple[int, int]) -> None:
        if before != self.state:
            self.kept_until = self.now + self.full + 60_002_000

    @property
    def state(self) -> tuple[int, int]:
        return self.end, sum(each.cost for each in self.line)

    @property
    def free(self) -> int:
        return max(self.end - self.now, 0)

    @property
    def full(self) -> int:
        return self.free + sum(each.cost for each in self.line)

    def wait(self, cost: int) -> int:
        return max(0, self.free + cost - self.burst)

    def grant(self, caller: Caller) -> None:
        caller.at = self.now + self.wait(caller.cost)
        self.end = caller.end = self.now + self.free + caller.cost
        self.granted.append(caller)

    def serve(self) -> None:
        while self.line and self.wait(self.line[0].cost) <= AHEAD:
            self.grant(self.line.pop(0))

    def take(self, request: str, cost: int, longest: int) -> list[int]:
        self.serve()
        wait = max(0, self.full + cost - self.burst)
        if not self.line and wait <= min(longest, AHEAD):
            caller = Caller(request, cost)
            self.grant(caller)
        elif wait > longest:
            return [0, wait, self.full]
        else:
            caller = Caller(request, cost, max(self.now, self.line[-1].ticket + 1 if self.line else 0))
            self.line.append(caller)
        self.callers.append(caller)
        return self.answer(caller)

    def answer(self, caller: Caller) -> list[int]:
        if caller.has_given_up:
            return [0, 0, self.full]
        if caller.at is not None:
            return [1, max(0, caller.at - self.now), self.full]
        first = self.wait(self.line[0].cost)
        wait = first if caller is self.line[0] else max(first, self.full - self.burst)
        return [2, wait, self.full, caller.ticket]

    def give_up(self, caller: Caller) -> bool:
        back = 0
        has_left = caller in self.line
        if has_left:
            self.line.remove(caller)
        elif not caller.has_given_up and caller.end > self.now:
            if caller.end == self.end:
                back = caller.cost
            elif self.end - self.burst <= self.now:
                back = min(caller.cost, caller.end - self.now)
        caller.has_given_up = True
        self.end -= back
        if has_left or back:
            self.serve()
        return has_left or back > 0

    def settle(self, by: int) -> None:
        self.has_settled_less |= by < 0
        self.end = max(self.end, self.now) + by
        self.serve()

    def check(self) -> None:
        """In no time span are more permits used than may be; and those who wait are served in their order."""
        used = [each for each in self.granted if not each.has_given_up]
        waited = [each.ticket for each in self.granted if each.ticket]
        assert waited == sorted(waited)
        assert all(each.ticket >= max(waited, default=0) for each in self.line)
        times = [(each.at or 0, each.cost) for each in used]
        assert times == sorted(times, key=lambda time_and_cost: time_and_cost[0])
        if self.has_settled_less:  # what comes back was taken in another time span, in which it was not used
            return
        for first, (began, _) in enumerate(times):
            cost = 0
            for at, each in times[first:]:
                cost += each
                assert cost - self.burst <= at - began


steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.builds(Take, st.integers(1, 4), st.sampled_from([0, 0, 15_000, LONGEST, LONGEST])),
        st.builds(Ask, st.integers(0, 30), st.booleans()),
        st.builds(GiveUp, st.integers(0, 30)),
        st.builds(Settle, st.sampled_from([-3, -1, 1, 2, 20])),
        st.builds(Pass, st.sampled_from([1, 4999, 5001, 9_999, 10_000, 25_000, 100_000, 90_000_000])),
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
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_server_agrees_with_the_model(clock: list[int], steps: list[Step], burst: int) -> None:
    """Whatever is taken, waited for, given back and sent again, and whenever."""
    clock[0] = BEGAN
    asyncio.run(play(clock, steps, Model(burst=burst * INTERVAL)))


async def play(clock: list[int], steps: list[Step], model: Model) -> None:
    """Take the steps on both sides."""
    client: Any = FakeRedis()
    async with Coordinator.from_client(client) as concert:
        keys = concert.rate_limiter("api", 100, 1.0, burst=model.burst // INTERVAL)._keys
        session = concert._ref.session
        # Not the session itself, which would give back what it is granted and has not asked for.
        inbox = client.pubsub()
        await inbox.subscribe(f"{session.inboxes('')}caller")

        async def take(request: str, cost: int, longest: int, ticket: int) -> Any:
            terms = {
                "cost_us": cost,
                "burst_us": model.burst,
                "interval_us": INTERVAL,
                "longest_us": longest,
                "ticket": ticket,
            }
            inboxes = session.inboxes("")
            return await session.run(command_of("rate_limits/take", keys, request=request, **terms, inboxes=inboxes))

        async def give_back(one: Caller) -> Any:
            terms = {"cost_us": one.cost, "burst_us": model.burst, "interval_us": INTERVAL}
            return await session.run(
                command_of("rate_limits/refund", keys, request=one.request, **terms, inboxes=session.inboxes(""))
            )

        for number, step in enumerate(steps):
            model.lapse()
            before = model.state
            match step:
                case Take(cost, longest):
                    request = f"caller.{1000 + number}"
                    reply = await take(request, cost * INTERVAL, longest, 0)
                    assert reply == model.take(request, cost * INTERVAL, longest)
                case Ask(which, has_ticket) if one := model.caller(which):
                    if one in model.line or model.now < (one.at or 0) + 50_000_000:  # while the server remembers
                        model.serve()
                        reply = await take(one.request, one.cost, 0, one.ticket if has_ticket else 0)
                        assert reply == model.answer(one)
                case GiveUp(which) if one := model.caller(which):
                    reply = await give_back(one)
                    assert reply == model.give_up(one)
                case Settle(by):
                    settle = command_of(
                        "rate_limits/settle",
                        keys,
                        request=f"caller.{1000 + number}",
                        by_us=by * INTERVAL,
                        interval_us=INTERVAL,
                        inboxes=session.inboxes(""),
                    )
                    assert [await session.run(settle), await session.run(settle)] == [1, 0]
                    model.settle(by * INTERVAL)
                case Pass(microseconds):
                    model.now += microseconds
                    clock[0] = model.now
                case _:  # nobody has come
                    pass
            model.keep(before)
            model.check()
        await inbox.aclose()
    await client.aclose()


NUMBERS = [(10_000, 6), (10_000, 2), (1_000, 20), (70_000, 3)]  # microseconds in which a permit is back; the burst


@given(
    steps=st.lists(st.tuples(st.sampled_from(NUMBERS), st.integers(1, 2), st.integers(0, 40_000)), max_size=60),
    moment=st.sampled_from([0, 5_000]),
)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_callers_with_different_numbers_have_the_largest_of_them(
    clock: list[int], steps: list[tuple[tuple[int, int], int, int]], moment: int
) -> None:
    """Together no more than the largest burst, and what comes back at the largest rate; and none waits without end."""
    clock[0] = BEGAN
    asyncio.run(take_with_different_numbers(clock, steps, moment))


async def take_with_different_numbers(
    clock: list[int], steps: list[tuple[tuple[int, int], int, int]], longest: int
) -> None:
    """Each takes, by its own numbers, what it may have at once or after so long."""
    client: Any = FakeRedis()
    used: list[tuple[int, int]] = []
    async with Coordinator.from_client(client) as concert:
        keys = concert.rate_limiter("api", 100, 1.0)._keys
        session = concert._ref.session

        async def take(number: int, interval: int, burst: int, cost: int) -> list[int]:
            terms = {"cost_us": cost * interval, "burst_us": burst * interval, "interval_us": interval}
            reply: list[int] = await session.run(
                command_of(
                    "rate_limits/take",
                    keys,
                    request=f"caller.{number}",
                    **terms,
                    longest_us=longest,
                    ticket=0,
                    inboxes=session.inboxes(""),
                )
            )
            return reply

        for number, ((interval, burst), cost, pause) in enumerate(steps):
            outcome, wait, *_ = await take(number, interval, burst, cost)
            assert wait <= max(each * most for each, most in NUMBERS)
            if outcome == 1:
                used.append((clock[0] + wait, cost))
            clock[0] += pause
        for interval, burst in NUMBERS:  # what it is told to wait for is enough, if nobody else comes
            outcome, wait, *_ = await take(10_000 + interval + burst, interval, burst, 1)
            if outcome == 0:
                clock[0] += wait
                assert (await take(20_000 + interval + burst, interval, burst, 1))[0] == 1
    quickest, largest = min(each for each, _ in NUMBERS), max(most for _, most in NUMBERS)
    for first, (began, _) in enumerate(used):
        for last, (at, _) in enumerate(used[first:], first + 1):
            assert (sum(cost for _, cost in used[first:last]) - largest) * quickest <= at - began + len(used)
    await client.aclose()
