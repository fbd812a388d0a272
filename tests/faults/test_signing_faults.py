"""Somebody writes to the server who has no key: what they make up or change does not run."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from inconcert import Coordinator, JobCancelled, JobStatus, Limit, Retry, current_job, durable
from inconcert.queues.store import ItemKeys
from inconcert.tasks.records.store import JobKeys
from tests.support.background import in_background
from tests.support.durable import forge_step
from tests.support.jobs import status
from tests.support.ledger import until
from tests.support.limits import Running
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.undo import mark, marks

KEYS = {"2026-11": "a secret of the service"}
WITHIN = 20.0  # seconds
BODY = re.compile(rb"(\d+) (hmac1) (2026-11) ([0-9a-f]{64}) (.*)")


@pytest.fixture
async def signing(server: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """A process that has the key."""
    async with Coordinator(server.url, namespace=namespace, signing_keys=KEYS) as opened:
        yield opened


def changed_at(body: bytes, place: int) -> bytes:
    """The body with one bit changed at this place, counted from the end if negative."""
    changed = bytearray(body)
    changed[place] ^= 1
    return bytes(changed)


def tampered(body: bytes) -> dict[str, bytes]:
    """What one could make of a signed body without the key, by the part that was changed."""
    found = BODY.fullmatch(body)
    assert found is not None
    at = {
        name: found.start(group)
        for group, name in enumerate(("enqueued", "scheme", "key id", "digits", "text"), 1)
        if group > 1
    }
    ms, _, key_id, digits, text = found.groups()
    return {f"a bit of the {name}": changed_at(body, place) for name, place in at.items()} | {
        "each digit": body.replace(digits, digits[::-1]),
        "the last digit": changed_at(body, found.end(4) - 1),
        "a bit of the name": changed_at(body, found.start(5) + text.index(b'"t"') + 1),
        "an argument": body.replace(b"[17]", b"[18]"),
        "the last byte": changed_at(body, -1),
        "a byte more": body + b" ",
        "a byte less": body[:-1],
        "no text": ms + b" hmac1 " + key_id + b" " + digits + b" ",
        "digits in capitals": body.replace(digits, digits.upper()),
        "no signature": ms + b" " + text,
        "an empty signature": ms + b" hmac1 " + key_id + b"  " + text,
        "two signatures": body.replace(text, b"hmac1 " + key_id + b" " + digits + b" " + text),
        "another scheme": body.replace(b"hmac1", b"none1"),
    }


async def test_tampered_job_never_runs(signing: Coordinator) -> None:
    """Whatever part of it is changed: it is set aside unread, and its neighbours run."""
    ran: list[int] = []

    @signing.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    client: Any = raw(signing)
    bodies = JobKeys(signing._ref.keys).bodies
    first = await task.enqueue(17)
    parts = list(tampered(await client.hget(bodies, first.id)))
    bad: dict[str, str] = {}
    for part in parts:
        job = await task.enqueue(17)
        await client.hset(bodies, job.id, tampered(await client.hget(bodies, job.id))[part])
        bad[job.id] = part
    await task.enqueue(17)
    async with in_background(signing.run_worker("default")):
        ledger = await until(signing, lambda ledger: not ledger.ready and not ledger.claimed)
    assert ran == [17, 17]
    assert {bad[job_id] for job_id in ledger.dead} == set(parts)
    assert all(ledger.reasons[job_id]["reason"].endswith("it was not read") for job_id in bad)


async def test_signed_envelope_does_not_run_as_another_job(signing: Coordinator) -> None:
    """Neither in the place of another, nor under an id that is made up."""
    ran: list[int] = []

    @signing.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    client: Any = raw(signing)
    keys = JobKeys(signing._ref.keys)
    one, other = await task.enqueue(1), await task.enqueue(2)
    await client.hset(keys.bodies, other.id, await client.hget(keys.bodies, one.id))
    await client.hset(keys.bodies, "made up", await client.hget(keys.bodies, one.id))
    await client.rpush(keys.queue("default").queue, "made up")
    async with in_background(signing.run_worker("default")):
        ledger = await until(signing, lambda ledger: not ledger.ready and not ledger.claimed)
    assert ran == [1]
    assert set(ledger.dead) == {other.id, "made up"}


async def test_signed_item_does_not_run_as_a_job(signing: Coordinator) -> None:
    """What a service put into a queue was data: under its own id among the jobs it is set aside unread."""
    ran: list[int] = []

    @signing.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    client: Any = signing.redis
    keys = JobKeys(signing._ref.keys)
    await signing.queue("webhooks").put({"name": "t", "args": [17]})
    [(item_id, body)] = (await client.hgetall(ItemKeys(signing._ref.keys, "webhooks").bodies)).items()
    await client.hset(keys.bodies, item_id, body)
    await client.rpush(keys.queue("default").queue, item_id)
    async with in_background(signing.run_worker("default")):
        ledger = await until(signing, lambda ledger: not ledger.ready and not ledger.claimed)
    assert ran == []
    assert set(ledger.dead) == {item_id.decode()}


async def test_signed_item_is_refused_in_another_queue(signing: Coordinator) -> None:
    """And so is a job among the items: what an item means, its queue says."""
    client: Any = signing.redis
    source, target = (ItemKeys(signing._ref.keys, name) for name in ("webhooks", "refunds"))
    await signing.queue("webhooks").put({"account": "mallory"})
    job = await signing.enqueue("t", [17])
    copied = await client.hgetall(source.bodies)
    copied |= {job.id.encode(): await client.hget(JobKeys(signing._ref.keys).bodies, job.id)}
    await client.hset(target.bodies, mapping=copied)
    await client.rpush(target.only.queue, *copied)
    with pytest.raises(TimeoutError):
        await signing.queue("refunds").get(timeout=0)
    dead = await signing.queue("refunds").dead()
    assert {(item.id, item.item) for item in dead} == {(id_.decode(), None) for id_ in copied}
    assert all("the item of queue 'refunds' was not signed" in item.reason for item in dead)


async def test_signed_job_does_not_run_in_another_namespace(signing: Coordinator, server: RealServer) -> None:
    """Though both have the same key."""
    ran: list[int] = []
    client: Any = signing.redis
    job = await signing.enqueue("t", [17])
    body = await client.hget(JobKeys(signing._ref.keys).bodies, job.id)
    async with Coordinator(server.url, namespace=f"{signing._ref.keys.namespace}-2", signing_keys=KEYS) as other:

        @other.task(name="t")
        async def task(number: int) -> None:
            ran.append(number)

        keys = JobKeys(other._ref.keys)
        await client.hset(keys.bodies, job.id, body)
        await client.rpush(keys.queue("default").queue, job.id)
        async with in_background(other.run_worker("default")):
            ledger = await until(other, lambda ledger: not ledger.ready and not ledger.claimed)
    assert ran == []
    assert set(ledger.dead) == {job.id}


async def test_the_same_job_may_be_put_in_again(signing: Coordinator) -> None:
    """What a signature does not prevent: who kept a whole job may run it once more, and in another queue."""
    ran: list[int] = []

    @signing.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    client: Any = raw(signing)
    keys = JobKeys(signing._ref.keys)
    job = await task.enqueue(1)
    kept = await client.hget(keys.bodies, job.id)
    async with in_background(signing.run_worker("default", "other")):
        await until(signing, lambda ledger: not ledger.bodies)
        await client.hset(keys.bodies, job.id, kept)
        await client.rpush(keys.queue("other").queue, job.id)
        await client.rpush(keys.queue("other").bell, 1)
        await until(signing, lambda ledger: not ledger.bodies)
    assert ran == [1, 1]


# What is not signed: these tests say what that lets a writer without a key do.


async def test_step_that_was_dropped_runs_again(signing: Coordinator) -> None:
    """None can be made up; but that one is missing shows nowhere."""
    ran: list[int] = []

    async def note() -> int:
        ran.append(len(ran))
        return ran[-1]

    @signing.task(name="t")
    async def task() -> int:
        found = await durable.step("one", note)
        if current_job().attempt == 1:
            await forge_step(signing, current_job().id, 1, None)
            raise Retry(after=0)
        return found

    async with in_background(signing.run_worker("default")):
        assert await (await task.enqueue()).result(timeout=WITHIN) == 1
    assert ran == [0, 1]


async def test_note_makes_a_job_be_undone(signing: Coordinator) -> None:
    """As cancelling it does, which needs no key either: what runs are its own functions, on its signed steps."""
    undone: list[str] = []

    async def charge() -> str:
        return "payment"

    @signing.task(name="t")
    async def task() -> None:
        async with durable.undo() as undo:
            undo.later("refund", undone.append, await durable.step("charge", charge))
            await durable.wait_for("packed", str, timeout=3600)

    async with in_background(signing.run_worker("default")):
        job = await task.enqueue()
        await status(signing, job, JobStatus.DELAYED)
        assert await marks(signing) == {job.id.encode(): b"-"}
        await mark(signing, job.id, "cancelled ")
        await job.send("packed", "box")
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
    assert undone == ["payment"]


async def test_limits_of_a_job_may_be_lifted(signing: Coordinator) -> None:
    """Scripts read them before the envelope; what runs is the job as it was signed, though beside another one."""
    running = Running()
    client: Any = raw(signing)
    keys = JobKeys(signing._ref.keys)

    @signing.task(name="t", limit=Limit(1))
    async def task(number: int) -> None:
        await running.run("t", number)

    jobs = [await task.enqueue(number) for number in range(2)]
    body = await client.hget(keys.bodies, jobs[1].id)
    await client.hset(keys.bodies, jobs[1].id, re.sub(rb" \d+/\S+ ", b" ", body))
    async with in_background(signing.run_worker("default")):
        await running.until(2)
        assert running.most["t"] == 2
        running.free.set()
        for job in jobs:
            await job.result(timeout=WITHIN)


async def test_numbers_of_a_group_start_its_callback(signing: Coordinator) -> None:
    """Before its members have ended; what runs is the callback as it was signed."""
    ran: list[str] = []
    client: Any = raw(signing)
    keys = JobKeys(signing._ref.keys)

    @signing.task(name="t")
    async def task(what: str) -> None:
        ran.append(what)

    group = await signing.group([task.options(queue="slow").call("member")], then=task.call("callback"))
    assert await client.hget(keys.groups, group.id) == b"closed succeeded 1 1 0 0 0"
    await client.hset(keys.groups, group.id, "closed succeeded 1 1 1 0 0")
    await client.rpush(keys.news, group.callback.id)
    async with in_background(signing.run_worker("default")):
        await group.callback.result(timeout=WITHIN)
    assert ran == ["callback"]
