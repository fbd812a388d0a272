"""Dead letters: jobs and items that failed for good; why, and listing, replaying and dropping them.

Redis keeps a dead letter until an operator replays or drops it.
"""

import traceback as tracebacks
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import msgspec

from inconcert._claims.keys import DEAD, ClaimKeys, QueueKeys
from inconcert._core.session import SessionRef
from inconcert._redis.protocol.replies import rows
from inconcert._redis.protocol.scripts import Command
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.limits import whole
from inconcert._rules.payloads import encode

_LONGEST_REASON = 1_000  # characters
_LONGEST_TRACEBACK = 10_000  # characters, the last of it
_MOST_SHOWN = 1000  # in one call


class Reason(msgspec.Struct, frozen=True):
    """Why something was dead-lettered: text for people to read, never code.

    Attributes:
        reason: The type and the message of the last error; its notes are in the traceback.
        traceback: Where it was raised; empty if nothing was raised.
        attempts: How many attempts there were.
    """

    reason: str
    traceback: str = ""
    attempts: int = 0

    @classmethod
    def of(cls, error: BaseException | None, attempts: int) -> Self:
        """The reason for this error; None means that it was nacked."""
        try:
            lines = "" if error is None else "".join(tracebacks.format_exception(error))
        except Exception:  # noqa: BLE001 - such as of a group that is nested too deep
            lines = ""
        return cls(in_short(error), _clean(lines[-_LONGEST_TRACEBACK:]), attempts)

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Read a stored reason, with or without the name of the queue after it."""
        try:
            return msgspec.json.decode(text.partition(b"\n")[0], type=cls)
        except msgspec.MsgspecError:
            return cls("the reason cannot be read")

    def stored(self) -> bytes:
        """The stored form: JSON, in one line."""
        return encode("the reason", {"reason": self.reason, "traceback": self.traceback, "attempts": self.attempts})


class DeadLetter(NamedTuple):
    """A dead-lettered job or item."""

    id: str  # which one
    body: bytes  # its stored body, after the time at which it was put in
    queue: str  # the name of its queue; empty if there is only one
    reason: Reason  # why it was dead-lettered
    died_at: float  # when, in seconds since 1970 by the server's clock


class Replayed(NamedTuple):
    """A dead letter that is to be replayed."""

    id: str  # which one
    envelope: bytes = b""  # a new body; empty to keep its own
    unique: str = ""  # the unique name that it takes again unless another has it now; empty for none


class _Row(NamedTuple):
    """One dead letter, as the script returns it."""

    id: bytes
    died_ms: bytes
    reason: bytes
    body: bytes

    def read(self) -> DeadLetter:
        queue = self.reason.partition(b"\n")[2].decode()
        return DeadLetter(self.id.decode(), self.body, queue, Reason.read(self.reason), float(self.died_ms) / 1000)


class DeadLetters:
    """The dead letters under one tag."""

    def __init__(self, ref: SessionRef, keys: ClaimKeys) -> None:
        self._ref = ref
        self._keys = keys

    async def latest(self, *, limit: int) -> list[DeadLetter]:
        """The dead letters, latest first.

        Raises:
            ValueError: `limit` is not from 1 to 1,000.

        Cost: 1 round trip for each MiB, so that none holds up other replies.
        """
        whole("limit", limit, most=_MOST_SHOWN)
        found: dict[bytes, _Row] = {}  # by id: new dead letters between two pages shift the positions
        passed_over, has_more = 0, True
        while has_more and len(found) < limit:
            has_more, portion = await self._read("", passed_over, limit - len(found))
            passed_over += len(portion)
            found |= {row.id: row for row in portion}
        return [row.read() for row in found.values()]

    async def find(self, dead_id: str) -> DeadLetter | None:
        """The one with this id; None if it is not in the dead-letter list."""
        _, found = await self._read(dead_id, 0, 1)
        return found[0].read() if found else None

    async def replay(self, letters: Iterable[Replayed], queue: QueueKeys) -> int:
        """Put at most 250 at the back of this queue, as if they were new; returns how many were dead."""
        session = self._ref.session
        parts = [part for letter in letters for part in letter]
        request = session.new_address()
        command = self._keys.scripts.replay(self._keys, queue, queue_name=queue.name, request=request, jobs=parts)
        replayed: int = await session.run(command)
        return replayed

    async def purge(self, ids: Iterable[str], *, older_than: float = 0.0, keep: int = 0) -> int:
        """Drop these, and return how many were dropped.

        Args:
            ids: At most 250.
            older_than: Only those that were dead-lettered longer ago than this, in seconds.
            keep: How many of the latest stay, whichever they are; 0 for none.

        Cost: 1 round trip, and 1 more for each 2,000 of their steps and messages.
        """
        ids = list(ids)
        return await self._purge(ids, age_ms=milliseconds(older_than), keep=keep) if ids else 0

    async def purge_all(self, *, older_than: Seconds, keep: int) -> int:
        """Drop the oldest, and return how many were dropped.

        Args:
            older_than: Only those that were dead-lettered longer ago than this, in seconds.
            keep: How many of the latest stay whatever their age; 0 for none.

        Raises:
            ValueError: A number is out of its range.

        Cost: 1 round trip for 500, and 1 more for each 2,000 of their steps and messages.
        """
        age_ms = milliseconds(durations.in_seconds("older_than", older_than))
        whole("keep", keep, least=0)
        return await self._purge((), age_ms=age_ms, keep=keep)

    # Private.

    async def _read(self, dead_id: str, passed_over: int, limit: int) -> tuple[bool, list[_Row]]:
        has_more, *flat = await self._ref.session.run(DEAD(self._keys, id=dead_id, skip=passed_over, limit=limit))
        return bool(has_more), rows(flat, _Row)

    async def _purge(self, ids: Sequence[str], *, age_ms: int, keep: int) -> int:
        session = self._ref.session
        total, has_more = 0, 1
        while has_more:
            request = session.new_address()
            command = self._keys.scripts.purge(self._keys, age_ms=age_ms, keep=keep, request=request, ids=ids)
            dropped, has_more = await self._purge_portion(command)
            total += dropped
        return total

    async def _purge_portion(self, command: Command) -> tuple[int, int]:
        """The number of those that this command drops, and 1 if there are more."""
        dropped, has_more = await self._ref.session.run(command)
        return dropped, has_more


def in_short(error: BaseException | None) -> str:
    """The type and the message of an error; None means that it was nacked."""
    if error is None:
        return "nacked"
    try:
        line = _line(error)
    except Exception:  # noqa: BLE001 - such as of a group that is nested too deep
        line = f"{type(error).__name__}, whose text cannot be shown"
    return _clean(line[:_LONGEST_REASON])


def _line(error: BaseException) -> str:
    """Its type and its message, without its notes: these are in the traceback."""
    # Not str(error): a user's own __str__ may fail.
    shown = tracebacks.TracebackException(type(error), error, None)
    shown.__notes__ = None
    return list(shown.format_exception_only())[-1].strip()


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()
