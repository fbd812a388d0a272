"""Passing it on that a job has ended: to those that were to run after it, in its partition and in others.

What concerns other partitions takes three steps: a script says what they are to know, they are told, and it is noted
that they know.  Until then it is among the news of its partition, so that nothing is lost if this process dies; and
being told twice changes nothing there.
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

import anyio

from inconcert._claims.keys import keys_of
from inconcert._core.session import Session
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply, rows
from inconcert.errors import InconcertError
from inconcert.tasks.records.store import FOLLOW, FORGET, PASSED_ON, RESOLVE_DEPENDENTS, TELL, JobKeys, JobKeyspace

_log = logging.getLogger("inconcert.tasks")

_MOST = 500  # relations in one script


class _Relation(NamedTuple):
    """A message to another partition about a parent and its child."""

    kind: bytes  # `follow`: the parent has this child; `tell`: what became of the parent; `forget`: the child has ended
    parent: bytes  # the id of the parent
    child: bytes  # the id of the child
    outcome: bytes  # how the parent ended, in a word and a space, for `tell`; empty if it is not known

    @property
    def subject(self) -> bytes:
        """The job in this partition."""
        return self.parent if self.kind == b"tell" else self.child

    def where(self, keyspace: JobKeyspace) -> JobKeys:
        """The partition that is to know it."""
        return keyspace.of_id((self.child if self.kind == b"tell" else self.parent).decode())


async def pass_on(session: Session, keyspace: JobKeyspace, partitions: Iterable[JobKeys]) -> None:
    """Tell all that wait for jobs that have ended in these partitions, and in those to which that leads.

    Any number may do so at once.

    Raises:
        Unavailable: Something is left; the next heartbeat of any worker finds it.
        OutcomeUnknown: The same as for Unavailable.

    Cost: 1 round trip for each partition, and 1 more for each 100 that are told. For those in other partitions 2 more,
        and 1 for each of these partitions.
    """
    left = dict.fromkeys(partitions)
    errors: list[InconcertError] = []
    while left:
        keys, _ = left.popitem()
        try:
            left |= dict.fromkeys(await _pass_on(session, keyspace, keys))
        except InconcertError as error:
            errors.append(error)
    if errors:
        raise errors[0]


async def _pass_on(session: Session, keyspace: JobKeyspace, keys: JobKeys) -> set[JobKeys]:
    """Tell all that wait for jobs that have ended in this partition, in portions; returns where there are news now.

    A script can only use keys that it is given, so it answers of which queues it needs them, and is called again.  A
    queue of which a key holds something that is not ours holds up its own jobs only.
    """
    names: list[str] = []
    left, waiting, stuck = 1, 0, 0
    found: list[bytes] = []
    work: list[bytes] = []
    more: set[JobKeys] = set()
    while found or work or left > waiting:
        command = RESOLVE_DEPENDENTS(
            keys,
            queues=keys_of(map(keys.queue, names)),
            inboxes=session.inboxes(keys.news),
            suffix=keys.suffix,
            passer=session.new_address(),
            names=names,
        )
        left, more_waiting, found, work, more_stuck = await session.run(command)
        waiting += more_waiting
        stuck += more_stuck
        names += [name.decode() for name in found]
        if work:
            more |= await _tell_others(session, keyspace, keys, rows(work, _Relation))
            waiting = stuck = 0  # all are looked at again
    if stuck:
        _log.warning("%d jobs cannot run yet, because a key of their queue holds a foreign value; delete it", stuck)
    return more


async def _tell_others(
    session: Session, keyspace: JobKeyspace, keys: JobKeys, relations: list[_Relation]
) -> set[JobKeys]:
    """Let other partitions know these, and note that they do; returns those in which there are news then."""
    for_each: dict[tuple[bytes, JobKeys], list[_Relation]] = {}
    for relation in relations:
        for_each.setdefault((relation.kind, relation.where(keyspace)), []).append(relation)
    more: set[JobKeys] = set()
    known: list[tuple[bytes, _Relation]] = []
    unknown: set[bytes] = set()  # the jobs of which something could not be passed on
    for (kind, there), theirs in for_each.items():
        for first in range(0, len(theirs), _MOST):
            portion = theirs[first : first + _MOST]
            try:
                has_news, kinds = await _tell(session, there, kind, portion)
            except InconcertError as error:
                _log.warning("partition %d cannot be notified yet of jobs that wait: %s", there.number, error)
                unknown.update(relation.subject for relation in portion)
                continue
            known += zip(kinds, portion, strict=True)
            more |= {there} if has_news else set()
    for first in range(0, len(known), _MOST):
        noted: list[Argument] = []
        for kind, relation in known[first : first + _MOST]:
            is_all = int(relation.subject not in unknown)
            noted += (kind, relation.parent, relation.child, is_all)
        await session.run(PASSED_ON(keys, relations=noted))
    return more


async def _tell(session: Session, keys: JobKeys, kind: bytes, relations: list[_Relation]) -> tuple[bool, list[bytes]]:
    """Let a partition know these; returns whether it has news then, and of which kind each is to be noted."""
    pairs = [part for relation in relations for part in (relation.parent, relation.child)]
    if kind == b"tell":
        parts = [part for relation in relations for part in (relation.parent, relation.child, relation.outcome)]
        has_news, *are_there = await session.run(TELL(keys, inboxes=session.inboxes(keys.news), relations=parts))
        return bool(has_news), [kind if is_there else b"gone" for is_there in are_there]
    if kind == b"follow":
        results = keys.results(relation.parent.decode() for relation in relations)
        ended: Reply = await session.run(FOLLOW(keys, results=results, relations=pairs))
        return bool(ended), [kind] * len(relations)
    await session.run(FORGET(keys, relations=pairs))
    return False, [kind] * len(relations)


class Relay:
    """The background task that passes on what workers have ended, or what one that died had not passed on."""

    def __init__(self, session: Session, keyspace: JobKeyspace) -> None:
        self._session = session
        self._keyspace = keyspace
        self._partitions: set[JobKeys] = set()  # in which there are news
        self._found = anyio.Event()
        self._turn = anyio.Lock(fast_acquire=True)

    def found(self, keys: JobKeys) -> None:
        """There are news in this partition."""
        self._partitions.add(keys)
        self._found.set()

    async def pass_on_all(self) -> None:
        """Pass on the messages in all partitions, after those that are being passed on.

        Raises:
            Unavailable: Something is left; the next heartbeat of any worker finds it.
            OutcomeUnknown: The same as for Unavailable.
        """
        async with self._turn:
            await pass_on(self._session, self._keyspace, self._keyspace.partitions)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._found.wait()
            self._found = anyio.Event()
            partitions, self._partitions = self._partitions, set()
            try:
                async with self._turn:
                    await pass_on(self._session, self._keyspace, partitions)
            except InconcertError as error:  # the next heartbeat finds it again
                _log.warning("jobs that wait for others cannot be notified yet: %s", error)
