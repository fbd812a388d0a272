"""Jobs that follow another: the script that acknowledges that one adds them, so both happen, or neither.

Source: docs/explanation/tasks.md
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inconcert._claims.ends import Ack, Ended
from inconcert._claims.keys import keys_of
from inconcert._core.origin import Origin
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert._rules.durations import milliseconds
from inconcert.errors import InvalidPayload
from inconcert.tasks.records.store import ACK_AND_ENQUEUE, JobKeys
from inconcert.tasks.sending.draft import Draft, NewJob, refuse_id
from inconcert.tasks.sending.traced import Traced

if TYPE_CHECKING:  # it sends these
    from inconcert._claims.worker_lease import WorkerLease

_MOST = 100  # of one job: one script adds all of them
_MOST_BYTES = 2**20  # of one job, likewise


def draw_follow_ups(
    job_id: str, drafts: Sequence[Draft[Any]], origin: Origin, keys: JobKeys, already: Sequence[NewJob]
) -> list[NewJob]:
    """These drafts as jobs of this partition, which are to follow a job beside those that follow it already.

    Raises:
        TypeError: One is not a draft.
        ValueError: One has a unique name, runs after others, or has limits that it cannot have here; or too many follow
            this job.
        InvalidPayload: All that follow it exceed 1 MiB.
    """
    for draft in drafts:
        if not isinstance(draft, Draft):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"what follows job {job_id} is {draft!r}; give task.call(...)")
        refuse_id(draft, "a job that follows another")
        if draft.options.unique or draft.options.after:
            raise ValueError(
                f"{draft!r} has unique= or after=, which a job that follows another cannot have; enqueue it in the body"
            )
    count = len(already) + len(drafts)
    if count > _MOST:
        raise ValueError(f"{count} jobs follow job {job_id}; at most {_MOST} can: let one of them enqueue the rest")
    size = sum(len(job.text) for job in already) + sum(len(draft.text) for draft in drafts)
    if size > _MOST_BYTES:
        raise InvalidPayload(f"the jobs that follow job {job_id} have {size} bytes; all together may have 1 MiB")
    if not drafts:
        return []
    with Traced(origin.observers, drafts) as traced:
        jobs = [NewJob.beside(draft, origin, keys, trace=traced.trace) for draft in drafts]
        traced.jobs = jobs
    return jobs


class AckAndEnqueue(Ack):
    """The call that ends a job and adds those that follow it."""

    __slots__ = ("_jobs", "_observers")

    def __init__(
        self, worker: "WorkerLease[Any]", origin: Origin, keys: JobKeys, end: Ended, jobs: Sequence[NewJob]
    ) -> None:
        added: list[Argument] = []
        for job in jobs:
            options = job.draft.options
            added += (job.id, job.text, options.delay_ms(), options.queue)
        claimed = end.claimed
        [kept] = keys.kept_attempts([claimed.id])
        command = ACK_AND_ENQUEUE(
            keys,
            keys.queue(claimed.source),
            claimed=worker.claimed_key,
            result=keys.result(claimed.id),
            kept_attempts=kept,
            queues=keys_of(keys.queue(job.draft.options.queue) for job in jobs),
            inboxes=origin.inboxes(keys.bodies),
            worker=worker.holder,
            id=claimed.id,
            position=claimed.position,
            outcome=end.result,
            ttl_ms=milliseconds(end.ttl),
            name=claimed.unique,
            histories=f"1 {claimed.history}," if claimed.history else "",
            jobs=added,
        )
        super().__init__(worker, command, [end])
        self._jobs = jobs
        self._observers = origin.observers

    def answered(self, reply: Reply) -> None:
        """They are there, if the job was held; tell observers."""
        super().answered(reply)
        if reply[0] or self._worker.was_first_time(self):
            for job in self._jobs if self._observers else ():
                self._observers.job_enqueued(job.draft.name, job.draft.options.queue)
