"""Rows on their way to the server: the commands for them, and the meaning of the answers."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from inconcert._core.origin import Origin
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._rules.payloads import JSON
from inconcert.mailboxes.post import Post
from inconcert.queues.put import put_once, was_put_in
from inconcert.queues.store import ItemKeys
from inconcert.sql.rows import Row, Terms
from inconcert.tasks.records.store import ENQUEUE, LOOK, JobKeys, JobKeyspace

_MOST = 500  # jobs in one script
_MOST_BYTES = 2**20  # in one script, so that none holds up the server for long


class HandOver(NamedTuple):
    """A command that hands rows over."""

    command: Command  # adds those that the server does not know
    rows: Sequence[Row]  # the rows, all of one kind

    def gone(self, reply: Reply) -> list[str]:
        """The ids of rows that have served, as the command answered.

        A job with a unique name that a live job has is one of them: that job stands for it.
        """
        kind = self.rows[0].kind
        if kind == "job":
            pairs = zip(self.rows, reply, strict=True)
            return [row.id for row, other in pairs if other or terms_of(row).keep == "until_sent"]
        is_there = was_put_in(reply) if kind == "item" else not reply
        return [row.id for row in self.rows] if is_there else []


def terms_of(row: Row) -> Terms:
    """The handing over of a row."""
    return msgspec.json.decode(row.terms, type=Terms)


def hand_overs(origin: Origin, keys: Keyspace, keyspace: JobKeyspace, rows: Sequence[Row]) -> Iterator[HandOver]:
    """The commands for these rows: in their order, and for jobs as few as possible."""
    of_jobs = [row for row in rows if row.kind == "job"]

    def destination(row: Row) -> tuple[int, str]:
        return keyspace.of_id(row.id).number, row.destination

    for _, alike in groupby(sorted(of_jobs, key=destination), destination):
        batch: list[Row] = []
        size = 0
        for row in alike:
            if batch and (len(batch) == _MOST or size + len(row.body) > _MOST_BYTES):
                yield _of_jobs(keyspace.of_id(batch[0].id), batch)
                batch, size = [], 0
            batch.append(row)
            size += len(row.body)
        yield _of_jobs(keyspace.of_id(batch[0].id), batch)
    for row in rows:
        if row.kind == "item":
            yield _of_item(origin, ItemKeys(keys, row.destination), row)
        elif row.kind == "message":
            yield _of_message(origin, keys, row)


def look(keys: JobKeys, life: str, ids: Sequence[str]) -> Command:
    """The command that asks what became of jobs of this partition."""
    return LOOK(keys, results=keys.results(ids), life=life, ids=ids)


def _of_jobs(keys: JobKeys, batch: list[Row]) -> HandOver:
    arguments: list[Argument] = []
    for row in batch:
        terms = terms_of(row)
        arguments += (row.id, row.body, max(0, row.due_in_ms), terms.unique, terms.window_ms)
    queue = batch[0].destination
    results = keys.results(row.id for row in batch)
    return HandOver(ENQUEUE(keys, keys.queue(queue), results=results, queue_name=queue, jobs=arguments), batch)


def _of_item(origin: Origin, keys: ItemKeys, row: Row) -> HandOver:
    terms = terms_of(row)
    maxsize = None if terms.max < 0 else terms.max
    delay_ms = max(0, row.due_in_ms)
    command = put_once(origin, keys, row.id, row.body, order=terms.order, delay_ms=delay_ms, maxsize=maxsize)
    return HandOver(command, [row])


def _of_message(origin: Origin, keys: Keyspace, row: Row) -> HandOver:
    terms = terms_of(row)
    max_age = terms.max_age_ms / 1000 or None
    post: Post[JSON] = Post(keys, row.destination, max_messages=terms.max, max_age=max_age)
    return HandOver(post.send(origin, [row.body], request=row.id), [row])
