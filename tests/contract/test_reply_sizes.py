"""No reply has much more than 1 MiB, whatever was asked for: the rest comes by further calls, and nothing is left out.

A large reply would hold up the server, and on a slow link the heartbeats and renewals behind it.  So what has more than
16 KiB, or of claims 256 KiB, comes only when its call is sent again, in its turn.
"""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, JobFailed, StreamItem, durable
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.large_replies import _Again
from inconcert.integrations._idempotency import _FIND, _KEEP, _Keys
from tests.support.inner import channel_of
from tests.support.raw import raw
from tests.support.schedules import job_ids, look_at_all, now_ms, set_since

LARGE = "x" * 700_000  # two of them have more than 1 MiB
MOST = 2_200_000  # bytes: of one that is the last to fit, of one before it, and of what is said of them
UNASKED = 20_000  # bytes: of one that comes at once, and of what is said of it
UNASKED_OF = {"claims/claim": 300_000, "queues/get": 300_000, "schedules/due": MOST}  # one of each at a time
NUMBER = 6
HOUR = 3_600_000  # ms


@pytest.fixture
async def measured(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Coordinator]:
    """A coordinator none of whose calls is answered with more."""
    too_large: dict[str, int] = {}
    channel = channel_of(concert._ref.session)
    received = channel.received

    def measure(reply: Any) -> None:
        call = channel._unanswered[0]
        if call is not None:
            name, size = call.command.script.name, _size(reply)
            most = MOST if isinstance(call, _Again) else UNASKED_OF.get(name, UNASKED)
            if size > most:
                too_large[name] = size
        received(reply)

    monkeypatch.setattr(channel._link, "received", measure)
    yield concert
    assert too_large == {}


async def test_jobs_are_claimed_in_portions(measured: Coordinator) -> None:
    """All of them, in their order, and none is left behind."""
    jobs = [await measured.enqueue("large", [LARGE]) for _ in range(NUMBER)]
    small = await measured.enqueue("small", [])
    async with measured.consume("default", prefetch=100) as claimed:
        got = [await anext(claimed) for _ in range(NUMBER + 1)]
    assert [job.id for job in got] == [*(job.id for job in jobs), small.id]


async def test_worker_runs_all_large_jobs_before_its_burst_ends(measured: Coordinator) -> None:
    """What a claim left behind is for the next."""
    ran: list[int] = []

    @measured.task(name="large")
    async def large(number: int, text: str) -> str:
        ran.append(number)
        return text  # and so are their results acknowledged

    jobs = [await large.enqueue(number, LARGE) for number in range(NUMBER)]
    await measured.run_worker("default", concurrency=100, burst=True)
    assert sorted(ran) == [*range(NUMBER)]
    assert [len(await job.result()) for job in jobs] == [len(LARGE)] * NUMBER


async def test_items_are_claimed_in_portions(measured: Coordinator) -> None:
    """Also for those who do not wait."""
    queue = measured.queue("q")
    for number in range(NUMBER):
        await queue.put([number, LARGE])
    got: list[Any] = []

    async def get() -> None:
        got.append((await queue.get(timeout=0)).item[0])  # type: ignore[index]

    async with anyio.create_task_group() as getting:
        for _ in range(NUMBER):
            getting.start_soon(get)
    assert got == [*range(NUMBER)]


async def test_items_are_shown_in_portions(measured: Coordinator) -> None:
    """Those that come next, and those that were set aside."""
    queue = measured.queue("q", max_attempts=1)
    for number in range(NUMBER):
        await queue.put([number, LARGE])
    shown: list[Any] = await queue.peek(limit=NUMBER - 1)
    assert [item[0] for item in shown] == [*range(NUMBER - 1)]
    assert len(await queue.peek(limit=1000)) == NUMBER
    for _ in range(NUMBER):
        await (await queue.get()).nack()
    dead: list[Any] = [each.item for each in await queue.dead(limit=NUMBER)]
    assert sorted(item[0] for item in dead) == [*range(NUMBER)]
    assert len(await queue.dead(limit=NUMBER - 1)) == NUMBER - 1


async def test_dead_jobs_are_shown_in_portions(measured: Coordinator) -> None:
    """All that were asked for."""
    jobs = [await measured.enqueue("unknown", [LARGE]) for _ in range(NUMBER)]
    await measured.run_worker("default", burst=True, unknown_task_grace=0)
    assert {dead.id for dead in await measured.tasks.dead(limit=1000)} == {job.id for job in jobs}


async def test_history_with_arguments_comes_in_portions(measured: Coordinator) -> None:
    """The latest first; none is left out, and none comes twice."""
    client: Any = raw(measured)

    @measured.task(name="ends", history=100, history_arguments=True)
    async def ends(text: str) -> None: ...

    job = await ends.enqueue("first")
    await measured.run_worker("default", burst=True)
    key = measured._jobs.of_id(job.id).history
    [entry] = await client.zrange(key, 0, -1)
    task, _, rest = entry.split(b" ", 2)
    for number in range(2, NUMBER + 1):
        large = rest.replace(b'"first"', b'%d,"%s"' % (number, LARGE.encode()))
        await client.zadd(key, {b"%s %012d %s" % (task, number, large): 0})
    expected = [*([number, LARGE] for number in range(NUMBER, 1, -1)), ["first"]]
    assert [ended.args for ended in await ends.history()] == expected
    assert [ended.args for ended in await ends.history(limit=NUMBER - 2)] == expected[:-2]


async def test_results_of_parents_come_in_portions(measured: Coordinator) -> None:
    """All, in their order."""
    parents = [await measured.enqueue("parent", []) for _ in range(NUMBER)]
    child = await measured.enqueue("child", [], after=parents)
    results: list[Any] = []
    async with measured.consume("default") as jobs:
        for number in range(NUMBER):
            async with await anext(jobs) as job:
                job.result = [number, LARGE]
        async with await anext(jobs) as job:
            results += await job.parent_results()
    assert (job.id, [result[0] for result in results]) == (child.id, [*range(NUMBER)])


async def test_what_is_kept_of_a_job_comes_when_there_is_room(measured: Coordinator) -> None:
    """Its steps, its items, a message for it, its result, and why it failed."""

    @measured.task(name="returns")
    async def returns() -> str:
        assert await durable.wait_for("message", str, timeout=None) == LARGE
        return LARGE

    async def keep() -> str:
        return LARGE

    @measured.task(name="items")
    async def items() -> AsyncIterator[str]:
        for _ in range(NUMBER):
            yield LARGE

    @measured.task(name="fails", max_attempts=1)
    async def fails() -> None:
        for number in range(NUMBER):
            await durable.step(f"{number}", keep)
        raise ValueError(LARGE)

    job, stream, failed = await returns.enqueue(), await items.enqueue(), await fails.enqueue()
    await job.send("message", LARGE)
    await measured.run_worker("default", burst=True)
    assert await job.result() == LARGE
    assert [item.value async for item in stream.stream() if isinstance(item, StreamItem)] == [LARGE] * NUMBER
    assert [step.value for step in await failed.steps()] == [LARGE] * NUMBER
    with pytest.raises(JobFailed):
        await failed.result()


async def test_answer_of_an_idempotent_request_comes_when_there_is_room(measured: Coordinator) -> None:
    """As it was kept."""
    text = LARGE.encode()
    keys = _Keys(*measured._ref.keys.parts("idempotency", "a", "answer"))
    session = measured._ref.session
    assert await session.run(_KEEP(keys, text=text, ttl_ms=10_000)) == 1
    assert await session.run(_FIND(keys)) == text


async def test_messages_come_in_portions(measured: Coordinator) -> None:
    """Of a mailbox as many as fit; of a chat all, also if small ones lie before large ones."""
    mailbox = measured.mailbox("ann")
    for number in range(NUMBER):
        await mailbox.send([number, LARGE])
    fetched: list[Any] = []
    while messages := await mailbox.fetch(limit=1000):
        fetched += messages
    assert [message.body[0] for message in fetched] == [*range(NUMBER)]

    chat_id = await measured.chat.create("ann", ["bob"], "hello")
    bodies = [*("x" * 20), *([LARGE] * NUMBER)]
    for body in bodies:
        await measured.chat.send(chat_id, "ann", body)
    assert [message.body for message in await measured.chat.history(chat_id, "bob", limit=1000)][1:] == bodies
    [batch] = await measured.chat.fetch("bob", limit=1000)
    assert [message.body for message in batch.messages][1:] == bodies


async def test_schedules_are_followed_and_listed_in_portions(measured: Coordinator) -> None:
    """All of them."""

    @measured.task(name="large", queue="q")
    async def large(text: str) -> None: ...

    for number in range(NUMBER):
        await measured.schedules.put(f"s{number}", large.call(LARGE), every=3600)
    for _ in range(NUMBER):
        await look_at_all(measured)
    listed = await measured.schedules.list()
    assert [(each.id, each.args, each.problem) for each in listed] == [
        (f"s{number}", [LARGE], None) for number in range(NUMBER)
    ]


def sizes_sent(concert: Coordinator, script: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How large the calls of a script are, from now on."""
    packed: list[int] = []
    submit = concert._ref.session.channel.submit

    def keep(call: Call) -> None:
        if call.command.script.name == script:
            packed.append(len(call.packed))
        submit(call)

    monkeypatch.setattr(concert._ref.session.channel, "submit", keep)
    return packed


async def test_missed_instants_are_made_up_for_in_portions(
    measured: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look after the other, without a pause; small ones go together."""

    @measured.task(name="any", queue="q")
    async def any_size(text: str) -> None: ...

    packed = sizes_sent(measured, "schedules/advance", monkeypatch)
    for id_, text in ("large", LARGE), ("small", ""):
        await measured.schedules.put(id_, any_size.call(text), every=3600, missed="all")
        await set_since(measured, id_, (await now_ms(measured) // HOUR - NUMBER) * HOUR)
    looks = 1
    while await look_at_all(measured) <= 0:
        looks += 1
    assert NUMBER <= looks <= NUMBER + 1
    assert len(await job_ids(measured)) == 2 * NUMBER
    assert max(packed) < MOST


async def test_large_results_are_acknowledged_in_portions(
    measured: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all jobs that end in one turn; small ones go together."""
    packed = sizes_sent(measured, "claims/ack", monkeypatch)
    for _ in range(NUMBER):
        await measured.enqueue("large", [])
    async with measured.consume("default", prefetch=NUMBER) as jobs:
        claimed = [await anext(jobs) for _ in range(NUMBER)]
        for job in claimed:
            job.result = LARGE
        async with anyio.create_task_group() as ending:
            for job in claimed:
                ending.start_soon(job.ack)
    assert max(packed) < MOST


def _size(reply: Any) -> int:
    if isinstance(reply, list):
        return sum(map(_size, reply))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return len(reply) if isinstance(reply, bytes) else 8
