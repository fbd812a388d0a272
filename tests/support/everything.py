"""All kinds of work at once, in two processes' places, for a fault to fall upon.

Each kind is done again and again. An error of ours ends a round, not the kind: what counts is that each kind goes on
after the fault, and that nothing stays behind once no more is begun.
"""

import itertools
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

from inconcert import Coordinator, InconcertError, Limit, QueueCounts, Rate, Task, durable
from inconcert.tasks.records.group_ids import group_of
from tests.support.short_lease import with_lease

__all__ = ["Everything"]

_LEASE = 1.0  # seconds; of all that is held
_LONGEST = 2.0  # seconds that a round waits for another process, or for a result
_KEYS = [f"key {number}" for number in range(12)]  # shared out among members
_IN_TURN = 3  # keys of jobs
_RECHECK_AFTER = 0.01  # seconds

Act = Callable[[Coordinator], Awaitable[object]]


class Everything:
    """Work of all kinds.

    Attributes:
        rounds: How often each kind was done.
    """

    def __init__(self) -> None:
        self.rounds: Counter[str] = Counter()
        self._shares: dict[int, set[str]] = {}
        self._stop = anyio.Event()
        self._numbers = itertools.count()
        self._concerts: list[Coordinator] = []
        self._tasks: dict[tuple[Coordinator, str], Task[[int], Any]] = {}

    @asynccontextmanager
    async def under_way(self, url: str, namespace: str, **options: Any) -> AsyncGenerator["Everything"]:
        """Begin; in the end everything is left as it is."""
        async with AsyncExitStack() as opened:
            for _ in range(2):
                concert = with_lease(Coordinator(url, namespace=namespace, **options), _LEASE)
                self._register(concert)
                self._concerts.append(await opened.enter_async_context(concert))
            async with anyio.create_task_group() as group:
                for number, concert in enumerate(self._concerts):
                    group.start_soon(self._work, concert)
                    group.start_soon(self._take, concert)
                    group.start_soon(self._share, number, concert)
                    for kind, act in self._kinds().items():
                        group.start_soon(self._repeat, kind, act, concert)
                yield self
                group.cancel_scope.cancel()

    async def goes_on(self, *, within: float = 60.0) -> None:
        """Return when each kind was done twice more."""
        before = self.rounds.copy()

        async def behind() -> object:
            kinds = self._kinds().keys() | {"item", "scheduled"}
            return {kind for kind in kinds if self.rounds[kind] < before[kind] + 2}

        await _nothing_is(behind, within)

    async def comes_right(self, *, within: float = 60.0) -> None:
        """Begin no more, and return when nothing is left of it that runs, waits or is held."""
        self._stop.set()
        deadline = anyio.current_time() + within
        for left in (self._jobs_left, self._items_left, self._keys_left):
            await _nothing_is(left, deadline - anyio.current_time())
        with anyio.fail_after(deadline - anyio.current_time()):
            await self._all_is_free(self._concerts[0])

    # What must hold.

    async def _jobs_left(self) -> object:
        tasks = self._concerts[0].tasks
        dead = [job for job in await tasks.dead() if not job.error.endswith(" is not known")]  # its parent was undone
        waiting = (await tasks.jobs(state="waiting")).jobs
        for group in {group for job in waiting if (group := group_of(job.id))}:
            await tasks.group(group).close()  # that it was closed may be undone
        stats = await tasks.stats("default")
        queue = stats.queues.get("default")
        left = queue and queue.ready + queue.delayed + queue.waiting + queue.running
        is_used = any(limit.in_use for limit in stats.limits.values())
        return (stats, waiting, dead) if left or is_used or dead else None

    async def _items_left(self) -> object:
        counts = await self._queue(self._concerts[0]).counts()
        return counts if counts != QueueCounts(0, 0, 0, 0) else None

    async def _keys_left(self) -> object:
        """Each key has one member, and there is no other member."""
        members = await self._concerts[0].members("g", ttl=_LEASE).list()
        had = sorted(key for shares in self._shares.values() for key in shares)
        return (members, self._shares) if len(members) != len(self._concerts) or had != sorted(_KEYS) else None

    async def _all_is_free(self, concert: Coordinator) -> None:
        """What one holder or more may have can be had at once, whole."""
        lock, semaphore = concert.lock("l", ttl=_LEASE), concert.semaphore("s", limit=2, permits=2, ttl=_LEASE)
        async with lock, semaphore, concert.rwlock("rw", ttl=_LEASE).write(), concert.election("e", ttl=_LEASE):
            pass

    # What is done.

    def _kinds(self) -> dict[str, Act]:
        acts = (
            *(self._plain, self._limited, self._in_turn, self._dependent, self._grouped, self._durable, self._put),
            *(self._lock, self._semaphore, self._rwlock, self._lead),
            *(self._latch, self._barrier, self._event, self._signal, self._rate),
        )
        return {act.__name__.strip("_"): act for act in acts}

    async def _repeat(self, kind: str, act: Act, concert: Coordinator) -> None:
        while not self._stop.is_set():
            try:
                with anyio.fail_after(2 * _LONGEST):
                    await act(concert)
                self.rounds[kind] += 1
            except (InconcertError, TimeoutError):
                pass
            await anyio.sleep(random.random() * 0.05)  # so that a machine with few cores has some left for all kinds

    def _register(self, concert: Coordinator) -> None:
        async def run(number: int) -> int:
            await anyio.sleep(random.random() * 0.1)
            return number

        @concert.task(name="plain", max_attempts=9, max_crashes=99)
        async def plain(number: int) -> int:
            return await run(number)

        @concert.task(name="limited", limit=Limit(2), rate=Rate(200, per=1.0), max_attempts=9, max_crashes=99)
        async def limited(number: int) -> int:
            return await run(number)

        @concert.task(name="in turn", key=_key_of, key_limit=1, max_attempts=9, max_crashes=99)
        async def in_turn(number: int) -> int:
            return await run(number)

        @concert.task(name="durable", max_attempts=9, max_crashes=99)
        async def steps(number: int) -> int:
            one = await durable.step("one", run, number)
            await durable.sleep("a while", 0.1, in_memory_below=0.0)
            return one + await durable.step("two", run, number)

        @concert.cron(every=0.5)
        @concert.task(name="scheduled", queue="scheduled")
        async def scheduled() -> None:
            self.rounds["scheduled"] += 1

        tasks: tuple[Task[[int], Any], ...] = (plain, limited, in_turn, steps)
        self._tasks |= {(concert, task.name): task for task in tasks}

    async def _work(self, concert: Coordinator) -> None:
        await concert.run_worker("default", "scheduled", concurrency=8)

    async def _run_job(self, concert: Coordinator, name: str, **options: Any) -> str:
        number = next(self._numbers)
        job = await concert.enqueue(name, [number], max_attempts=9, max_crashes=99, **options)
        if self._stop.is_set() or number % 2:
            await job.result(timeout=_LONGEST)
        return job.id

    async def _plain(self, concert: Coordinator) -> None:
        await self._run_job(concert, "plain", delay=random.choice([0.0, 0.1]))

    async def _limited(self, concert: Coordinator) -> None:
        await self._call(concert, "limited")

    async def _in_turn(self, concert: Coordinator) -> None:
        await self._call(concert, "in turn")

    async def _call(self, concert: Coordinator, name: str) -> None:
        """By its task, which has limits."""
        number = next(self._numbers)
        job = await self._tasks[concert, name].enqueue(number)
        if number % 2:
            await job.result(timeout=_LONGEST)

    async def _dependent(self, concert: Coordinator) -> None:
        parent = await self._run_job(concert, "plain")
        child = await concert.enqueue("plain", [0], after=[parent], even_if="ended", max_attempts=9, max_crashes=99)
        await child.result(timeout=_LONGEST)

    async def _grouped(self, concert: Coordinator) -> None:
        plain = self._tasks[concert, "plain"]
        group = await concert.group([plain.call(number) for number in range(3)], then=plain.call(9), when="ended")
        await group.callback.result(timeout=_LONGEST)

    async def _durable(self, concert: Coordinator) -> None:
        await self._run_job(concert, "durable")

    def _queue(self, concert: Coordinator) -> Any:
        return concert.queue("q", ttl=_LEASE, maxsize=4, max_attempts=99, max_crashes=99)

    async def _put(self, concert: Coordinator) -> None:
        await self._queue(concert).put(next(self._numbers), timeout=_LONGEST)

    async def _take(self, concert: Coordinator) -> None:
        while True:
            with suppress(InconcertError):
                async for delivery in self._queue(concert):
                    async with delivery:
                        await anyio.sleep(random.random() * 0.05)
                    self.rounds["item"] += 1

    async def _lock(self, concert: Coordinator) -> None:
        async with concert.lock("l", ttl=_LEASE, timeout=_LONGEST):
            await anyio.sleep(random.random() * 0.05)

    async def _semaphore(self, concert: Coordinator) -> None:
        async with concert.semaphore("s", limit=2, ttl=_LEASE, timeout=_LONGEST):
            await anyio.sleep(random.random() * 0.05)

    async def _rwlock(self, concert: Coordinator) -> None:
        lock = concert.rwlock("rw", ttl=_LEASE, timeout=_LONGEST)
        async with random.choice([lock.read, lock.write])():
            await anyio.sleep(random.random() * 0.05)

    async def _lead(self, concert: Coordinator) -> None:
        async with concert.election("e", ttl=_LEASE, timeout=_LONGEST):
            await anyio.sleep(random.random() * 0.05)

    async def _share(self, number: int, concert: Coordinator) -> None:
        while True:
            with suppress(InconcertError):
                async with concert.members("g", ttl=_LEASE) as me:
                    async for keys in me.shares(_KEYS):
                        self._shares[number] = {*keys}
            self._shares[number] = set()

    async def _latch(self, concert: Coordinator) -> None:
        """Two count a round down; one that the server forgets is left after a while."""
        latch = concert.latch(f"round {self.rounds['latch'] // 2}", 2)
        await latch.count_down()
        await latch.wait(timeout=_LONGEST)

    async def _barrier(self, concert: Coordinator) -> None:
        await concert.barrier("b", 2, ttl=_LEASE).wait(timeout=_LONGEST)

    async def _event(self, concert: Coordinator) -> None:
        event = concert.event("e")
        if concert is self._concerts[0]:
            await event.set()
            await anyio.sleep(0.05)
            await event.clear()
        else:
            await event.wait(timeout=_LONGEST)

    async def _signal(self, concert: Coordinator) -> None:
        signal = concert.signal("s")
        if concert is self._concerts[0]:
            await signal.notify(1)
        else:
            await signal.wait(timeout=_LONGEST)

    async def _rate(self, concert: Coordinator) -> None:
        await concert.rate_limiter("r", 20, 1.0, burst=1).acquire(timeout=_LONGEST)


def _key_of(number: int) -> int:
    return number % _IN_TURN


async def _nothing_is(left: Callable[[], Awaitable[object]], within: float) -> None:
    """Ask until nothing is left, or fail with that."""
    found: object = "no answer"
    with anyio.move_on_after(within):
        while found:
            with suppress(InconcertError):
                found = await left()
            await anyio.sleep(_RECHECK_AFTER)
    assert not found, found
