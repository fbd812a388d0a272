"""Operators' calls: inspect queues and dead letters, replay, purge, pause."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from inconcert._core.session import SessionRef
from inconcert._redis.wire.call import Call
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import whole
from inconcert._rules.names import check_job_id, check_name
from inconcert._rules.payloads import JSON
from inconcert.tasks.following.job import Job, JobLink
from inconcert.tasks.following.watch import Watches
from inconcert.tasks.operating.dead_jobs import DeadJobs
from inconcert.tasks.operating.job_actions import JobActions
from inconcert.tasks.operating.job_info import JobInfo, describe
from inconcert.tasks.operating.job_pages import JobPage, read_page
from inconcert.tasks.operating.queue_stats import TaskStats, read_stats
from inconcert.tasks.operating.stopped_keys import DeadJobLetters, StoppedKey, read_stopped_keys
from inconcert.tasks.records.group_ids import check_group_id
from inconcert.tasks.records.history import EndedJob, Histories
from inconcert.tasks.records.queue_names import queue_names
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.records.store import (
    PAUSE,
    JobKeyspace,
)
from inconcert.tasks.running.registry import Registry
from inconcert.tasks.running.workers import Workers, WorkerStatus
from inconcert.tasks.sending.group import Group
from inconcert.tasks.sending.task import Task, name_of_task

if TYPE_CHECKING:  # counts are imported when they are read
    from inconcert.tasks.records.counts import TaskCounts


class Tasks:
    """Operators' calls for the tasks of a namespace: `concert.tasks`."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, watches: Watches, registry: Registry) -> None:
        self._ref = ref
        self._registry = registry
        self._keyspace = keyspace
        self._watches = watches
        self._workers = Workers(ref, keyspace)
        self._histories = Histories(ref, keyspace)
        dead_letters = [DeadJobLetters(ref, keys) for keys in keyspace.partitions]
        self._dead = DeadJobs(ref, keyspace, dead_letters)
        self._actions = JobActions(ref, keyspace, dead_letters)

    def job(self, job_id: str) -> Job[JSON]:
        """The job of this id, to ask for its status or result; no I/O, so it may not exist."""
        return Job(JobLink(self._ref, self._keyspace, self._watches), check_job_id(job_id), created=False)

    def group(self, group_id: str) -> Group:
        """The group of this id, as `Group.id` has it; no I/O, so it may not exist.

        Raises:
            InvalidName: `group_id` is not the id of a group.
        """
        return Group(JobLink(self._ref, self._keyspace, self._watches), check_group_id(group_id))

    async def stats(self, *queues: str) -> TaskStats:
        """Count the work in these queues.

        Args:
            queues: Names of queues; without any, all to which a job was ever enqueued.

        Cost: 1 round trip for each 250 queues, and for each partition 3, and 3 more for each 100 workers; O(claimed
            jobs). 1 more if tasks with a `limit` are registered here. Without names also those of `queues`.
        """
        names = queues or await self.queues()
        return await read_stats(self._ref.session, self._keyspace, self._workers, names, self._registry.limits)

    async def queues(self) -> Sequence[str]:
        """The names of all queues to which a job was ever enqueued, sorted.

        Cost: 1 round trip for each partition, and 1 more for each 500 queues.
        """
        names: set[str] = set()
        for keys in self._keyspace.partitions:
            names.update(await queue_names(self._ref.session, keys))
        return sorted(names)

    async def workers(self) -> Sequence[WorkerStatus]:
        """The workers of all processes, and other consumers: where they are, what they serve, and what they run.

        Those that are dead are among them until others have recovered what they held.

        Cost: 3 round trips for each partition, and 3 more for each 100 workers; O(claimed jobs).
        """
        return await self._workers.statuses()

    async def jobs(
        self,
        *,
        state: JobStatus | str | None = None,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> JobPage:
        """A page of the jobs that there are.

        Their order is by state, in the order of a job's life: `waiting`, `delayed`, `queued`, `running`, `failed`;
        within a state by partition; there by queue, or by worker if they run; and there those first that are due, taken
        or were claimed first, but of the dead-lettered ones the latest. Those that wait for others are in no order.

        A job that stays where it is until the last page is in one of them; one that goes on meanwhile may be in two,
        and so may one of a queue from which many are taken, or to whose front many are returned.

        Args:
            state: Only this state; None for all of these. Other states cannot be listed: of a job that succeeded or was
                cancelled only its result is kept, for its `result_ttl`, and no list of these.
            queue: Only this queue; None for all.
            task: Only this task, or the one of this name; None for all.
            limit: How many at most, 1 to 1,000. There are fewer when 5,000 jobs were looked at, or about 20 MiB.
            after: Where to go on: `after` of the page before; None to begin.

        Raises:
            ValueError: A number is out of its range, `state` cannot be listed, or `after` is of another list.

        Cost: 2 round trips for each 250 jobs and each MiB that are looked at, at most 40; 2 for each worker; and for
            each partition 1 for each 100 workers, and without `queue` 1 for each 500 queues and 1 for each 100.
        """
        task = _checked(queue, task)
        return await read_page(self._ref, self._keyspace, state=state, queue=queue, task=task, limit=limit, after=after)

    async def counts(self, *tasks: Task[..., Any] | str, hours: int = 24) -> "list[TaskCounts]":
        """Count the attempts that have succeeded, failed, and so on, by task and hour, with their durations.

        Workers count, and add to the counts of others every 10 s and when they end; the last seconds of one that is
        killed are not counted. Neither are jobs that end without a worker: those that are cancelled, or expire, before
        they begin, and those whose worker dies; nor jobs that are delivered at most once. When many jobs of a task end
        in the same turn of the event loop, the last one stands for all of them in `run` and `wait`.

        Args:
            tasks: These tasks, or those of these names; without any, all of which something was counted, by name.
            hours: Up to now, the current hour included; 1 to 336, which is for how long they are kept.

        Cost: 1 round trip, and 1 more for each 100 tasks and days.
        """
        from inconcert.tasks.records.counts import TaskCounters

        names = [name_of_task(task) for task in tasks] or None
        return await TaskCounters(self._ref, self._keyspace).counts(names, hours)

    async def lately(self, *, limit: int = 50) -> list[EndedJob]:
        """The jobs that have ended last, of all tasks, the latest first; for a day, and at most 200.

        Of many jobs of a task that end in the same turn of a worker's event loop the last one is noted; otherwise as
        for `counts`. A task with `history=` keeps each of its jobs.

        Args:
            limit: How many at most, 1 to 200.
        """
        from inconcert.tasks.records.counts import TaskCounters

        return await TaskCounters(self._ref, self._keyspace).lately(limit)

    async def history(self, task: Task[..., Any] | str, *, limit: int = 100) -> list[EndedJob]:
        """List how the last jobs of a task with `history=` have ended, the latest first, as `Task.history` returns it.

        Args:
            task: Which, or its name. The function need not be registered here.
            limit: How many at most, 1 to 10,000.

        Cost: 1 round trip for each 250, or 1 MiB, in each partition; 2 if their reply has more than 16 KiB.
        """
        return await self._histories.latest(name_of_task(task), limit)

    async def describe(self, *job_ids: str) -> dict[str, JobInfo]:
        """Describe these jobs from their stored form, as far as they have not ended, or were dead-lettered.

        Args:
            job_ids: Which jobs, in any number.

        Returns:
            Id -> its stored facts.

        Cost: 1 round trip for each partition, and for each further 250 jobs and each further MiB.
        """
        return await describe(self._ref.session, self._keyspace, [check_job_id(job_id) for job_id in job_ids])

    async def pause(self, queue: str) -> None:
        """Pause claims from a queue until `resume`. Running jobs go on, and enqueued ones wait.

        With several partitions they are paused one after the other: pause again if that raises.

        Cost: 1 round trip; 1 command for each partition.
        """
        await self._pause(queue, is_paused=1)

    async def resume(self, queue: str) -> None:
        """Resume claims from a queue.

        Cost: 1 round trip; 1 command for each partition.
        """
        await self._pause(queue, is_paused=0)

    async def dead(self, *, limit: int = 100) -> list[JobInfo]:
        """Dead-lettered jobs, latest first.

        Args:
            limit: How many at most, 1 to 1,000.

        Cost: 1 round trip for each partition, and 1 for each further MiB.
        """
        return await self._dead.latest(limit)

    async def stopped_keys(self) -> list[StoppedKey]:
        """The keys in strict order that wait because a job of theirs is dead: see `key_order` of `task`.

        Each goes on when that job is replayed and has ended, or is purged. Only the latest 1,000 dead jobs of each
        partition are looked at.

        Cost: 1 round trip; 1 command for each partition.
        """
        return await read_stopped_keys(self._ref.session, self._keyspace)

    async def replay(
        self,
        job_id: str,
        *,
        args: Sequence[JSON] | None = None,
        kwargs: Mapping[str, JSON] | None = None,
        queue: str | None = None,
        dependants: bool = False,
    ) -> list[str]:
        """Enqueue a dead-lettered job again, as if it were new, under its old id.

        It takes its unique name again, unless another job has it by now; it runs in both cases. It no longer waits for
        the jobs that it runs after.

        Args:
            job_id: Which job.
            args: New positional arguments; None keeps its own.
            kwargs: New keyword arguments; None keeps its own.
            queue: Another queue; None for the one that it came from, as a job of a task with limits needs.
            dependants: Whether the jobs that were dead-lettered because of it wait for it again, and those that were
                because of these, also if it is no longer dead itself. Without it they stay dead-lettered.

        Returns:
            The ids of these dependants.

        Raises:
            JobNotFound: It is not in the dead-letter list; with `dependants`, none of these is either.
            ValueError: Another queue is given, and its task has limits.
            InvalidName: `job_id` is not a job id, or `queue` is empty or longer than 512 bytes.
            InvalidPayload: An argument is not JSON.
            UnreadablePayload: Arguments are given, and its envelope cannot be read.
            OutcomeUnknown: The server did not answer; it may be in its queue, and some of the dependants not. Another
                call goes on with these.

        Cost: 2 round trips, and with `dependants` 3 for each 100 of them, however they depend on each other, if all
            are in one partition; behind a job in another one again. 2 scripts for each dependant.
        """
        return await self._dead.replay(job_id, args=args, kwargs=kwargs, queue=queue, dependants=dependants)

    async def purge(self, job_id: str) -> None:
        """Drop a dead-lettered job.

        Raises:
            JobNotFound: It is not in the dead-letter list.
        """
        await self._dead.purge(job_id)

    async def cancel_all(
        self,
        *,
        state: JobStatus | str | None = None,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        limit: int | None = None,
    ) -> int:
        """Cancel all these jobs, as `Job.cancel` does, but without waiting for those that run to stop.

        Jobs that are enqueued, or go on, while it runs may be left. If it raises or is cancelled, some were cancelled:
        call it again for the others.

        Args:
            state: Only this state: `waiting`, `delayed`, `queued` or `running`; None for all of these.
            queue: Only this queue; None for all.
            task: Only this task, or the one of this name; None for all.
            limit: How many at most; None for all.

        Returns:
            How many will not run any more, or are being stopped.

        Raises:
            ValueError: `state` is another one, or `limit` is not above 0.
            OutcomeUnknown: The server did not answer; some may have been cancelled.

        Cost: 3 round trips for each 250 jobs and each MiB, and those of `jobs`. If others run after them, 1 more for
            each 250, and 1 for each 100 of the others.
        """
        task = _checked(queue, task)
        return await self._actions.cancel(state=state, queue=queue, task=task, limit=limit)

    async def drain(self, queue: str) -> int:
        """Cancel all jobs of a queue that do not run yet: those that are in it, are due later or wait for others.

        Running jobs go on. Otherwise like `cancel_all`.

        Returns:
            How many will not run any more.

        Raises:
            OutcomeUnknown: The server did not answer; some may have been cancelled.

        Cost: That of `cancel_all`.
        """
        _checked(queue, None)
        return await self._actions.drain(queue)

    async def promote_all(
        self, *, queue: str | None = None, task: Task[..., Any] | str | None = None, limit: int | None = None
    ) -> int:
        """Let all these delayed jobs run now, also those that wait for their next attempt.

        If it raises or is cancelled, some were promoted: call it again for the others. For one job, use
        `Job.reschedule` with a delay of 0.

        Args:
            queue: Only this queue; None for all.
            task: Only this task, or the one of this name; None for all.
            limit: How many at most; None for all.

        Returns:
            How many are in their queues now.

        Raises:
            ValueError: `limit` is not above 0.
            OutcomeUnknown: The server did not answer; some may have been promoted.

        Cost: 3 round trips for each 250 jobs and each MiB, and those of `jobs`.
        """
        task = _checked(queue, task)
        return await self._actions.promote(queue=queue, task=task, limit=limit)

    async def replay_all(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Enqueue all these dead-lettered jobs again, as `replay` does, the latest first.

        If it raises or is cancelled, some were replayed: call it again for the others.

        Args:
            queue: Only jobs that came from this queue; None for all.
            task: Only this task, or the one of this name; None for all.
            reason: Only jobs whose `JobInfo.error` contains this text; None for all.
            limit: How many at most; None for all.

        Returns:
            How many are in their queues again.

        Raises:
            ValueError: `limit` is not above 0.
            OutcomeUnknown: The server did not answer; some may have been replayed.

        Cost: 2 round trips for each 250 jobs and each MiB, and 1 for each queue that they came from.
        """
        task = _checked(queue, task)
        return await self._actions.replay(queue=queue, task=task, reason=reason, limit=limit)

    async def purge_all(
        self,
        *,
        queue: str | None = None,
        task: Task[..., Any] | str | None = None,
        reason: str | None = None,
        older_than: Seconds = 0.0,
        keep: int = 0,
    ) -> int:
        """Drop dead-lettered jobs: all, or those that meet each of these conditions.

        Args:
            queue: Only jobs that came from this queue; None for all.
            task: Only this task, or the one of this name; None for all.
            reason: Only jobs whose `JobInfo.error` contains this text; None for all.
            older_than: Only jobs that were dead-lettered longer ago than this, in seconds.
            keep: How many of the latest of all dead-lettered jobs stay; 0 for none.

        Returns:
            How many were dropped.

        Raises:
            ValueError: A number is out of its range.
            OutcomeUnknown: The server did not answer; some may have been dropped.

        Cost: 1 round trip for each partition and each 500 jobs. With `queue`, `task` or `reason` all dead-lettered jobs
            are looked at: 3 for each 250 and each MiB. With several partitions also 1 in each for 1,000 that are to be
            kept.
        """
        task = _checked(queue, task)
        seconds = durations.in_seconds("older_than", older_than)
        least = whole("keep", keep, least=0)
        if queue is None and task is None and reason is None:
            return await self._dead.purge_all(older_than=seconds, keep=least)
        kept = await self._dead.count_latest(least)
        return await self._actions.purge(queue=queue, task=task, reason=reason, older_than=seconds, keep=kept)

    # Private.

    async def _pause(self, queue: str, *, is_paused: int) -> None:
        session = self._ref.session
        request = session.new_address()
        commands = [
            PAUSE(keys, keys.queue(queue), name=queue, is_paused=is_paused, request=request)
            for keys in self._keyspace.partitions
        ]
        await session.gather([Call(command) for command in commands])


def _checked(queue: str | None, task: Task[..., Any] | str | None) -> str | None:
    """The name of the task, if one is given."""
    if queue is not None:
        check_name("queue", queue)
    return None if task is None else name_of_task(task)
