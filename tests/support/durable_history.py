"""What the bodies of jobs see of their steps while workers die: written down for the checkers of `histories.py`."""

import itertools
from collections.abc import Awaitable, Callable, Hashable

from inconcert import durable
from inconcert.testing import Process, World
from tests.support.histories import (
    Begun,
    StepResult,
    StepRun,
    Violation,
    differing_results,
    late_commits,
    repeated_steps,
)

__all__ = ["Body", "DurableHistory"]


class DurableHistory:
    """What all bodies have seen, in a simulated world. What a process does after its death has not happened."""

    def __init__(self) -> None:
        self.begun: list[Begun] = []
        self.runs: list[StepRun] = []
        self.results: list[StepResult] = []
        self._numbers = itertools.count(1)

    def body(self, process: Process, job: Hashable) -> "Body":
        """A run of the body of a job, which begins now."""
        body = Body(self, process, job, next(self._numbers))
        if body.is_alive():
            self.begun.append(Begun(job, body.number, World.now()))
        return body

    def violations(self) -> list[Violation]:
        """All that is wrong in it."""
        return [
            *repeated_steps(self.runs, self.results),
            *late_commits(self.begun, self.results),
            *differing_results(self.results),
        ]


class Body:
    """One run of the body of a job.

    Args:
        history: Where it is written down.
        process: Where it runs.
        job: Which job.
        number: Of no other run.
    """

    def __init__(self, history: DurableHistory, process: Process, job: Hashable, number: int) -> None:
        self.number = number
        self._history = history
        self._process = process
        self._job = job

    def is_alive(self) -> bool:
        """Whether its process was not killed."""
        return World.now() < self._process.died_at

    def ran(self, step: str) -> None:
        """Note that this step runs now."""
        if self.is_alive():
            self._history.runs.append(StepRun(self._job, step, World.now()))

    def got(self, step: str, value: Hashable, ran_at: float | None = None) -> None:
        """Note what the body got of this step."""
        if self.is_alive():
            self._history.results.append(StepResult(self._job, step, self.number, ran_at, World.now(), value))

    async def step(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Take a step that does this; its result is which body ran it."""
        ran_at: float | None = None

        async def run() -> int:
            nonlocal ran_at
            self.ran(name)
            await work()
            ran_at = World.now()
            return self.number

        self.got(name, await durable.step(name, run), ran_at)
