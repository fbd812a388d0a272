"""Replaying what was dead-lettered because of another job: it waits for that job again.

Source: docs/explanation/tasks.md
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

from inconcert._claims.dead_letters import DeadLetter, DeadLetters
from inconcert._claims.keys import split_body
from inconcert._core.session import Session
from inconcert._rules.durations import milliseconds
from inconcert.errors import InvalidPayload
from inconcert.tasks.dependents import pass_on
from inconcert.tasks.envelope import verify_envelope
from inconcert.tasks.store import CHILDREN, WAIT_AGAIN, JobKeys, JobKeyspace

__all__ = ["replay_dependants"]

_MOST = 100  # jobs at once


async def replay_dependants(
    session: Session, jobs: JobKeyspace, dead_letters: Sequence[DeadLetters], job_id: str
) -> list[str]:
    """Let what was dead-lettered because of a job wait for it again, and what was because of that; returns the ids.

    What is behind jobs that are not dead is found as well: an earlier call may have been stopped there.

    Args:
        session: The open session.
        jobs: The keys of all jobs.
        dead_letters: Those of each partition.
        job_id: A job that is not dead-lettered now.
    """
    replayed: list[str] = []
    live, seen = [job_id], {job_id}

    async def replay(parent: str, child: str) -> None:
        keys = jobs.of_id(child)
        letter = await dead_letters[keys.number].find(child)
        if letter is not None:
            is_because = letter.reason.reason.startswith(f"its parent {parent} ")
            if not is_because or not await _wait_again(session, keys, letter):
                return
            replayed.append(child)
        if child not in seen:
            seen.add(child)
            live.append(child)

    for parent in live:  # it grows as children are found, each after its parent
        async for children in _children(session, jobs.of_id(parent), parent):
            await asyncio.gather(*(replay(parent, child) for child in children))
    if replayed:
        await pass_on(session, jobs, {jobs.of_id(child) for child in replayed})
    return replayed


async def _children(session: Session, keys: JobKeys, parent: str) -> AsyncIterator[list[str]]:
    """The jobs that run after this one, in portions."""
    last = ""
    while True:
        portion = [child.decode() for child in await session.run(CHILDREN(keys, id=parent, after=last, limit=_MOST))]
        if portion:
            yield portion
        if len(portion) < _MOST:
            return
        last = portion[-1]


async def _wait_again(session: Session, keys: JobKeys, letter: DeadLetter) -> bool:
    try:
        envelope = verify_envelope(session.key_ring, letter.id, split_body(letter.body)[1])
    except InvalidPayload:
        return False
    command = WAIT_AGAIN(
        keys,
        keys.queue(letter.queue),
        request=session.new_address(),
        id=letter.id,
        queue_name=letter.queue,
        delay_ms=milliseconds(envelope.delay if envelope.expires is None else min(envelope.delay, envelope.expires)),
        name=envelope.unique,
        suffix=keys.suffix,
        even_if=envelope.even_if,
        after=tuple(dict.fromkeys(envelope.after)),
    )
    return bool(await session.run(command))
