"""Says why a job does not run, or its present work, and how a queue is served."""

from collections.abc import Sequence
from typing import NamedTuple

from inconcert._claims.dead_letters import Reason as DeadReason
from inconcert._core.session import SessionRef
from inconcert._rules.defaults import PRIORITY
from inconcert._rules.durations import in_words
from inconcert._rules.names import check_job_id
from inconcert._rules.payloads import JSON
from inconcert.errors import GroupNotFound, InvalidPayload, JobNotFound
from inconcert.reports.explain_limits import explain_limits
from inconcert.reports.explanation import Explanation, Reason, cause
from inconcert.reports.report import Inspection, ago, whereabouts
from inconcert.tasks.operating.admin import Tasks
from inconcert.tasks.operating.job_info import JobInfo
from inconcert.tasks.operating.queue_stats import QueueStats
from inconcert.tasks.records.deaths import death_id
from inconcert.tasks.records.group_ids import group_of, is_callback
from inconcert.tasks.records.limits import HELD_BACK_MS
from inconcert.tasks.records.status import JobStatus, Snapshot
from inconcert.tasks.records.store import LOCATE, JobKeyspace
from inconcert.tasks.running.workers import WorkerStatus

_AT_ONCE = 100  # queues that one script looks through
_MOST = 10  # parents that are told of
_TRIES = 3
_TRIED = frozenset({JobStatus.QUEUED, JobStatus.DELAYED, JobStatus.RUNNING})  # perhaps, without success


class _Location(NamedTuple):
    """The location of a job that does not run yet; see `tasks/locate`."""

    now: float
    pending: str
    undo: str
    queue: str
    ahead: int
    due_ms: int
    is_paused: int
    unknown_ms: int


class JobQuestion:
    """Why one job does not run."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, tasks: Tasks, job_id: str) -> None:
        self._ref = ref
        self._keys = keyspace.of_id(check_job_id(job_id))
        self._tasks = tasks
        self._id = job_id

    async def explanation(self, seen: Inspection | Reason) -> Explanation:
        """Its state, and why; raises `JobNotFound` if there is no such job."""
        reasons: list[Reason] = []
        status = JobStatus.UNKNOWN
        for _ in range(_TRIES):  # it may go on while it is looked for
            status, about, _ = Snapshot.read(await self._ref.session.run(Snapshot.take(self._keys, self._id, "")))
            if status is JobStatus.UNKNOWN:
                raise JobNotFound(self._id)
            reasons = await self._reasons(status, about)
            if reasons:
                break
        else:
            reasons = [Reason("moving", "it goes from one state to another now; ask again")]
        if status in _TRIED:
            reasons += await self._last_error()
        if isinstance(seen, Reason):
            reasons.append(seen)
            seen = Inspection((), ())
        waiters, locks = seen.waiters(), seen.locks()
        reasons += (cause(waiter, locks) for waiter in waiters if waiter.job_id == self._id)
        reasons += (
            Reason("holds", f"it holds {held.kind} {held.name!r}: {whereabouts(held)}, for {ago(held.since)}")
            for held in locks
            if held.job_id == self._id
        )
        return Explanation(
            kind="job",
            name=self._id,
            state=str(status),
            reasons=tuple(reasons),
            waiters=tuple(waiter for waiter in waiters if (waiter.kind, waiter.name) == ("job", self._id)),
            silent=seen.silent,
            deadlocks=tuple(
                each for each in seen.deadlocks if any(task.waiter.job_id == self._id for task in each.tasks)
            ),
        )

    # Private.

    async def _reasons(self, status: JobStatus, about: bytes) -> list[Reason]:
        """Why it is in this state; empty if it has gone on."""
        if status is JobStatus.QUEUED:
            return await self._queued()
        if status is JobStatus.DELAYED:
            return await self._delayed(about.decode())
        if status is JobStatus.WAITING:
            return await self._waiting(about.decode())
        if status is JobStatus.RUNNING:
            return await self._running()
        if status is JobStatus.FAILED:
            return await self._dead(DeadReason.read(about))
        return [Reason("ended", "it has succeeded" if status is JobStatus.SUCCEEDED else "it was cancelled")]

    async def _queued(self) -> list[Reason]:
        location = await self._locate(await self._tasks.queues())
        if location.ahead < 0:
            return []
        workers = await self._tasks.workers()
        reasons = paused_or_unserved(location.queue, workers, is_paused=bool(location.is_paused))
        serving = [worker for worker in workers if worker.is_alive and location.queue in worker.queues]
        reasons += _busy(location, serving)
        if serving:
            reasons += await self._more_urgent(location.queue, serving)
        if location.ahead:
            job = (await self._tasks.describe(self._id)).get(self._id)
            rank = "" if job is None or job.priority == PRIORITY else f", at priority {job.priority}"
            reasons.append(
                Reason("behind", f"it is behind others in queue {location.queue!r}{rank}: {location.ahead:,}")
            )
        elif not reasons:
            reasons.append(Reason("next", f"it is the next in queue {location.queue!r}: a worker is about to claim it"))
        return reasons

    async def _more_urgent(self, queue: str, serving: Sequence[WorkerStatus]) -> list[Reason]:
        """The queues before this one, for all workers that serve it, if jobs are ready there."""
        before = [set(worker.queues[: list(worker.queues).index(queue)]) for worker in serving]
        names = sorted(before[0].intersection(*before[1:]))
        if not names:
            return []
        stats = (await self._tasks.stats(*names)).queues
        ready = {name: stats[name].ready for name in names if stats[name].ready and not stats[name].is_paused}
        if not ready:
            return []
        counts = ", ".join(f"{count:,} in {name!r}" for name, count in ready.items())
        return [Reason("urgent", f"its workers take jobs of more urgent queues first: {counts}")]

    async def _delayed(self, queue: str) -> list[Reason]:
        location = await self._locate([queue])
        if location.due_ms < 0:
            return []
        due_at = location.due_ms / 1000
        when = f"in {ago(due_at, location.now)}" if due_at > location.now else "now"
        is_without_end = location.due_ms >= HELD_BACK_MS
        workers = await self._tasks.workers()
        job = (await self._tasks.describe(self._id)).get(self._id)
        if job is None:
            return []
        reason = await self._held_back(queue, job.task, workers, None if is_without_end else when)
        if reason is None:
            if is_without_end:
                return []
            reason = await self._not_due(queue, job, location, when)
        return [reason, *paused_or_unserved(queue, workers, is_paused=bool(location.is_paused))]

    async def _held_back(
        self, queue: str, task: str, workers: Sequence[WorkerStatus], due: str | None
    ) -> Reason | None:
        """The limit, rate or turn that it waits for, if any."""
        running = [job.id for worker in workers for job in worker.running]
        return await explain_limits(
            self._ref.session, self._keys, self._id, task=task, queue=queue, due=due, running=running
        )

    async def _not_due(self, queue: str, job: JobInfo, location: _Location, when: str) -> Reason:
        """For what time it waits."""
        try:
            steps = await self._tasks.job(self._id).steps()
        except InvalidPayload:  # of which its next attempt will say more
            steps = []
        awaited = [step.name for step in steps if step.is_awaited]
        if awaited:
            names = ", ".join(map(repr, awaited))
            text = f"it waits for a message, with durable.wait_for(): {names}; it is back {when} at the latest"
            return Reason("message", text)
        sleeps = [
            step.name for step in steps if step.function == "durable.sleep" and _instant(step.value) > location.now
        ]
        if sleeps:
            return Reason("sleeps", f"it sleeps in durable.sleep({sleeps[-1]!r}), and is due {when}")
        if job.attempts:
            return Reason("retry", f"{_attempts(job.attempts)} failed; attempt {job.attempts + 1} is due {when}")
        if location.unknown_ms >= 0:
            since = ago(location.unknown_ms / 1000, location.now)
            known = f"knows task {job.task!r}, or one that takes its arguments: the first was there {since} ago"
            return Reason("unknown_task", f"no worker that has claimed it {known}; the next gets it {when}")
        if job.debounce is not None:
            silence = f"{in_words(job.debounce)} after the last call with its unique name"
            return Reason("debounce", f"it runs {silence}, and is due {when} if none comes before")
        return Reason("not_due", f"it is due {when}, in queue {queue!r}")

    async def _waiting(self, queue: str) -> list[Reason]:
        location = await self._locate([queue])
        group = group_of(self._id)
        if group is not None and is_callback(self._id):
            return await self._after_group(
                group, paused_or_unserved(queue, await self._tasks.workers(), is_paused=bool(location.is_paused))
            )
        if not location.pending:
            return []
        parents = location.pending.split(" ")
        reasons: list[Reason] = []
        described = await self._tasks.describe(self._id, *parents[:_MOST])
        job = described.get(self._id)
        if job is not None and job.unique and not job.after:  # it was enqueued with newest=
            [replaced] = parents
            found = described.get(replaced)
            what = (
                "has ended, of which it is about to be told"
                if found is None
                else f"was cancelled, and is {found.status}"
            )
            of = "" if found is None else f" of task {found.task!r}"
            name = f"it replaces job {replaced}{of}, which had its unique name {job.unique!r} and {what}"
            text = name if found is None else f"{name}: it runs when that has ended"
            no_worker = paused_or_unserved(queue, await self._tasks.workers(), is_paused=bool(location.is_paused))
            return [Reason("replaces", text), *no_worker]
        for parent in parents[:_MOST]:
            found = described.get(parent)
            what = "has ended, of which it is about to be told" if found is None else f"is {found.status}"
            task = "" if found is None else f" of task {found.task!r}"
            reasons.append(Reason("after", f"it runs after job {parent}{task}, which {what}"))
        if len(parents) > _MOST:
            reasons.append(Reason("after", f"it runs after {len(parents):,} jobs that have not ended"))
        return reasons + paused_or_unserved(queue, await self._tasks.workers(), is_paused=bool(location.is_paused))

    async def _after_group(self, group: str, no_worker: list[Reason]) -> list[Reason]:
        """The members for which the callback of a group waits."""
        try:
            progress = await self._tasks.group(group).progress()
        except GroupNotFound:
            return []
        waits: list[str] = []
        if not progress.is_closed:
            added = f"{progress.total:,} are in, and {progress.left:,} of them have not ended"
            waits.append(f", which is not closed yet, so members may come: {added}; close() or cancel() it")
        elif progress.left:
            waits.append(f", of which {progress.left:,} are left")
        if progress.failed:
            until = "with when='succeeded' it waits until they are replayed, and have succeeded"
            waits.append(f"; dead-lettered of these: {progress.failed:,}; {until}")
        if not waits:
            waits.append(", which have all ended, of which it is about to be told")
        return [Reason("group", f"it runs after the jobs of group {group}{each}") for each in waits] + no_worker

    async def _dead(self, why: DeadReason) -> list[Reason]:
        """Its last error, and those before it that were dead-lettered, too."""
        reasons = [Reason("dead", f"it was dead-lettered after {_attempts(why.attempts)}: {why.reason}")]
        stopped = {stopped.job_id: stopped.waiting for stopped in await self._tasks.stopped_keys()}
        if self._id in stopped:
            waiting = f"jobs of its key that wait for its replay or purge: {stopped[self._id]:,}"
            reasons.append(Reason("stops_its_key", waiting))
        described = (await self._tasks.describe(self._id)).get(self._id)
        parents = described.after[:_MOST] if described else ()
        if described and described.died_at is not None:
            telling = death_id(self._id, described.died_at)
            reasons += (
                Reason("on_dead", f"job {telling} of task {told.task!r} tells of it: {told.status}")
                for told in (await self._tasks.describe(telling)).values()
            )
        for parent, found in (await self._tasks.describe(*parents)).items() if parents else ():
            if found.status is JobStatus.FAILED:
                text = f"it runs after job {parent}, which was dead-lettered, too: replay that one with its dependants"
                reasons.append(Reason("after", text))
        return reasons

    async def _last_error(self) -> list[Reason]:
        """Why the latest of its attempts that failed did, if one has; by itself, as errors may be secret."""
        job = (await self._tasks.describe(self._id)).get(self._id)
        return [Reason("last_error", f"its last failure: {job.error}")] if job and job.error else []

    async def _running(self) -> list[Reason]:
        location = await self._locate([])
        now, ends = location.now, location.undo.partition(" ")[0]
        undoes = f"; it undoes what it had begun, and ends as {ends}" if ends not in ("", "-") else ""
        for worker in await self._tasks.workers():
            for job in worker.running:
                if job.id == self._id:
                    where = "unknown" if worker.host is None else f"process {worker.pid} on {worker.host}"
                    runs = f"attempt {job.attempt} of task {job.task!r} has run for {ago(job.claimed_at, now)}: {where}"
                    if worker.is_alive:
                        return [Reason("runs", f"{runs}, worker {worker.id}{undoes}")]
                    return [
                        Reason(
                            "dead_worker", f"{runs}, worker {worker.id}, which is dead: others will requeue it{undoes}"
                        )
                    ]
        return []

    async def _locate(self, queues: Sequence[str]) -> _Location:
        """In which of these queues it is."""
        while True:
            names, queues = queues[:_AT_ONCE], queues[_AT_ONCE:]
            command = LOCATE(self._keys, queues=self._keys.lists(names), id=self._id, names=names)
            reply = await self._ref.session.run(command)
            now_ms, pending, undo, name, *rest = reply
            if name or not queues:
                return _Location(now_ms / 1000, pending.decode(), undo.decode(), name.decode(), *rest)


async def explain_queue(tasks: Tasks, name: str) -> Explanation:
    """The service of a queue of jobs."""
    stats = await tasks.stats(name)
    queue = stats.queues[name]
    workers = await tasks.workers()
    reasons = paused_or_unserved(name, workers, is_paused=queue.is_paused)
    serving = [worker for worker in workers if worker.is_alive and name in worker.queues]
    count = queue.ready + queue.delayed + queue.waiting + queue.running
    for worker in serving[:_MOST]:
        places = "" if worker.capacity is None else f" of {worker.capacity:,}"
        busy = f"{len(worker.running):,}{places} places taken"
        reasons.append(Reason("served", f"served by process {worker.pid} on {worker.host}: {busy}"))
    reasons.append(Reason("backlog", _backlog(queue)))
    if not count and not serving and not queue.finished and name not in await tasks.queues():
        return Explanation(
            kind="queue",
            name=name,
            state="unknown",
            reasons=(
                Reason(
                    "unknown",
                    "no job was ever enqueued to it, and no worker serves it; of a queue of items ask items:NAME",
                ),
            ),
        )
    state = "paused" if queue.is_paused else "served" if serving else "unserved"
    return Explanation(kind="queue", name=name, state=state, reasons=tuple(reasons))


def _busy(location: _Location, serving: Sequence[WorkerStatus]) -> list[Reason]:
    """Reasons of workers whose places are all taken, and the jobs that take them."""
    if not serving or any(worker.capacity is None or len(worker.running) < worker.capacity for worker in serving):
        return []
    places = sum(len(worker.running) for worker in serving)
    oldest = min((job for worker in serving for job in worker.running), key=lambda job: job.claimed_at)
    which = f"job {oldest.id} of task {oldest.task!r} has run longest, for {ago(oldest.claimed_at, location.now)}"
    return [Reason("busy", f"all {places:,} places of the workers that serve {location.queue!r} are taken; {which}")]


def _backlog(queue: QueueStats) -> str:
    oldest = "" if queue.oldest_age is None else f" (the oldest for {in_words(queue.oldest_age)})"
    held_back = f"{queue.held_back:,} held back by limits, " if queue.held_back else ""
    return (
        f"its jobs: {queue.ready:,} ready{oldest}, {queue.delayed - queue.held_back:,} due later, {held_back}"
        f"{queue.waiting:,} after others, {queue.running:,} running"
    )


def paused_or_unserved(queue: str, workers: Sequence[WorkerStatus], *, is_paused: bool) -> list[Reason]:
    """Reasons of a queue that is paused, or that nobody serves."""
    reasons: list[Reason] = []
    if is_paused:
        reasons.append(Reason("paused", f"queue {queue!r} is paused, until tasks.resume({queue!r})"))
    if not any(worker.is_alive and queue in worker.queues for worker in workers):
        reasons.append(Reason("no_consumer", f"no worker serves queue {queue!r}: start one, or correct the name"))
    return reasons


def _instant(value: JSON) -> float:
    """The end of a sleep."""
    return float(value) if isinstance(value, int | float) else 0.0


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count:,} attempts"
