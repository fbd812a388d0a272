"""Cancelling jobs, one or many: those that wait will not run, and workers are told to stop those that run."""

import logging
from collections.abc import Sequence

from inconcert._claims.ends import ENDED_WITH_DEPENDENTS
from inconcert._claims.keys import QueueKeys
from inconcert._core.session import Session
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError
from inconcert.tasks.dependents import pass_on
from inconcert.tasks.store import CANCEL, CANCELLED_TTL, JobKeys, JobKeyspace

__all__ = ["HAD_ENDED", "STILL_RUNS", "cancel"]

_log = logging.getLogger("inconcert.tasks")

STILL_RUNS, HAD_ENDED = 0, 3  # what the script answers of a job; anything else if it was cancelled


async def cancel(
    session: Session, jobs: JobKeyspace, keys: JobKeys, place: QueueKeys, ids: Sequence[str]
) -> Sequence[int]:
    """Have the server cancel jobs of one queue, and notify those that wait for them; what it answers of each.

    Args:
        session: The open session.
        jobs: The keys of all jobs.
        keys: The keys of their partition.
        place: Their queue; of a job that is in its queue, or runs, it may be another.
        ids: Which jobs, at most 250.

    Cost: 1 round trip. If others run after them, 1 and 1 more for each 100 of these.
    """
    command = CANCEL(
        keys,
        place,
        results=keys.results(ids),
        ttl_ms=milliseconds(CANCELLED_TTL),
        inboxes=session.inboxes(keys.bodies),
        request=session.new_address(),
        ids=ids,
    )
    answers: list[int] = await session.run(command)
    if ENDED_WITH_DEPENDENTS in answers:
        try:
            await pass_on(session, jobs, [keys])
        except InconcertError as error:  # the next heartbeat of a worker finds them again
            some = ", ".join(one for one, answer in zip(ids, answers, strict=True) if answer == ENDED_WITH_DEPENDENTS)
            _log.warning("jobs that wait for job %s cannot be notified yet: %s", some, error, extra={"job_id": some})
    return answers
