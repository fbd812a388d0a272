"""Several processes and their server in one event loop, on a virtual clock: a minute takes milliseconds."""

import asyncio
import contextvars
import math
import random
import selectors
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar
from unittest import mock

import redis.exceptions
from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection, FakeRedis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from inconcert.coordinator import Coordinator

T = TypeVar("T")

_BEGIN = 1_800_000_000.0  # what the server's clock shows at first
_LONGEST = 7200  # seconds of a story: in one that takes longer, everyone waits for each other
_UNDER_WAY = 0.001  # seconds at most that a command is, and its reply
_TICK = 1e-6  # seconds from one look at the clock to the next, so that no two events are at the same time

# By how many seconds the clock of a process is ahead of the true time; None for the server, whose clock can be stepped.
_ahead = contextvars.ContextVar[float | None]("ahead", default=None)


def simulate(story: Callable[["World"], Awaitable[None]], seeds: int | Iterable[int] = 1000) -> None:
    """Tell a story again and again, each time in a world of its own, in which events have another order.

    In a world there are several processes and a server, in one event loop, on a virtual clock: while nothing else is to
    be done, the clock jumps.  Each command and each reply is under way for a time that the seed chooses: a seed is an
    order of events, and the same seed is the same order.  The server is fakeredis: this proves logic, and nothing about
    a server.

    ```python
    async def use(concert: Coordinator) -> None:
        async with concert.lock("sword", timeout=60.0):
            ...


    async def story(world: World) -> None:
        ann, bob = await world.process("ann"), await world.process("bob", clock_ahead=11.0)
        ann.start(use(ann.concert))
        ann.kill(after=3)  # when the server has run three more of its commands
        await bob.start(use(bob.concert))


    def test_item_is_sold_once() -> None:
        simulate(story)
    ```

    Args:
        story: What happens. It fails by raising; so does a process that was not killed.
        seeds: How many, from 0; or which ones.

    Raises:
        Exception: What the story raised, with a note that names the seed. `simulate(story, seeds=[17])` replays it.
        AssertionError: A story is not told after 2 virtual hours.
        RuntimeError: An event loop runs in this thread.

    Cost: a few hundredths of a second for each seed and two processes that use a lock; the virtual time costs nothing.
    """
    if _runs_a_loop():
        raise RuntimeError("simulate() runs an event loop of its own; call it from a function that is not async")
    for seed in range(seeds) if isinstance(seeds, int) else seeds:
        try:
            _tell(story, seed)
        except BaseException as error:
            error.add_note(f"the story failed with seed {seed}; simulate(..., seeds=[{seed}]) replays it")
            raise


def _runs_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _tell(story: Callable[["World"], Awaitable[None]], seed: int) -> None:
    async def tell() -> None:
        world = World(seed, clock)
        try:
            await story(world)
        finally:
            await world.end()

    clock = _Clock()
    state = random.getstate()
    random.seed(seed)  # for the backoff of whatever tries again
    try:
        with (
            mock.patch("time.monotonic", clock.now),
            mock.patch("time.time", clock.shown),
            asyncio.Runner(loop_factory=lambda: _Loop(clock)) as runner,
        ):
            runner.run(tell())
    finally:
        random.setstate(state)


class World:
    """A server, and the processes that use it, as `simulate` gives them to a story.

    Attributes:
        random: For whatever else is to depend on the seed alone.
        client: Looks at what the server has, without being under way; keys are strings.
    """

    def __init__(self, seed: int, clock: "_Clock") -> None:
        self.random = random.Random(seed)
        self._clock = clock
        self.server = FakeServer()
        self.client: Any = FakeRedis(server=self.server, decode_responses=True)
        self._processes: list[_ProcessState] = []

    @staticmethod
    def now() -> float:
        """Seconds, later with each look."""
        return time.monotonic()

    def step_clock(self, seconds: float) -> None:
        """Set the server's clock forward by so many seconds, or back if negative; no other clock."""
        self._clock.server_is_ahead += seconds

    async def process(self, name: str, *, clock_ahead: float = 0.0) -> "Process":
        """Start one, with a coordinator that is open.

        Args:
            name: Its name.
            clock_ahead: Seconds by which its clock is ahead of the true time, which the server's shows at first.
        """
        state = _ProcessState(self.server, self.random, clock_ahead)
        self._processes.append(state)
        await state.open()
        return Process(self, name, state)

    async def end(self) -> None:
        """Heal all links and let every process end. Nothing that happens now is part of the story."""
        for process in self._processes:
            process.heal()
        for process in self._processes:
            await process.end()
        await self.client.aclose()


class Process:
    """One process of a world: its clock, its link to the server, and what runs in it.

    Made by `World.process`.

    Attributes:
        world: Where it is.
        name: Its name.
        client: A client as redis-py makes it, which sends again what was not answered.
        concert: An open coordinator, in the namespace that all processes of the world share.
    """

    def __init__(self, world: World, name: str, state: "_ProcessState") -> None:
        self.world = world
        self.name = name
        self.client: Any = state.client
        self.concert = state.concert
        self._state = state

    @property
    def died_at(self) -> float:
        """The time at which it was killed, in seconds as `World.now` has them; infinity while it lives."""
        return self._state.died_at

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let it do something, by its own clock. What that raises, the story raises, unless the process was killed."""
        return self._state.start(work)

    def kill(self, *, after: int = 0) -> None:
        """Let it die, when the server has run so many more of its commands: as if it were switched off.

        Nothing that it does from then on reaches the server.
        """
        self._state.is_to_die = True
        self.cut(after=after)

    def cut(self, *, after: int = 0) -> None:
        """Let nothing through to the server and back, when it has run so many more commands, until `heal`."""
        self._state.cut(after)

    def heal(self) -> None:
        """Let everything through, also what was held up."""
        self._state.heal()

    def lose_reply(self) -> None:
        """Break the connection when the server has run the next command, before its reply arrives."""
        self._state.replies_to_lose += 1


class _ProcessState:
    """The work in a process, and its link to the server."""

    def __init__(self, server: FakeServer, order: random.Random, clock_ahead: float) -> None:
        connections = type("_ConnectionOf", (_Connection,), {"process": self})
        lost = [redis.exceptions.ConnectionError, redis.exceptions.TimeoutError]
        self.client: Any = FakeRedis(server=server, connection_class=connections, decode_responses=True)
        self.client.connection_pool.connection_kwargs["retry_on_error"] = lost  # as from redis-py 6 on
        self.client.set_retry(Retry(ExponentialBackoff(base=1, cap=10), 10))
        self._shared = FakeRedis(server=server, connection_class=connections)
        self.concert = Coordinator.from_client(self._shared, namespace="sim")
        self.died_at = math.inf
        self.is_to_die = False
        self.replies_to_lose = 0
        self._order = order
        self._context = contextvars.copy_context()
        self._context.run(_ahead.set, clock_ahead)
        self._tasks: list[asyncio.Task[Any]] = []
        self._link = asyncio.Event()
        self._link.set()
        self._commands_left = math.inf

    async def open(self) -> None:
        """Open its coordinator, by its own clock."""
        await self.start(self._open())

    async def _open(self) -> None:
        await self.concert.__aenter__()
        await self.client.ping()  # connected: what comes now are the story's commands

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let it do something, by its own clock."""
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel all that runs in it, close its coordinator, and raise its exception."""
        ended = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.concert.__aexit__(None, None, None)
        await self._shared.aclose()
        await self.client.aclose()
        for task in ended:
            if self.died_at == math.inf and not task.cancelled():
                task.result()

    def cut(self, after: int) -> None:
        """Let nothing through, when the server has run so many more commands."""
        self._commands_left = after or math.inf
        if after == 0:
            self._link.clear()
            if self.is_to_die:
                self.died_at = min(self.died_at, World.now())

    def heal(self) -> None:
        """Let everything through."""
        self._commands_left = math.inf
        self._link.set()

    # For its connections.

    async def way(self) -> None:
        """As long as something is under way, in either direction."""
        await asyncio.sleep(self._order.uniform(0, _UNDER_WAY))
        await self._link.wait()

    def sent(self) -> bool:
        """Count a command that the server has run, and return whether its reply is to be lost."""
        self._commands_left -= 1
        if self._commands_left == 0:
            self.cut(0)
        is_lost = self.replies_to_lose > 0
        self.replies_to_lose -= is_lost
        return is_lost


class _Connection(FakeAsyncRedisConnection):
    """A connection of one process, as the client's pool makes it."""

    process: _ProcessState
    _reply_is_lost = False

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:  # noqa: FBT001, FBT002
        await self.process.way()
        own_clock = _ahead.set(None)  # the server has another
        try:
            await super().send_packed_command(command, check_health)
        finally:
            _ahead.reset(own_clock)
        self._reply_is_lost = self.process.sent()

    async def read_response(self, *args: object, **options: object) -> object:
        try:
            return await super().read_response(*args, **options)
        finally:
            await self.process.way()
            if self._reply_is_lost:
                self._reply_is_lost = False
                await self.disconnect()
                raise redis.exceptions.ConnectionError("the connection broke before the reply came")


class _Clock:
    """Stands still, but for a tick at each look, until someone waits."""

    def __init__(self) -> None:
        self._now = 0.0
        self.server_is_ahead = 0.0
        self._ends_at: float = _LONGEST

    def now(self) -> float:
        self._now += _TICK
        return self._now

    def shown(self) -> float:
        """The time by the clock of the process that asks."""
        ahead = _ahead.get()
        return _BEGIN + self.now() + (self.server_is_ahead if ahead is None else ahead)

    def pass_by(self, seconds: float) -> None:
        self._now += seconds
        if self._now > self._ends_at:
            self._ends_at = math.inf  # there is still to tidy up
            raise AssertionError(f"the story has not ended after {_LONGEST} s")


class _Selector(selectors.DefaultSelector):
    """Waits for nothing, but lets the time pass that it would have waited."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            self._clock.pass_by(_LONGEST if timeout is None else timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: _Clock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.now()
