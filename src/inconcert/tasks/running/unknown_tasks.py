"""Jobs that this process cannot run and another one may: while a release is rolled out, two know different tasks.

Such a job is given back, which does not count as an attempt, and comes to a worker again a little later.  The server
notes when that began, so that it has an end however many workers the job meets.

Source: docs/explanation/tasks.md
"""

import logging

from inconcert._core.session import Session
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.errors import InconcertError, UnknownTask
from inconcert.tasks.records.store import NOTE_UNKNOWN, JobKeys
from inconcert.tasks.running.job_state import JobState

_log = logging.getLogger("inconcert.tasks")

_SOONEST, _LATEST = 1.0, 5.0  # seconds until a job that was given back comes to a worker again
_OF_AGE = 4  # between: this part of the time for which no worker could run it


class UnknownTasks:
    """Decides what becomes of the jobs that a worker cannot run.

    Args:
        grace: Seconds for which a job is given back, since a worker first could not run it; 0 for not at all.

    Raises:
        ValueError: `grace` is negative, or not a number.
    """

    def __init__(self, grace: Seconds) -> None:
        self._grace = durations.in_seconds("unknown_task_grace", grace)
        self._warned: set[str] = set()

    async def delay(self, session: Session, keys: JobKeys, job: JobState, error: Exception) -> float | None:
        """After how many seconds a job that raises this error comes to a worker again; None to dead-letter it."""
        if not self._grace:
            return None
        try:
            age_ms: int = await session.run(NOTE_UNKNOWN(keys, id=job.id, grace_ms=milliseconds(self._grace) or 1))
        except InconcertError:  # not noted now, but when it comes again
            age_ms = 0
        if age_ms < 0:
            return None
        if job.task not in self._warned:
            self._warned.add(job.task)
            _log.warning(
                "%s cannot run here, and is given back for other workers, for %g s at most: %s",
                job,
                self._grace,
                f"no task {error.name!r} is registered" if isinstance(error, UnknownTask) else error,
                extra=job.fields(),
            )
        return min(_LATEST, max(_SOONEST, age_ms / 1000 / _OF_AGE))
