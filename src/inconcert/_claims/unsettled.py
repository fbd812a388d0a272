"""Requeueing what was acknowledged to be handed out at most once, and never was.

A caller that is cancelled while the acknowledgement is under way gets nothing; the next caller does.  If the consumer
is closed before there is one, no body has begun and none will, so another consumer may have it.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

from inconcert._claims.claimed import ClaimState
from inconcert._claims.keys import UNSETTLE, ClaimKeys
from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.claims")

_MOST = 250  # in one script


async def unsettle(session: Session, keys_of: Callable[[str], ClaimKeys], settled: Iterable[ClaimState]) -> None:
    """Requeue these at the front of their queues, the first in front; they count as done, and were not handed out.

    What others have been told of is lost: a job of a group, or one that others ran after.
    """
    of_queues: dict[tuple[ClaimKeys, str], list[ClaimState]] = {}
    lost: list[str] = []
    for claimed in settled:
        claimed.leave_unsettled()
        if claimed.stored:
            of_queues.setdefault((keys_of(claimed.id), claimed.source), []).insert(0, claimed)
        else:
            lost.append(claimed.id)
    requeued: list[str] = []
    for (keys, queue), all_there in of_queues.items():
        for portion in _portions(all_there):
            back = await _requeue(session, keys, queue, portion)
            requeued += back
            lost += {claimed.id for claimed in portion} - {*back}
    if requeued or lost:
        _log.warning(
            "%d jobs or items counted as done and were not handed out before their consumer was closed; "
            "requeued: %s; lost: %s",
            len(requeued) + len(lost),
            ", ".join(requeued) or "none",
            ", ".join(lost) or "none",
        )


async def _requeue(session: Session, keys: ClaimKeys, queue: str, settled: list[ClaimState]) -> list[str]:
    """The ids of those that were requeued."""
    command = UNSETTLE(
        keys,
        keys.queue(queue),
        results=keys.results(claimed.id for claimed in settled),
        request=session.new_address(),
        queue_name=queue,
        jobs=[part for claimed in settled for part in (claimed.id, claimed.stored, claimed.unique)],
    )
    call = Call(command, must_run=True)
    try:
        session.channel.submit(call)
        answer: bytes = await call
    except InconcertError as error:
        _log.warning("what was not handed out cannot be requeued: %s", error)
        return []
    return [claimed.id for claimed, is_back in zip(settled, answer.split(), strict=True) if is_back == b"1"]


def _portions(settled: list[ClaimState]) -> Iterator[list[ClaimState]]:
    for first in range(0, len(settled), _MOST):
        yield settled[first : first + _MOST]
