"""Answers for one process about its leases and waits. Nothing is done before it is asked."""

import asyncio
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import anyio.to_thread

from inconcert._core.session import Session
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.background import in_background
from inconcert._redis.wire.call import Call
from inconcert._rules.printable import encode_anyhow
from inconcert.errors import NotConnected

if TYPE_CHECKING:  # see `_own_report`
    from inconcert.reports.own_report import OwnReport
    from inconcert.reports.report import ProcessReport

Redact: TypeAlias = Callable[[str, str], str]

_ADDRESS = re.compile(r"([0-9a-f]{16})\.[0-9a-f]+")


class ReportKeys(NamedTuple):
    """The keys of the reports of a namespace."""

    asked: str  # string: who has asked last; every process listens to what scripts on it publish


_ANSWER = load("reports/answer").bind(ReportKeys)


def report_keys(keys: Keyspace) -> ReportKeys:
    """The keys of the reports of this namespace."""
    return ReportKeys(*keys.shared("namespace", *ReportKeys._fields))


class Reporter:
    """One process's answers, while its coordinator is open."""

    def __init__(self, session: Session, keys: Keyspace, label: str | None, redact: Redact | None) -> None:
        self._session = session
        self._keys = report_keys(keys)
        self._label = label
        self._redact = redact
        self.told: tuple[str, ...] = ()  # the ids of the deadlocks that this process has logged, while they last
        self._answering: set[asyncio.Task[None]] = set()
        self._opened_at = time.time()
        self._own: OwnReport | None = None  # made for the first question
        session.inbox.on_unclaimed("ask", self._asked)

    async def listen(self) -> None:
        """Return when questions come in, or when that takes too long: on a cluster it takes a subscription."""
        await self._session.inbox.listen(self._keys.asked)

    async def close(self) -> None:
        """Answer no more."""
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    async def report(self, entries: int) -> "ProcessReport":
        """The first leases and waits of this process, so many of each, read in as many turns as it takes."""
        if self._own is None:
            self._own = (await _own_report())(self._session, self._label, self._redact, self._opened_at)
        return await self._own.look(entries, self.told)

    # Private.

    def _asked(self, to: str, rest: str) -> None:
        """A process asks all others: `reports ask ADDRESS ENTRIES`."""
        del to  # `reports`
        if self._session.channel.is_closed:
            return
        address, _, entries = rest.partition(" ")
        asker = _ADDRESS.fullmatch(address)
        if asker is None:
            raise ValueError(f"{address!r} is not an address")
        answer = partial(self._answer, asker[1], address, min(1000, int(entries)))
        task = in_background("answering what is held here", answer, again=False)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, asker: str, address: str, entries: int) -> None:
        report = encode_anyhow(await self.report(entries))
        inbox = self._session.inboxes(self._keys.asked) + asker
        with suppress(NotConnected):
            self._session.channel.submit(Call(_ANSWER(self._keys, inbox=inbox, address=address, report=report)))


async def _own_report() -> "type[OwnReport]":
    """The class that looks, imported in a thread: that takes longer than a turn of the event loop may."""
    if "inconcert.reports.own_report" not in sys.modules:
        await anyio.to_thread.run_sync(import_module, "inconcert.reports.own_report")
    from inconcert.reports.own_report import OwnReport  # noqa: PLC0415 - it is there by now

    return OwnReport
