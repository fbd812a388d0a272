"""The store of a claimed job's steps: on the server, under its claim."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from inconcert._core.observer import StepOutcome
from inconcert._redis.protocol.scripts import Command
from inconcert.errors import NotClaimed, NotConnected
from inconcert.tasks.durable.doom import Doom
from inconcert.tasks.durable.kept_step import STEP, StepStore
from inconcert.tasks.durable.step_records import read_steps
from inconcert.tasks.following.messages import FOUND, MESSAGE, packed_name
from inconcert.tasks.records.store import COMMIT_STEP, RECEIVE, SAVE_CURSOR

if TYPE_CHECKING:  # it makes one of these
    from inconcert.tasks.running.job_state import JobState


class JobStepStore(StepStore):
    """That of one job.

    Args:
        job: The job. A step of it is kept only while this holds it.
    """

    __slots__ = ("_job", "_link")

    def __init__(self, job: "JobState") -> None:
        self._job = job
        self._link = job.link

    @property
    def id(self) -> str:
        """The id of the job."""
        return self._job.id

    @property
    def body_task(self) -> "asyncio.Task[Any] | None":
        """The task of its body; None if none runs."""
        return self._job.body_task

    @property
    def doomed(self) -> Doom | None:
        """Why the attempt cannot end well; None if it may."""
        return self._job.doomed

    async def read_steps(self) -> tuple[int, list[tuple[int, bytes]]]:
        """The server's time, in ms; and those that were kept, with their numbers, in order."""
        if self._job.is_over:
            raise NotClaimed("job", self._job.id)
        kept = await read_steps(self._link.session, self._link.keys, self._job.id)
        return kept.now_ms, kept.texts

    async def commit_step(self, number: int, text: bytes) -> None:
        """Keep one under this number."""
        command = self._job.on_its_claim(COMMIT_STEP, number=number, step=self._signed(number, text))
        await self._keep(f"step {number} of {self._job}", command)

    async def save_cursor(self, number: int, count: int, text: bytes) -> None:
        """Keep how far a loop is, in the place of what was kept under this number with a lower count."""
        await self._keep(*self._cursor(number, count, text))

    def save_cursor_nowait(self, number: int, count: int, text: bytes) -> None:
        """The same, begun and not waited for."""
        with suppress(NotConnected):  # closing has requeued the job
            self._link.effects.keep_nowait(*self._cursor(number, count, text))

    async def receive(self, name: str, *, is_over: bool) -> bytes | None:
        """The message of this name; None if it is not there; empty if it is not accepted any more."""
        packed, session = packed_name(name), self._link.session
        command = self._job.on_its_claim(RECEIVE, name=packed, is_over=int(is_over))
        answer, text = (0, b"") if self._job.is_over else await session.run(command)
        if not answer:
            raise NotClaimed("job", self._job.id)
        verified = text and session.key_ring.verify(MESSAGE, f"{packed} {self._job.id}", text)
        return verified if answer == FOUND else None

    async def note_undo(self) -> None:
        """Note that the job has something to undo."""
        self._job.has_undo = True  # also if the answer is lost
        if self._job.is_over or not await self._job.ends_undone():
            raise NotClaimed("job", self._job.id)

    def note_final(self, error: Exception) -> None:
        """If this error ends the attempt, dead-letter the job: another attempt would end with it, too."""
        self._job.final = error

    def doom(self, error: Exception) -> None:
        """Dead-letter the job with this error when the attempt ends, however it ends."""
        self._job.doom(error)

    def step_started(self, name: str, function: str) -> None:
        """Tell observers that a step begins which was not kept."""
        if self._job.observers:
            self._job.observers.step_started(self._job, name, function)

    def step_left(self, name: str, error: BaseException | None) -> None:
        """Tell observers that it has ended, with this error."""
        if self._job.observers:
            self._job.observers.step_left(self._job, name, error)

    def step_ended(self, outcome: StepOutcome) -> None:
        """Tell observers what became of a step."""
        if self._job.observers:
            self._job.observers.step_ended(self._job, outcome)

    def step_suspends(self, name: str, seconds: float) -> None:
        """Tell observers that the body leaves at this step, for so many seconds at most."""
        if self._job.observers:
            self._job.observers.step_suspends(self._job, name, seconds)

    # Private.

    async def _keep(self, what: str, command: Command) -> None:
        if self._job.is_over or not await self._link.effects.keep(what, command):
            raise NotClaimed("job", self._job.id)

    def _cursor(self, number: int, count: int, text: bytes) -> tuple[str, Command]:
        """The command that keeps the position of a loop, and its name in the log."""
        step = self._signed(number, text)
        return f"a position of {self._job}", self._job.on_its_claim(SAVE_CURSOR, number=number, count=count, step=step)

    def _signed(self, number: int, text: bytes) -> bytes:
        return self._link.session.key_ring.sign(STEP, f"{number} {self._job.id}", text)
