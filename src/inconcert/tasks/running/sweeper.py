"""The background tasks that look after what only takes memory, and after what a server has forgotten.

`Sweeper` drops unique names without a live job, and groups that ended.  `Asker` lets jobs that wait for others ask
again what became of these.
"""

import logging
import random

import anyio

from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from inconcert.errors import InconcertError
from inconcert.tasks.records.dependents import Relay
from inconcert.tasks.records.store import ASK_AGAIN, SWEEP_GROUPS, SWEEP_NAMES, JobKeyspace

_log = logging.getLogger("inconcert.tasks")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 200.0, 300.0  # seconds; what stays too long only takes memory
_MOST = 500  # names, or groups, that a script checks

_LONGEST_WAIT = 30.0  # seconds, as in tasks/ask_again


class Sweeper:
    """Sweeps when it begins, and every few minutes. Any number of sweepers may work at once, without a lock."""

    def __init__(self, session: Session, keyspace: JobKeyspace) -> None:
        self._session = session
        self._keyspace = keyspace

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            try:
                await self.sweep()
            except InconcertError as error:
                _log.warning("unique names that are free, and groups that ended, cannot be dropped yet: %s", error)
            await anyio.sleep(random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE))

    async def sweep(self) -> None:
        """Drop all names and groups that are due."""
        for keys in self._keyspace.partitions:
            for sweep in SWEEP_NAMES, SWEEP_GROUPS:
                while await self._session.run(sweep(keys)) == _MOST:
                    pass


class Asker:
    """Lets jobs that wait ask again for parents in other partitions, because a master may have gone back in time.

    The server says when to ask next, so any number of askers cause as much work as one.
    """

    def __init__(self, session: Session, keyspace: JobKeyspace, relay: Relay) -> None:
        self._session = session
        self._keyspace = keyspace
        self._relay = relay

    async def run(self) -> None:
        """Ask until cancelled; not at all where there is one partition."""
        if len(self._keyspace.partitions) == 1:
            return
        while True:
            pause = await self.ask()
            await anyio.sleep(pause * random.uniform(1.0, 1.2))

    async def ask(self) -> float:
        """Let some jobs of each partition ask; returns after how many seconds others may."""
        calls = [Call(ASK_AGAIN(keys, suffix=keys.suffix)) for keys in self._keyspace.partitions]
        for call in calls:
            self._session.channel.submit(call)
        wait = _LONGEST_WAIT
        for keys, call in zip(self._keyspace.partitions, calls, strict=True):
            try:
                wait_ms, has_news = await call
            except InconcertError as error:
                _log.warning("jobs of partition %d that wait cannot ask for their parents yet: %s", keys.number, error)
                continue
            wait = min(wait, wait_ms / 1000)
            if has_news:
                self._relay.found(keys)
        return wait
