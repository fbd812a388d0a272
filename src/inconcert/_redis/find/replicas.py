"""Waiting until replicas have what was written.

`WAIT` answers when the writes of its own connection have been acknowledged, and holds up what comes behind it.  So this
is a connection of its own, on which each grant is first renewed: that is a write, and it shows that this server has the
grant.  All grants of one moment share one `WAIT`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inconcert._redis.wire.background import in_background
from inconcert._redis.wire.call import Call, PlainCall
from inconcert._redis.wire.channel import Channel
from inconcert._redis.wire.wire import Pool
from inconcert._rules.durations import milliseconds
from inconcert._rules.urls import Node
from inconcert.errors import InconcertError, NotConnected

Writes = Callable[[], Sequence[Call]]


class _Asked(NamedTuple):
    writes: Writes
    answer: "asyncio.Future[int]"


class Replicas:
    """The connection for `WAIT`, opened when it is first needed."""

    def __init__(self, pool: Pool, count: int, *, timeout: float) -> None:
        # how long the replicas have, in seconds
        self.patience = timeout / 4  # less than the time after which a silent connection is replaced
        self._count = count  # how many replicas must acknowledge
        self._channel = Channel(pool, timeout=timeout, reconnected=lambda _: None)
        self._is_open = False
        self._asked: list[_Asked] = []
        self._runner: asyncio.Task[None] | None = None

    async def acknowledged(self, writes: Writes) -> int:
        """Send the calls that this makes, and return how many replicas have them; as soon as there are enough.

        It is called again if the connection is lost, because `WAIT` then says nothing.

        Raises:
            InconcertError: A write failed.
        """
        asked = _Asked(writes, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._runner is None or self._runner.done():
            self._runner = in_background("waiting for replicas", self._run)
        return await asked.answer

    def server_moved(self, to: Node | None) -> None:
        """Connect to this server at once, unless connected to it; to none if it is None."""
        self._channel.server_moved(to)

    async def close(self) -> None:
        """Send all callers away, and release the connection."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.wait([self._runner])
        _settle(self._asked, NotConnected("the coordinator was closed while replicas were waited for; open it again"))
        if self._is_open:
            await self._channel.close()

    async def _run(self) -> None:
        while self._asked:
            asked = [*self._asked]
            try:
                if not self._is_open:
                    await self._channel.open()
                    self._is_open = True
                while (count := await self._round(asked)) is None:
                    pass
            except InconcertError as error:
                _settle(asked, error)
            else:
                _settle(asked, count)
            del self._asked[: len(asked)]

    async def _round(self, asked: list[_Asked]) -> int | None:
        """One `WAIT` for all; None if the connection was lost meanwhile."""
        for one in asked:
            try:
                calls: Sequence[Call] = () if one.answer.done() else one.writes()
                for call in calls:
                    self._channel.submit(call)
                for call in calls:
                    await call
            except InconcertError as error:
                _settle([one], error)
        wait = PlainCall("WAIT", self._count, milliseconds(self.patience))
        self._channel.submit(wait)
        count = int(await wait)
        return count if wait.sends == 1 else None


def _settle(asked: list[_Asked], outcome: int | InconcertError) -> None:
    for one in asked:
        if one.answer.done():
            continue
        if isinstance(outcome, int):
            one.answer.set_result(outcome)
        else:
            one.answer.set_exception(outcome)
