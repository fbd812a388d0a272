"""What `async with` promises of everything that is acquired: each exit releases what its own entry has acquired.

Whatever task, context and order it is left in.  A new primitive of this kind adds itself to `FAMILY`.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, cast

import anyio
import pytest
from anyio.pytest_plugin import get_runner
from fakeredis.aioredis import FakeRedis
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from inconcert import Coordinator, LeaseLost, QuorumLock
from inconcert._core import body as body_module
from inconcert._core.acquirable import Acquirable
from inconcert._core.entry import Entry
from inconcert.quorum import rounds
from tests.support.eventually import eventually
from tests.support.servers import RealServer


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing that is entered.

    Attributes:
        title: What it is.
        limit: How many may be in it at once.
        make: Makes one.
        holders: Looks who is in it.
    """

    title: str
    limit: int
    make: Callable[[Coordinator], Acquirable[Any, Any]]
    holders: Callable[[Any, Coordinator], Awaitable[list[str]]]


async def holders_of(door: Any, concert: Coordinator) -> list[str]:
    """As most of them tell."""
    del concert
    found: list[str] = await door.holders()
    return found


async def holders_of_both(door: Any, concert: Coordinator) -> list[str]:
    """Of the two locks that are taken as one."""
    del door
    return [*await concert.lock("door").holders(), *await concert.lock("gate").holders()]


def make_quorum(concert: Coordinator) -> QuorumLock:
    """On three servers of its own; the coordinator's is none of them."""
    del concert
    return QuorumLock([FakeRedis() for _ in range(3)], "door")


FAMILY = [
    Kind("lock", 1, lambda concert: concert.lock("door"), holders_of),
    Kind("locks", 1, lambda concert: concert.locks("door", "gate"), holders_of_both),
    Kind("semaphore", 3, lambda concert: concert.semaphore("door", limit=3), holders_of),
    Kind("read lock", 3, lambda concert: concert.rwlock("door").read(), holders_of),
    Kind("write lock", 1, lambda concert: concert.rwlock("door").write(), holders_of),
    Kind("election", 1, lambda concert: concert.election("door"), holders_of),
    Kind("quorum lock", 1, make_quorum, holders_of),
]
SHARED = [kind for kind in FAMILY if kind.limit > 1]


@dataclass(frozen=True, slots=True)
class Door:
    """What the tests enter.

    Attributes:
        object: The one object that all share.
        holders: Looks who is in it.
    """

    object: Acquirable[Any, Any]
    holders: Callable[[], Awaitable[list[str]]]

    async def is_free(self) -> bool:
        """Whether nobody is in it."""
        return await self.holders() == []

    async def part(self) -> AsyncGenerator[Any, None]:
        """Yield from inside: what a stream, a fixture or a loop over rows is."""
        async with self.object as lease:
            yield lease


@pytest.fixture(params=FAMILY, ids=lambda kind: str(kind.title))
async def door(request: pytest.FixtureRequest, any_concert: Coordinator) -> AsyncIterator[Door]:
    """Each kind in turn; after the test nobody is in it, and the object remembers nobody."""
    kind: Kind = request.param
    shared = kind.make(any_concert)
    door = Door(shared, partial(kind.holders, shared, any_concert))
    yield door
    await eventually(door.is_free)
    await eventually(
        lambda: not [task for task in asyncio.all_tasks() if "async_generator_athrow" in repr(task.get_coro())]
    )
    assert door.object._entered == []
    await eventually(lambda: not rounds._under_way)


only_shared = pytest.mark.parametrize("door", SHARED, ids=lambda kind: str(kind.title), indirect=True)


def first_of(lease: Any) -> Any:
    """The lease, or the first of several."""
    leases = list(cast("Mapping[str, Any]", lease).values()) if isinstance(lease, Mapping) else [lease]
    return leases[0]


async def elsewhere(work: Awaitable[Any]) -> Any:
    """Do it in another task, and so in another context."""

    async def run() -> Any:
        return await work

    return await asyncio.create_task(run())


# Generators.


async def test_generator_that_is_closed_in_another_task_releases(door: Door) -> None:
    """As a fixture is, whose setup and teardown run in tasks of their own."""
    part = door.part()
    lease = await elsewhere(part.__anext__())
    assert lease.remaining > 0
    await elsewhere(part.aclose())
    assert lease.remaining == 0
    assert not lease.is_lost
    assert await door.is_free()


async def test_generator_that_is_left_by_break_releases(door: Door) -> None:
    """The loop closes it, in a task of its own."""
    leases: list[Any] = []

    async def handler() -> None:
        async for lease in door.part():
            leases.append(lease)
            break

    await elsewhere(handler())
    await eventually(door.is_free)
    assert (leases[0].remaining, leases[0].is_lost) == (0, False)


async def test_generator_in_a_cycle_releases_when_it_is_collected(door: Door) -> None:
    """It is closed by the loop when the garbage collector finds it."""

    async def handler() -> None:
        part = door.part()
        await part.__anext__()
        cycle: list[Any] = [part]
        cycle.append(cycle)

    await elsewhere(handler())
    assert not await door.is_free()
    gc.collect()
    await eventually(door.is_free)


async def test_frame_that_is_dropped_without_being_left_keeps_no_lease(door: Door) -> None:
    """Nothing else refers to what it had acquired: nobody renews it, and it lapses."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(firstiter=lambda _: None, finalizer=lambda _: None)
    try:
        part = door.part()
        lease = await part.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)
    del part
    gc.collect()
    assert not [one for one in gc.get_referrers(lease) if isinstance(one, Entry)]
    await lease.release()


@only_shared
async def test_generators_of_one_task_release_each_its_own(door: Door) -> None:
    """The first is closed first, and the second goes on."""
    first, second = door.part(), door.part()
    one, other = await first.__anext__(), await second.__anext__()
    await first.aclose()
    assert (one.remaining, await door.holders()) == (0, [other.holder])
    await other.renew()
    await second.aclose()


@only_shared
async def test_tasks_leave_in_any_order(door: Door) -> None:
    """Each closes what another task has begun."""
    parts = [door.part() for _ in range(3)]
    leases = [await elsewhere(part.__anext__()) for part in parts]
    for leaving in (1, 0, 2):
        await elsewhere(parts[leaving].aclose())
        assert leases[leaving].remaining == 0
        assert len(await door.holders()) == sum(lease.remaining > 0 for lease in leases)


@only_shared
async def test_recursion_releases_from_the_inside_out(door: Door) -> None:
    """One function that enters one object at each depth."""
    inside: list[Any] = []

    async def enter(depth: int) -> None:
        async with door.object as lease:
            inside.append(lease)
            if depth:
                await enter(depth - 1)
            assert inside.pop() is lease
            assert sorted(await door.holders()) == sorted(one.holder for one in [*inside, lease])

    await enter(2)


# Exit stacks and other wrappers.


async def test_exit_stack_that_is_closed_in_another_task_releases(door: Door) -> None:
    """What it has entered, wherever."""
    stack = AsyncExitStack()
    lease = await elsewhere(stack.enter_async_context(door.object))
    await elsewhere(stack.aclose())
    assert lease.remaining == 0
    assert await door.is_free()


@only_shared
async def test_exit_stacks_release_each_its_own(door: Door) -> None:
    """The first is closed first; what was moved to a third one goes with that."""
    stacks = [AsyncExitStack() for _ in range(3)]
    leases = [await stack.enter_async_context(door.object) for stack in stacks]
    stacks[1] = stacks[1].pop_all()
    for leaving in (0, 2, 1):
        await stacks[leaving].aclose()
        assert leases[leaving].remaining == 0
        assert len(await door.holders()) == sum(lease.remaining > 0 for lease in leases)


async def test_context_manager_of_a_generator_releases(door: Door) -> None:
    """`@asynccontextmanager`, left in another task; and as a decorator."""
    inside = asynccontextmanager(door.part)
    entered = inside()
    lease = await elsewhere(entered.__aenter__())
    await elsewhere(entered.__aexit__(None, None, None))
    assert lease.remaining == 0

    @inside()
    async def work() -> bool:
        return await door.is_free()

    assert not await work()
    assert await door.is_free()


class Wrapper:
    """A class of a user's own around one: its calls come from frames that have ended by the time of the exit."""

    def __init__(self, inner: Acquirable[Any, Any]) -> None:
        self.inner = inner

    async def __aenter__(self) -> Any:
        return await self.inner.__aenter__()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.inner.__aexit__(error_type, error, traceback)


async def test_wrapper_releases_also_in_another_task(door: Door) -> None:
    """What nobody else is in is released rather than held for as long as the object lives."""
    wrapper = Wrapper(door.object)
    async with wrapper as lease:
        assert not await door.is_free()
    assert lease.remaining == 0
    lease = await elsewhere(wrapper.__aenter__())
    await elsewhere(wrapper.__aexit__(None, None, None))
    assert lease.remaining == 0


@only_shared
async def test_wrapper_releases_what_its_task_has_entered_last(door: Door) -> None:
    """Though another task has entered after it; and in a third task, what the task that has ended had entered."""
    wrapper = Wrapper(door.object)
    left = await elsewhere(wrapper.__aenter__())
    ours = await wrapper.__aenter__()
    is_in, may_leave = asyncio.Event(), asyncio.Event()

    async def visit() -> None:
        async with wrapper:
            is_in.set()
            await may_leave.wait()

    visitor = asyncio.create_task(visit())
    await is_in.wait()
    await elsewhere(wrapper.__aexit__(None, None, None))
    assert (left.remaining == 0, ours.remaining > 0) == (True, True)
    await wrapper.__aexit__(None, None, None)
    assert (ours.remaining, len(await door.holders())) == (0, 1)
    may_leave.set()
    await visitor


async def test_enter_with_a_timeout_by_hand(door: Door) -> None:
    """`wait_for` enters in a task of its own before Python 3.12, while others enter."""
    leave = door.object.__aexit__
    lease = await asyncio.wait_for(door.object.__aenter__(), 5)
    await leave(None, None, None)
    assert lease.remaining == 0


async def test_exit_without_an_entry_is_refused(door: Door) -> None:
    """Also a second one, and one after an entry that has failed."""
    with pytest.raises(RuntimeError, match="was not entered, or was left before"):
        await door.object.__aexit__(None, None, None)
    async with door.object as lease:
        await lease.release()
        with pytest.raises(RuntimeError, match="was not entered"):
            await type(door.object).__aexit__(door.object, None, None, None)


async def test_look_up_for_nothing_does_no_harm(door: Door) -> None:
    """Such as that of a checker, right before one that enters by hand."""
    assert hasattr(door.object, "__aexit__")
    lease = await Wrapper(door.object).__aenter__()
    await Wrapper(door.object).__aexit__(None, None, None)
    assert lease.remaining == 0


async def test_exit_that_raises_has_left(door: Door) -> None:
    """The next entry of the same object has nothing to do with it."""

    async def hold_and_lose() -> None:
        async with door.object as lease:
            first_of(lease)._state._is_lost = True

    with pytest.raises(LeaseLost):
        await hold_and_lose()
    await eventually(door.is_free)
    async with door.object as lease:
        pass
    assert lease.remaining == 0


# Fixtures.


@pytest.fixture
async def entered(door: Door) -> AsyncIterator[Any]:
    """A fixture of pytest-asyncio, with setup and teardown."""
    async with door.object as lease:
        yield lease
    assert lease.remaining == 0


async def test_fixture_is_left_after_its_test(door: Door, entered: Any) -> None:
    """And held in it."""
    assert entered.remaining > 0
    assert not await door.is_free()


def test_anyio_fixture_is_left_after_its_test(server: RealServer, namespace: str) -> None:
    """Its plugin runs a fixture and the tests that use it in one task, and other fixtures in between."""
    opened: list[Coordinator] = []

    async def concert() -> AsyncGenerator[Coordinator, None]:
        async with Coordinator(server.url, namespace=namespace) as one:
            opened.append(one)
            yield one

    async def part(number: int) -> AsyncGenerator[Any, None]:
        async with semaphore as lease:
            yield (number, lease)
        assert lease.remaining == 0

    async def holders() -> int:
        return len(await semaphore.holders())

    with get_runner("asyncio", {}) as runner:
        coordinating = iter(runner.run_asyncgen_fixture(concert, {}))
        semaphore = next(coordinating).semaphore("door", limit=3)
        first = iter(runner.run_asyncgen_fixture(part, {"number": 1}))
        second = iter(runner.run_asyncgen_fixture(part, {"number": 2}))
        (_, one), (_, other) = next(first), next(second)
        assert next(first, None) is None
        assert (one.remaining, runner.run_fixture(holders, {})) == (0, 1)
        assert next(second, None) is None
        assert (other.remaining, runner.run_fixture(holders, {})) == (0, 0)
        assert next(coordinating, None) is None


# Web frameworks.


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
async def test_streaming_response_releases_when_its_client_hangs_up(door: Door, spec_version: str) -> None:
    """Whether the server cancels the response, or raises in its `send`."""
    app = FastAPI()
    has_sent = asyncio.Event()
    inside: list[bool] = []

    @app.get("/rows")
    async def get_rows() -> StreamingResponse:
        async def rows() -> AsyncGenerator[str, None]:
            async with door.object:
                while True:
                    yield "row"

        return StreamingResponse(rows())

    async def receive() -> dict[str, Any]:
        await has_sent.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(0)
        if message.get("body"):
            inside.append(not await door.is_free())
            has_sent.set()
            if spec_version == "2.4":
                raise OSError("the client has hung up")

    scope: dict[str, Any] = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": spec_version}, "http_version": "1.1",
        "method": "GET", "path": "/rows", "raw_path": b"/rows", "query_string": b"", "headers": [], "scheme": "http",
        "server": ("localhost", 80), "client": ("localhost", 1), "root_path": "",
    }  # fmt: skip

    async def request() -> None:
        with suppress(Exception):  # Starlette's own for a client that has hung up
            await app(scope, receive, send)

    await elsewhere(request())
    assert inside[0]
    gc.collect()  # what the request was made of refers to itself
    await eventually(door.is_free)


# Bodies that are stopped.


async def test_loss_stops_nobody_when_the_entering_task_has_ended(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The body goes on in another task, which nobody knows; its exit tells of the loss."""
    monkeypatch.setattr(body_module, "CANCEL_AGAIN", 0.0)
    part = door.part()
    lease = await elsewhere(part.__anext__())
    lose(lease)
    for _ in range(3):
        await asyncio.sleep(0)
    assert lease.is_lost
    with pytest.raises(LeaseLost):
        await part.asend(None)


async def test_task_that_was_stopped_for_a_body_left_elsewhere_counts_no_cancellation(door: Door) -> None:
    """It was cancelled by the loss; who leaves in its place takes back the count, and is not cancelled itself."""
    part = door.part()
    counts: list[int] = []

    async def enter() -> None:
        task = asyncio.current_task()
        assert task is not None
        lease = await part.__anext__()
        asyncio.get_running_loop().call_soon(lose, lease)
        with pytest.raises(asyncio.CancelledError):
            await anyio.sleep_forever()
        await asyncio.create_task(part.aclose())
        counts.append(task.cancelling())

    await asyncio.create_task(enter())
    assert counts == [0]


async def test_cancellation_of_the_task_that_leaves_is_not_taken_for_a_loss(door: Door) -> None:
    """Though the lease was lost before, and the task that entered was stopped for that."""
    part = door.part()

    async def enter() -> None:
        lease = await part.__anext__()
        asyncio.get_running_loop().call_soon(lose, lease)
        with pytest.raises(asyncio.CancelledError):
            await anyio.sleep_forever()
        with pytest.raises(asyncio.CancelledError):
            await elsewhere(part.athrow(asyncio.CancelledError()))

    await asyncio.create_task(enter())


def lose(lease: Any) -> None:
    """Lose it, or the first of several."""
    one = first_of(lease)._state
    one._renewal.remove(one)
    one.lose()
