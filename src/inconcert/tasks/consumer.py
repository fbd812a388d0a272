"""One who claims jobs from several queues, the most urgent first, and sleeps while there are none."""

import asyncio
import logging
import random
from collections import deque
from types import TracebackType
from typing import Self

import anyio

from inconcert._core.completion import to_the_end
from inconcert._core.session import Access, Session
from inconcert._redis.bells import Bells
from inconcert.errors import InconcertError, NotConnected, OutcomeUnknown, Unavailable
from inconcert.tasks.claims import Claims
from inconcert.tasks.job import ClaimedJob
from inconcert.tasks.promoter import Promoter
from inconcert.tasks.recovery import Reaper
from inconcert.tasks.store import JobKeys, QueueKeys

__all__ = ["Consumer"]

_log = logging.getLogger("inconcert.tasks")

_SHORTEST_SLEEP, _LONGEST_SLEEP = 2.0, 5.0  # seconds in BLPOP; apart, so that consumers do not all look at once
_AFTER_A_FAILURE = 0.5  # seconds


class Consumer:
    """An `async for` over jobs from prioritised queues, each delivered at least once.

    Several tasks may share a consumer: each job goes to one of them.  Claimed jobs stay in Redis until they are
    acknowledged; if this process dies they go back to the front of their queues when the heartbeat's lease of 10 s has
    lapsed.  While it is open, a consumer also moves delayed jobs of its queues when they are due, and recovers the jobs
    of other workers that died.

    Made by `Coordinator.consume`:

    ```python
    async with concert.consume("high", "medium", "low") as jobs:
        async for job in jobs:
            async with job:
                await handle(job.name, *job.args, **job.kwargs)
    ```

    Args:
        access: The way to the open session.
        queues: Names of queues, the most urgent first.
        prefetch: How many jobs to claim at once, 1 to 500. More than 1 saves round trips, but what is claimed ahead
            waits for this consumer even if another is idle.

    Raises:
        ValueError: No queue, the same twice, or `prefetch` out of range.
        InvalidName: The name of a queue is empty or longer than 512 bytes.
    """

    def __init__(self, access: Access, queues: tuple[str, ...], *, prefetch: int = 1) -> None:
        if not queues or len(set(queues)) < len(queues):
            raise ValueError(f"queues are {queues!r}; give at least one, and none twice")
        if type(prefetch) is not int or not 1 <= prefetch <= 500:
            raise ValueError(f"prefetch is {prefetch!r}; give a whole number from 1 to 500")
        self._access = access
        self._keys = JobKeys(access.keys)
        self._queues = [self._keys.queue(name) for name in queues]
        self._prefetch = prefetch
        self._opened: _Opened | None = None

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("this consumer is open already; make another with consume()")
        opened = _Opened(self._access.session, self._keys, self._queues)
        await opened.open()
        self._opened = opened
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ClaimedJob:
        return await self._open_now().next(self._prefetch)

    async def claim(self, count: int) -> list[ClaimedJob]:
        """Wait until there are jobs, and claim at most `count` of them, the most urgent first.

        A server that cannot be reached is waited for.

        Raises:
            NotConnected: The consumer is not open, or it or the coordinator was closed meanwhile.

        Cost: 1 round trip when there are jobs; an idle consumer sends 2 commands every 2 to 5 s.
        """
        return await self._open_now().claim(count)

    def _open_now(self) -> "_Opened":
        if self._opened is None:
            raise NotConnected("the consumer is not open; use it inside `async with concert.consume(...)`")
        return self._opened


class _Opened:
    """What an open consumer has: a life as a worker, a connection to sleep on, and two background tasks."""

    def __init__(self, session: Session, keys: JobKeys, queues: list[QueueKeys]) -> None:
        self._session = session
        self._keys = keys
        self._queues = queues
        self._address = session.new_address()
        self._bells = Bells(session.pool, tuple(queue.bell for queue in queues), timeout=session.timeout / 2)
        self._promoter = Promoter(session, queues)
        self._reaper = Reaper(session, keys)
        self._claims: Claims | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._sent_away: InconcertError | None = None
        self._ahead: deque[ClaimedJob] = deque()
        self._turn = anyio.Lock(fast_acquire=True)  # of those who share the consumer: claims go one after the other

    async def open(self) -> None:
        await self._bells.open()
        self._session.wakeups.expect(self._address, self)
        self._tasks = [asyncio.create_task(part.run()) for part in (self._promoter, self._reaper)]

    async def close(self) -> None:
        self._session.wakeups.forget(self._address)
        self.abandon(NotConnected("the consumer was closed while this call waited"))
        if self._claims is not None and not self._session.channel.is_closed:
            self._claims.retire()
        await to_the_end(self._disconnect())

    async def _disconnect(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._bells.close()

    async def next(self, prefetch: int) -> ClaimedJob:
        async with self._turn:
            while True:
                while self._ahead:
                    job = self._ahead.popleft()
                    if not job.is_over:  # else it was lost while it waited here
                        return job
                self._ahead.extend(await self._claim(prefetch))

    async def claim(self, count: int) -> list[ClaimedJob]:
        async with self._turn:
            return await self._claim(count)

    async def _claim(self, count: int) -> list[ClaimedJob]:
        while True:
            self._check_open()
            try:
                jobs = await self._try_to_claim(count)
                if jobs:
                    return jobs
            except (Unavailable, OutcomeUnknown) as error:
                _log.warning("jobs cannot be claimed yet: %s", error)
                await anyio.sleep(_AFTER_A_FAILURE)
            else:
                await self._bells.rung(random.uniform(_SHORTEST_SLEEP, _LONGEST_SLEEP))

    async def _try_to_claim(self, count: int) -> list[ClaimedJob]:
        claims = await self._alive()
        jobs, due_in = await claims.claim(count)
        if claims.is_lost:  # taken for dead: the jobs are there for a new life, now and not after a sleep
            jobs, due_in = await (await self._alive()).claim(count)
        if due_in is not None:
            self._promoter.look_in(due_in)
        return jobs

    async def _alive(self) -> Claims:
        if self._claims is not None and not self._claims.is_lost:
            return self._claims
        self._check_open()
        claims = self._claims = await Claims(self._session, self._keys, self._queues, self._reaper.found).begin()
        try:
            self._check_open()
        except InconcertError:  # closed while it began, and then nobody else ends it
            if not self._session.channel.is_closed:
                claims.retire()
            raise
        return claims

    def _check_open(self) -> None:
        if self._sent_away is not None:
            raise self._sent_away

    # What it is told as one who waits.

    def hear(self, text: str) -> None:
        """Nobody writes to a consumer: bells wake it."""

    def look(self) -> None:
        """The server may have moved: so must the connection that sleeps."""
        self._bells.connect_again()

    def abandon(self, error: InconcertError) -> None:
        self._sent_away = error
        self._bells.interrupt()
