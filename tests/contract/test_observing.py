"""What happens is told to observers, once, and with what they need."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from inconcert import Coordinator, JobStatus, Limit, SyncProducer, current_job, durable
from inconcert._core.observer import Enqueueing, ObservedJob, ObservedLease, Observer, Observers, StepOutcome
from inconcert.coordinator import session_ref_of
from inconcert.sync_producer import observers_of
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.durable import wake
from tests.support.eventually import eventually
from tests.support.jobs import status
from tests.support.raw import raw
from tests.support.servers import RealServer


class Diary(Observer):
    """Notes what it is told, in words."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.waited: list[float] = []
        self.jobs: list[ObservedJob] = []

    def job_enqueued(self, task: str, queue: str) -> None:
        self.told.append(f"enqueued {task} {queue}")

    def job_started(self, job: ObservedJob) -> None:
        self.jobs.append(job)
        self.told.append(f"started {job.task} {job.attempt}")

    def job_ended(self, job: ObservedJob) -> None:
        self.told.append(f"ended {job.task} {job.outcome}")

    def step_ended(self, job: ObservedJob, outcome: StepOutcome) -> None:
        self.told.append(f"step {job.task} {outcome}")

    def items_added(self, job: ObservedJob, count: int) -> None:
        self.told.append(f"items {job.task} {count}")

    def job_left(self, job: ObservedJob, error: BaseException | None) -> None:
        self.told.append(f"left {job.task} {type(error).__name__}")

    def jobs_recovered(self, queue: str, requeued: int, dead: int) -> None:
        self.told.append(f"recovered {queue} {requeued} {dead}")

    def worker_started(self, places: int) -> None:
        self.told.append(f"worker {places}")

    def worker_ended(self, places: int) -> None:
        self.told.append(f"worker ended {places}")

    def lease_acquired(self, lease: ObservedLease, waited: float) -> None:
        self.waited.append(waited)
        self.told.append(f"acquired {lease.kind} {lease.name} {lease.metrics_name}".rstrip())

    def lease_ended(self, lease: ObservedLease, held: float, *, is_lost: bool) -> None:
        assert held >= 0
        self.told.append(f"{'lost' if is_lost else 'released'} {lease.kind} {lease.name}")

    def take(self) -> list[str]:
        """What it was told since the last time."""
        told, self.told = self.told, []
        return told


class Tracer(Observer):
    """Gives jobs this trace context, and notes how enqueueing ended."""

    def __init__(self, trace: str) -> None:
        self.trace = trace
        self.ends: list[tuple[int, type[BaseException] | None]] = []

    def enqueue_begins(self, task: str, queue: str, count: int) -> Enqueueing | None:
        del task, queue, count
        return self

    def end(self, ids: Sequence[str], error: BaseException | None) -> None:
        self.ends.append((len(ids), None if error is None else type(error)))


@pytest.fixture
async def diary(concert: Coordinator) -> AsyncGenerator[Diary]:
    """What is told of the coordinator."""
    diary = Diary()
    session_ref_of(concert).observers.append(diary)
    yield diary
    session_ref_of(concert).observers.remove(diary)


def observers_of_concert(concert: Coordinator) -> Observers:
    """Who is told what it does."""
    return session_ref_of(concert).observers


async def test_a_job_is_told_from_its_enqueueing_to_its_end(concert: Coordinator, diary: Diary) -> None:
    """With the worker that ran it."""

    @concert.task(name="add", queue="sums")
    async def add(left: int, right: int) -> int:
        return left + right

    await add.enqueue(1, 2)
    await concert.run_worker("sums", concurrency=3, burst=True)

    assert diary.take() == [
        "enqueued add sums",
        "worker 3",
        "started add 1",
        "ended add done",
        "left add NoneType",
        "worker ended 3",
    ]


async def test_each_attempt_is_told(concert: Coordinator, diary: Diary) -> None:
    """Until the job is dead-lettered."""

    @concert.task(name="fail", max_attempts=2, backoff=lambda _: 0.0)
    async def fail() -> None:
        raise LookupError

    await fail.enqueue()
    await concert.run_worker("default", burst=True)
    await concert.run_worker("default", burst=True)

    told = [line for line in diary.take() if "worker" not in line]
    assert told == [
        "enqueued fail default",
        *("started fail 1", "ended fail retry", "left fail LookupError"),
        *("started fail 2", "ended fail dead", "left fail LookupError"),
    ]


async def test_steps_are_told_with_what_became_of_them(concert: Coordinator, diary: Diary) -> None:
    """And the second run of a job that has slept is told to have begun before; only its body can know."""
    runs: list[bool] = []

    async def pay(amount: int) -> int:
        if not runs:
            runs.append(True)
            raise LookupError
        return amount

    @concert.task(name="sell", max_attempts=2, backoff=lambda _: 0.0)
    async def sell() -> None:
        try:
            await durable.step("pay", pay, 1)
        except LookupError:
            await durable.step("pay", pay, 1)
        await durable.sleep("pause", 3600)

    job = await sell.enqueue()
    async with in_background(concert.run_worker("default")):
        await status(concert, job, JobStatus.DELAYED)
        await wake(concert, job, "pause")
        await job.reschedule(delay=0)
        await job.result(timeout=10.0)

    assert [line for line in diary.take() if "worker" not in line] == [
        *("enqueued sell default", "started sell 1", "step sell failed", "step sell ran", "step sell ran"),
        *("ended sell asleep", "left sell NoneType"),
        *("started sell 1", "step sell kept", "step sell kept", "ended sell done", "left sell NoneType"),
    ]
    assert [told.was_begun for told in diary.jobs] == [False, True]


async def test_items_of_streams_are_told(concert: Coordinator, diary: Diary) -> None:
    """As many as the server has, in however many portions."""

    @concert.task(name="count")
    async def count() -> AsyncGenerator[int]:
        for number in range(1_500):
            yield number

    job = await count.enqueue()
    async with in_background(concert.run_worker("default")):
        await job.result(timeout=10.0)

    told = [line.split() for line in diary.take() if line.startswith("items")]
    assert sum(int(number) for _, _, number in told) == 1_500


async def test_a_job_that_never_starts_has_an_end(concert: Coordinator, diary: Diary) -> None:
    """It has expired; the second was enqueued already, so it is not told."""
    await concert.enqueue("late", expires=0.001, unique="one")
    await concert.enqueue("late", expires=0.001, unique="one")
    await asyncio.sleep(0.01)
    async with concert.consume("default") as jobs:
        assert await jobs.try_claim(1) == []

    assert diary.take() == ["enqueued late default", "ended late dead"]


async def test_claims_of_a_dead_worker_are_told(concert: Coordinator, diary: Diary) -> None:
    """By whichever process recovers them."""
    await concert.enqueue("any", queue="mail")
    async with concert.consume("mail") as dying, concert.consume("mail") as living:
        await dying.claim(1)
        workers = concert._jobs.partitions[0].workers
        [worker] = await raw(concert).zrange(workers, 0, -1)
        await raw(concert).zadd(workers, {worker: 0})
        opened = living._opened
        assert opened is not None
        opened._partitions[0].on_dead_workers([worker.decode()])
        await eventually(lambda: any("recovered" in line for line in diary.told))

    assert "recovered mail 1 0" in diary.take()


async def test_leases_are_told_with_their_wait(concert: Coordinator, diary: Diary) -> None:
    """Each once, whatever it is a lease on."""
    async with concert.lock("a", metrics_name="items"), concert.semaphore("b", limit=2):
        pass
    async with concert.locks("c", "d", metrics_name="accounts"):
        pass
    async with concert.rwlock("e").write():
        pass

    assert diary.take() == [
        *("acquired lock a items", "acquired semaphore b", "released semaphore b", "released lock a"),
        *("acquired lock c accounts", "acquired lock d accounts", "released lock c", "released lock d"),
        *("acquired rwlock e", "released rwlock e"),
    ]


async def test_a_wait_is_measured_to_its_end(concert: Coordinator, diary: Diary) -> None:
    """The second holder has waited for the first."""
    lock = concert.lock("a")
    first = await lock.acquire()
    second = asyncio.create_task(lock.acquire())
    await eventually(lambda: _waits(concert))
    await asyncio.sleep(0.02)
    await first.release()
    await (await second).release()

    assert diary.waited[1] >= 0.02


async def _waits(concert: Coordinator) -> bool:
    return await concert.lock("a").waiters() == 1


async def test_a_lost_lease_is_told_once(concert: Coordinator, diary: Diary) -> None:
    """Although it is released after that."""
    lease = await concert.lock("a").acquire()
    lease._state.lose()
    lease._state.release_nowait()

    assert diary.take() == ["acquired lock a", "lost lock a"]


async def test_nobody_is_told_of_what_was_acquired_before(concert: Coordinator) -> None:
    """An observer that comes later sees whole leases only."""
    diary = Diary()
    lease = await concert.lock("a").acquire()
    observers_of_concert(concert).append(diary)
    await lease.release()
    observers_of_concert(concert).remove(diary)

    assert diary.take() == []


async def test_a_trace_context_travels_with_each_job(concert: Coordinator, diary: Diary) -> None:
    """From every way to enqueue, and to each attempt; an enqueueing that fails ends, too."""
    tracer = Tracer("00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    observers_of_concert(concert).append(tracer)

    @concert.task(name="any")
    async def any_task() -> None: ...

    parent = await any_task.enqueue()
    await any_task.options(after=[parent.id]).enqueue()
    await concert.enqueue_many([any_task.call(), any_task.call()])
    await concert.run_worker("default", burst=True)
    observers_of_concert(concert).remove(tracer)

    assert [job.trace for job in diary.jobs] == [tracer.trace] * 4
    assert tracer.ends == [(1, None), (1, None), (2, None)]


async def test_a_refused_callback_or_job_that_follows_another_is_told_to_its_end(
    server: RealServer | RealCluster, namespace: str
) -> None:
    """Limits count in one partition, which is known when the job has its id: then its enqueueing has begun."""
    tracer = Tracer("00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    async with Coordinator(server.url, namespace=namespace, partitions=2) as concert:

        @concert.task(limit=Limit(1))
        async def limited() -> None: ...

        @concert.task(max_attempts=1)
        async def parent() -> None:
            current_job().enqueue_on_success(limited.call())

        await parent.enqueue()
        observers_of_concert(concert).append(tracer)
        with pytest.raises(ValueError, match="limits, which count in one partition"):
            await concert.group(then=limited.call())
        await concert.run_worker("default", burst=True)
        observers_of_concert(concert).remove(tracer)

    assert tracer.ends == [(0, ValueError)] * 2


async def test_a_scheduled_job_has_a_trace_context_and_its_instant(concert: Coordinator, diary: Diary) -> None:
    """One of the worker that enqueued it."""
    tracer = Tracer("00-" + "a" * 32 + "-" + "b" * 16 + "-01")
    observers_of_concert(concert).append(tracer)
    stop = asyncio.Event()

    @concert.cron(every=0.1)
    @concert.task(name="tick")
    async def tick() -> None:
        stop.set()

    await concert.run_worker("default", stop=stop)
    observers_of_concert(concert).remove(tracer)

    [job, *_] = diary.jobs
    assert job.trace == tracer.trace
    assert job.due_at is not None
    assert job.due_at <= job.claimed_at
    assert (1, None) in tracer.ends


async def test_a_delayed_job_knows_when_it_was_due(concert: Coordinator, diary: Diary) -> None:
    """One that was to run at once has no such instant."""
    await concert.enqueue("now")
    await concert.enqueue("later", delay=0.05)
    async with concert.consume("default") as jobs:
        for _ in range(2):
            [job] = await jobs.claim(1)
            async with job:
                pass

    now, later = diary.jobs
    assert now.due_at is None
    assert later.due_at == pytest.approx(later.enqueued_at + 0.05)
    assert later.claimed_at - later.enqueued_at >= 0.05


async def test_a_producer_without_a_loop_tells_and_traces(
    server: RealServer | RealCluster, namespace: str, concert: Coordinator, diary: Diary
) -> None:
    """As a coordinator does."""
    tracer, own = Tracer("00-" + "a" * 32 + "-" + "b" * 16 + "-01"), Diary()
    with SyncProducer(server.url, namespace=namespace) as producer:
        observers_of(producer).extend([own, tracer])
        await asyncio.to_thread(producer.enqueue, "any")

    async with concert.consume("default") as jobs:
        [job] = await jobs.claim(1)
        async with job:
            pass
    assert own.take() == ["enqueued any default"]
    assert tracer.ends == [(1, None)]
    assert diary.jobs[0].trace == tracer.trace
