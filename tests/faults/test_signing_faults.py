"""Somebody writes to the server who has no key: what they make up or change does not run."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from inconcert import Coordinator
from inconcert.tasks.store import JobKeys
from tests.contract.test_tasks import in_background, until
from tests.support.servers import RealServer

KEYS = {"2026-11": "a secret of the service"}
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

    client: Any = signing.redis
    bodies = JobKeys(signing._access.keys).bodies
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

    client: Any = signing.redis
    keys = JobKeys(signing._access.keys)
    one, other = await task.enqueue(1), await task.enqueue(2)
    await client.hset(keys.bodies, other.id, await client.hget(keys.bodies, one.id))
    await client.hset(keys.bodies, "made up", await client.hget(keys.bodies, one.id))
    await client.rpush(keys.queue("default").queue, "made up")
    async with in_background(signing.run_worker("default")):
        ledger = await until(signing, lambda ledger: not ledger.ready and not ledger.claimed)
    assert ran == [1]
    assert set(ledger.dead) == {other.id, "made up"}


async def test_the_same_job_may_be_put_in_again(signing: Coordinator) -> None:
    """What a signature does not prevent: who kept a whole job may run it once more, and in another queue."""
    ran: list[int] = []

    @signing.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    client: Any = signing.redis
    keys = JobKeys(signing._access.keys)
    job = await task.enqueue(1)
    kept = await client.hget(keys.bodies, job.id)
    async with in_background(signing.run_worker("default", "other")):
        await until(signing, lambda ledger: not ledger.bodies)
        await client.hset(keys.bodies, job.id, kept)
        await client.rpush(keys.queue("other").queue, job.id)
        await client.rpush(keys.queue("other").bell, 1)
        await until(signing, lambda ledger: not ledger.bodies)
    assert ran == [1, 1]
