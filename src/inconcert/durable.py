"""Steps of a job that run once: their results are kept, and later attempts go on where one ended.

Call these in the body of a task, or inside `async with job`; they find the job by `current_job()`, and raise
RuntimeError where none runs.

A step is known by its name. If the worker dies after a step was kept, the next attempt gets its result, and goes on
with the next one. A step whose commit was not confirmed runs again: give the outside world `key(name)`, so that it can
recognise a repetition.

Source: docs/explanation/steps.md
"""

import asyncio
import hashlib
import inspect
import random as random_numbers
import time
import uuid as uuids
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast, overload
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
import msgspec

from inconcert._core.cancellation import cancel_all
from inconcert._core.shield import run_shielded
from inconcert._rules import durations
from inconcert._rules.conversion import Converter, json_form
from inconcert._rules.durations import Seconds
from inconcert._rules.functions import check_function
from inconcert._rules.names import check_name
from inconcert.tasks.durable.kept_step import StepCall
from inconcert.tasks.durable.loop import Loop
from inconcert.tasks.durable.retrying import Retrying, StepTries, tries_of
from inconcert.tasks.durable.steps import Steps
from inconcert.tasks.durable.undo import Undo
from inconcert.tasks.records.arguments import annotations
from inconcert.tasks.running.claimed_job import current_job, state_of

__all__ = ["each", "key", "now", "random", "sleep", "step", "undo", "uuid", "wait_for"]

_LONGEST_WAIT = timedelta(days=3650)  # the longest time that can be given
_LONGEST_COMMIT = 10.0  # seconds in which the server is to keep what a step has returned that was stopped

P = ParamSpec("P")
T = TypeVar("T")


class _Function(NamedTuple):
    """The facts about a function that steps call."""

    name: str
    is_async: bool
    converter: Converter


_functions: WeakKeyDictionary[Callable[..., object], _Function] = WeakKeyDictionary()


@overload
async def step(
    name: str, function: Callable[..., Awaitable[T]], /, *args: object, on_change: Literal["keep"], **kwargs: object
) -> T: ...


@overload
async def step(
    name: str, function: Callable[..., T], /, *args: object, on_change: Literal["keep"], **kwargs: object
) -> T: ...


@overload
async def step(
    name: str, function: Callable[..., Awaitable[T]], /, *args: object, retry: Retrying, **kwargs: object
) -> T: ...


@overload
async def step(name: str, function: Callable[..., T], /, *args: object, retry: Retrying, **kwargs: object) -> T: ...


@overload
async def step(
    name: str, function: Callable[..., Awaitable[T]], /, *args: object, timeout: Seconds, **kwargs: object
) -> T: ...


@overload
async def step(name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


@overload
async def step(name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


async def step(name: str, function: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    """Run a function once for this job, and return its result; later attempts get the kept result.

    The result is kept as JSON, as the function's return annotation says; without one it must be a JSON value. Each
    attempt gets it as it is read from that JSON. A plain function runs in a thread. A step that raises keeps nothing,
    and runs again in the next attempt, or before with `retry=`.

    When its code or its arguments have changed since the result was kept, the job is dead-lettered with
    `StepChanged`, which shows the old and the new. Where the body catches that, or another error below by which its job
    is dead-lettered, each later step raises it again.

    Args:
        name: Which step of the job; each has a name of its own, of at most 512 bytes.
        function: What to run; plain or a coroutine function.
        args: Its arguments. Those that JSON can hold are compared with those of the kept result.
        kwargs: Its keyword arguments. `on_change="keep"` is not among them: it takes the kept result whatever function
            and arguments it is of. Neither is `retry=Retrying(3)`: the function is tried that often in this attempt, in
            the worker's memory; nor `timeout=10`: the longest time of each try, in seconds, of a coroutine function.

    Raises:
        RuntimeError: No job runs here, or it is delivered at most once, or it runs on another event loop.
        TypeError: `function` is not a function, such as a coroutine that was called already; or it has a parameter
            `retry` or `timeout` of its own, and that is given here.
        ValueError: `on_change` is something else; `timeout` is not above 0, or is given for a plain function.
        TimeoutError: The last try took longer than `timeout`.
        StepChanged: What was kept is of another function or for other arguments, or does not have the type.
        StepRefused: The name was used before in this attempt, or the job has 1,000 steps or 16 MiB of them; the job is
            dead-lettered.
        InvalidPayload: JSON cannot hold the result, or it is larger than 1 MiB; the job is dead-lettered, because
            another attempt would run the step again.
        NotClaimed: The job has ended, or its worker was presumed dead; nothing was kept.
        Unavailable: The server cannot be asked which steps were kept, so nothing has run.
        OutcomeUnknown: The same. A step that has run is sent until the server answers, or the worker is presumed dead.

    Cost: 1 round trip; at the first step of an attempt 1 more, which reads all that was kept. 0 for a kept one.
    """
    check_function(f"step {name!r}", function, 'durable.step("charge", charge, order)')
    may_change = _may_change(kwargs.pop("on_change", None))
    tries = tries_of(name, function, kwargs, is_async=_known(function).is_async) if kwargs else None
    return await _step(_steps(), name, function, args, kwargs, may_change=may_change, tries=tries)


async def sleep(name: str, seconds: Seconds, *, in_memory_below: Seconds = 60.0) -> None:
    """Sleep for this long, counted from the first call in the job; later attempts sleep for the rest.

    For a long sleep the job leaves its place in the worker: the body is left by an exception, which is not an
    `Exception`, so that its `finally` and `async with` run; the job is delayed, and then the body runs again from its
    start, with the results of its steps. That does not count as an attempt. A lock cannot be held over such a sleep,
    and no deadline of the body, such as `asyncio.timeout()`, can stand around it.

    Args:
        name: Which sleep, as the name of a step.
        seconds: How long, by the server's clock. What was kept counts, whatever is given later.
        in_memory_below: A rest that is shorter is waited for in the body; 0 for always leaving.

    Raises:
        ValueError: A time is negative, not a number, or longer than 10 years.
        WrongState: The job is to leave, and its body holds a lease, such as one on a lock, or is inside of a deadline.
        RuntimeError: As `step`. It also raises every other error of `step`.

    Cost: As `step`; 2 round trips more when the job leaves: 1 to leave, and 1 to read what was kept. 0 while it sleeps.
    """
    duration = durations.in_seconds("seconds", seconds)
    least = durations.in_seconds("in_memory_below", in_memory_below)
    await _steps().sleep(name, duration, in_memory_below=least)


async def wait_for(name: str, as_type: type[T], *, timeout: Seconds | None) -> T:
    """Wait for a message that is sent to this job with `Job.send`; later attempts get the same one.

    If it is not there, the job leaves its place in the worker, as in a long `sleep`: it is delayed until the message
    is sent, and then it is the next in its queue. One that was sent before is found at once.

    A timeout is kept as a message would be: all later attempts time out, also those of a replay, and a message that is
    sent afterwards is not accepted. An attempt that ends with the `TimeoutError` is the last.

    Args:
        name: Which message, and the name of a step.
        as_type: The type to read it as; `object` for the JSON value.
        timeout: Longest wait in seconds, counted from the first call in the job, by the server's clock. None for 10
            years. What was kept counts, whatever is given later. A deadline around this, such as `asyncio.timeout()`,
            would be lost when the job leaves, and is refused.

    Raises:
        TimeoutError: It was not sent in time.
        ValueError: `timeout` is negative, not a number, or longer than 10 years.
        UnreadablePayload: The message does not have this type, or no valid signature; the job is dead-lettered.
        TypeError: JSON cannot represent this type.
        WrongState: As `sleep`.
        RuntimeError: As `step`. It also raises every other error of `step`.

    Cost: As `step`, and 1 round trip more for a message that is there. Otherwise 2 more: 1 to leave, and 1 to read what
        was kept; 0 while it waits.
    """
    seconds = durations.in_seconds("timeout", _LONGEST_WAIT if timeout is None else timeout)
    return await _steps().wait_for(name, as_type, seconds)


def each(name: str, items: Iterable[T] | AsyncIterable[T], *, key: Callable[[T], object]) -> AsyncIterator[T]:
    """Go through many items; a later attempt goes on after the last one that is known to be done.

    Its position is kept each second, and when the worker stops or the attempt fails. So after a crash the items of the
    last second run again, and the one that was under way; write the body so that it may.

    An item is done when the next one is asked for. A later attempt goes through the items again, and passes over all up
    to the one with the key of the last that was done: what was put in, dropped or moved behind it counts as it is then.
    The same holds for a loop that was left before its end and begins again in the same attempt.

    Args:
        name: Which loop, as the name of a step; it takes one, however many items there are.
        items: What to go through, in the same order in each attempt.
        key: The identity of an item, as JSON; no two have the same.

    Raises:
        StepChanged: The item that was done last is not among them any more; the job is dead-lettered.
        InvalidPayload: A key is not JSON, or has more than 1 MiB; the job is dead-lettered.
        RuntimeError: As `step`. It also raises every other error of `step`.

    Cost: 1 round trip a second, and 1 at the end; at the first step of an attempt 1 more.
    """
    return Loop(_steps(), check_name("step", name), items, key)


def undo(name: str = "undo") -> Undo:
    """A block that says what to undo if the job ends without success before the block is left.

    In it call `undo.later("refund", refund, payment)` for each thing that is to be undone, right behind its step.

    When the job is to be dead-lettered or cancelled, also while it waits or sleeps, its body runs once more first: it
    gets its kept steps, begins no others, and where it would, this block is left, and what was registered is run, the
    latest first, each as a step. Code between the steps runs again, as in each attempt. What fails is tried again as
    the task's retries say; then the job is dead-lettered as it is, and a replay goes on undoing.

    Args:
        name: Which block, as the name of a step; leaving it is the step `NAME left`.

    Raises:
        RuntimeError: As `step`, when the block is entered. It also raises every other error of `step`.

    Cost: 2 round trips to enter it, 1 to leave it. To undo, another claim, and 1 round trip for each that is undone.
    """
    check_name("step", f"{check_name('step', name)} left")
    return Undo(_steps(), name, _to_run)


def key(name: str) -> str:
    """An idempotency key for what this job does under this name: `JOB:name`, the same in all attempts.

    Raises:
        RuntimeError: No job runs here.
    """
    return f"{current_job().id}:{check_name('step', name)}"


async def now(name: str = "now") -> float:
    """The time of the first call in the job, in seconds since 1970 by this machine's clock; the same in all attempts.

    Args:
        name: Which instant, as the name of a step.

    Raises:
        RuntimeError: As `step`. It also raises every other error of `step`.

    Cost: As `step`.
    """
    return await _recorded(name, "now", float, time.time)


async def uuid(name: str = "uuid") -> uuids.UUID:
    """A random UUID, version 4; the same in all attempts.

    Args:
        name: Which one, as the name of a step.

    Raises:
        RuntimeError: As `step`. It also raises every other error of `step`.

    Cost: As `step`.
    """
    return await _recorded(name, "uuid", uuids.UUID, uuids.uuid4)


async def random(name: str = "random") -> float:
    """A random number from 0 up to 1; the same in all attempts.

    Args:
        name: Which one, as the name of a step.

    Raises:
        RuntimeError: As `step`. It also raises every other error of `step`.

    Cost: As `step`.
    """
    return await _recorded(name, "random", float, random_numbers.random)


# Private.


def _steps() -> Steps:
    steps = state_of(current_job()).steps
    steps.note_left_loops()  # here: a task of ours would not know whether the caller handles an error
    return steps


async def _step(
    steps: Steps,
    name: str,
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    *,
    may_change: bool = False,
    tries: StepTries | None = None,
) -> object:
    known = _known(function)
    call = StepCall(known.name, _digest(args, kwargs), known.converter)
    run = partial(function, *args, **kwargs)
    if known.is_async or steps.are_only_read:
        awaited = cast("Callable[[], Awaitable[object]]", run)
        if tries is not None:
            awaited = partial(tries.run, awaited)
        return await steps.take(name, call, awaited, may_change=may_change)
    return await _in_thread(steps, name, call, run, tries, may_change=may_change)


async def _recorded(name: str, verb: str, value_type: type[T], draw: Callable[[], T]) -> T:
    async def run() -> T:
        return draw()

    return await _steps().take(name, StepCall(verb, "", Converter(f"durable.{verb}()", value_type)), run)


def _to_run(
    steps: Steps, name: str, function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> Callable[[], Awaitable[object]]:
    """A step that is to run later; what could not run is refused now."""
    _known(function)
    with suppress(ValueError):  # a builtin function may have no signature
        inspect.signature(function).bind(*args, **kwargs)
    return partial(_step, steps, name, function, args, kwargs)


def _may_change(on_change: object) -> bool:
    if on_change not in (None, "keep"):
        raise ValueError(f'on_change is {on_change!r}; give "keep", or leave it out')
    return on_change == "keep"


def _known(function: Callable[..., object]) -> _Function:
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__func__", function)  # a bound method is another object each time
    known = None
    with suppress(TypeError):  # some can neither be hashed nor referred to weakly
        known = _functions.get(function)
    if known is None:
        name: str = getattr(function, "__qualname__", type(function).__qualname__)
        what = f"the result of {name}()"
        returns = annotations(f"of step function {name!r}", function).get("return", Any)
        known = _Function(name, inspect.iscoroutinefunction(function), Converter(what, returns))
        with suppress(TypeError):
            _functions[function] = known
    return known


async def _call(run: Callable[[], object]) -> object:
    # A limiter of its own: there are as many threads as steps run at once, which the worker limits.
    result = await anyio.to_thread.run_sync(run, limiter=anyio.CapacityLimiter(1))
    return await result if inspect.isawaitable(result) else result  # a plain wrapper around a coroutine function


async def _in_thread(
    steps: Steps,
    name: str,
    call: StepCall,
    run: Callable[[], object],
    tries: StepTries | None,
    *,
    may_change: bool,
) -> object:
    """A thread cannot be stopped: a cancellation waits until its result is kept, or has not been for 10 s."""
    has_returned = asyncio.Event()

    async def in_thread() -> object:
        try:
            return await (_call(run) if tries is None else tries.run(partial(_call, run)))
        finally:
            has_returned.set()

    step = asyncio.create_task(steps.take(name, call, in_thread, may_change=may_change))
    try:
        await asyncio.wait([step])
    except asyncio.CancelledError:
        if tries is not None:
            tries.stop()
        await run_shielded(_ended(step, has_returned))
        if not step.cancelled():
            step.result()
            steps.ask_again(name)
        raise
    return step.result()


async def _ended(step: "asyncio.Task[object]", has_returned: asyncio.Event) -> None:
    """Return once a step has ended; end it if its result is not kept for 10 s: it is still sent then."""
    returning = asyncio.create_task(has_returned.wait())
    await asyncio.wait([step, returning], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([step], timeout=_LONGEST_COMMIT)
    await cancel_all([step, returning])


def _digest(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """A hash of the arguments; of those that JSON cannot hold, only that they are there."""
    parts = [list(map(_text, args)), {name: _text(value) for name, value in kwargs.items()}]
    return hashlib.blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=8).hexdigest()


def _text(value: object) -> bytes | None:
    try:
        return msgspec.json.encode(value, enc_hook=json_form, order="deterministic")
    except Exception:  # noqa: BLE001 - a model's own encoder may raise anything
        return None
