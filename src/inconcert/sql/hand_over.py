"""Rows on their way to the server: what is sent of them, and what its answer means."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert.sql.rows import Row, Terms
from inconcert.tasks.records.store import ENQUEUE, LOOK, JobKeys, JobKeyspace

__all__ = ["HandOver", "hand_overs", "look"]

_MOST = 500  # jobs in one script
_MOST_BYTES = 2**20  # in one script, so that none holds up the server for long


class HandOver(NamedTuple):
    """A command that hands rows over.

    Attributes:
        command: Adds those of the jobs that the server does not know.
        rows: The rows.
    """

    command: Command
    rows: Sequence[Row]

    def gone(self, reply: Reply) -> list[str]:
        """The ids of rows that have served, as the command answered.

        A row with a unique name that a live job has is one of them: that job stands for it.
        """
        return [
            row.id for row, other in zip(self.rows, reply, strict=True) if other or terms_of(row).keep == "until_sent"
        ]


def terms_of(row: Row) -> Terms:
    """How a row is handed over."""
    return msgspec.json.decode(row.terms, type=Terms)


def hand_overs(rows: Sequence[Row], jobs: JobKeyspace) -> Iterator[HandOver]:
    """The commands for these rows, in their order, as few as possible."""

    def place(row: Row) -> tuple[int, str]:
        return jobs.of_id(row.id).number, row.place

    for _, alike in groupby(sorted(rows, key=place), place):
        batch: list[Row] = []
        size = 0
        for row in alike:
            if batch and (len(batch) == _MOST or size + len(row.body) > _MOST_BYTES):
                yield _of_jobs(jobs.of_id(batch[0].id), batch)
                batch, size = [], 0
            batch.append(row)
            size += len(row.body)
        yield _of_jobs(jobs.of_id(batch[0].id), batch)


def look(keys: JobKeys, life: str, ids: Sequence[str]) -> Command:
    """The command that asks what became of jobs of this partition."""
    return LOOK(keys, results=keys.results(ids), life=life, ids=ids)


def _of_jobs(keys: JobKeys, batch: list[Row]) -> HandOver:
    arguments: list[Argument] = []
    for row in batch:
        terms = terms_of(row)
        arguments += (row.id, row.body, max(0, row.due_in_ms), terms.unique, terms.window_ms)
    queue = batch[0].place
    results = keys.results(row.id for row in batch)
    return HandOver(ENQUEUE(keys, keys.queue(queue), results=results, queue_name=queue, jobs=arguments), batch)
