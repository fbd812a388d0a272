"""Headers of jobs: small strings that travel with them, given by the caller, the task, or a middleware."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from inconcert import Coordinator, current_job
from tests.support.background import in_background
from tests.support.raw import raw

WITHIN = 5.0  # seconds


def headers() -> dict[str, str]:
    """Those of the current job."""
    return dict(current_job().headers)


async def run(concert: Coordinator, *, queue: str = "default") -> None:
    """Run all jobs that are there."""
    async with in_background(concert.run_worker(queue, burst=True)) as worker:
        await worker


async def test_headers_travel_with_the_job(any_concert: Coordinator) -> None:
    """Those of the call, instead of those of the task."""
    task = any_concert.task(name="t")(headers)
    plain = await task.enqueue()
    headed = await task.options(headers={"tenant": "a", "grüße": "ö\n"}, max_crashes=7).enqueue()
    named = await any_concert.enqueue("t", headers={"x": ""})
    await run(any_concert)
    assert await plain.result(timeout=WITHIN) == {}
    assert await headed.result(timeout=WITHIN) == {"tenant": "a", "grüße": "ö\n"}
    assert await named.result(timeout=WITHIN) == {"x": ""}


async def test_middleware_adds_headers_to_each_job_that_is_enqueued(any_concert: Coordinator) -> None:
    """Also to one that follows another; the job's own come first, and a later middleware before an earlier one."""
    told: list[tuple[str, str]] = []

    def first(task: str, queue: str) -> Mapping[str, str]:
        told.append((task, queue))
        return {"tenant": "first", "by": "first", "of": "first"}

    any_concert.add_enqueue_middleware(first)
    any_concert.add_enqueue_middleware(lambda task, queue: {"by": f"{task} {queue}", "of": "second"})
    task = any_concert.task(name="t", queue="q")(headers)

    @any_concert.task(name="u", queue="q")
    async def before() -> list[str]:
        return current_job().enqueue_on_success(task.call())

    job = await task.options(headers={"of": "me"}).enqueue()
    parent = await before.enqueue()
    named = await any_concert.enqueue("t", queue="q")
    await run(any_concert, queue="q")
    assert await job.result(timeout=WITHIN) == {"tenant": "first", "by": "t q", "of": "me"}
    [child] = await parent.result(timeout=WITHIN)
    expected = {"tenant": "first", "by": "t q", "of": "second"}
    assert await any_concert.tasks.job(child).result(timeout=WITHIN) == expected
    assert await named.result(timeout=WITHIN) == expected
    assert told == [("t", "q"), ("u", "q"), ("t", "q"), ("t", "q")]


async def test_replay_with_other_arguments_keeps_headers_and_crashes(any_concert: Coordinator) -> None:
    """They are part of the job."""

    @any_concert.task(name="t", max_attempts=1)
    async def t(number: int) -> dict[str, str]:
        if number:
            return headers()
        raise ValueError(number)

    job = await t.options(headers={"tenant": "a"}, max_crashes=9).enqueue(0)
    await run(any_concert)
    await any_concert.tasks.replay(job.id, args=[1])
    [body] = await _bodies(any_concert)
    assert body.split(b" ")[1] == b"9"
    await run(any_concert)
    assert await job.result(timeout=WITHIN) == {"tenant": "a"}


async def _bodies(concert: Coordinator) -> list[bytes]:
    return [body for keys in concert._jobs.partitions for body in await raw(concert).hvals(keys.bodies)]


async def test_bad_headers_are_refused(any_concert: Coordinator) -> None:
    """Before anything is sent."""
    task = any_concert.task(name="t")(headers)
    bad: Any
    for bad in (["a"], {"a": 1}, {1: "a"}, {"a": None}, "text"):
        with pytest.raises(TypeError, match="give"):
            task.options(headers=bad)
    with pytest.raises(ValueError, match="8193 bytes"):
        task.options(headers={"a": "ö" * 4096})
    task.options(headers={"aa": "ö" * 4095})
    for bad in ({"a": "\udcff"}, {"\udcff": "a"}):
        with pytest.raises(ValueError, match=r"not valid Unicode; remove the lone surrogates"):
            task.options(headers=bad)
    for crashes in (0, -1, 1.5, True):
        with pytest.raises((ValueError, TypeError), match="max_crashes"):
            task.options(max_crashes=crashes)  # type: ignore[arg-type]
    bad = 1
    any_concert.add_enqueue_middleware(lambda task, queue: {task + queue: bad})
    with pytest.raises(TypeError, match="header 'tdefault' is 1"):
        await task.enqueue()
    for bad in (None, ["ab"], 1):
        any_concert.add_enqueue_middleware(Mock(return_value=bad))
        with pytest.raises(TypeError, match="an enqueue middleware returned"):
            await task.enqueue()
        any_concert._parts.enqueuing.middlewares.pop()
    assert await any_concert.tasks.queues() == []
