"""Dead-lettered jobs: listing them, and replaying or dropping one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest

import msgspec

from inconcert._claims.dead_letters import DeadLetter, DeadLetters, Replayed
from inconcert._claims.keys import split_body
from inconcert._core.session import SessionRef
from inconcert._rules.names import check_job_id
from inconcert._rules.payloads import JSON
from inconcert.errors import JobNotFound
from inconcert.tasks.operating.job_info import JobInfo, as_called, as_dead
from inconcert.tasks.operating.replaying import replay_dependants
from inconcert.tasks.records.envelope import JOB, marks_of, read_envelope, seal, verify_envelope
from inconcert.tasks.records.history import history_note
from inconcert.tasks.records.store import DEAD_TIMES, JobKeys, JobKeyspace

_MOST_TIMES = 1000  # in one reply


class DeadJobs:
    """The dead-lettered jobs of all partitions."""

    def __init__(self, ref: SessionRef, keyspace: JobKeyspace, dead_letters: Sequence[DeadLetters]) -> None:
        self._ref = ref
        self._keyspace = keyspace
        self._dead_letters = dead_letters

    async def latest(self, limit: int) -> list[JobInfo]:
        """See `Tasks.dead`."""
        letters: list[DeadLetter] = []
        for dead_letters in self._dead_letters:
            found = await dead_letters.latest(limit=limit)
            letters = nlargest(limit, [*letters, *found], key=lambda letter: letter.died_at)
        key_ring = self._ref.session.key_ring
        return [
            as_dead(as_called(key_ring, dead.id, dead.body), dead.reason, queue=dead.queue, died_at=dead.died_at)
            for dead in letters
        ]

    async def replay(
        self,
        job_id: str,
        *,
        args: Sequence[JSON] | None,
        kwargs: Mapping[str, JSON] | None,
        queue: str | None,
        dependants: bool,
    ) -> list[str]:
        """See `Tasks.replay`."""
        keys = self._keyspace.of_id(check_job_id(job_id))
        letter = await self._dead_letters[keys.number].find(job_id)
        if letter is not None:
            await self._replay(keys, letter, args, kwargs, queue)
        replayed: list[str] = []
        if dependants:
            replayed = await replay_dependants(self._ref.session, self._keyspace, self._dead_letters, job_id)
        if letter is None and not replayed:
            raise JobNotFound(job_id, among_the_dead=True)
        return replayed

    async def purge(self, job_id: str) -> None:
        """See `Tasks.purge`."""
        keys = self._keyspace.of_id(check_job_id(job_id))
        if not await self._dead_letters[keys.number].purge([job_id]):
            raise JobNotFound(job_id, among_the_dead=True)

    async def purge_all(self, *, older_than: float, keep: int) -> int:
        """Drop those that died longer ago than this, in seconds, but for so many of the latest; returns how many."""
        dropped = 0
        for dead_letters, kept in zip(self._dead_letters, await self.count_latest(keep), strict=True):
            dropped += await dead_letters.purge_all(older_than=older_than, keep=kept)
        return dropped

    async def count_latest(self, count: int) -> list[int]:
        """The number of the latest `count` dead letters in each partition."""
        if len(self._keyspace.partitions) == 1 or count == 0:
            return [count] * len(self._keyspace.partitions)
        latest: list[tuple[int, int]] = []
        for keys in self._keyspace.partitions:
            died = await self._died(keys, count)
            latest = nlargest(count, [*latest, *((died_ms, keys.number) for died_ms in died)])
        found = Counter(number for _, number in latest)
        return [found[keys.number] for keys in self._keyspace.partitions]

    # Private.

    async def _replay(
        self,
        keys: JobKeys,
        letter: DeadLetter,
        args: Sequence[JSON] | None,
        kwargs: Mapping[str, JSON] | None,
        queue: str | None,
    ) -> None:
        key_ring = self._ref.session.key_ring
        changes = {name: value for name, value in (("args", args), ("kwargs", kwargs)) if value is not None}
        changed = b""
        envelope = (verify_envelope if changes else read_envelope)(key_ring, letter.id, split_body(letter.body)[1])
        if changes:
            text = seal(msgspec.structs.replace(envelope, **changes))
            note = history_note(envelope.name, envelope.history, has_arguments=envelope.history_arguments)
            marks = marks_of(
                envelope.max_crashes,
                envelope.limits,
                history=note,
                priority=envelope.priority,
                debounced=envelope.debounced,
            )
            changed = marks + key_ring.sign(JOB, letter.id, text)
        queue_keys = keys.queue(queue or letter.queue)
        if envelope.limits and queue_keys.name != letter.queue:
            raise ValueError(f"job {letter.id} has limits, which count in its queue {letter.queue!r}; leave queue= out")
        replayed = [Replayed(letter.id, changed, envelope.unique)]
        if not await self._dead_letters[keys.number].replay(replayed, queue_keys):
            raise JobNotFound(letter.id, among_the_dead=True)

    async def _died(self, keys: JobKeys, count: int) -> list[int]:
        """The times of a partition's latest dead letters, in server ms."""
        found: list[int] = []
        while len(found) < count:
            limit = min(count - len(found), _MOST_TIMES)
            portion: list[int] = await self._ref.session.run(DEAD_TIMES(keys, skip=len(found), limit=limit))
            found += portion
            if len(portion) < limit:
                break
        return found
