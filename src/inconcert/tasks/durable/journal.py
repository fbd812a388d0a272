"""The journal of a job, in one attempt: its steps as they are kept, which are read once, and those that are added.

It numbers them, and refuses what would make it too long; `steps.py` decides what runs.
"""

import asyncio
import time

import anyio
import msgspec

from inconcert._rules.payloads import encode
from inconcert.errors import InvalidPayload, StepChanged, StepRefused
from inconcert.tasks.durable.cursor import Cursor
from inconcert.tasks.durable.kept_step import (
    IN_PART,
    UNDO_BLOCK,
    UNDOES,
    KeptStep,
    StepCall,
    StepStore,
    read_step,
    to_keep,
)

_MOST = 1_000  # steps of a job: all are read when it goes on
_MOST_BYTES = 16 * 2**20  # of the steps of a job, likewise
_FIXED_BYTES = 1_000  # what dropping a step takes beside its text, when ends are put into batches


class Journal:
    """The kept steps of a job.

    Args:
        store: Where they are kept.
        is_undoing: Whether the job is being undone: there is as much room again for the steps that undo.
    """

    __slots__ = (
        "_ahead",
        "_bytes",
        "_is_undoing",
        "_last",
        "_most",
        "_most_bytes",
        "_numbers",
        "_reading",
        "_store",
        "kept",
        "some_were_kept",
    )

    def __init__(self, store: StepStore, *, is_undoing: bool) -> None:
        self.kept: dict[str, KeptStep] | None = None  # by their names; None until they are read
        self.some_were_kept = False  # whether there were any when they were read first
        self._store = store
        self._is_undoing = is_undoing
        self._most = 2 * _MOST if is_undoing else _MOST
        self._most_bytes = 2 * _MOST_BYTES if is_undoing else _MOST_BYTES
        self._reading = anyio.Lock()
        self._numbers: dict[str, int] = {}  # of those that are kept
        self._last = 0
        self._bytes = 0
        self._ahead = 0.0  # of the server's clock before the monotonic one, in seconds

    @property
    def bulk(self) -> int:
        """Roughly how many bytes the server drops when the job ends."""
        return self._bytes + self._last * _FIXED_BYTES

    @property
    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.monotonic() + self._ahead

    async def read(self) -> dict[str, KeptStep]:
        """Read what was kept, if that was not done yet."""
        async with self._reading:
            if self.kept is None:
                kept: dict[str, KeptStep] = {}
                size = 0
                try:
                    now_ms, found = await self._store.read_steps()
                    self._ahead = now_ms / 1000 - time.monotonic()
                    if not self._last:  # otherwise it is read again, and has what this attempt has kept
                        self.some_were_kept = bool(found)
                    for number, text in found:
                        step = read_step(self._store.id, text)
                        self._numbers[step.name] = number
                        kept[step.name] = step  # a later one of the same name: the first was sent, and not answered
                        self._last = max(self._last, number)
                        size += len(text)
                except InvalidPayload as error:
                    self._store.doom(error)
                    raise
                self.kept, self._bytes = kept, max(self._bytes, size)
            return self.kept

    def number_of(self, name: str) -> int:
        """The number of this step; 0 if it is not kept."""
        return self._numbers.get(name, 0)

    def is_passed_over(self, name: str) -> bool:
        """True if it is in another step, or in an item of a loop: neither begins again in a job that is undone.

        A block of `durable.undo()` that was entered there, and not left, is missed all the same: it is not undone.
        """
        kept = self.kept or {}
        is_entered = (kept[name].function, kept[name].arguments) == (UNDO_BLOCK, IN_PART)
        return kept[name].arguments.startswith(IN_PART) and (not is_entered or f"{name} left" in kept)

    def undoes(self, name: str) -> bool:
        """True if this step undoes something."""
        return self.kept is not None and self.kept[name].arguments.startswith(UNDOES)

    def result(self, kept: KeptStep, call: StepCall, *, may_change: bool) -> object:
        """The result of a step, as this call returns it; see `KeptStep.result`."""
        try:
            return kept.result(self._store.id, call, may_change=may_change)
        except StepChanged as changed:
            self._store.doom(changed)
            raise

    def check_room(self, name: str) -> None:
        """Raise StepRefused if there are too many steps for another one."""
        if self._last >= self._most:
            raise self.refused(name, f"the job has {self._most} steps already; do more in each, or enqueue other jobs")

    async def add(self, name: str, call: StepCall, value: object) -> object:
        """Keep the result of a step that has run, and return it as later attempts read it.

        Raises:
            InvalidPayload: It is not JSON, or too large.
            StepRefused: The job has too many steps, or too large ones.
        """
        what = f"the result of step {name!r} of job {self._store.id}"
        try:
            text = encode(what, call.converter.to_json(value))
            result: object = call.converter.read(text)
        except InvalidPayload as error:  # it has done its work: another attempt would repeat it
            refused = error if str(error).startswith(what) else InvalidPayload(f"{what}: {error}")
            self._store.doom(refused)
            raise refused from error.__cause__
        stored = to_keep(name, call, text)
        if self._last >= self._most or self._bytes + len(stored) > self._most_bytes:  # others may have ended meanwhile
            raise self.refused(
                name,
                f"the job would have more than {self._most} steps, or more than {self._most_bytes} bytes of them; keep "
                "large results in a store, and return their address",
            )
        self._last += 1  # also if this one fails: it may still arrive
        self._bytes += len(stored)
        try:
            await self._store.commit_step(self._last, stored)
        except asyncio.CancelledError:
            if not self._is_undoing:
                self.kept = None  # it is sent nevertheless: all is read again if the body goes on
            raise
        if self.kept is not None:
            self.kept[name] = KeptStep(name, call.function, call.arguments, msgspec.Raw(text))
        return result

    def has_room(self, cursor: Cursor) -> bool:
        """True if the position of this loop can be kept."""
        is_kept, size = cursor.number > 0, self._bytes + len(cursor.position.key)
        return is_kept or (self._last < self._most and size <= self._most_bytes)

    async def save_cursor(self, cursor: Cursor) -> None:
        """Keep how far a loop is; raises `StepRefused` if the job has too many steps, or too large ones."""
        if not self.has_room(cursor):
            raise self.refused(cursor.name, f"the job has {self._most} steps already, or too large ones")
        await self._store.save_cursor(*self._to_save(cursor))

    def save_cursor_nowait(self, cursor: Cursor) -> None:
        """The same, for which there is room, begun and not waited for."""
        self._store.save_cursor_nowait(*self._to_save(cursor))

    def refused(self, name: str, why: str) -> StepRefused:
        """An error with which the job is dead-lettered, whatever the body makes of it."""
        error = StepRefused(self._store.id, name, why)
        self._store.doom(error)
        return error

    # Private.

    def _to_save(self, cursor: Cursor) -> tuple[int, int, bytes]:
        """Its number, its count and its text, which are sent now."""
        text = to_keep(cursor.name, cursor.call, msgspec.json.encode(cursor.position))
        if not cursor.number:
            self._last += 1
            self._bytes += len(text)
            cursor.number = self._last
        cursor.saved_at, cursor.is_saved = time.monotonic(), True
        return cursor.number, cursor.position.done, text
