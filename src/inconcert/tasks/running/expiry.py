"""Ends jobs that expire where no worker claims them: in a queue that is paused or not served, or waiting for others."""

import logging
from collections.abc import Collection, Sequence

from inconcert._claims.keys import PROMOTE, QueueKeys
from inconcert._core.session import Session
from inconcert._redis.protocol.replies import rows
from inconcert.errors import InconcertError
from inconcert.tasks.records.dependents import Relay
from inconcert.tasks.records.store import END_EXPIRED, QUEUED_IDS, STATS, WAITING_IDS, JobKeys, JobKeyspace, StatsRow

_log = logging.getLogger("inconcert.tasks")

_AT_ONCE = 250  # jobs that a script looks at
_PORTIONS = 4  # of them in each queue, and of those that wait, in a turn


class Expiry:
    """Looks at the first 1,000 jobs of such queues, and at about as many that wait, the next ones in each turn.

    Any number may look at once, without a lock.  The server's clock decides.
    """

    def __init__(self, session: Session, keyspace: JobKeyspace, relay: Relay) -> None:
        self._session = session
        self._keyspace = keyspace
        self._relay = relay
        self._cursors = dict.fromkeys(keyspace.partitions, b"0")  # of the jobs that wait

    async def end(self, served: Sequence[str], unserved: Collection[str]) -> None:
        """End what has expired in these queues, as far as they are paused or not served, and of what waits anywhere."""
        names = list(dict.fromkeys((*served, *unserved)))
        for keys in self._keyspace.partitions:
            try:
                await self._look_at_queues(keys, names, unserved)
                await self._look_at_waiting(keys, names[0])
            except InconcertError as error:  # the next turn finds the rest
                _log.warning("jobs of partition %d that expired cannot be ended yet: %s", keys.number, error)

    async def _look_at_queues(self, keys: JobKeys, names: Sequence[str], unserved: Collection[str]) -> None:
        _, _, *flat = await self._session.run(STATS(keys, queues=keys.lists(names), names=names))
        for name, row in zip(names, rows(flat, StatsRow), strict=True):
            if name in unserved and row.delayed:
                await self._session.run(PROMOTE(keys, keys.queue(name), front=0))  # it is due when it expires
            if row.is_paused or (name in unserved and row.ready + row.delayed):
                await self._look_into(keys, name)

    async def _look_into(self, keys: JobKeys, name: str) -> None:
        position, last = 0, ""
        for _ in range(_PORTIONS):
            position, *found = await self._session.run(
                QUEUED_IDS(keys.queue(name), position=position, last=last, limit=_AT_ONCE)
            )
            if not found:
                return
            ids = [id_.decode() for id_ in found]
            looked, ended = await self._end(keys, keys.queue(name), name, ids)
            stayed = [id_ for id_ in ids[:looked] if id_ not in ended]
            if stayed:
                position, last = position + len(stayed) - 1, stayed[-1]
            elif last:
                position -= 1

    async def _look_at_waiting(self, keys: JobKeys, any_queue: str) -> None:
        for _ in range(_PORTIONS):
            cursor, *found = await self._session.run(WAITING_IDS(keys, cursor=self._cursors[keys], count=_AT_ONCE))
            ids = [id_.decode() for id_ in found]
            while ids:  # a scan may find more than asked for
                looked, _ = await self._end(keys, keys.queue(any_queue), "", ids[:_AT_ONCE])
                ids = ids[looked:]
            self._cursors[keys] = cursor
            if cursor == b"0":
                return

    async def _end(self, keys: JobKeys, queue: QueueKeys, name: str, ids: Sequence[str]) -> tuple[int, set[str]]:
        """End what has expired of these; returns at how many it looked, and which it ended."""
        command = END_EXPIRED(keys, queue, inboxes=self._session.inboxes(keys.bodies), name=name, ids=ids)
        looked, has_news, *ended = await self._session.run(command)
        if has_news:
            self._relay.found(keys)
        if ended:
            _log.warning("jobs that expired in a queue without claims, or waiting for others: %d", len(ended))
        return looked, {id_.decode() for id_ in ended}
