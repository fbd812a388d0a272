"""The ends of jobs that are done: most have nothing for plugs, and are ended by a script that names no key of one."""

from collections.abc import Callable, Iterable
from typing import Any

from inconcert._claims.ends import Ack, Ended
from inconcert._claims.keys import keys_of
from inconcert._claims.worker_lease import WorkerLease
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.durations import milliseconds
from inconcert.tasks.records.store import ACK_WITH_PLUGS, JobKeys

_HAS_MORE = 3  # what the plain form of the script answers of a job that it does not end


class PlainAck(Ack):
    """The call that ends jobs without anything for plugs, as far as this worker knows.

    If one has got something since it was claimed, such as a child or a message, it is ended by the other form of the
    script, one round trip later.

    Args:
        worker: See `Ack`, also for the next two.
        end_with_plugs: Ends by the other form those that have more than was known here.
    """

    __slots__ = ("_end_with_plugs",)

    def __init__(
        self,
        worker: WorkerLease[Any],
        command: Command,
        batch: list[Ended],
        end_with_plugs: Callable[[list[Ended]], None],
    ) -> None:
        super().__init__(worker, command, batch)
        self._end_with_plugs = end_with_plugs

    def answered(self, reply: Reply) -> None:
        """Confirm those that it has ended."""
        if _HAS_MORE in reply:
            answers = list(zip(self._batch, reply, strict=True))
            self._batch = [ended for ended, answer in answers if answer != _HAS_MORE]
            reply = [answer for answer in reply if answer != _HAS_MORE]
            self._end_with_plugs([ended for ended, answer in answers if answer == _HAS_MORE])
        super().answered(reply)


def ack_with_plugs(worker: WorkerLease[Any], keys: JobKeys, inboxes: str, batch: Iterable[Ended]) -> Command:
    """The command that ends these, whatever they have."""
    jobs: list[Argument] = []
    results: list[str] = []
    attempts: list[str] = []
    histories = failed = ""
    limited: set[str] = set()  # the names of the queues of those that are
    for number, ended in enumerate(batch, 1):
        claimed = ended.claimed
        jobs += (claimed.id, claimed.position, ended.result, milliseconds(ended.ttl), claimed.unique)
        results.append(keys.result(claimed.id))
        if claimed.is_limited:
            limited.add(claimed.source)
        if claimed.history:
            histories += f"{number} {claimed.history},"
        if claimed.has_failed:
            attempts += keys.kept_attempts([claimed.id])
            failed += f"{number},"
    return ACK_WITH_PLUGS(
        keys,
        claimed=worker.claimed_key,
        results=(*results, *attempts, *keys_of(map(keys.queue, limited))),
        inboxes=inboxes,
        worker=worker.holder,
        histories=histories,
        failed=failed,
        jobs=jobs,
    )
