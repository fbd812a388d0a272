"""The relay of an outbox: hands rows over to the server, and looks after them until their jobs have ended.

Any number of relays work side by side. Each turn reserves rows that are due. New ones go to the server, many in one
script. Of the others the server is asked what became of their jobs: rows of jobs that have ended are deleted, those of
dead-lettered ones marked, and those of jobs that it no longer knows handed over again.

That a server has lost its data, as by FLUSHALL, is seen by a name that it keeps beside them, the *life* of the data: a
relay that finds another one makes all rows due at once. A loss of some, as in a failover, is found by the looks at each
row, which come often while it is young.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Sequence

import anyio
from sqlalchemy.exc import SQLAlchemyError

from inconcert._core.session import Session, SessionRef
from inconcert._rules.backoff import backoff
from inconcert.errors import InconcertError, OutcomeUnknown, Unavailable
from inconcert.sql.database import Database
from inconcert.sql.hand_over import HandOver, hand_overs, look, terms_of
from inconcert.sql.rows import Row, Rows, Settled
from inconcert.tasks.records.store import JobKeys, JobKeyspace

_log = logging.getLogger("inconcert.sql")

_PACE = 1.0  # seconds between looks while nobody rings, within a quarter
_MOST = 500  # rows in one turn
_MOST_BYTES = 8 * 2**20  # that a turn is meant to hold
_LONGEST_PAUSE = 2.0  # seconds between tries while the database or the server is away


class Relay:
    """One relay."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, rows: Rows, database: Database) -> None:
        self.woken = asyncio.Event()  # set when rows may have been written
        self._ref = ref
        self._keyspace = keyspace
        self._rows = rows
        self._database = database
        self._lives: dict[int, str] = {}  # of the data of each partition
        self._look_at_lives_at = 0.0  # by the local monotonic clock
        self._most = _MOST

    async def run(self) -> None:
        """Relay until this is cancelled; an error is logged, and followed by a pause."""
        failures = 0
        while True:
            self.woken.clear()
            try:
                is_more = await self._turn()
                failures = 0
            except (InconcertError, SQLAlchemyError, OSError) as error:
                failures += 1
                self._look_at_lives_at = 0.0  # it may have come back without its data
                if failures == 1:
                    _log.warning("the outbox cannot be relayed now, and is tried again: %s", error)
                else:
                    _log.debug("the outbox cannot be relayed yet: %s", error)
                await anyio.sleep(backoff(failures, random.random(), most=_LONGEST_PAUSE))
                continue
            if not is_more:
                with anyio.move_on_after(_PACE * random.uniform(0.75, 1.25)):
                    await self.woken.wait()

    async def _turn(self) -> bool:
        """Hand over the rows that are due; returns whether there may be more."""
        session = self._ref.session
        if time.monotonic() >= self._look_at_lives_at:
            for keys in self._keyspace.partitions:
                await self._ask(session, keys, [])
            self._look_at_lives_at = time.monotonic() + _PACE
        most = self._most
        rows = await self._database.run(lambda connection: self._rows.reserve(connection, most))
        if not rows:
            return False
        size = sum(len(row.body) for row in rows)
        self._most = max(1, min(_MOST, _MOST_BYTES * len(rows) // max(1, size)))
        settled = Settled()
        new = [row for row in rows if row.looks == 1]
        try:
            unknown = await self._look(session, [row for row in rows if row.looks > 1], settled)
        except (Unavailable, OutcomeUnknown):
            settled.again += [row.id for row in rows if row.id not in {*settled.gone, *settled.dead}]
            await self._database.run(lambda connection: self._rows.settle(connection, settled))
            raise
        try:
            await self._hand_over(session, [*new, *unknown], settled)
        finally:
            if settled:
                await self._database.run(lambda connection: self._rows.settle(connection, settled))
        return len(rows) == most

    async def _look(self, session: Session, rows: Sequence[Row], settled: Settled) -> list[Row]:
        """Ask what became of rows that were handed over; returns those that are to be handed over again."""
        unknown = [row for row in rows if row.kind != "job"]  # the server knows them for a while, as they have served
        for keys in self._keyspace.partitions:
            here = [row for row in rows if row.kind == "job" and self._keyspace.of_id(row.id) is keys]
            if not here:
                continue
            life, outcomes = await self._ask(session, keys, [row.id for row in here])
            for row, outcome in zip(here, outcomes, strict=True):
                was_sent = outcome != "unknown" and terms_of(row).keep == "until_sent"
                # Of a dead-lettered one that is unknown, and the server has not lost its data: it was purged.
                if outcome == "ended" or was_sent or (outcome == "unknown" and row.dead_life == life):
                    settled.gone.append(row.id)
                elif outcome == "dead" and row.dead_life != life:
                    settled.dead[row.id] = life
                elif outcome == "live" and row.dead_life is not None:  # it was replayed
                    settled.dead[row.id] = None
                elif outcome == "unknown" and row.dead_life is None:
                    unknown.append(row)
        return unknown

    async def _ask(self, session: Session, keys: JobKeys, ids: Sequence[str]) -> tuple[str, list[str]]:
        """The life of the data of a partition, and what became of these jobs; makes all rows due if it is another."""
        new = secrets.token_hex(8)
        life, *outcomes = [part.decode() for part in await session.run(look(keys, new, ids))]
        before = self._lives.get(keys.number)
        if life == new or (before is not None and life != before):
            if before is not None:
                _log.warning("the server has lost its data; all jobs of the outbox that it had are handed over again")
            while await self._database.run(self._rows.look_at_all):
                pass
        self._lives[keys.number] = life
        return life, outcomes

    async def _hand_over(self, session: Session, rows: Sequence[Row], settled: Settled) -> None:
        sent = list(hand_overs(session, self._ref.keys, self._keyspace, rows))
        calls = (session.run(each.command) for each in sent)
        replies = await asyncio.gather(*calls, return_exceptions=True)
        failed: list[BaseException] = []
        for each, reply in zip(sent, replies, strict=True):
            if isinstance(reply, BaseException):
                failed.append(reply)
                if isinstance(reply, Unavailable | OutcomeUnknown):  # others will not help themselves: at their pace
                    settled.again += [row.id for row in each.rows]
            else:
                settled.gone += each.gone(reply)
                self._tell(session, each)
        if failed:
            raise failed[0]

    @staticmethod
    def _tell(session: Session, handed_over: HandOver) -> None:
        if session.observers:
            for row in handed_over.rows:
                if row.looks == 1 and row.kind == "job":
                    session.observers.job_enqueued(terms_of(row).task, row.destination)
