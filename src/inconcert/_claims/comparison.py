"""A worker and its server, compared: after a failover each may know of claims that the other does not.

A server that went back in time has undone what it did last.  It believes that a worker holds jobs which that has ended,
and each heartbeat would keep them, with their places in limits, as long as the worker lives.  And it has forgotten
claims whose jobs run, so that others may claim them, too.

The reply of a heartbeat says how many claims the server knows.  A worker compares when that is another number twice in
a row, and after each reconnect, because the numbers may be equal by chance.  What the server alone knows is requeued.
What the worker alone knows is stopped if the server still has it, because then it runs again.

A claim under way decides nothing.  A claim that is not answered yet has a position beyond those of the claims that are.
An end that is not answered, or not confirmed, is known by its position.  Replies come in order, so an end that the
server had not run when it compared is still unanswered when the comparison is read.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from inconcert._claims.claimed import ClaimState
from inconcert._claims.keys import COMPARE, ClaimKeys
from inconcert._redis.protocol.replies import Reply, rows
from inconcert._redis.wire.call import Call

if TYPE_CHECKING:  # it makes these
    from inconcert._claims.worker_lease import WorkerLease

_POSITIONS = 1000  # of one claim; the claiming script has the same number


class StrayClaim(NamedTuple):
    """Something that a worker holds as the server knows it, and not as the worker does."""

    id: bytes  # which job or item
    position: int
    queue: bytes  # the name of its queue


class Comparison(Call):
    """The call that asks in what the server and a worker differ."""

    __slots__ = ("_next_position", "_reconnects", "_worker")

    def __init__(
        self, worker: "WorkerLease[Any]", keys: ClaimKeys, held: Collection[ClaimState], number: int, reconnects: int
    ) -> None:
        known = [part for claimed in held for part in (claimed.id, claimed.position)]
        super().__init__(COMPARE(keys, claimed=keys.claimed(worker.holder), held=known))
        self._worker = worker
        self._next_position = number * _POSITIONS  # of its next claim, or of one that is not answered yet
        self._reconnects = reconnects

    def answered(self, reply: Reply) -> None:
        gone, beside = reply
        strays = [stray for stray in rows(beside, StrayClaim) if stray.position < self._next_position]
        strays.sort(key=lambda stray: stray.position, reverse=True)  # so that the first claimed comes to the front
        answered = [position for position in gone if position < self._next_position]
        self._worker.compared(answered, strays, self._reconnects)
        super().answered(reply)
