"""Bad input to steps, messages, streams, groups and jobs that follow: the whole answer, and nothing is lost."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import (
    Coordinator,
    Draft,
    GroupClosed,
    InvalidName,
    InvalidPayload,
    Job,
    JobFailed,
    Retry,
    current_job,
    durable,
)
from inconcert.tasks.records.arguments import encode_result
from tests.support.background import in_background
from tests.support.streams import followed_until

WITHIN = 10.0  # seconds
LONG = "n" * 513
MIB = 2**20


async def one() -> int:
    """A step."""
    return 1


async def two() -> int:
    """Another."""
    return 2


async def lies() -> int:
    """Not what it says."""
    return "one"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


async def give(value: object) -> object:
    """A step without a type."""
    return value


# Bodies of jobs, by the answer.


async def _long_name() -> None:
    with pytest.raises(InvalidName) as refused:
        await durable.step(LONG, one)
    raise refused.value


async def _changed() -> None:
    if current_job().attempt == 1:
        await durable.step("weigh", one)
        raise Retry(after=0)
    await durable.step("weigh", two)


async def _twice() -> None:
    await durable.step("weigh", one)
    await durable.step("weigh", one)


async def _loop() -> None:
    async for _ in durable.each("lines", [object()], key=lambda line: line):
        """Its key is refused."""


async def _follow() -> None:
    no_call: Any = "ship"
    current_job().enqueue_on_success(no_call)


async def _undo_twice() -> None:
    async with durable.undo() as undo:
        undo.later("refund", anyio.lowlevel.checkpoint)
        undo.later("refund", anyio.lowlevel.checkpoint)


async def _undo_by_its_result() -> None:
    async with durable.undo() as undo:
        undo.later("refund", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


IN_A_JOB: dict[str, tuple[Callable[[], Any], str]] = {
    "a name of 513 bytes": (
        _long_name,
        (
            "inconcert.errors.InvalidName: the name 'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn'... of a step has 513 "
            "bytes; use at most 512, or a hash of it"
        ),
    ),
    "a step without a name": (
        lambda: durable.step(len, 5),  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        (
            "TypeError: step <built-in function len> is to run 5, which is not a function; give a name, a function and "
            'its arguments: durable.step("charge", charge, order)'
        ),
    ),
    "a result to undo by": (
        _undo_by_its_result,
        (
            "TypeError: undo 'refund' is to run 5, which is not a function; give a name, a function and its arguments: "
            'undo.later("refund", refund, payment)'
        ),
    ),
    "a result that is not JSON": (
        lambda: durable.step("weigh", give, object()),
        (
            "inconcert.errors.InvalidPayload: the result of step 'weigh' of job ID cannot be sent as JSON: "
            "JSON has no object"
        ),
    ),
    "a result of more than 1 MiB": (
        lambda: durable.step("weigh", give, "x" * MIB),
        (
            "inconcert.errors.InvalidPayload: the result of step 'weigh' of job ID has 1048578 bytes as JSON; "
            "send at most 1048576, or its address in a store"
        ),
    ),
    "a result of another type": (
        lambda: durable.step("weigh", lies),
        (
            "inconcert.errors.InvalidPayload: the result of step 'weigh' of job ID: the result of lies() does not fit "
            "int: Expected `int`, got `str`"
        ),
    ),
    "a changed step": (
        _changed,
        (
            "inconcert.errors.StepChanged: step 'weigh' of job ID ran one(), and now runs two(); replay the job under "
            'the code that began it, take what was kept with on_change="keep", or give the new step a new name'
        ),
    ),
    "a name that is used twice": (
        _twice,
        (
            "inconcert.errors.StepRefused: step 'weigh' of job ID was refused: its name was used before in this "
            "attempt; give each step a name of its own"
        ),
    ),
    "a key that is not JSON": (
        _loop,
        (
            "inconcert.errors.InvalidPayload: the key of an item of 'lines' in job ID cannot be stored as JSON: "
            "JSON has no object"
        ),
    ),
    "a message that is not sent": (
        partial(durable.wait_for, "packed", str, timeout=0),
        "TimeoutError: message 'packed' was not sent to job ID within 0 s",
    ),
    "a follower without a call": (_follow, "TypeError: what follows job ID is 'ship'; give task.call(...)"),
    "something to undo twice": (
        _undo_twice,
        "ValueError: 'refund' is registered in 'undo' already; give each a name of its own",
    ),
}


@pytest.mark.parametrize("what", IN_A_JOB)
async def test_job_is_dead_with_the_whole_answer(any_concert: Coordinator, what: str) -> None:
    """And can be replayed."""
    body, answer = IN_A_JOB[what]

    @any_concert.task(max_attempts=2, backoff=lambda _: 0.0)
    async def job_of() -> None:
        await body()

    async with in_background(any_concert.run_worker("default")):
        job = await job_of.enqueue()
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=WITHIN)
    assert failed.value.reason == answer.replace("ID", job.id)
    assert [letter.id for letter in await any_concert.tasks.dead()] == [job.id]


@pytest.mark.parametrize(
    ("item", "answer"),
    [
        (object(), "item 2 of the stream of job ID cannot be stored as JSON: JSON has no object"),
        ("x" * MIB, ("item 2 of the stream of job ID has 1048578 bytes as JSON; send at most 1048576, or its address "
         "in a store")),
    ],
    ids=["no JSON", "more than 1 MiB"],
)  # fmt: skip
async def test_bad_item_ends_the_stream_behind_the_good_ones(
    any_concert: Coordinator, item: object, answer: str
) -> None:
    """The job is dead with the whole answer."""

    @any_concert.task(max_attempts=2)
    async def job_of() -> AsyncIterator[object]:
        yield "good"
        yield item

    async with in_background(any_concert.run_worker("default")):
        job = await job_of.enqueue()
        assert [each.value for each in await followed_until(JobFailed, job)] == ["good"]
        with pytest.raises(JobFailed) as failed:
            await job.result(timeout=WITHIN)
    assert failed.value.reason == f"inconcert.errors.InvalidPayload: {answer.replace('ID', job.id)}"


async def test_handle_is_refused_by_its_name(any_concert: Coordinator) -> None:
    """As a value, and as the type of a parameter; nothing is said of what it holds, which users do not know."""

    @any_concert.task
    async def task(value: object = None) -> None: ...

    async def of_job(job: Job[None]) -> None: ...

    async def of_draft(draft: Draft[None]) -> None: ...

    job = await task.enqueue()
    for handle, function, name in (job, of_job, "Job"), (task.call(), of_draft, "Draft"):
        with pytest.raises(InvalidPayload, match=f"JSON has no {name}$"):
            await task.enqueue(handle)
        with pytest.raises(InvalidPayload, match=f"JSON has no {name}$"):
            encode_result("the result", [handle])
        with pytest.raises(TypeError, match=f"its type is {name};"):
            any_concert.task(function)
    await job.cancel()


async def answer_to(call: Callable[[], Any]) -> str:
    """What is raised before anything is sent, or by the server."""

    async def run() -> None:
        made = call()
        if isinstance(made, Awaitable):
            await made

    with pytest.raises((TypeError, ValueError, RuntimeError, InvalidPayload, GroupClosed)) as refused:
        await run()
    return str(refused.value)


async def test_durable_verbs_outside_of_a_job_say_so() -> None:
    """All alike."""
    for verb in (
        partial(durable.step, "one", one),
        partial(durable.sleep, "nap", 1),
        partial(durable.wait_for, "packed", str, timeout=1),
        partial(durable.each, "lines", [1], key=str),
        durable.undo,
        durable.now,
        durable.uuid,
        durable.random,
        partial(durable.key, "one"),
        current_job,
    ):
        assert await answer_to(verb) == (
            "no job runs here; call this in the body of a task, or inside `async with job`"
        )


async def test_message_that_cannot_be_sent_says_why(
    any_concert: Coordinator,
) -> None:
    """An ended job, and one that never was, have no use for it: `send` returns False."""
    job = await any_concert.enqueue("t")
    assert await answer_to(partial(job.send, "packed", object())) == (
        f"message 'packed' to job {job.id} cannot be stored as JSON: JSON has no object"
    )
    assert await answer_to(partial(job.send, LONG, 1)) == (
        f"the name '{LONG[:40]}'... of a message has 513 bytes; use at most 512, or a hash of it"
    )
    async with any_concert.consume("default") as jobs, await anext(jobs):
        assert await job.send("packed", 1)
    assert not await job.send("more", 1)
    unknown: Job[Any] = any_concert.tasks.job("0123456789abcdef.1.0")
    assert not await unknown.send("packed", 1)


async def test_bad_members_are_refused_with_the_whole_answer_before_a_group_is_open(any_concert: Coordinator) -> None:
    """Whatever is given in place of calls."""
    task = any_concert.task(name="t")(one)
    begin: Any = any_concert.group
    refused = {
        "one call": (task.call(), "the members of a group are <Draft of 't'>; give a list of task.call(...)"),
        "a number": (5, "the members of a group are 5; give a list of task.call(...)"),
        "a task": ([task], "a member of a group is <Task 't'>; give task.call(...)"),
        "a text": ("abc", "a member of a group is 'a'; give task.call(...)"),
    }
    for calls, answer in refused.values():
        assert await answer_to(partial(begin, calls)) == answer
    assert await answer_to(partial(begin, then=task)) == "then is <Task 't'>; give task.call(...)"
    assert await any_concert.tasks.queues() == []
    group = await any_concert.group()
    adding: Any = group.add
    for calls, answer in refused.values():
        assert await answer_to(partial(adding, calls)) == answer
    assert await answer_to(partial(group.add, [task.call()], start=7)) == (
        f"start is 7, but group {group.id} has given 0 numbers by now"
    )
    await group.close()
    assert await answer_to(partial(group.add, [task.call()])) == (
        f"group {group.id} is closed, and takes no more members; begin another group for these"
    )
    assert (await group.progress()).total == 0
