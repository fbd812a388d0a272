"""A handler runs once for each request with a key, and repetitions get its answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from inconcert import Coordinator, LeaseLost
from inconcert.integrations._answers import Answer
from inconcert.integrations._idempotency import IdempotentRequest, StoredAnswers, Turn, _Keys
from tests.support.eventually import eventually
from tests.support.raw import raw
from tests.support.reports import may_ask
from tests.support.scripts import command_of

__all__ = ["may_ask"]  # the fixture

REQUEST = IdempotentRequest("k1", "POST", "/pay", "ann", b'{"sum":5}')
PAID = Answer(201, (("content-type", "text/plain"), ("content-length", "4")), b"paid")


class Handler:
    """Answers, and counts how often it ran."""

    def __init__(self, answer: Answer | None = PAID) -> None:
        self.runs = 0
        self.answer = answer

    async def __call__(self) -> Answer | None:
        self.runs += 1
        return self.answer


async def ask(
    concert: Coordinator, handler: Callable[[], Awaitable[Answer | None]], request: IdempotentRequest = REQUEST
) -> Answer | None:
    """What a client gets: a stored answer, or that of the handler; None for one that was passed on as it came."""
    answer: Answer | None = None

    async def handle(turn: Turn) -> None:
        nonlocal answer
        answer = await handler()
        await turn.keep(answer or PAID, is_whole=answer is not None)
        await turn.end()

    return await StoredAnswers(concert).answer(request, handle) or answer


async def refused() -> Answer | None:
    """A handler that must not run."""
    raise AssertionError("it ran")


async def test_repetition_gets_the_stored_answer(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """With its status, headers and body, in any process; the header says that it is stored."""
    assert await ask(any_concert, Handler()) == PAID

    repeated = await ask(elsewhere, refused)
    assert repeated == replace(PAID, headers=(*PAID.headers, ("idempotency-replayed", "true")))


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, key="k2"),
        replace(REQUEST, method="PUT"),
        replace(REQUEST, path="/pay?now"),
        replace(REQUEST, user="bob"),
    ],
)
async def test_key_is_bound_to_its_request(other: IdempotentRequest, any_concert: Coordinator) -> None:
    """Another key, method, path or user is another request."""
    handler = Handler()
    await ask(any_concert, handler)
    await ask(any_concert, handler, other)

    assert handler.runs == 2


async def test_other_body_is_refused(any_concert: Coordinator) -> None:
    """A key is for one request: 422, and the handler does not run."""
    await ask(any_concert, Handler())
    refusal = await ask(any_concert, refused, replace(REQUEST, body=b"other"))

    assert refusal is not None
    assert refusal.status == 422


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_bad_key_is_refused(key: str, any_concert: Coordinator) -> None:
    """Before anything is asked."""
    refusal = await ask(any_concert, refused, replace(REQUEST, key=key))
    assert refusal is not None
    assert refusal.status == 400


async def test_unfinished_request_is_not_run_again(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Its repetition gets 409, and when to come back; afterwards the answer."""
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def slow() -> Answer | None:
        entered.set()
        await may_end.wait()
        return PAID

    first = asyncio.create_task(ask(any_concert, slow))
    await entered.wait()
    early = await ask(elsewhere, refused)
    may_end.set()

    assert early is not None
    assert (early.status, dict(early.headers)["retry-after"]) == (409, "1")
    assert await first == PAID
    repeated = await ask(elsewhere, refused)
    assert repeated is not None
    assert repeated.body == b"paid"


@pytest.mark.parametrize("status", [408, 409, 423, 425, 429, 499, 500, 503])
async def test_answer_that_means_try_again_is_not_kept(status: int, any_concert: Coordinator) -> None:
    """The next one runs the handler."""
    handler = Handler(replace(PAID, status=status))
    for _ in range(2):
        await ask(any_concert, handler)

    assert handler.runs == 2


async def test_handler_that_fails_may_run_again(any_concert: Coordinator) -> None:
    """Its error is the caller's, and no lock stays behind."""

    async def fail() -> Answer | None:
        raise ZeroDivisionError

    handler = Handler()
    with pytest.raises(ZeroDivisionError):
        await ask(any_concert, fail)
    await ask(any_concert, handler)

    assert handler.runs == 1


async def test_answer_that_was_sent_on_is_not_repeated(any_concert: Coordinator) -> None:
    """One that is too large to be kept: the handler does not run again, and the client hears so."""
    assert await ask(any_concert, Handler(None)) is None
    repeated = await ask(any_concert, refused)

    assert repeated is not None
    assert (repeated.status, "retry-after" in dict(repeated.headers)) == (409, False)


async def test_process_that_dies_holds_up_its_request_for_one_lease(
    concert: Coordinator, elsewhere: Coordinator
) -> None:
    """When its lock has lapsed another runs the handler; should the first still live, it is cancelled."""

    async def stuck() -> Answer | None:
        await asyncio.Event().wait()
        return None

    first = asyncio.create_task(ask(concert, stuck))
    lock = elsewhere.lock(f"idempotency:{REQUEST.name}")
    [holder] = await eventually(lock.holders)
    await raw(concert).zadd(lock._keys.holders, {holder: 1}, xx=True)
    handler = Handler()
    assert await ask(elsewhere, handler) == PAID
    assert handler.runs == 1
    first.cancel()
    with pytest.raises((LeaseLost, asyncio.CancelledError)):
        await first


async def test_answer_is_kept_although_its_caller_is_cancelled(concert: Coordinator) -> None:
    """The handler has done its work, so it must not run again."""
    task: asyncio.Task[Answer | None]

    async def handler() -> Answer | None:
        task.cancel()
        return PAID

    task = asyncio.create_task(ask(concert, handler))
    await asyncio.wait([task])
    assert task.cancelled()

    repeated = await ask(concert, refused)
    assert repeated is not None
    assert repeated.status == 201


async def test_answer_with_a_time_to_come_back_is_not_kept(any_concert: Coordinator) -> None:
    """A refusal that says so; but a success that says when to ask for its outcome is an answer."""
    later = (("retry-after", "5"),)
    for status, runs in (403, 2), (202, 1):
        handler = Handler(Answer(status, later, b""))
        request = replace(REQUEST, key=f"k{status}")
        for _ in range(2):
            await ask(any_concert, handler, request)
        assert handler.runs == runs


async def test_what_follows_the_answer_is_not_covered(concert: Coordinator, elsewhere: Coordinator) -> None:
    """A repetition has the answer while it still runs, no lock is held, and a failure is told and changes nothing."""

    async def handle(turn: Turn) -> None:
        await turn.keep(PAID)
        await turn.end()
        assert await concert.locks_held() == []
        assert await ask(elsewhere, refused) is not None
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await StoredAnswers(concert).answer(REQUEST, handle)
    assert await ask(elsewhere, refused) is not None


async def test_answer_is_sent_although_its_lock_is_lost(concert: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    """The release of a lost lease is no error of the request."""

    async def handle(turn: Turn) -> None:
        await turn.keep(PAID)
        [lock] = await concert.locks_held()
        await raw(concert).delete(concert.lock(lock.name)._keys.holders)
        await turn.end()

    assert await StoredAnswers(concert).answer(REQUEST, handle) is None
    assert "lapses by itself" in caplog.text


@pytest.mark.twice("idempotency/find", "idempotency/keep")
async def test_second_run_keeps_the_first_answer(any_concert: Coordinator) -> None:
    """The same again changes nothing, and nor does another answer."""
    session = any_concert._ref.session
    keys = any_concert._ref.keys.of(_Keys, "idempotency", "x")
    keep = command_of("idempotency/keep", keys, text=b"one", ttl_ms=10_000)
    find = command_of("idempotency/find", keys)

    assert await session.run(find) == b""
    assert [await session.run(keep) for _ in range(2)] == [1, 1]
    assert await session.run(command_of("idempotency/keep", keys, text=b"two", ttl_ms=10_000)) == 0
    assert [await session.run(find) for _ in range(2)] == [b"one", b"one"]
