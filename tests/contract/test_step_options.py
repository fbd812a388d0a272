"""Options of a durable step: how often its function is tried in one attempt, and how long each try may take."""

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobFailed, JobStatus, Retry, Retrying, current_job, durable
from tests.support.background import in_background
from tests.support.durable import kept
from tests.support.eventually import eventually

NOW = Retry(after=0)  # another attempt, at once
WITHIN = 20.0  # seconds


def at_once(failures: int) -> float:
    """Wait for nothing between two tries."""
    return 0.0 * failures


async def run(concert: Coordinator, function: Callable[..., Any], *args: Any, attempts: int = 2) -> Any:
    """Run it as a job of so many attempts, and return its result."""
    task = concert.task(name=f"run {function.__name__}", max_attempts=attempts)(function)
    async with in_background(concert.run_worker("default")):
        job = await task.enqueue(*args)
        return await job.result(timeout=WITHIN)


@pytest.mark.parametrize("is_plain", [False, True], ids=["coroutine", "plain"])
async def test_step_is_tried_again_in_the_same_attempt(any_concert: Coordinator, is_plain: bool) -> None:
    """Until it succeeds; what was kept before is not touched, and what it returns is kept."""
    ran: list[str] = []
    failures: list[int] = []

    def plain(order: int) -> int:
        ran.append(f"charge {order}")
        if len(ran) < 3:
            raise ConnectionError("away")
        return order

    async def coroutine(order: int) -> int:
        return plain(order)

    def backoff(failed: int) -> float:
        failures.append(failed)
        return 0.001

    async def fulfil() -> list[int]:
        retry = Retrying(3, backoff=backoff)
        function: Callable[[int], Any] = plain if is_plain else coroutine
        charged: Any = await durable.step("charge", function, 7, retry=retry)
        if current_job().attempt < 2:
            raise NOW
        return [charged, current_job().attempt]

    assert await run(any_concert, fulfil) == [7, 2]
    assert ran == ["charge 7"] * 3
    assert failures == [1, 2]
    assert await kept(any_concert) == {}


async def test_last_error_ends_the_attempt_and_the_next_tries_as_often(any_concert: Coordinator) -> None:
    """The tries are counted in the worker's memory, and so anew in each attempt of the job."""
    ran: list[int] = []

    async def charge() -> None:
        ran.append(current_job().attempt)
        raise ConnectionError(f"away {len(ran)}")

    async def fulfil() -> None:
        try:
            await durable.step("charge", charge, retry=Retrying(3, backoff=at_once))
        except ConnectionError as error:
            raise NOW if current_job().attempt < 2 else RuntimeError(str(error)) from error

    with pytest.raises(JobFailed, match="away 6"):
        await run(any_concert, fulfil)
    assert ran == [1, 1, 1, 2, 2, 2]


async def test_other_errors_are_not_tried_again(any_concert: Coordinator) -> None:
    """They end the step at once; an error that asks for another try says when."""
    ran: list[str] = []

    async def charge(error: str) -> None:
        ran.append(error)
        raise {"key": KeyError("a"), "away": ConnectionError("a"), "again": Retry(after=0)}[error]

    async def fulfil() -> None:
        for error, expected in (("key", KeyError), ("away", ConnectionError), ("again", Retry)):
            retry = Retrying(2, retry_on=(OSError,), backoff=at_once)
            with pytest.raises(expected):
                await durable.step(error, charge, error, retry=retry)

    await run(any_concert, fulfil)
    assert ran == ["key", "away", "away", "again", "again"]


async def test_each_try_is_bounded(any_concert: Coordinator) -> None:
    """One that takes longer is cancelled, and fails with an error that names the step."""
    ran: list[str] = []

    async def charge() -> str:
        ran.append("begun")
        try:
            await anyio.sleep(60 if len(ran) < 2 else 0)
        except asyncio.CancelledError:
            ran.append("cancelled")
            raise
        return "charged"

    async def fulfil() -> str:
        with pytest.raises(TimeoutError, match=r"step 'charge' ran longer than 0\.01 s"):
            await durable.step("charge", charge, timeout=0.01)
        return await durable.step("charge", charge, timeout=5, retry=Retrying(2))

    assert await run(any_concert, fulfil) == "charged"
    assert ran == ["begun", "cancelled", "begun"]


async def test_try_that_takes_too_long_is_followed_by_another(any_concert: Coordinator) -> None:
    """A timeout is a failure as any other."""
    ran: list[int] = []

    async def charge() -> str:
        ran.append(1)
        await anyio.sleep(60 if len(ran) < 2 else 0)
        return "charged"

    async def fulfil() -> str:
        return await durable.step("charge", charge, timeout=0.05, retry=Retrying(2, backoff=at_once))

    assert await run(any_concert, fulfil) == "charged"
    assert len(ran) == 2


@pytest.mark.parametrize("is_plain", [False, True], ids=["coroutine", "plain"])
async def test_job_that_is_cancelled_between_two_tries_ends_at_once(any_concert: Coordinator, is_plain: bool) -> None:
    """It does not wait for the next one."""
    ran: list[int] = []
    has_failed = threading.Event()

    def plain() -> None:
        ran.append(1)
        has_failed.set()
        raise ConnectionError("away")

    async def coroutine() -> None:
        plain()

    @any_concert.task()
    async def fulfil() -> None:
        retry = Retrying(5, backoff=lambda _: 3600)
        await durable.step("charge", plain if is_plain else coroutine, retry=retry)

    async with in_background(any_concert.run_worker("default")):
        job = await fulfil.enqueue()
        await eventually(has_failed.is_set)
        assert await job.cancel(timeout=WITHIN)
        assert await job.status() is JobStatus.CANCELLED
    assert ran == [1]


async def test_options_are_not_compared_with_what_was_kept(any_concert: Coordinator) -> None:
    """A release may change them; nor are they passed to the function."""

    async def charge(*args: int, **kwargs: int) -> int:
        return sum(args) + sum(kwargs.values())

    async def fulfil() -> int:
        if current_job().attempt < 2:
            await durable.step("charge", charge, 1, tip=2, timeout=5)
            raise NOW
        return await durable.step("charge", charge, 1, tip=2, retry=Retrying(2))

    assert await run(any_concert, fulfil) == 3


async def test_function_with_a_parameter_of_that_name_has_it_by_partial(any_concert: Coordinator) -> None:
    """Which of the two is meant is not guessed."""

    async def fetch(url: str, timeout: float = 1.0, retry: int = 0) -> list[object]:
        return [url, timeout, retry]

    async def read() -> list[object]:
        for option in ({"timeout": 5.0}, {"retry": 5}):
            with pytest.raises(TypeError, match="is an option of the step, and its function has a parameter of that"):
                await durable.step("fetch", fetch, "a", **option)
        return await durable.step("fetch", functools.partial(fetch, timeout=7.0), "a", timeout=5.0)

    assert await run(any_concert, read) == ["a", 7.0, 0]


# Bad input: refused before anything runs.


def plain() -> None:
    """Do nothing, in a thread."""


async def coroutine() -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("function", "options", "error", "text"),
    [
        (plain, {"timeout": 5}, ValueError, "its function is a plain one, which nothing can stop"),
        (coroutine, {"timeout": 0}, ValueError, "timeout of step 'a' is 0; give a number of seconds above 0"),
        (coroutine, {"timeout": "1"}, ValueError, "timeout is '1'"),
        (coroutine, {"retry": 3}, TypeError, r"retry of step 'a' is 3; give Retrying\(3\)"),
    ],
)
async def test_options_are_checked(function: Any, options: Any, error: type[Exception], text: str) -> None:
    """Before the job is looked for."""
    with pytest.raises(error, match=text):
        await durable.step("a", function, **options)


@pytest.mark.parametrize("attempts", [0, -1, 1.0, True, "3", None])
def test_attempts_are_a_whole_number(attempts: Any) -> None:
    """Anything else is a `ValueError`."""
    with pytest.raises(ValueError, match=r"attempts of Retrying is .* from 1"):
        Retrying(attempts)


@pytest.mark.parametrize("retry_on", [ConnectionError, [ConnectionError], (1,)])
def test_only_exceptions_are_tried_again(retry_on: Any) -> None:
    """In a tuple, as for a task."""
    with pytest.raises(TypeError):
        Retrying(3, retry_on=retry_on)
