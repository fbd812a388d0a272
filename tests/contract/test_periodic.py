"""What `every` promises: one process at a time runs it, at its period, whoever else has it registered."""

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from math import inf, nan
from typing import Any

import anyio
import pytest
from fakeredis.aioredis import FakeRedis

from inconcert import Coordinator, InvalidName
from inconcert.elections.term_state import TermState
from inconcert.periodic import _Entry
from inconcert.periodic import _Keys as PeriodicKeys
from tests.support.eventually import eventually
from tests.support.raw import raw


def key_of(concert: Coordinator, name: str) -> str:
    """Where the latest run is kept."""
    return concert._ref.keys.of(PeriodicKeys, "periodic", name).latest


def entry(concert: Coordinator, name: str) -> _Entry:
    """What is registered."""
    return concert._timetable._entries[name]


async def test_function_runs_at_its_period(any_concert: Coordinator) -> None:
    """From start to start."""
    starts: list[float] = []

    @any_concert.every(0.1, name="tidy")
    async def tidy() -> None:
        starts.append(time.monotonic())
        await anyio.sleep(0.05)

    await eventually(lambda: len(starts) == 4)
    gaps = [later - sooner for sooner, later in itertools.pairwise(starts)]
    assert all(0.07 < gap < 2.0 for gap in gaps)


async def test_one_of_all_processes_runs_it(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """However many have it registered."""
    runs: list[str] = []

    @any_concert.every(0.02, name="tidy")
    async def here() -> None:
        runs.append("here")

    await eventually(lambda: runs)

    @elsewhere.every(0.02, name="tidy")
    async def there() -> None:
        runs.append("there")

    await eventually(lambda: len(runs) == 5)
    assert set(runs) == {"here"}


async def test_another_takes_over_and_runs_nothing_too_early(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """When the process that ran it ends; the next run comes when it is due."""
    runs: list[float] = []

    async def tidy() -> None:
        runs.append(time.monotonic())

    elsewhere.every(0.3, name="tidy")(tidy)
    await eventually(lambda: runs)
    any_concert.every(0.3, name="tidy")(tidy)
    await eventually(entry(any_concert, "tidy")._election.waiters)
    await elsewhere.__aexit__(None, None, None)
    await eventually(entry(any_concert, "tidy")._election.leader)
    await eventually(lambda: len(runs) == 2)
    assert runs[1] - runs[0] > 0.25


async def test_restart_of_a_service_runs_nothing_too_early(namespace: str) -> None:
    """When the next run is due is on the server."""
    client = FakeRedis()
    concert = Coordinator.from_client(client, namespace=namespace)
    runs: list[float] = []

    @concert.every(timedelta(minutes=5), name="tidy")
    async def tidy() -> None:
        runs.append(time.monotonic())

    for _ in range(3):
        async with concert:
            await eventually(lambda: runs)
            await eventually(entry(concert, "tidy")._election.leader)
            assert 270_000 < await raw(concert).pttl(key_of(concert, "tidy")) <= 300_000
    assert len(runs) == 1
    async with concert:
        await raw(concert).delete(key_of(concert, "tidy"))  # as if five minutes had passed before it was opened
    async with concert:
        await eventually(lambda: len(runs) == 2)
    await client.aclose()


async def test_late_run_comes_at_once_and_missed_ones_are_left_out(any_concert: Coordinator) -> None:
    """After a run that took longer than several periods."""
    starts: list[float] = []

    @any_concert.every(0.1, name="tidy")
    async def tidy() -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            await anyio.sleep(0.35)

    await eventually(lambda: len(starts) == 3)
    assert 0.34 < starts[1] - starts[0] < 2.0
    assert starts[2] - starts[1] > 0.07


class Panic(BaseException):
    """What an extension may raise, and is no Exception."""


@pytest.mark.parametrize("error", [RuntimeError("mine"), asyncio.CancelledError(), GeneratorExit(), Panic()])
async def test_exception_is_logged_and_the_next_run_comes(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    """With the function's name, and also one that is a cancellation of the function's own making."""
    runs = 0

    @any_concert.every(0.02, name="tidy")
    async def tidy() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise error

    await eventually(lambda: runs == 2)
    assert "periodic function 'tidy' failed" in caplog.text
    assert type(error).__name__ in caplog.text


async def test_function_that_closes_its_own_coordinator_is_told_off(
    any_concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing would wait for the function, and the function for closing."""
    runs = 0

    @any_concert.every(0.02, name="tidy")
    async def tidy() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            await any_concert.__aexit__(None, None, None)

    await eventually(lambda: runs == 2)
    assert "close it from outside" in caplog.text


async def _obey() -> None:
    await anyio.sleep_forever()


async def _swallow() -> None:
    with suppress(asyncio.CancelledError):
        await anyio.sleep_forever()


async def _fail() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise RuntimeError("mine")


@pytest.mark.parametrize("stop", [_obey, _swallow, _fail])
async def test_loss_of_the_lead_cancels_the_run(
    any_concert: Coordinator, stop: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """And the next comes when it is due and this process leads again, whatever the function makes of that."""
    terms: list[TermState] = []

    @any_concert.every(0.02, name="tidy")
    async def tidy() -> None:
        terms.extend(term for term in entry(any_concert, "tidy")._election._terms_here if not term.is_over)
        if len(terms) == 1:
            await stop()

    await eventually(lambda: terms)
    await raw(any_concert).zrem(terms[0].keys.holders, terms[0].holder)
    terms[0].start_renewal()
    await eventually(lambda: len(terms) >= 2)
    assert terms[1].fencing_token > terms[0].fencing_token


async def test_closing_cancels_the_run_and_waits_for_its_end(namespace: str) -> None:
    """While it tidies up the coordinator is still open for what it holds; afterwards the next process may run it."""
    client = FakeRedis()
    concert = Coordinator.from_client(client, namespace=namespace)
    story: list[str] = []

    @concert.every(300, name="tidy")
    async def tidy() -> None:
        async with concert.lock("door"):
            story.append("runs")
            try:
                await anyio.sleep_forever()
            finally:
                await anyio.sleep(0.05)
                story.append("tidied up")

    async with concert:
        await eventually(lambda: story)
    assert story == ["runs", "tidied up"]
    assert await client.zcard(concert.lock("door")._keys.holders) == 0
    assert await client.zcard(entry(concert, "tidy")._election._keys.holders) == 0
    await client.aclose()


async def test_function_that_swallows_its_cancellation_does_not_keep_the_coordinator_open(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told again."""
    monkeypatch.setattr("inconcert._core.cancellation.CANCEL_AGAIN", 0.02)
    client = FakeRedis()
    swallowed = 0

    async with Coordinator.from_client(client, namespace=namespace) as concert:

        @concert.every(300, name="tidy")
        async def tidy() -> None:
            nonlocal swallowed
            while True:
                try:
                    await anyio.sleep_forever()
                except asyncio.CancelledError:
                    swallowed += 1
                    if swallowed == 3:
                        raise

        await eventually(lambda: entry(concert, "tidy")._election._terms_here)
        await eventually(lambda: raw(concert).exists(key_of(concert, "tidy")))
    assert swallowed == 3
    await client.aclose()


# What may be registered.


def test_function_is_returned_unchanged() -> None:
    """So that it can be called, and registered twice under two names."""
    concert = Coordinator()

    async def tidy() -> None: ...

    assert concert.every(300)(tidy) is tidy
    assert concert.every(60, name="often")(tidy) is tidy
    assert list(concert._timetable._entries) == [f"{__name__}.{tidy.__qualname__}", "often"]


def test_name_is_given_once() -> None:
    """The second time is a `ValueError`."""
    concert = Coordinator()

    async def tidy() -> None: ...

    concert.every(300, name="tidy")(tidy)
    with pytest.raises(ValueError, match="'tidy' is registered already"):
        concert.every(300, name="tidy")(tidy)


async def _needs(what: str) -> None: ...


@pytest.mark.parametrize("function", [lambda: None, time.time, 7, _needs])
def test_only_coroutine_functions_without_parameters_are_taken(function: Any) -> None:
    """Anything else is a `TypeError`."""
    with pytest.raises(TypeError, match=r"not a coroutine function|without arguments"):
        Coordinator().every(300)(function)


@pytest.mark.parametrize("period", [0, -1, nan, inf, 0.0001, True, "30", None, timedelta(0)])
def test_period_is_a_time_above_0(period: Any) -> None:
    """Anything else is a `ValueError`."""

    async def tidy() -> None: ...

    with pytest.raises(ValueError, match="period is"):
        Coordinator().every(period)(tidy)


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", 7])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""

    async def tidy() -> None: ...

    with pytest.raises(InvalidName):
        Coordinator().every(300, name=name)(tidy)
