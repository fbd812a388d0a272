"""The calls of a worker: heartbeats, and the ends of its claims."""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from inconcert._claims.claimed import ClaimState
from inconcert._claims.keys import ACK, HEARTBEAT, HOLD_CLOCK, ClaimKeys
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call, Callers
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError

if TYPE_CHECKING:  # it makes these
    from inconcert._claims.worker_lease import WorkerLease

ENDED_WITH_DEPENDENTS = 2  # what a script returns that has ended a job with dependents


class Heartbeat(Call):
    """The call of a heartbeat."""

    __slots__ = ("_asked_at", "_is_new", "_keys", "_worker")

    overtakes = True

    def __init__(
        self, worker: "WorkerLease[Any]", keys: ClaimKeys, *, is_new: bool = False, passed_over: int = 0
    ) -> None:
        super().__init__(heartbeat(worker, keys, is_new=is_new, passed_over=passed_over))
        self._worker = worker
        self._keys = keys
        self._is_new = is_new
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        self._worker.beaten(reply, self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._worker.missed(error)
        super().failed(error)

    def with_one_key(self) -> Call | None:
        return None if self._is_new else _HoldClock(self._worker, self._keys)


class _HoldClock(Call):
    """The sender of a worker's commands while its heartbeat is refused because its slot moves key by key."""

    __slots__ = ("_asked_at", "_worker")

    overtakes = True

    def __init__(self, worker: "WorkerLease[Any]", keys: ClaimKeys) -> None:
        super().__init__(HOLD_CLOCK(keys))
        self._worker = worker
        self._asked_at = time.monotonic()

    def answered(self, reply: Reply) -> None:
        self._worker.clock_held(reply, self._asked_at)
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._worker.missed(error)
        super().failed(error)


def heartbeat(worker: "WorkerLease[Any]", keys: ClaimKeys, *, is_new: bool = False, passed_over: int = 0) -> Command:
    """The command that renews a worker's lease."""
    return HEARTBEAT(
        keys,
        worker=worker.holder,
        ttl_ms=milliseconds(worker.lease),
        is_new=int(is_new),
        skip=passed_over,
        about=worker.about,
        claimed=worker.claimed_key,
    )


class Ended(Struct, frozen=True):
    """The end of something that is done, or was cancelled."""

    claimed: ClaimState
    result: bytes
    ttl: float  # of the result, in seconds
    was_held: asyncio.Future[bool] | None  # None if nobody waits for it
    is_run: bool  # otherwise it was only about to be handed out


class Ack(Call):
    """The call that ends several."""

    __slots__ = ("_batch", "_worker")

    def __init__(self, worker: "WorkerLease[Any]", command: Command, batch: list[Ended]) -> None:
        super().__init__(command, must_run=True)
        self._worker = worker
        self._batch = batch

    def positions(self, worker: "WorkerLease[Any]") -> Iterable[int]:
        """The positions of the claims of this worker that it ends."""
        return (ended.claimed.position for ended in self._batch if self._worker is worker)

    def answered(self, reply: Reply) -> None:
        if ENDED_WITH_DEPENDENTS in reply:
            self._worker.owner.on_news()
        for ended, answer in zip(self._batch, reply, strict=True):
            if ended.was_held is not None:
                if not ended.was_held.done():
                    ended.was_held.set_result(bool(answer) or self._worker.was_first_time(self))
            elif not answer and not self._worker.was_first_time(self):
                ended.claimed.not_held()
        super().answered(reply)
        self._worker.acknowledged(self._batch)

    def failed(self, error: InconcertError) -> None:
        self._worker.unconfirmed(ended for ended in self._batch if ended.is_run)
        for ended in self._batch:
            ended.claimed.unconfirmed(error if ended.was_held is None else None)
        super().failed(error)

    def callers(self) -> Callers:
        return (self, *(ended.was_held for ended in self._batch if ended.was_held is not None))


def ack(worker: "WorkerLease[Any]", keys: ClaimKeys, inboxes: str, batch: list[Ended]) -> tuple[Command, list[Ended]]:
    """The command that ends these jobs, which have nothing that is for plugs; and the order in which it answers."""
    result, ttl = batch[0].result, batch[0].ttl
    alike = [ended for ended in batch if ended.result == result and ended.ttl == ttl]
    jobs: list[Argument] = []
    for ended in alike:
        jobs += (ended.claimed.id, ended.claimed.position)
    ids = cast("list[str]", jobs[::2])
    if len(alike) < len(batch):
        others = [ended for ended in batch if ended.result != result or ended.ttl != ttl]
        ids += [ended.claimed.id for ended in others]
        for ended in others:
            jobs += (ended.claimed.id, ended.claimed.position, ended.result, milliseconds(ended.ttl))
        batch = alike + others
    command = ACK(
        keys,
        claimed=worker.claimed_key,
        results=keys.results(ids),
        inboxes=inboxes,
        worker=worker.holder,
        result=result,
        ttl_ms=milliseconds(ttl),
        jobs=jobs,
    )
    return command, batch


class Nack(Call):
    """The call that requeues or dead-letters something."""

    __slots__ = ("_worker", "position")

    def __init__(self, worker: "WorkerLease[Any]", command: Command, position: int) -> None:
        super().__init__(command, must_run=True)
        self._worker = worker
        self.position = position

    def positions(self, worker: "WorkerLease[Any]") -> Iterable[int]:
        """The position of the claim that it ends, if it is one of this worker."""
        return (self.position,) if self._worker is worker else ()

    def answered(self, reply: Reply) -> None:
        if reply == ENDED_WITH_DEPENDENTS:
            self._worker.owner.on_news()
        super().answered(reply)

    def failed(self, error: InconcertError) -> None:
        self._worker.unconfirmed([self])
        super().failed(error)
