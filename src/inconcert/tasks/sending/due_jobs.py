"""The jobs of the instants of a schedule that are due, on their way to the server."""

from collections.abc import Callable, Sequence

from inconcert._core.session import Session
from inconcert._redis.protocol.commands import Argument
from inconcert.tasks.sending.draft import Draft, stored_as


class DueJobs:
    """One job for each of these instants, which are in server ms and in order."""

    def __init__(
        self,
        session: Session,
        task: str,
        queue: str,
        instants: Sequence[int],
        draft: Callable[[int], tuple[str, Draft[object]]],
    ) -> None:
        self._observers = session.observers
        self._task = task
        self._queue = queue
        self._tracing = session.observers.enqueue_begins(task, queue, len(instants)) if instants else None
        trace = "" if self._tracing is None else self._tracing.trace
        self.ids: list[str] = []
        self.arguments: list[Argument] = []  # as scripts take them: instant, id and envelope of each
        for instant_ms in instants:
            job_id, job = draft(instant_ms)
            self.ids.append(job_id)
            self.arguments += (instant_ms, job_id, stored_as(job, job_id, session.key_ring, trace))

    def were_added(self, count: int) -> None:
        """Tell observers that so many of them are new; of the others, those tell that have enqueued them."""
        if count and self._tracing is not None:
            self._tracing.end(self.ids, None)
        for _ in range(count):
            self._observers.job_enqueued(self._task, self._queue)
