"""Cancelling a coroutine at one of its awaits, chosen by number.

    for moment in MOMENTS:
        number = 1
        while await cancel_at(number, moment, use_the_lock()):
            ...                                    # nothing may be left behind
            number += 1

The cancellation reaches what is awaited as it would in a service: by `Task.cancel()`, once, or by an anyio scope, which
goes on cancelling until it is left.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Literal, get_args

import anyio

__all__ = ["MOMENTS", "Means", "Moment", "cancel_at"]

Moment = Literal["as the wait begins", "two turns into the wait", "as the wait ends"]
Means = Literal["task", "scope"]

MOMENTS: tuple[Moment, ...] = get_args(Moment)


async def cancel_at(
    number: int, moment: Moment, coroutine: Coroutine[Any, Any, object], *, means: Means = "task"
) -> bool:
    """Run a coroutine in a task of its own, and cancel it when it waits for the `number`-th time, counted from 1.

    Returns:
        Whether it came that far. It may have ended by itself all the same, if the wait was its last.

    Raises:
        AssertionError: It came that far, waited on, and swallowed the cancellation.
        Exception: What it raised, if it was no cancellation.
    """
    scope = anyio.CancelScope()
    steps = _Steps(coroutine, number, moment, scope if means == "scope" else None)

    async def run() -> None:
        with scope:
            await steps

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    if not task.cancelled() and not scope.cancelled_caught:
        task.result()
        assert not steps.was_cancelled_in_vain, f"the cancellation at await {number} ({moment}) was swallowed"
    return steps.waits >= number


class _Steps:
    """An awaitable that runs a coroutine step by step."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, object], number: int, moment: Moment, scope: anyio.CancelScope | None
    ) -> None:
        self.waits = 0
        self.was_cancelled_in_vain = False
        self._has_cancelled = False
        self._steps = coroutine.__await__()
        self._number = number
        self._moment = moment
        self._scope = scope

    def __await__(self) -> Generator[Any, Any, None]:
        step: Callable[[], Any] = partial(next, self._steps)
        while True:
            try:
                awaited = step()
            except StopIteration:
                return
            self.waits += 1
            if self.waits == self._number:
                self._cancel_while(awaited)
            try:
                answer = yield awaited
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's to handle
                # A deadline within the coroutine may cancel it, too, and go on.
                self.was_cancelled_in_vain = self._has_cancelled and isinstance(error, asyncio.CancelledError)
                step = partial(self._steps.throw, error)
            else:
                step = partial(self._steps.send, answer)

    def _cancel_while(self, awaited: "asyncio.Future[Any] | None") -> None:
        task = asyncio.current_task()
        assert task is not None
        means: Callable[[], object] = task.cancel if self._scope is None else self._scope.cancel

        def cancel() -> None:
            self._has_cancelled = True
            means()

        if awaited is None or self._moment == "as the wait begins":
            cancel()
        elif self._moment == "as the wait ends":
            awaited.add_done_callback(lambda _: cancel())  # called before the one that resumes the task
        else:
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, cancel)
