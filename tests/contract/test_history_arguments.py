"""The arguments of jobs that have ended: kept in the history of a task that asks for them, and of no other."""

from functools import partial
from typing import Any

import msgspec
import pytest

from inconcert import Coordinator, Job, JobStatus, Limit, Task, current_job
from inconcert.tasks.records.store import JobKeys
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import client_of, raw

MOST_BYTES = 4096  # of a stored job
KEYS = {"2026-11": b"k" * 32}


def register(concert: Coordinator, *, history_arguments: bool = True, **options: Any) -> Task[..., Any]:
    """A task whose history has arguments, and whose jobs end as the first one says."""

    @concert.task(name="ends", history=1000, history_arguments=history_arguments, max_attempts=1, **options)
    async def ends(how: str, *, city: str = "") -> None:
        if how == "fail":
            raise ValueError(f"no\n{len(city)}")

    return ends


async def run(concert: Coordinator) -> None:
    """Run what is ready."""
    await concert.run_worker("default", burst=True)


async def entries(concert: Coordinator) -> list[bytes]:
    """The entries as they are stored."""
    client: Any = raw(concert)
    keys: JobKeys = concert._jobs.partitions[0]
    found: list[bytes] = await client.zrange(keys.history, 0, -1)
    return found


async def test_ended_jobs_have_their_arguments(any_concert: Coordinator) -> None:
    """However they ended."""
    ends = register(any_concert)
    jobs = [await ends.enqueue("succeed", city="Ulm"), await ends.enqueue("fail", city="Bonn")]
    await run(any_concert)
    late = await ends.options(delay=60).enqueue("succeed", city="Rom")
    assert await late.cancel()
    by_name = await any_concert.enqueue("ends", ["by name"])
    await run(any_concert)
    found = {ended.job_id: ended for ended in await ends.history()}
    assert [(found[job.id].args, found[job.id].kwargs) for job in (*jobs, late, by_name)] == [
        (["succeed"], {"city": "Ulm"}),
        (["fail"], {"city": "Bonn"}),
        (["succeed"], {"city": "Rom"}),
        (["by name"], {}),
    ]
    assert found[jobs[1].id].error == "ValueError: no\n4"
    assert not any(ended.is_too_long for ended in found.values())
    assert await any_concert.tasks.history("ends") == await ends.history()


async def test_arguments_are_kept_byte_by_byte(any_concert: Coordinator) -> None:
    """The script passes them on unread: an empty list stays one, and a large number is the same."""

    @any_concert.task(name="takes", history=5, history_arguments=True)
    async def takes(*values: Any) -> None: ...

    values: list[Any] = [{}, [], 1.0, 2**53 + 1, None, {"a\nb": '\u20ac "\0 '}]
    await takes.enqueue(*values)
    await run(any_concert)
    [ended] = await takes.history()
    assert msgspec.json.encode(ended.args) == msgspec.json.encode(values)


async def test_job_that_leads_to_another_or_is_settled_has_its_arguments(any_concert: Coordinator) -> None:
    """Their ends are other calls."""
    ends = register(any_concert)

    @any_concert.task(name="leads", history=5, history_arguments=True)
    async def leads(number: int) -> None:
        current_job().enqueue_on_success(ends.call(f"after {number}"))

    await ends.enqueue("once")
    async with any_concert.consume("default", delivery="at_most_once") as claimed, await anext(claimed):
        assert [ended.args for ended in await ends.history()] == [["once"]]
    await leads.enqueue(7)
    await run(any_concert)
    assert [ended.args for ended in await leads.history()] == [[7]]
    assert [ended.args for ended in await ends.history()] == [["after 7"], ["once"]]


@pytest.mark.parametrize("terms", [{"priority": 2}, {"max_crashes": 7}, {"limit": Limit(1)}])
async def test_arguments_are_kept_beside_other_terms(any_concert: Coordinator, terms: dict[str, Any]) -> None:
    """Scripts read these before the envelope, too; and a job that is replayed has those of each of its ends."""
    ends = register(any_concert, **terms)
    await ends.enqueue("succeed")
    await run(any_concert)
    dead = await ends.enqueue("fail")
    await run(any_concert)
    await any_concert.tasks.replay(dead.id, kwargs={"city": "other"})
    await run(any_concert)
    found = [(ended.args, ended.kwargs) for ended in await ends.history()]
    assert found == [(["fail"], {"city": "other"}), (["fail"], {}), (["succeed"], {})]


async def test_jobs_that_never_ran_have_their_arguments(any_concert: Coordinator) -> None:
    """One whose parent failed, and one that was debounced."""
    ends = register(any_concert)
    parent = await ends.enqueue("fail")
    child = await ends.options(after=[parent]).enqueue("child")
    waits = await ends.options(unique="one", debounce=60).enqueue("debounced")
    await ends.options(unique="one", debounce=60).enqueue("again")
    await waits.cancel()
    async with in_background(any_concert.run_worker("default")):
        await eventually(partial(_has_failed, child))
    found = {ended.job_id: ended.args for ended in await ends.history()}
    assert found == {parent.id: ["fail"], child.id: ["child"], waits.id: ["again"]}


async def _has_failed(job: Job[Any]) -> bool:
    return await job.status() is JobStatus.FAILED


@pytest.mark.parametrize("how", ["succeed", "fail", "cancel"])
async def test_arguments_that_are_too_long_are_left_out(any_concert: Coordinator, how: str) -> None:
    """A stored job of 4 KiB fits; of one with a byte more the history says so."""
    client: Any = raw(any_concert)
    ends = register(any_concert)

    async def end(city: str) -> int:
        job = await ends.options(delay=60 if how == "cancel" else 0).enqueue(how, city=city)
        body: bytes = await client.hget(any_concert._jobs.of_id(job.id).bodies, job.id)
        if how == "cancel":
            await job.cancel()
        await run(any_concert)
        return len(body) - body.index(b"{")

    length = MOST_BYTES - await end("")
    assert await end("x" * length) == MOST_BYTES
    await end("x" * (length + 1))
    long, fits, _ = await ends.history()
    assert (long.args, long.kwargs, long.is_too_long) == (None, None, True)
    assert (fits.args, fits.kwargs, fits.is_too_long) == ([how], {"city": "x" * length}, False)
    assert max(map(len, await entries(any_concert))) < MOST_BYTES + 200


async def test_history_has_no_arguments_unless_asked(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """They may be secret. Entries from before the task asked for them are read, too."""
    plain = register(any_concert, history_arguments=False)
    await plain.enqueue("succeed", city="secret")
    await plain.enqueue("fail", city="secret")
    await run(any_concert)
    assert b"secret" not in b"".join(await entries(any_concert))
    ends = register(elsewhere)
    await ends.enqueue("succeed")
    await run(elsewhere)
    found = await ends.history()
    assert [ended.args for ended in found] == [["succeed"], None, None]
    assert [ended.is_too_long for ended in found] == [False] * 3


async def test_arguments_are_shown_only_as_signed(any_concert: Coordinator, namespace: str) -> None:
    """Another text in their place, and another job's, are as if none had been kept."""
    client: Any = raw(any_concert)
    signed = Coordinator.from_client(client_of(any_concert), namespace=namespace, signing_keys=KEYS)
    async with signed as concert:
        ends = register(concert).options(unique="one name")
        keys: JobKeys = concert._jobs.draw("1.1", "one name")[1]
        for how in ("succeed", "fail"):
            await ends.enqueue(how)
            await run(concert)
        assert [ended.args for ended in await concert.tasks.history("ends")] == [["fail"], ["succeed"]]
        first, last = await client.zrange(keys.history, 0, -1)
        await client.zrem(keys.history, first, last)
        changed = first.replace(b'["succeed"]', b'["another"]')
        swapped = last.partition(b"\n")[0] + b"\n" + first.partition(b"\n")[2]
        assert changed != first
        await client.zadd(keys.history, {changed: 0, swapped: 0})
        found = await concert.tasks.history("ends")
        assert [(ended.outcome, ended.args, ended.kwargs) for ended in found] == [
            ("failed", None, None),
            ("succeeded", None, None),
        ]


async def test_envelope_that_cannot_be_read_is_left_out(any_concert: Coordinator) -> None:
    """The entry is there without it."""
    client: Any = raw(any_concert)
    ends = register(any_concert).options(unique="one name")
    keys: JobKeys = any_concert._jobs.draw("1.1", "one name")[1]
    await ends.enqueue("succeed")
    await run(any_concert)
    [entry] = await client.zrange(keys.history, 0, -1)
    await client.zrem(keys.history, entry)
    await client.zadd(keys.history, {entry.partition(b"\n")[0] + b"\nnot JSON": 0})
    [ended] = await any_concert.tasks.history("ends")
    assert (ended.outcome, ended.args, ended.is_too_long) == ("succeeded", None, False)


async def test_bad_option_is_refused_when_the_task_is_declared(concert: Coordinator) -> None:
    """Without a history it would keep nothing, and nobody would know."""
    with pytest.raises(ValueError, match=r"history_arguments=True without history=; give it a history=, such as "):
        concert.task(name="ends", history_arguments=True)(lambda: None)
    one: Any = 1
    with pytest.raises(TypeError, match=r"history_arguments is 1; give True or False"):
        concert.task(name="ends", history=10, history_arguments=one)(lambda: None)
