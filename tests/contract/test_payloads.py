"""What a job carries: typed arguments from one process to another, and signatures that keep strangers out."""

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from typing import Any
from unittest.mock import ANY

import pydantic
import pytest

from inconcert import Coordinator, InvalidPayload, current_job
from inconcert._rules.payloads import JSON
from inconcert.tasks.records.store import JobKeys
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.ledger import all_done, ledger_of, until
from tests.support.raw import raw

OLD = {"old": "old secret of 16+"}
NEW = {"new": "new secret of 16+"}


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal
    colour: Colour


class Buyer(pydantic.BaseModel):
    id: uuid.UUID
    since: date


ITEM = Item("sword", Decimal("9.50"), Colour.RED)
BUYER = Buyer(id=uuid.UUID(int=7), since=date(2026, 11, 21))
SOLD_AT = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)

Ran = list[tuple[Any, ...]]


def selling(concert: Coordinator) -> tuple[Any, Ran]:
    """A task with arguments of many types, and what it was called with."""
    ran: Ran = []

    @concert.task(name="sold")
    async def sold(
        items: list[Item], at: datetime, *tags: frozenset[str], buyer: Buyer | None = None, **more: bytes
    ) -> None:
        ran.append((items, at, tags, buyer, more))

    return sold, ran


async def test_typed_arguments_arrive_as_what_they_were(any_concert: Coordinator) -> None:
    """Of dataclasses, pydantic models, times, numbers and sets, in every kind of parameter."""
    sold, ran = selling(any_concert)
    await sold.enqueue([ITEM], SOLD_AT, frozenset("ab"), buyer=BUYER, picture=b"\0\xff")
    async with in_background(any_concert.run_worker("default")):
        await all_done(any_concert)
    assert ran == [([ITEM], SOLD_AT, (frozenset("ab"),), BUYER, {"picture": b"\0\xff"})]


async def test_plain_function_takes_typed_arguments(any_concert: Coordinator) -> None:
    """In its thread."""
    ran: list[Item] = []

    @any_concert.task(name="plain")
    def plain(item: Item) -> None:
        ran.append(item)

    await plain.enqueue(ITEM)
    async with in_background(any_concert.run_worker("default")):
        await all_done(any_concert)
    assert ran == [ITEM]


async def test_job_that_is_enqueued_by_name_is_converted_by_the_worker(any_concert: Coordinator) -> None:
    """Whoever enqueues it gives JSON; a consumer by hand sees that JSON."""
    _, ran = selling(any_concert)
    args: list[JSON] = [[{"name": "sword", "price": "9.50", "colour": "red"}], "2026-11-21T12:30:00Z", ["a"]]
    await any_concert.enqueue("sold", args, {"picture": "AP8="})
    await any_concert.enqueue("sold", args, queue="by hand")
    async with in_background(any_concert.run_worker("default")):
        await until(any_concert, lambda ledger: len(ledger.bodies) == 1)
    assert ran == [([ITEM], SOLD_AT, (frozenset("a"),), None, {"picture": b"\0\xff"})]
    async with any_concert.consume("by hand") as jobs:
        assert (await anext(jobs)).args == args


async def test_argument_that_does_not_fit_its_annotation_is_set_aside(any_concert: Coordinator) -> None:
    """With its name, and at once if workers of other releases get no time: another attempt would not go better."""
    _, ran = selling(any_concert)
    bad = await any_concert.enqueue("sold", [[], "yesterday"])
    await any_concert.enqueue("sold", [[], "2026-11-21T12:30:00Z"])
    async with in_background(any_concert.run_worker("default", unknown_task_grace=0)):
        ledger = await until(any_concert, lambda ledger: ledger.bodies == [bad.id] == ledger.dead)
    assert "argument 'at' of task 'sold' does not fit datetime" in ledger.reasons[bad.id]["reason"]
    assert ran == [([], SOLD_AT, (), None, {})]


async def test_argument_that_would_arrive_as_something_else_is_refused(any_concert: Coordinator) -> None:
    """Before anything is sent."""
    sold, _ = selling(any_concert)
    with pytest.raises(InvalidPayload, match="argument 'at' of task 'sold'"):
        await sold.enqueue([], "today")
    with pytest.raises(InvalidPayload, match="argument 'items' of task 'sold' would arrive as"):
        await sold.enqueue((ITEM,), SOLD_AT)
    assert (await ledger_of(any_concert)).bodies == []


async def test_large_typed_arguments_are_refused(any_concert: Coordinator) -> None:
    """As they are larger than a mebibyte in JSON."""
    sold, _ = selling(any_concert)
    with pytest.raises(InvalidPayload, match="1048576"):
        await sold.enqueue([], SOLD_AT, picture=bytes(2**20))


async def put_as_it_is(concert: Coordinator, job_id: str, envelope: bytes) -> None:
    """A job as another release may have written it."""
    client: Any = raw(concert)
    keys = JobKeys(concert._ref.keys)
    await client.hset(keys.bodies, job_id, b"1700000000000 " + envelope)
    await client.rpush(keys.queue("default").queue, job_id)


@pytest.mark.parametrize(
    "envelope",
    [
        b'{"name":"sold","args":[17,"sword"]}',
        b'{"name":"sold","args":[17],"kwargs":{"item":"sword"},"max_attempts":3,"version":1}',
        b'{"version":1,"kwargs":{"item":"sword","seller":17},"name":"sold","a field of a later release":[1]}',
    ],
    ids=["as written", "all fields", "more fields"],
)
async def test_envelope_of_version_1_runs(any_concert: Coordinator, envelope: bytes) -> None:
    """It is what the first release wrote, and stays readable; fields that came later may be missing, or unknown."""
    ran: list[tuple[int, str]] = []

    @any_concert.task(name="sold")
    async def sold(seller: int, item: str) -> None:
        ran.append((seller, item))

    await put_as_it_is(any_concert, "old.1", envelope)
    async with in_background(any_concert.run_worker("default")):
        await all_done(any_concert)
    assert ran == [(17, "sword")]


# Signatures.


@asynccontextmanager
async def processes(
    concert: Coordinator, *keys: Mapping[str, str] | None, accept_unsigned: bool = False
) -> AsyncGenerator[list[Coordinator]]:
    """A coordinator for each of these signing keys, as other processes have them."""
    namespace = concert._ref.keys.namespace
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                Coordinator.from_client(
                    raw(concert),
                    namespace=namespace,
                    signing_keys=own,
                    accept_unsigned=accept_unsigned and own is not None,
                )
            )
            for own in keys
        ]


async def run_all(concert: Coordinator) -> tuple[list[int], list[str]]:
    """Let a worker of this process have all jobs of task `t`; returns what ran, and why the others did not."""
    ran: list[int] = []

    @concert.task(name="t")
    async def task(number: int) -> None:
        ran.append(number)

    async with in_background(concert.run_worker("default", unknown_task_grace=0)):
        ledger = await until(concert, lambda ledger: not ledger.ready and not ledger.claimed)
    return ran, [ledger.reasons[job_id]["reason"] for job_id in ledger.dead]


async def test_signed_job_runs(any_concert: Coordinator) -> None:
    """Enqueued by the task, by name, many together, and for later."""
    async with processes(any_concert, OLD, OLD) as (here, there):

        @here.task(name="t")
        async def task(number: int) -> None: ...

        await task.enqueue(1)
        await here.enqueue("t", [2])
        await here.enqueue_many([task.call(3), task.call(4)])
        client: Any = raw(any_concert)
        bodies = await client.hvals(JobKeys(here._ref.keys).bodies)
        assert all(body.split(b" ")[1:3] == [b"hmac1", b"old"] for body in bodies)
        assert await run_all(there) == ([1, 2, 3, 4], [])


async def test_unsigned_job_is_set_aside_unread(any_concert: Coordinator) -> None:
    """And so is one that is signed with a key that is not known, or with another secret."""
    async with processes(any_concert, None, NEW, {"old": NEW["new"]}, OLD) as (*strangers, worker):
        for number, stranger in enumerate(strangers):
            await stranger.enqueue("t", [number])
        ran, reasons = await run_all(worker)
    assert ran == []
    assert sorted(reason.partition("job ")[2] for reason in reasons) == [
        "is not signed, as signing_keys demand; it was not read",
        "is signed with key 'new', and signing_keys has only old; it was not read",
        "was not signed with key 'old' for its id in this namespace, or was changed since; it was not read",
    ]


async def test_keys_are_rotated_while_jobs_run(any_concert: Coordinator) -> None:
    """At each of its steps, old and new releases run each other's jobs."""
    steps = (OLD, OLD | NEW, NEW | OLD, NEW)
    for before, after in pairwise(steps):
        async with processes(any_concert, before, after) as (one, other):
            await one.enqueue("t", [1])
            await other.enqueue("t", [2])
            assert await run_all(one) == ([1, 2], [])
        async with processes(any_concert, before, after) as (one, other):
            await one.enqueue("t", [1])
            await other.enqueue("t", [2])
            assert await run_all(other) == ([1, 2], [])


async def test_signing_is_introduced_while_jobs_run(any_concert: Coordinator) -> None:
    """Those without keys run what is signed, and those that accept it, what is not."""
    for worker in (0, 1):
        async with processes(any_concert, None, OLD, accept_unsigned=True) as both:
            for number, process in enumerate(both):
                await process.enqueue("t", [number])
            assert await run_all(both[worker]) == ([0, 1], [])


def test_bad_keys_are_refused_where_the_coordinator_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is made; an empty variable is no wish for no signatures."""
    for make in (Coordinator, Coordinator.embedded):
        with pytest.raises(ValueError, match="at least 16"):
            make(signing_keys={"old": "short"})
        with pytest.raises(ValueError, match="without signing_keys"):
            make(accept_unsigned=True)
    monkeypatch.setenv("INCONCERT_URL", "redis://localhost")
    for text in ("", "secret of 16 bytes", "{}"):
        monkeypatch.setenv("INCONCERT_SIGNING_KEYS", text)
        with pytest.raises(ValueError, match="key"):
            Coordinator.from_env()


async def test_keys_are_taken_from_the_environment(any_concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one signs."""
    monkeypatch.setenv("INCONCERT_URL", "redis://localhost")
    monkeypatch.setenv("INCONCERT_SIGNING_KEYS", '{"new": "new secret of 16+", "old": "old secret of 16+"}')
    assert Coordinator.from_env()._key_ring.sign("job", "a.1", b"{}").startswith(b"hmac1 new ")
    assert Coordinator.from_env(accept_unsigned=True)._key_ring.verify("job", "a.1", b"{}") == b"{}"


async def test_scheduled_job_is_signed(any_concert: Coordinator) -> None:
    """It comes from no `enqueue`."""
    ran: list[str] = []
    async with processes(any_concert, OLD) as (worker,):

        @worker.cron(every=0.1)
        @worker.task(name="t")
        async def task() -> None:
            ran.append(current_job().id)

        async with in_background(worker.run_worker("default")):
            await eventually(lambda: ran)
    assert (await ledger_of(any_concert)).dead == []


async def test_dead_job_is_signed_again_when_it_is_replayed_with_other_arguments(any_concert: Coordinator) -> None:
    """Which is how an operator with a key mends it."""
    async with processes(any_concert, OLD, OLD) as (here, there):
        bad = await here.enqueue("t", ["a", 1])
        assert await run_all(here) == ([], [ANY])
        assert [(job.task, job.args) for job in await there.tasks.dead()] == [("t", ["a", 1])]
        await there.tasks.replay(bad.id, args=[7])
        assert await run_all(there) == ([7], [])


async def test_replaying_does_not_sign_what_somebody_else_made_up(any_concert: Coordinator) -> None:
    """Neither as it is nor changed; and it is not shown as if it were a job of ours."""
    async with processes(any_concert, None, OLD) as (stranger, worker):
        made_up = await stranger.enqueue("t", [1])
        ran, reasons = await run_all(worker)
        assert [(job.id, job.task, list(job.args)) for job in await worker.tasks.dead()] == [(made_up.id, "?", [])]
        with pytest.raises(InvalidPayload, match="not signed"):
            await worker.tasks.replay(made_up.id, args=[2])
        await worker.tasks.replay(made_up.id)
        async with in_background(worker.run_worker("default")):
            await until(any_concert, lambda ledger: ledger.dead and not ledger.claimed)
    assert (ran, len(reasons)) == ([], 1)
