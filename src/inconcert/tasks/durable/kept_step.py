"""The record of a durable step: one JSON text, signed as the job is. A step is known by its name."""

import asyncio
from typing import Any, NamedTuple, Protocol

import msgspec

from inconcert._core.observer import StepOutcome
from inconcert._rules.conversion import Converter
from inconcert.errors import InvalidPayload, StepChanged, UnreadablePayload
from inconcert.tasks.durable.doom import Doom

STEP = "step"  # the kind as which a step is signed
UNDO_BLOCK = "durable.undo"  # the function of entering and of leaving a block, as it is kept
UNDOES = "undoes "  # before the hash of the arguments of a step that undoes something
IN_PART = "in "  # before both, of a step in another step or in a loop's item, which a later run passes over with these


class StepCall(NamedTuple):
    """The call of a step."""

    function: str  # the qualified name of its function; kept with the result, and compared by later attempts
    # a hash of its arguments; compared. Before it stand `IN_PART`, if the step is in another step or in an item
    # of a loop, which is not compared; and then `UNDOES`, if it undoes something
    arguments: str
    converter: Converter  # converts its result to JSON and back


class KeptStep(msgspec.Struct, frozen=True, array_like=True):
    """A step as it is stored."""

    name: str
    function: str  # the qualified name of its function
    arguments: str  # a hash of its arguments
    value: msgspec.Raw  # its result

    def result(self, job_id: str, call: StepCall, *, may_change: bool) -> object:
        """Its result, as this call returns it.

        Raises:
            StepChanged: It is of another function or for other arguments, unless it may change; or has another type.
        """
        if self.function != call.function and not may_change:
            raise StepChanged(job_id, self.name, f"ran {self.function}()", f"runs {call.function}()")
        before, now = self.arguments.removeprefix(IN_PART), call.arguments.removeprefix(IN_PART)
        if before != now and not may_change:
            was, is_now = f"ran {self.function}() with arguments", "runs it with others"
            raise StepChanged(job_id, self.name, f"{was} {before}", f"{is_now}, {now} (hashes)")
        try:
            value: object = call.converter.read(bytes(self.value))
        except InvalidPayload as error:
            raise StepChanged(job_id, self.name, "had a result of another type", str(error)) from None
        return value


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The position of a loop."""

    done: int = 0  # how many items are done, in all attempts; one more at the end, and each time that `left` rises
    key: str = ""  # the key of the last of them, as JSON; empty before the first
    is_at_end: bool = False  # whether none is left
    left: int = 0  # how often an attempt has left it before its end, and gone on behind it; the most of all attempts


class StepStore(Protocol):
    """The store of a job's steps."""

    @property
    def id(self) -> str:
        """The id of the job."""
        ...

    @property
    def body_task(self) -> "asyncio.Task[Any] | None":
        """The task of its body; None if none runs."""
        ...

    async def read_steps(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The server's time, in ms; and those that were kept, with their numbers, in order."""
        ...

    async def commit_step(self, number: int, text: bytes) -> None:
        """Keep one under this number; raises NotClaimed if the job is no longer claimed here."""

    async def save_cursor(self, number: int, count: int, text: bytes) -> None:
        """Keep how far a loop is, in the place of what was kept under this number with a lower count."""

    def save_cursor_nowait(self, number: int, count: int, text: bytes) -> None:
        """The same, begun and not waited for."""

    async def receive(self, name: str, *, is_over: bool) -> bytes | None:
        """The message of this name; None if it is not there; empty if it is not accepted any more.

        Args:
            name: Which message.
            is_over: Whether it has been waited for long enough: if it is not there, none is accepted from now on.
        """
        ...

    async def note_undo(self) -> None:
        """Note that the job has something to undo; raises NotClaimed if it is no longer claimed here."""

    def step_started(self, name: str, function: str) -> None:
        """Tell observers that a step begins which was not kept."""

    def step_left(self, name: str, error: BaseException | None) -> None:
        """Tell observers that it has ended, with this error."""

    def step_ended(self, outcome: StepOutcome) -> None:
        """Tell observers what became of a step."""

    def step_suspends(self, name: str, seconds: float) -> None:
        """Tell observers that the body leaves at this step, for so many seconds at most."""

    def note_final(self, error: Exception) -> None:
        """If this error ends the attempt, the job is dead-lettered: another attempt would end with it, too."""

    def doom(self, error: Exception) -> None:
        """Dead-letter the job with this error when the attempt ends, however it ends."""

    @property
    def doomed(self) -> Doom | None:
        """Why the attempt cannot end well; None if it may."""
        ...


def to_keep(name: str, call: StepCall, value: bytes) -> bytes:
    """The record of a step whose result has this JSON."""
    return msgspec.json.encode(KeptStep(name, call.function, call.arguments, msgspec.Raw(value)))


def read_step(job_id: str, text: bytes) -> KeptStep:
    """A step as it is stored; raises `UnreadablePayload` if it cannot be read."""
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        raise UnreadablePayload(f"a step of job {job_id} cannot be read: {error}") from error


_decode = msgspec.json.Decoder(KeptStep).decode
