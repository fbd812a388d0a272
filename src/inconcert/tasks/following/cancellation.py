"""Cancelling jobs, one or many: those that wait will not run, and workers are told to stop those that run."""

import logging
from collections import defaultdict
from collections.abc import Sequence

from inconcert._claims.ends import ENDED_WITH_DEPENDENTS
from inconcert._claims.keys import QueueKeys
from inconcert._core.session import Session
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError
from inconcert.tasks.records.dependents import pass_on
from inconcert.tasks.records.store import CANCEL, CANCELLED_TTL, LOCATE, STATES, JobKeys, JobKeyspace

_log = logging.getLogger("inconcert.tasks")

# What the script answers of a job; anything else if it was cancelled.
STILL_RUNS, HAD_ENDED = 0, 3
_IS_ELSEWHERE = 4  # it is delayed in another queue, or its caller chose its id, and it is ready in another one
_UNKNOWN = "none"  # in place of the name of a queue
_AT_ONCE = 250  # queues in which one script looks


async def cancel(
    session: Session, keyspace: JobKeyspace, keys: JobKeys, queue: QueueKeys, ids: Sequence[str]
) -> Sequence[int]:
    """Have the server cancel at most 250 jobs of one queue, notify those that wait for them, and return each answer.

    Cost: 1 round trip, and 1 more for each 2,000 of their steps and messages. If others run after them, 1 and 1 more
        for each 100 of these. If some are delayed in another queue by then, 1 and 1 more for each of these queues.
    """
    answers: list[int] = []
    while len(answers) < len(ids):
        some = ids[len(answers) :]
        command = CANCEL(
            keys,
            queue,
            results=(*keys.results(some), *keys.kept_attempts(some)),
            ttl_ms=milliseconds(CANCELLED_TTL),
            inboxes=session.inboxes(keys.bodies),
            request=session.new_address(),
            ids=some,
        )
        answers += await session.run(command)
    if ENDED_WITH_DEPENDENTS in answers:
        try:
            await pass_on(session, keyspace, [keys])
        except InconcertError as error:  # the next heartbeat of a worker finds them again
            some = ", ".join(one for one, answer in zip(ids, answers, strict=True) if answer == ENDED_WITH_DEPENDENTS)
            _log.warning("jobs that wait for job %s cannot be notified yet: %s", some, error, extra={"job_id": some})
    found = dict(zip(ids, answers, strict=True))
    elsewhere = [id_ for id_, answer in found.items() if answer == _IS_ELSEWHERE]
    if elsewhere:
        by_name = await by_queue(session, keys, elsewhere)
        for id_ in by_name.pop(_UNKNOWN, ()):
            by_name.setdefault(await _queue_with(session, keys, id_), []).append(id_)
        for name, some_ids in by_name.items():
            found |= zip(some_ids, await cancel(session, keyspace, keys, keys.queue(name), some_ids), strict=True)
    return [found[id_] for id_ in ids]


async def by_queue(session: Session, keys: JobKeys, ids: Sequence[str]) -> dict[str, list[str]]:
    """Jobs of one partition by the queue in which they are delayed or wait for others; by any if they do neither."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for id_, state in zip(ids, await session.run(STATES(keys, ids=ids)), strict=True):
        found[_queue_in(state.decode())].append(id_)
    return found


async def _queue_with(session: Session, keys: JobKeys, id_: str) -> str:
    """The queue in which a job is ready; any other if it is in none."""
    from inconcert.tasks.records.queue_names import queue_names  # noqa: PLC0415 - few jobs need it

    names = await queue_names(session, keys)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        _, _, _, name, *_ = await session.run(LOCATE(keys, queues=keys.lists(some), id=id_, names=some))
        if name:
            return str(name, "utf-8")
    return _UNKNOWN


def _queue_in(state: str) -> str:
    word, _, about = state.partition(" ")
    if word == "waiting":
        return about.partition(" ")[2]
    return about if word == "delayed" else _UNKNOWN
