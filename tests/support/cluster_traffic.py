"""Work of two processes on a cluster, and what must be true of it whatever happens to the nodes."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

from inconcert import Coordinator, InconcertError
from inconcert._cluster.router import Router
from tests.support.clusters import Node
from tests.support.eventually import eventually

__all__ = ["KEYS", "Traffic", "traffic"]

# Of which the slots are moved: one of each kind of work.
KEYS = ["{{{}:lock:a}}", "{{{}:lock:b}}", "{{{}:queue:items}}", "{{{}:signal:news}}"]
_PAUSE = 0.05  # seconds after an error


class Traffic:
    """What was done, and what went wrong.

    Attributes:
        done: How often each kind of work was done.
        errors: The errors that callers got, which may happen as long as nothing is lost.
        violations: What must never happen.
        put: Items whose put was confirmed.
        got: How often each item was handled.
        longest: The longest time after a change until all went on, in seconds.
    """

    def __init__(self, *concerts: Coordinator) -> None:
        self._concerts = concerts
        self.done = Counter[str]()
        self.errors = Counter[str]()
        self.violations: list[str] = []
        self.put: set[int] = set()
        self.got = Counter[int]()
        self.longest = 0.0
        self.is_ending = False
        self._inside: set[str] = set()
        self._tokens: dict[str, int] = {}
        self._numbers = itertools.count()

    @property
    def lost(self) -> set[int]:
        """Items that were put and not handled."""
        return self.put - self.got.keys()

    @property
    def doubled(self) -> list[int]:
        """Items that were handled more than once."""
        return [item for item, times in self.got.items() if times > 1]

    async def all_goes_on(self, within: float) -> float:
        """Wait until each kind of work was done a few times more; returns the seconds that took."""
        began, before = time.monotonic(), Counter(self.done)
        kinds = ("lock a", "lock b", "put", "get", "signal")
        await eventually(lambda: all(self.done[kind] >= before[kind] + 3 for kind in kinds), timeout=within)
        return time.monotonic() - began

    async def has_left(self, node: Node) -> None:
        """Wait until both processes know that this node is no longer a master."""

        def knows(concert: Coordinator) -> bool:
            channel = concert._ref.session.channel
            assert isinstance(channel, Router)
            return all(address.port != node.port for address in channel._channels)

        await eventually(lambda: all(map(knows, self._concerts)))

    async def lock(self, concert: Coordinator, name: str) -> None:
        """Hold a lock again and again, alone, with ever higher tokens."""
        async with concert.lock(name, ttl=5) as lease:
            if name in self._inside:
                self.violations.append(f"two hold lock {name}")
            if lease.fencing_token <= self._tokens.get(name, 0):
                self.violations.append(f"a token of lock {name} is not higher than the last")
            self._tokens[name] = lease.fencing_token
            self._inside.add(name)
            try:
                await asyncio.sleep(random.uniform(0, 0.004))
            finally:
                self._inside.discard(name)
        self.done[f"lock {name}"] += 1

    async def put_one(self, concert: Coordinator) -> None:
        """Put a new item."""
        item = next(self._numbers)
        await concert.queue("items").put(item)
        self.put.add(item)
        self.done["put"] += 1
        await asyncio.sleep(0.004)

    async def get_one(self, concert: Coordinator) -> None:
        """Handle an item."""
        try:
            delivery = await concert.queue("items").get(timeout=1)
        except TimeoutError:
            return
        async with delivery as item:
            self.got[int(str(item))] += 1
        self.done["get"] += 1

    async def wait_for_signal(self, concert: Coordinator) -> None:
        """Be notified."""
        try:
            await concert.signal("news").wait(timeout=1)
        except TimeoutError:
            return
        self.done["signal"] += 1

    async def notify(self, concert: Coordinator) -> None:
        """Notify a waiter."""
        await concert.signal("news").notify(1)
        await asyncio.sleep(0.01)

    async def repeat(self, work: Callable[[], Coroutine[object, object, None]], *, to_the_last: bool = False) -> None:
        """Do this until the end, whatever errors it meets; or until it is cancelled."""
        while to_the_last or not self.is_ending:
            try:
                await work()
            except InconcertError as error:
                self.errors[f"{type(error).__name__}: {error}"] += 1
                await asyncio.sleep(_PAUSE)


@asynccontextmanager
async def traffic(url: str, namespace: str) -> AsyncGenerator[Traffic]:
    """Work for as long as the body lasts; then every item is handled."""
    async with Coordinator(url, namespace=namespace) as one, Coordinator(url, namespace=namespace) as other:
        found = Traffic(one, other)
        works = [
            *(
                lambda concert=concert, name=name: found.lock(concert, name)
                for concert in (one, other)
                for name in "ab"
            ),
            *(
                lambda concert=concert, name=name: found.lock(concert, name)
                for concert in (one, other)
                for name in "ab"
            ),
            *(lambda concert=concert: found.put_one(concert) for concert in (one, other)),
            lambda: found.wait_for_signal(one),
            lambda: found.notify(other),
        ]
        getting = [lambda concert=concert: found.get_one(concert) for concert in (one, other)]
        tasks = [asyncio.create_task(found.repeat(work)) for work in works]
        getters = [asyncio.create_task(found.repeat(work, to_the_last=True)) for work in getting]
        try:
            await found.all_goes_on(within=10)
            yield found
            found.is_ending = True
            await asyncio.wait_for(asyncio.gather(*tasks), 20)
            await eventually(lambda: not found.lost, timeout=20)
        finally:
            for task in (*tasks, *getters):
                task.cancel()
            await asyncio.gather(*tasks, *getters, return_exceptions=True)
