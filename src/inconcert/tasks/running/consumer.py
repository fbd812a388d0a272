"""A consumer: claims jobs from several queues, the most urgent first, and sleeps while there are none."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from itertools import islice
from types import TracebackType
from typing import Self, get_args

import anyio

from inconcert._claims.consumer import AFTER_A_FAILURE, ClaimConsumer, Guarantee, settle
from inconcert._claims.partition import ClaimPartition
from inconcert._claims.policy import Policy, Strict, Weighted, check_weights
from inconcert._claims.signs import ConsumerSigns
from inconcert._claims.suspects import Suspects
from inconcert._claims.unsettled import unsettle
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.wire.background import in_background, note_failure
from inconcert._rules.defaults import HEARTBEAT_LEASE
from inconcert._rules.limits import whole
from inconcert._rules.names import check_name
from inconcert.errors import InconcertError, NotConnected, OutcomeUnknown, Unavailable
from inconcert.tasks.records.dependents import Relay
from inconcert.tasks.records.store import JobKeyspace
from inconcert.tasks.running.claimed_job import ClaimedJob, HandedOutJob
from inconcert.tasks.running.expiry import Expiry
from inconcert.tasks.running.job_state import JobState
from inconcert.tasks.running.lines import Lines
from inconcert.tasks.running.once import OnceWorkerLease
from inconcert.tasks.running.registry import Registry
from inconcert.tasks.running.served_queues import ServedQueues
from inconcert.tasks.running.sweeper import Asker, Sweeper
from inconcert.tasks.running.tally import Tally
from inconcert.tasks.running.unknown_tasks import UnknownTasks
from inconcert.tasks.running.worker_lease import JobWorkerLease
from inconcert.tasks.running.workers import describe

_log = logging.getLogger("inconcert.tasks")


class Consumer:
    """An `async for` over jobs from prioritised queues, each delivered at least once.

    Several tasks may share a consumer: each job goes to one of them.  Claimed jobs stay in Redis until they are
    acknowledged; if this process dies they are requeued at the front when the heartbeat's lease of 10 s has lapsed.
    While it is open, a consumer also moves delayed jobs of its queues when they are due, and recovers the jobs of other
    workers that died.

    With several partitions the order of queues holds within each: see `Coordinator`.

    Made by `Coordinator.consume`:

    ```python
    async with concert.consume("high", "medium", "low") as jobs:
        async for job in jobs:
            async with job:
                await handle(job.name, *job.args, **job.kwargs)
    ```

    Args:
        queues: Names of queues, the most urgent first.
        prefetch: How many jobs to claim at once, 1 to 500; no more once they have 1 MiB. More than 1 saves round trips,
            but a job that is claimed ahead waits for this consumer even if another is idle.
        weights: Queue -> a whole number, 1 to 1,000. While several queues have work, each gets jobs in proportion to
            its weight, so that none starves. None: a queue is used when those before it are empty.
        delivery: `at_least_once`, or `at_most_once`: a job counts as done when it is handed out, and is never
            redelivered, whatever its outcome.
        capacity: How many of its jobs run at once at most, as `concert.tasks.workers()` reports it; None if the caller
            decides.
        unknown_tasks: What becomes of jobs whose task this process cannot run; None if the caller decides.
        counts_jobs: Whether the jobs that end are counted.

    Attributes:
        queues: As they were given.

    Raises:
        ValueError: No queue is given, one is given twice, or an argument is out of its range.
        InvalidName: The name of a queue is empty or longer than 512 bytes.
    """

    def __init__(
        self,
        ref: SessionRef,
        jobs: JobKeyspace,
        registry: Registry,
        queues: tuple[str, ...],
        *,
        prefetch: int = 1,
        weights: Mapping[str, int] | None = None,
        delivery: Guarantee = "at_least_once",
        capacity: int | None = None,
        lease: float = HEARTBEAT_LEASE,
        unknown_tasks: UnknownTasks | None = None,
        counts_jobs: bool = True,
    ) -> None:
        if not queues or len(set(queues)) < len(queues):
            raise ValueError(f"queues are {queues!r}; give at least one, and none twice")
        if weights is not None:
            check_weights(queues, weights)
        if delivery not in get_args(Guarantee):
            raise ValueError(f"delivery is {delivery!r}; give 'at_least_once' or 'at_most_once'")
        whole("prefetch", prefetch, most=500)
        for name in queues:
            check_name("queue", name)
        self.queues = queues
        self._ref = ref
        self._registry = registry
        self._jobs = jobs
        self._prefetch = prefetch
        self._weights = None if weights is None else {name: weights[name] for name in queues}
        self._delivery: Guarantee = delivery
        self._capacity = capacity
        self._lease = lease
        self._unknown_tasks = unknown_tasks
        self._counts_jobs = counts_jobs
        self._opened: _Opened | None = None

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise RuntimeError("this consumer is open already; make another with consume()")
        session = self._ref.session
        opened = (_Opened if self._capacity is not None else _OpenedByUser)(
            session,
            self._jobs,
            self.queues,
            weights=self._weights,
            delivery=self._delivery,
            capacity=self._capacity,
            lease=self._lease,
            registry=self._registry,
            unknown_tasks=self._unknown_tasks,
            counts_jobs=self._counts_jobs,
        )
        opened.open()
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
        job = await self._open_now().next(self._prefetch)
        if job is None:
            raise StopAsyncIteration
        return _for_user(job)

    async def claim(self, count: int) -> list[ClaimedJob]:
        """Wait until there are jobs, and claim at most `count` of them, the most urgent first.

        Waits while the server cannot be reached.

        Raises:
            NotConnected: The consumer is not open, or it or the coordinator was closed meanwhile.

        Cost: 1 round trip when there are jobs, with several partitions 2 or more if one has too few; an idle
            consumer sends 1 command every 2 to 5 s for each 3 partitions, and all of a process together 1 every 5 s.
        """
        return list(map(_for_user, await self._open_now().claim(count)))

    async def try_claim(self, count: int) -> list[ClaimedJob]:
        """Claim at most `count` jobs of those that may run now, if any.

        Waits while the server cannot be reached.

        Raises:
            NotConnected: See `claim`.

        Cost: 1 round trip if jobs are ready, otherwise 3, plus 1 per queue that has overdue delayed jobs.
        """
        return list(map(_for_user, await self._open_now().claim(count, wait=False)))

    def stop(self) -> None:
        """Stop claiming: `async for` ends, and a waiting `claim` returns no jobs.

        Claimed jobs may still end. What was claimed ahead is requeued when the consumer is closed.
        """
        self._open_now().stop()

    def _open_now(self) -> "_Opened":
        if self._opened is None:
            raise NotConnected("the consumer is not open; use it inside `async with concert.consume(...)`")
        return self._opened


def _for_user(state: JobState) -> ClaimedJob:
    state.is_awaited = True
    return HandedOutJob(state)


async def claimed_by(consumer: Consumer, count: int, *, wait: bool) -> list[JobState]:
    """Claim as `Consumer.claim` does, or as `Consumer.try_claim`: for a worker, which forgets none."""
    return await consumer._open_now().claim(count, wait=wait)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def confirmed(consumer: Consumer) -> None:
    """Wait until the server has answered all acknowledgements, or will not."""
    await consumer._open_now().confirmed()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def holds_nothing(consumer: Consumer) -> None:
    """What was claimed has ended: a `claim` that sleeps may wait on the server from now on."""
    opened = consumer._opened  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if opened is not None:
        opened.holds_nothing()


def signs_of(consumer: Consumer) -> ConsumerSigns | None:
    """Its latest acts, from any thread; None if it is not open."""
    opened = consumer._opened  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return None if opened is None else opened.signs


class _Opened(ClaimConsumer[JobState]):
    """The state of an open consumer: that of any claiming, a relay, a watchdog, and jobs claimed ahead."""

    def __init__(
        self,
        session: Session,
        jobs: JobKeyspace,
        queues: tuple[str, ...],
        *,
        weights: Mapping[str, int] | None,
        delivery: Guarantee,
        capacity: int | None,
        lease: float,
        registry: Registry,
        unknown_tasks: UnknownTasks | None,
        counts_jobs: bool,
    ) -> None:
        super().__init__(session, [(keys, [keys.queue(name) for name in queues]) for keys in jobs.partitions])
        self._jobs = jobs
        self._queues = queues
        self._policies: list[Policy] = [
            Strict(queues) if weights is None else Weighted(weights) for _ in jobs.partitions
        ]
        self._suspects = Suspects()
        self._delivery = delivery
        self._lease = lease
        self._about = describe(self._address, queues, capacity)
        self._registry = registry
        self._unknown_tasks = unknown_tasks
        self._relay = Relay(session, jobs)
        self._lines = Lines(session, jobs, registry)
        self._tally = Tally(session, jobs, is_on=counts_jobs)
        self._served = ServedQueues(session, jobs, queues, registry, Expiry(session, jobs, self._relay))
        self._is_stopped = False
        self._ahead: deque[JobState] = deque()
        self._turn = anyio.Lock(fast_acquire=True)  # of the tasks that share the consumer: one claims after the other

    def open(self) -> None:
        super().open()
        self._watchdog.start(self._lease)  # before the server is there

    async def close(self) -> None:
        await super().close()
        self._tally.add_nowait()
        if self._delivery == "at_most_once":  # a caller that was cancelled has left them ahead
            settled = [job for job in self._ahead if job.is_settled and not job.is_over]
            await run_shielded(unsettle(self._session, self._jobs.of_id, settled))

    def stop(self) -> None:
        self._is_stopped = True
        self.interrupt()

    async def next(self, prefetch: int) -> JobState | None:
        async with self._turn:
            while not self._is_stopped:
                while self._ahead:
                    [job] = await self._hand_out(1)
                    if not job.is_over:  # otherwise it was lost while it waited here
                        return job
                self._ahead.extend(await self._claim(prefetch))
        return None

    async def claim(self, count: int, *, wait: bool = True) -> list[JobState]:
        async with self._turn:
            if self._is_stopped:
                return []
            if not self._ahead:
                self._ahead.extend(await self._claim(count, wait=wait))
            return await self._hand_out(count)

    async def _hand_out(self, count: int) -> list[JobState]:
        jobs = list(islice(self._ahead, count))
        if self._delivery == "at_most_once":
            # A caller that is cancelled here leaves them ahead, and the next caller gets them.
            await run_shielded(settle(jobs))
        for job in jobs:
            self._ahead.popleft()
            job.is_handed_out = True
        return jobs

    async def _claim(self, count: int, *, wait: bool = True) -> list[JobState]:
        while not self._is_stopped:
            self.raise_if_closed()
            try:
                jobs, due_in = await self.try_claim(count, everywhere=not wait)
                if not jobs and not wait:
                    await self._relay.pass_on_all()  # it may be what lets a job run
                    await self._lines.let_in_all()
                    jobs, due_in = await self.try_claim(count, everywhere=True)
                if jobs or (not wait and due_in != 0):
                    return jobs
                if not wait:
                    await self.promote()
                elif jobs := await self.claim_asleep(count):
                    return jobs
            except (Unavailable, OutcomeUnknown) as error:
                _log.warning("jobs cannot be claimed yet: %s", error)
                await anyio.sleep(AFTER_A_FAILURE)
            except InconcertError:
                raise
            except Exception as error:  # noqa: BLE001 - the next claim returns the same
                note_failure("claiming jobs", error)
                await anyio.sleep(AFTER_A_FAILURE)
        return []

    @property
    def _wants_more(self) -> bool:
        return not self._is_stopped and self._closed_by is None

    def on_news(self, number: int) -> None:
        self._relay.found(self._jobs.partitions[number])

    def on_recovered(self, queue: str, requeued: int, dead: int) -> None:
        self._session.observers.jobs_recovered(queue, requeued, dead)
        self._lines.look_everywhere()

    def _new_worker(self, number: int, owner: ClaimPartition[JobState]) -> JobWorkerLease:
        worker = JobWorkerLease if self._delivery == "at_least_once" else OnceWorkerLease
        return worker(
            self._session,
            self._jobs,
            number,
            self._queues,
            self._registry,
            unknown_tasks=self._unknown_tasks,
            tally=self._tally,
            lines=self._lines,
            policy=self._policies[number],
            owner=owner,
            suspects=self._suspects,
            lease=self._lease,
            about=self._about,
        )

    def _start(self) -> list[asyncio.Task[None]]:
        return [
            *super()._start(),
            in_background("notifying jobs that wait for others", self._relay.run),
            in_background("dropping what no job needs", Sweeper(self._session, self._jobs).run),
            in_background("asking for parents", Asker(self._session, self._jobs, self._relay).run),
            in_background("letting in jobs that wait for others", self._lines.run),
            in_background("reporting the queues that are served", self._served.run),
            in_background("counting jobs that have ended", self._tally.run),
        ]


class _OpenedByUser(_Opened):
    """The same, which hands jobs to a user's code: that may stop asking at any time."""

    async def claim_asleep(self, count: int) -> list[JobState]:
        del count
        await self.sleep()
        return []
