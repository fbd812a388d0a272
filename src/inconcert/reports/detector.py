"""Looks for deadlocks when somebody has waited for long, and logs them.

Nothing is asked before a caller of this process has waited for 10 s.  Then one process of the namespace asks all, and
logs its findings; its own report says of which it has told, so that no other tells of them again.
"""

import asyncio
import logging

from inconcert._core.session import Session
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.wire.background import in_background
from inconcert.errors import InconcertError
from inconcert.reports.reporter import Reporter

_log = logging.getLogger("inconcert.reports")

_TIMEOUT = 1.5  # seconds for the answers; twice that is less than _QUIET
_QUIET = 5.0  # seconds in which one process asks; what closed a circle has waited longer when it is asked about


class Detector:
    """Detects deadlocks, while its coordinator is open; the reporter notes those that were logged."""

    def __init__(self, session: Session, keys: Keyspace, reporter: Reporter) -> None:
        self._session = session
        self._keys = keys
        self._reporter = reporter
        self._looking: asyncio.Task[None] | None = None
        session.lines.on_long_wait = self._look

    async def close(self) -> None:
        """End; a look that is under way is left."""
        self._session.lines.on_long_wait = None
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await self._reporter.close()

    # Private.

    def _look(self) -> None:
        """Somebody has waited for long."""
        if self._looking is None or self._looking.done():
            self._looking = in_background("looking for deadlocks", self._find, again=False)

    async def _find(self) -> None:
        from inconcert.reports.inspect import inspect  # noqa: PLC0415 - few processes ever look

        try:
            seen = await inspect(self._session, self._keys, timeout=_TIMEOUT, quiet=_QUIET)
        except InconcertError as error:  # this user may not ask, or the server is away
            _log.debug("deadlocks cannot be looked for: %s", error)
            return
        if seen is None:  # another process does
            return
        told = {each for process in seen.processes for each in process.told}
        for deadlock in seen.deadlocks:
            if deadlock.id not in told:
                _log.error("tasks wait for each other: %s", deadlock, extra={"deadlock": deadlock.id})
        self._reporter.told = tuple(deadlock.id for deadlock in seen.deadlocks)
