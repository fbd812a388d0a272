"""The counts of jobs that end in a worker: plain numbers, added to those of other workers every few seconds."""

import logging
import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter

import anyio
import msgspec

from inconcert._claims.claimed import Verdict
from inconcert._claims.ends import Ended
from inconcert._core.session import Session
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.background import log_error
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError, NotConnected
from inconcert.tasks.records.counts import DAY, HOUR, MOST_LATELY, Lately, Outcome, bound_of, counts_key
from inconcert.tasks.records.store import ADD_COUNTS, JobKeyspace
from inconcert.tasks.running.job_state import JobState

_log = logging.getLogger("inconcert.tasks")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 8.0, 12.0  # seconds
_MOST_TASKS = 200  # that are counted under their names between two pauses; names may come from anywhere
_OTHER = "other"

_OUTCOMES: dict[str, Outcome] = {
    "done": "succeeded",
    "cancelled": "cancelled",
    "retry": "retried",
    "crash": "retried",
    "dead": "dead",
    "undone": "dead",
}
_KIND = attrgetter("claimed.outcome", "claimed.envelope.name")


class Tally:
    """Counts the ends of jobs of one consumer, by their task.

    Of jobs that end in the same turn of the loop it looks at one of each task: the last one stands for the others
    where it is said how long they took.
    """

    def __init__(self, session: Session, keyspace: JobKeyspace, *, is_on: bool) -> None:
        self._is_on = is_on
        self._session = session
        self._keys = keyspace.partitions[0]
        self._ahead = 0.0  # how far the server's clock is ahead of the local monotonic one, in seconds
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)  # task -> field without its hour -> number
        self._lately: deque[Lately] = deque(maxlen=MOST_LATELY)

    def claimed(self, now_ms: int) -> None:
        """Note the server's time, which a claim has just brought."""
        self._ahead = now_ms / 1000 - time.monotonic()

    def acknowledged(self, batch: Sequence[Ended]) -> None:
        """Count jobs that have succeeded, or were cancelled."""
        if not self._is_on:
            return
        kinds = list(map(_KIND, batch))
        for kind, ended in dict(zip(kinds, batch, strict=True)).items():
            if isinstance(ended.claimed, JobState):
                self._add(ended.claimed, kind[0], kinds.count(kind))

    def not_done(self, job: JobState, verdict: Verdict) -> None:
        """Count a job whose attempt has failed; another verdict counts nothing."""
        if self._is_on:
            self._add(job, verdict, 1)

    async def run(self) -> None:
        """Add what was counted to the counts of others, until cancelled."""
        while True:
            await anyio.sleep(random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE))
            try:
                await self.add()
            except InconcertError as error:
                _log.warning("the counts of ended jobs cannot be added yet: %s", error)
            except Exception as error:  # noqa: BLE001 - any: later counts would be lost
                log_error(lambda shown: _log.error("ended jobs could not be counted", exc_info=shown), error)

    async def add(self) -> None:
        """Add what was counted since the last time; what cannot be added is lost."""
        if self._counts:
            await self._session.run(self._take())

    def add_nowait(self) -> None:
        """Add it without waiting for the reply: the consumer closes."""
        if self._counts:
            with suppress(NotConnected):
                self._session.channel.submit(Call(self._take()))

    # Private.

    def _take(self) -> Command:
        counts, self._counts = self._counts, defaultdict(Counter)
        lately, self._lately = self._lately, deque(maxlen=MOST_LATELY)
        now = int(time.monotonic() + self._ahead)
        day, hour = now // DAY, now % DAY // HOUR
        return ADD_COUNTS(
            self._keys,
            days=[counts_key(self._keys, task, day) for task in counts],
            request=self._session.new_address(),
            lately_ended=b"\n".join(map(msgspec.json.encode, lately)),
            tasks=[part for task, numbers in counts.items() for part in (task, day, _text(numbers.items(), hour))],
        )

    def _add(self, job: JobState, end: str, number: int) -> None:
        outcome = _OUTCOMES.get(end)
        if outcome is None:  # it goes on another time, or counted as done before it was handed out
            return
        task = job.task if job.task in self._counts or len(self._counts) < _MOST_TASKS else _OTHER
        counts, now = self._counts[task], time.monotonic() + self._ahead
        counts[outcome] += number
        if outcome != "cancelled":
            counts[f"run {bound_of(now - job.claimed_at)}"] += number
        if job.attempt == 1 and not job.is_dependent and not job.was_begun:
            counts[f"wait {bound_of(job.claimed_at - (job.due_at or job.enqueued_at))}"] += number
        if outcome != "retried":
            began, ended = round(job.claimed_at * 1000), round(now * 1000)
            enqueued = round(job.enqueued_at * 1000)
            self._lately.append(Lately(job.id, job.task, job.queue, outcome, enqueued, began, ended, job.attempt))


def _text(counts: Iterable[tuple[str, int]], hour: int) -> str:
    return "".join(f"{field if ' ' in field else f'{field} {hour}'} {number}," for field, number in counts)
