"""A value that is computed once for all who ask for it at the same time, in whatever process."""

import asyncio
import threading
from dataclasses import dataclass
from functools import partial

import anyio
import pytest

from inconcert import Coordinator, InvalidName, InvalidPayload, LeaseLost, NotConnected, UnreadablePayload
from inconcert._redis.protocol.scripts import load
from inconcert.once import _Keys  # pyright: ignore[reportPrivateUsage]
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.scripts import command_of


class Making:
    """A computation that waits until it may end, and is counted."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.error: Exception | None = None

    async def make(self) -> int:
        self.count += 1
        number, error = self.count, self.error
        await self.may_end.wait()
        if error is not None:
            raise error
        return number


@pytest.fixture
async def making() -> Making:
    """One that ends at once, unless the test says otherwise."""
    return Making()


async def _age(concert: Coordinator, name: str) -> None:
    """Make the value old, as time would."""
    client = raw(concert)
    key = concert._ref.keys.of(_Keys, "lock", f"once:{name}").value
    ttl = await client.pttl(key)
    text: bytes = await client.get(key)
    await client.set(key, b"1 " + text.partition(b" ")[2], px=ttl)


async def test_it_is_kept_while_it_is_fresh(any_concert: Coordinator, elsewhere: Coordinator, making: Making) -> None:
    """For all processes; then it is computed anew."""
    assert await any_concert.once("v", making.make, ttl=60) == 1
    assert await elsewhere.once("v", making.make, ttl=60) == 1
    assert await any_concert.once("other", making.make, ttl=60) == 2
    await _age(any_concert, "v")
    assert await elsewhere.once("v", making.make, ttl=60) == 3


async def test_all_who_wait_are_handed_the_same_value(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """Of both processes, by one computation."""
    making.may_end.clear()
    asking = [asyncio.create_task(concert.once("v", making.make, ttl=60)) for concert in [any_concert, elsewhere] * 20]
    await _in_line(any_concert, 1)
    making.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 40
    assert making.count == 1
    assert not await any_concert.lock("once:v").locked()


async def test_waiters_have_the_value_before_their_leader_has_left_the_line(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """In their order, with the message itself; one that was cancelled leaves the others theirs."""
    making.may_end.clear()
    order: list[int] = []

    async def ask(number: int) -> None:
        assert await elsewhere.once("v", making.make, ttl=60) == 1
        order.append(number)

    computing = asyncio.create_task(any_concert.once("v", making.make, ttl=60))
    await eventually(lambda: making.count)
    asking = [asyncio.create_task(ask(number)) for number in range(6)]
    await _in_line(any_concert, 1)
    asking[3].cancel()
    making.may_end.set()
    await asyncio.wait([computing, *asking])
    assert order == [1, 2, 4, 5, 0]
    assert asking[3].cancelled()


async def test_scripts_are_put_together_before_somebody_waits_for_them(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """That of the one who computes as it begins, and that of one who waits as it comes to the line."""
    store, release = (_as_in_a_new_process(name) for name in ("once/store", "permits/release"))
    making.may_end.clear()
    async with in_background(any_concert.once("v", making.make, ttl=60)) as first:
        await eventually(lambda: making.count)
        assert "sha" in store
        async with in_background(elsewhere.once("v", making.make, ttl=60)) as second:
            await eventually(lambda: "sha" in release)
            making.may_end.set()
            assert (await first, await second) == (1, 1)


def _as_in_a_new_process(name: str) -> dict[str, object]:
    """A script that is not put together yet, as the dictionary that has its digest once it is."""
    script = vars(load(name))
    script.pop("sha", None)
    script.pop("source", None)
    return script


async def test_old_value_is_served_at_once_while_one_computes_anew(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """To those who accept it."""
    assert await any_concert.once("v", making.make, ttl=60, stale=600) == 1
    await _age(any_concert, "v")
    making.may_end.clear()
    assert [await concert.once("v", making.make, ttl=60, stale=600) for concert in [any_concert, elsewhere] * 3] == (
        [1] * 6
    )
    await eventually(lambda: making.count == 2)
    async with in_background(elsewhere.once("v", making.make, ttl=60)) as strict:
        making.may_end.set()
        assert await strict == 2
    assert await any_concert.once("v", making.make, ttl=60) == 2
    assert making.count == 2


async def test_old_value_stays_if_it_cannot_be_computed_anew(
    any_concert: Coordinator, making: Making, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so, and the next caller tries again."""
    await any_concert.once("v", making.make, ttl=60, stale=600)
    await _age(any_concert, "v")
    making.error = LookupError("no rows")
    assert await any_concert.once("v", making.make, ttl=60, stale=600) == 1
    await eventually(lambda: "once 'v' could not be computed anew" in caplog.text)
    making.error = None
    await eventually(lambda: not any_concert._onces._refreshing)
    assert await any_concert.once("v", making.make, ttl=60, stale=600) == 1
    await eventually(lambda: not any_concert._onces._refreshing)
    assert await any_concert.once("v", making.make, ttl=60, stale=600) == 3


async def test_error_goes_to_the_caller_whose_function_raised_it_and_the_next_computes(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """Also in another process."""
    making.may_end.clear()
    making.error = LookupError("no rows")
    first = asyncio.create_task(any_concert.once("v", making.make, ttl=60))
    await eventually(lambda: making.count == 1)
    making.error = None
    others = [asyncio.create_task(concert.once("v", making.make, ttl=60)) for concert in (any_concert, elsewhere)]
    await _in_line(any_concert, 1)
    making.may_end.set()
    with pytest.raises(LookupError, match="no rows"):
        await first
    assert await asyncio.gather(*others) == [2, 2]


async def test_cancelled_caller_leaves_the_computation_to_the_next(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """Whether it computes, waits for its own process, or in line."""
    making.may_end.clear()
    asking = [asyncio.create_task(concert.once("v", making.make, ttl=60)) for concert in [any_concert, elsewhere] * 3]
    await _in_line(any_concert, 1)
    for task in asking[:4]:
        task.cancel()
    await asyncio.wait(asking[:4])
    making.may_end.set()
    assert await asyncio.gather(*asking[4:]) == [2, 2]
    assert making.count == 2
    assert await any_concert.lock("once:v").waiters() == 0


async def test_lost_lease_stops_the_function_and_the_next_computes(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """The caller learns that its lease was lost; what it has computed too late is not kept."""
    making.may_end.clear()
    late = asyncio.create_task(any_concert.once("v", making.make, ttl=60))
    await eventually(lambda: making.count == 1)
    await elsewhere.release_by_force("lock", "once:v")
    with pytest.raises(LeaseLost):
        await late
    making.may_end.set()
    assert await elsewhere.once("v", making.make, ttl=60) == 2


async def test_value_is_read_as_the_function_says(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Each caller has an object of its own; a plain function runs in a thread; arguments are bound."""

    async def report(number: int) -> Report:
        return Report(number, ["a"])

    made, again = [await any_concert.once("r", partial(report, 7), ttl=60) for _ in range(2)]
    assert made == again == Report(7, ["a"])
    assert made.lines is not again.lines
    thread = await any_concert.once("t", threading.get_ident, ttl=60)
    assert thread != threading.get_ident()

    def numbers() -> list[int]:
        return [1]

    assert await elsewhere.once("n", numbers, ttl=60) == [1]
    with pytest.raises(UnreadablePayload, match="does not fit Report"):
        await elsewhere.once("n", partial(report, 7), ttl=60)


@dataclass
class Report:
    """A value of a type."""

    number: int
    lines: list[str]


async def test_what_cannot_be_kept_is_the_error_of_its_caller(any_concert: Coordinator) -> None:
    """And the next one computes."""
    with pytest.raises(InvalidPayload, match="cannot be sent as JSON"):
        await any_concert.once("v", lambda: {1, 2}, ttl=60)
    with pytest.raises(InvalidPayload, match="bytes as JSON"):
        await any_concert.once("v", lambda: "x" * 2**20, ttl=60)
    assert await any_concert.once("v", lambda: "x" * 30_000, ttl=60) == "x" * 30_000
    assert await any_concert.once("v", lambda: "y", ttl=60) == "x" * 30_000


async def test_function_that_asks_for_its_own_value_is_told(any_concert: Coordinator) -> None:
    """It would wait for itself."""

    async def make() -> int:
        return await any_concert.once("v", make, ttl=60)

    with pytest.raises(RuntimeError, match="once 'v' asks for its own value"):
        await any_concert.once("v", make, ttl=60)


async def test_bad_input_is_refused_before_anything_is_sent() -> None:
    """The coordinator is closed, and that is said last."""
    concert = Coordinator()

    async def needy(number: int) -> int:
        return number

    for wrong, message in ((needy, "needs arguments"), (None, "not a function")):
        with pytest.raises(TypeError, match=message):
            await concert.once("v", wrong, ttl=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    for ttl, stale in ((0, None), (-1, None), (60, -1)):
        with pytest.raises(ValueError, match="give"):
            await concert.once("v", threading.get_ident, ttl=ttl, stale=stale)
    with pytest.raises(InvalidName):
        await concert.once("", threading.get_ident, ttl=60)
    with pytest.raises(NotConnected):
        await concert.once("v", threading.get_ident, ttl=60)


async def test_closing_ends_who_waits_and_what_is_computed_anew(
    any_concert: Coordinator, elsewhere: Coordinator, making: Making
) -> None:
    """A wait in line, and one for its own process."""
    await any_concert.once("old", making.make, ttl=60, stale=600)
    await _age(any_concert, "old")
    making.may_end.clear()
    holder = asyncio.create_task(any_concert.once("v", making.make, ttl=60))
    await eventually(lambda: making.count == 2)
    waiting = [asyncio.create_task(elsewhere.once("v", making.make, ttl=60)) for _ in range(2)]
    await _in_line(any_concert, 1)
    assert await elsewhere.once("old", making.make, ttl=60, stale=600) == 1
    await eventually(lambda: making.count == 3)
    await elsewhere.close()
    assert [type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [NotConnected] * 2
    making.may_end.set()
    assert await holder == 2
    await elsewhere.open()
    assert await elsewhere.once("v", making.make, ttl=60) == 2


async def _in_line(concert: Coordinator, count: int) -> None:
    """Wait until so many processes wait for the value."""

    async def waiters() -> bool:
        return await concert.lock("once:v").waiters() == count

    await eventually(waiters)
    await anyio.sleep(0)


@pytest.mark.twice("once/find", "once/store")
async def test_second_run_hands_out_the_same(any_concert: Coordinator) -> None:
    """It is kept anew while the lease is held, and by nobody after that."""
    session = any_concert._ref.session
    keys = any_concert._ref.keys.of(_Keys, "lock", "once:v")
    lease = await any_concert.lock("once:v").acquire()
    terms = {"ttl_ms": 60_000, "kept_ms": 60_000, "changes": b"c"}
    store = command_of("once/store", keys, holder=lease.holder, text=b"1", **terms)
    find = command_of("once/find", keys)
    assert [await session.run(find) for _ in range(2)] == [[b"", 0]] * 2
    assert [await session.run(store) for _ in range(2)] == [1, 1]
    assert [await session.run(find) for _ in range(2)] == [[b"1", 1]] * 2
    await lease.release()
    assert [await session.run(store) for _ in range(2)] == [0, 0]
