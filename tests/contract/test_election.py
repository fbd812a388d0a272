"""What an election promises beyond what all permits do: terms, a record for everyone, and a way to resign."""

import asyncio
import gc
import os
import socket
import time
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from inconcert import AcquireTimeout, Coordinator, Election, ElectionRecord, InvalidName, NotConnected, Term
from inconcert._core import body as body_module
from inconcert._core.permit_state import PermitState
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import topics_of
from tests.support.lines import in_line
from tests.support.raw import publish, raw


@pytest.fixture
def election(any_concert: Coordinator) -> Election:
    """Nobody leads."""
    return any_concert.election("scheduler", candidate="ann")


@pytest.fixture
def election_elsewhere(elsewhere: Coordinator) -> Election:
    """The same election, as another process sees it."""
    return elsewhere.election("scheduler", candidate="bob")


async def nobody_leads(election: Election) -> None:
    """Return when the office is free."""

    async def free() -> bool:
        return await election.holders() == [] and await election.leader() is None

    await eventually(free)


async def lapse(concert: Coordinator, term: PermitState) -> None:
    """Let the server's side of a term end now; nobody is told."""
    await raw(concert).zadd(term.keys.holders, {term.holder: 1}, xx=True)


# The record.


async def test_leader_is_known_to_everyone(election: Election, election_elsewhere: Election) -> None:
    """From the moment in which it leads, by its candidate, until its term has ended."""
    assert await election_elsewhere.leader() is None
    async with election as term:
        assert await election.leader() == "ann"
        assert await election_elsewhere.leader() == "ann"
        record = await election_elsewhere.record()
        assert record is not None
        assert (record.candidate, record.number) == ("ann", term.number)
    assert await election_elsewhere.leader() is None
    assert await election_elsewhere.record() is None


async def test_record_says_since_when(any_concert: Coordinator, election: Election) -> None:
    """By the server's clock; a renewal changes nothing."""
    seconds, microseconds = await raw(any_concert).time()
    async with election as term:
        record = await election.record()
        assert record is not None
        assert abs(record.since - seconds - microseconds / 1e6) < 1
        await term.renew()
        assert await election.record() == record


async def test_number_of_a_term_is_its_fencing_token(election: Election) -> None:
    """And rises from term to term."""
    numbers: list[int] = []
    for _ in range(3):
        async with election as term:
            assert term.number == term.fencing_token
            numbers.append(term.number)
    assert numbers == sorted(set(numbers))


async def test_candidate_is_host_and_process_by_default(any_concert: Coordinator) -> None:
    """As told to others."""
    election = any_concert.election("scheduler")
    async with election as term:
        assert election.candidate == term.candidate == f"{socket.gethostname()}:{os.getpid()}"
        assert await election.leader() == term.candidate


@pytest.mark.parametrize("candidate", [" ", "a b\nc", "0", "\0", "{ä}", "%s", "ä" * 256])
async def test_candidate_may_be_any_string(any_concert: Coordinator, candidate: str) -> None:
    """It arrives as it is."""
    election = any_concert.election("scheduler", candidate=candidate)
    async with election:
        assert await election.leader() == candidate


@pytest.mark.parametrize("candidate", ["", "a" * 513, "\ud800", b"ann", 7])
def test_candidate_is_a_string_of_1_to_512_bytes(candidate: Any) -> None:
    """Anything else is `InvalidName`, before anything is sent."""
    with pytest.raises(InvalidName, match="candidate"):
        Coordinator().election("scheduler", candidate=candidate)


async def test_one_whose_lease_has_lapsed_is_no_leader(any_concert: Coordinator, election: Election) -> None:
    """Although its record is still there."""
    term = await election.acquire()
    assert await election.leader() == "ann"
    await lapse(any_concert, term._state)
    assert await raw(any_concert).exists(election._record)
    assert await election.leader() is None


async def test_late_end_of_a_term_leaves_the_next_alone(
    any_concert: Coordinator, election: Election, election_elsewhere: Election
) -> None:
    """One that had lapsed strikes out its own record only."""
    old = await election.acquire()
    await lapse(any_concert, old._state)
    async with election_elsewhere as term:
        assert await election_elsewhere.leader() == "bob"
        with pytest.raises(Exception, match="was lost"):
            await old.release()
        record = await election.record()
        assert record is not None
        assert (record.candidate, record.number) == ("bob", term.number)


async def test_next_in_line_is_proclaimed_when_it_leads(election: Election, election_elsewhere: Election) -> None:
    """Without anyone's asking for it."""
    term = await election.acquire()
    waiter = asyncio.create_task(election_elsewhere.acquire())
    await in_line(election, 1)
    await term.release()
    following = await waiter
    assert await election_elsewhere.leader() == "bob"
    assert following.number > term.number
    await following.release()


# Terms.


async def test_terms_lead_again_after_a_loss(any_concert: Coordinator) -> None:
    """The body is cancelled, its `async with` ends quietly, and the loop stands for election again."""
    election = any_concert.election("scheduler", ttl=0.3)
    terms: list[Term] = []
    async for term in election.terms():
        async with term:
            terms.append(term)
            if len(terms) == 3:
                break
            await lapse(any_concert, term._state)
            await anyio.sleep_forever()
        assert term.is_lost
    assert terms[2].number > terms[1].number > terms[0].number
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await nobody_leads(election)


async def test_terms_give_everyone_a_turn(election: Election, election_elsewhere: Election) -> None:
    """Whoever ends a term in good order goes to the end of the line."""
    led: list[str] = []

    async def lead(mine: Election) -> None:
        async for term in mine.terms():
            async with term:
                led.append(term.candidate)
                await in_line(election, 1)
                if len(led) >= 6:
                    break

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(lead(election))
        second = tasks.create_task(lead(election_elsewhere))
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        second.cancel()
    assert led[:6] in (["ann", "bob"] * 3, ["bob", "ann"] * 3)


async def test_term_that_was_not_entered_is_given_back_when_the_loop_goes_on(election: Election) -> None:
    """Before the next one is waited for."""
    numbers: list[int] = []
    with anyio.fail_after(5):
        async for term in election.terms():
            numbers.append(term.number)
            if len(numbers) == 3:
                break
    assert numbers == sorted(set(numbers))
    await nobody_leads(election)


async def test_term_is_given_back_when_the_loop_is_left(election: Election) -> None:
    """By `break` and by an exception, entered or not: asyncio closes the generator."""
    async for _ in election.terms():
        break
    await nobody_leads(election)

    async def fail() -> None:
        async for _ in election.terms():
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await fail()
    gc.collect()
    await nobody_leads(election)

    async for term in election.terms():
        async with term:
            break
    assert await election.holders() == []


async def test_exception_of_a_body_ends_the_loop(election: Election) -> None:
    """Itself, after the term was given back."""
    error = RuntimeError("the body's own")

    async def fail() -> None:
        async for term in election.terms():
            async with term:
                raise error

    with pytest.raises(RuntimeError) as caught:
        await fail()
    assert caught.value is error
    assert await election.holders() == []


@pytest.mark.parametrize("is_lost_first", [False, True])
async def test_cancellation_from_outside_is_never_swallowed(any_concert: Coordinator, is_lost_first: bool) -> None:
    """Also if the term is lost at that moment."""
    election = any_concert.election("scheduler")
    terms: list[Term] = []

    async def lead() -> None:
        async for term in election.terms():
            async with term:
                terms.append(term)
                await anyio.sleep_forever()

    task = asyncio.create_task(lead())
    await eventually(lambda: terms)
    await asyncio.sleep(0)
    if not is_lost_first:
        task.cancel()
    terms[0]._state.lose()
    if is_lost_first:
        task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()
    assert len(terms) == 1


async def test_body_of_a_term_that_is_over_already_ends_at_its_first_await(election: Election) -> None:
    """One who dawdled between the loop and the body."""
    went_on = False
    term = await election.acquire()
    await term.release()
    with anyio.fail_after(5):
        async with term:
            await asyncio.sleep(0)
            await asyncio.sleep(0.1)
            went_on = True
    assert not went_on


async def test_terms_wait_as_long_as_it_takes(any_concert: Coordinator, election_elsewhere: Election) -> None:
    """`timeout` is for `async with` and `acquire`."""
    hasty = any_concert.election("scheduler", timeout=0.01)
    term = await election_elsewhere.acquire()
    with pytest.raises(AcquireTimeout):
        async with hasty:
            pass
    loop = hasty.terms()
    following = asyncio.ensure_future(anext(loop))
    await in_line(election_elsewhere, 1)
    await anyio.sleep(0.03)
    await term.release()
    assert (await following).number > term.number
    await loop.aclose()
    assert await hasty.holders() == []


async def test_terms_end_when_the_coordinator_closes(
    any_concert: Coordinator, elsewhere: Coordinator, election: Election, election_elsewhere: Election
) -> None:
    """Whether one waits or leads: the body is cancelled, and the loop raises `NotConnected`."""
    entered = asyncio.Event()

    async def lead(mine: Election) -> None:
        async for term in mine.terms():
            async with term:
                entered.set()
                await anyio.sleep_forever()

    leading = asyncio.create_task(lead(election_elsewhere))
    await entered.wait()
    waiting = asyncio.create_task(lead(election_elsewhere))
    await in_line(election, 1)
    await elsewhere.__aexit__(None, None, None)
    results = await asyncio.gather(leading, waiting, return_exceptions=True)
    assert [type(result) for result in results] == [NotConnected, NotConnected]
    await nobody_leads(election)


# Running a function.


async def test_run_returns_what_the_function_returned(election: Election) -> None:
    """It ran while leading, with its arguments, and the office is free again."""

    async def work(left: int, *, right: int) -> int:
        assert await election.leader() == "ann"
        return left + right

    assert await election.run(work, 2, right=3) == 5
    assert await election.holders() == []


async def test_function_is_run_again_after_a_loss(any_concert: Coordinator) -> None:
    """From its beginning, in the next own term."""
    election = any_concert.election("scheduler", ttl=0.3)
    runs: list[str] = []

    async def work() -> str:
        runs.append(await election.leader() or "")
        if len(runs) == 1:
            [term] = election._terms_here
            await lapse(any_concert, term)
            await anyio.sleep_forever()
        return "done"

    with anyio.fail_after(5):
        assert await election.run(work) == "done"
    assert runs == [election.candidate] * 2


async def test_exception_of_the_function_comes_through(election: Election) -> None:
    """Itself, and the office is free."""

    async def fail() -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        await election.run(fail)
    assert await election.holders() == []


@pytest.mark.parametrize("function", [lambda: None, time.time, 7, None])
async def test_run_takes_coroutine_functions_only(function: Any) -> None:
    """Anything else is a `TypeError`, before anything is sent."""
    with pytest.raises(TypeError, match="not a coroutine function"):
        await Coordinator().election("scheduler").run(function)


async def test_function_runs_once_at_a_time_in_all_processes(election: Election, election_elsewhere: Election) -> None:
    """Ten candidates in two processes, one after the other."""
    inside = 0

    async def work() -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0.002)
        inside -= 1

    await asyncio.gather(*(each.run(work) for each in (election, election_elsewhere) for _ in range(5)))


# Resigning.


async def test_who_does_not_lead_cannot_resign(election: Election, election_elsewhere: Election) -> None:
    """False, and whoever leads goes on."""
    assert not await election.resign()
    async with election_elsewhere:
        assert not await election.resign()
        assert await election_elsewhere.leader() == "bob"


async def test_resign_waits_for_a_body_that_has_gone_on_in_another_task(election: Election) -> None:
    """Nobody is cancelled, because the task that entered has ended; the office is kept until the body is left."""

    async def body() -> AsyncGenerator[Term, None]:
        async with election as term:
            yield term

    part = body()
    term = await asyncio.create_task(_next(part))
    resigning = asyncio.create_task(election.resign())
    await asyncio.sleep(0)
    assert not term._state.is_over
    assert not resigning.done()
    await asyncio.create_task(part.aclose())
    assert await resigning
    assert await election.leader() is None


async def _next(part: AsyncGenerator[Term, None]) -> Term:
    return await anext(part)


async def test_resigning_without_a_body_gives_the_office_back(election: Election) -> None:
    """True, once."""
    term = await election.acquire()
    assert await election.resign()
    assert await election.holders() == []
    assert not await election.resign()
    assert not term.is_lost
    assert term.remaining == 0


async def test_resigning_stops_the_body_and_waits_for_its_end(election: Election, election_elsewhere: Election) -> None:
    """The next one leads only when the body has tidied up, and `async with` ends quietly."""
    may_end, entered = asyncio.Event(), asyncio.Event()
    story: list[str] = []

    async def lead() -> None:
        async with election:
            entered.set()
            try:
                await anyio.sleep_forever()
            finally:
                story.append("stopped")
                await may_end.wait()
                story.append("tidied up")
        story.append("went on")

    async def follow() -> None:
        async with election_elsewhere:
            story.append("next")

    leading = asyncio.create_task(lead())
    await entered.wait()
    following = asyncio.create_task(follow())
    await in_line(election_elsewhere, 1)
    resigning = asyncio.create_task(election.resign())
    await eventually(lambda: story)
    assert await election_elsewhere.leader() == "ann"
    assert not resigning.done()
    may_end.set()
    assert await resigning
    await asyncio.gather(leading, following)
    assert story[:2] == ["stopped", "tidied up"]
    assert sorted(story[2:]) == ["next", "went on"]


async def test_body_may_resign_itself(election: Election) -> None:
    """It ends right there, and what comes after it goes on unharmed."""
    with anyio.fail_after(5):
        async with election:
            await election.resign()
            pytest.fail("the body went on")
    assert await election.holders() == []
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_terms_go_on_behind_the_others_after_resigning(election: Election, election_elsewhere: Election) -> None:
    """The next in line leads first."""
    waiter = None
    numbers: list[int] = []
    with anyio.fail_after(5):
        async for term in election.terms():
            async with term:
                numbers.append(term.number)
                if len(numbers) == 2:
                    break
                waiter = asyncio.create_task(election_elsewhere.run(_nothing))
                await in_line(election_elsewhere, 1)
                await election.resign()
            assert not term.is_lost
    assert waiter is not None
    assert waiter.done()
    await waiter


async def _nothing() -> None:
    pass


async def test_many_may_ask_one_leader_to_resign(election: Election, monkeypatch: pytest.MonkeyPatch) -> None:
    """All wait for its end, and nothing of that is left behind."""
    monkeypatch.setattr(body_module, "CANCEL_AGAIN", 0.05)
    terms: list[Term] = []
    tidying, may_end = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        async with election as term:
            terms.append(term)
            try:
                await anyio.sleep_forever()
            finally:
                tidying.set()
                await may_end.wait()
        await anyio.sleep(0.15)  # nobody cancels what comes after the body

    task = asyncio.create_task(lead())
    await eventually(lambda: terms)
    resigning = [asyncio.create_task(election.resign()) for _ in range(3)]
    await tidying.wait()
    terms[0]._state.lose()  # as well
    may_end.set()
    assert await asyncio.gather(*resigning) == [True, True, True]
    await task


async def test_body_s_own_error_wins_over_a_resignation(election: Election) -> None:
    """It is raised, and the office is free."""
    entered = asyncio.Event()

    async def lead() -> None:
        async with election:
            entered.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise RuntimeError("mine")

    task = asyncio.create_task(lead())
    await entered.wait()
    assert await election.resign()
    with pytest.raises(RuntimeError, match="mine"):
        await task


@pytest.mark.parametrize("resigns_first", [False, True])
async def test_cancellation_from_outside_wins_over_a_resignation(election: Election, resigns_first: bool) -> None:
    """Whoever cancelled the caller is obeyed."""
    entered = asyncio.Event()

    async def lead() -> None:
        async with election:
            entered.set()
            await anyio.sleep_forever()

    task = asyncio.create_task(lead())
    await entered.wait()
    resigning = asyncio.create_task(election.resign())
    if resigns_first:
        await asyncio.sleep(0)
    task.cancel()
    assert await resigning
    await asyncio.wait([task], timeout=5)
    assert task.cancelled()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_resignation_goes_on(election: Election, moment: Moment) -> None:
    """Once it has begun, whatever becomes of its caller."""
    term = await election.acquire()
    assert await cancel_at(1, moment, election.resign())
    await nobody_leads(election)
    assert term.remaining == 0


# Watching.


async def watched(election: Election, seen: list[ElectionRecord | None]) -> "asyncio.Task[None]":
    """Begin to watch, and return when it has seen how things stand."""

    async def watch() -> None:
        async for record in election.watch():
            seen.append(record)  # noqa: PERF401 - it is looked at while this goes on

    task = asyncio.create_task(watch())
    await eventually(lambda: seen)
    return task


async def test_watcher_sees_every_change_once(election: Election, election_elsewhere: Election) -> None:
    """Who leads, who follows at once, and that nobody leads."""
    seen: list[ElectionRecord | None] = []
    task = await watched(election_elsewhere, seen)
    numbers: list[int] = []
    first = await election.acquire()
    numbers.append(first.number)
    following = asyncio.create_task(election_elsewhere.acquire())
    await in_line(election, 1)
    await first.renew()
    await first.release()
    second = await following
    numbers.append(second.number)
    await second.release()
    for _ in range(10):
        async with election as term:
            numbers.append(term.number)
    await eventually(lambda: len(seen) >= 2 * len(numbers))
    task.cancel()
    assert (
        [record and record.number for record in seen]
        == [
            None,
            *numbers[:2],  # handed over: the office was never vacant
            None,
            *(each for number in numbers[2:] for each in (number, None)),
        ]
    )
    assert [record.candidate for record in seen if record is not None] == ["ann", "bob", *["ann"] * 10]


async def test_watcher_sees_first_who_leads_already(election: Election, election_elsewhere: Election) -> None:
    """Whoever it is."""
    async with election as term:
        async for record in election_elsewhere.watch():
            assert record is not None
            assert record.number == term.number
            break


async def test_watcher_notices_a_leader_that_died(any_concert: Coordinator, election_elsewhere: Election) -> None:
    """Nobody tells it: it looks when the lease should have lapsed, and not before."""
    election = any_concert.election("scheduler", ttl=0.3)
    term = await election.acquire()
    seen: list[ElectionRecord | None] = []
    task = await watched(election_elsewhere, seen)
    await anyio.sleep(0.5)  # it lives, so nothing is new
    assert len(seen) == 1
    term._state.is_released = True  # it dies, without a word, and if a renewal is under way, after it
    term._state._renewal.remove(term._state)
    await eventually(lambda: len(seen) == 2)
    assert seen[1] is None
    task.cancel()


async def test_watcher_looks_again_when_it_may_have_missed_something(
    any_concert: Coordinator, election: Election, election_elsewhere: Election
) -> None:
    """And says nothing if nothing has changed."""
    seen: list[ElectionRecord | None] = []
    task = await watched(election_elsewhere, seen)
    session = election_elsewhere._ref.session
    [listener] = topics_of(session)[0].listeners
    listener.missed()
    term = await election.acquire()
    await eventually(lambda: len(seen) == 2)
    await raw(any_concert).delete(election._record)  # nobody is told of that
    listener.missed()
    await eventually(lambda: len(seen) == 3)
    assert seen[2] is None
    task.cancel()
    await term.release()


async def test_watcher_is_not_misled_by_what_was_said_before_it_looked(
    election: Election, election_elsewhere: Election
) -> None:
    """An old message that comes late changes nothing."""
    seen: list[ElectionRecord | None] = []
    term = await election.acquire()
    task = await watched(election_elsewhere, seen)
    session = election_elsewhere._ref.session
    [listener] = topics_of(session)[0].listeners
    listener.on_message(election_elsewhere._changes, b"1 10000 x.1 7 0 nobody")
    listener.on_message(election_elsewhere._changes, b"2 0 ")
    await election_elsewhere.leader()
    await term.release()
    await eventually(lambda: len(seen) == 2)
    task.cancel()
    assert seen[0] is not None
    assert seen[1] is None


@pytest.mark.parametrize("text", [b"", b"hello", b"9 9 x", b"\xff \xff ", b"9" * 5000], ids=lambda text: repr(text[:5]))
async def test_watcher_ignores_the_message_of_another(
    any_concert: Coordinator, election: Election, election_elsewhere: Election, text: bytes
) -> None:
    """Whoever publishes on the channel by hand is not taken for a leader, and disturbs nobody."""
    seen: list[ElectionRecord | None] = []
    term = await election.acquire()
    task = await watched(election_elsewhere, seen)
    await publish(any_concert, election_elsewhere._changes, text)
    await term.release()
    await eventually(lambda: len(seen) == 2)
    task.cancel()
    assert seen[1] is None


async def test_watching_ends_when_the_coordinator_closes(elsewhere: Coordinator, election_elsewhere: Election) -> None:
    """With `NotConnected`."""
    seen: list[ElectionRecord | None] = []
    task = await watched(election_elsewhere, seen)
    await elsewhere.__aexit__(None, None, None)
    with pytest.raises(NotConnected):
        await task


async def test_closed_coordinator_refuses_to_be_asked() -> None:
    """`NotConnected`, whatever is asked."""
    election = Coordinator().election("scheduler")
    with pytest.raises(NotConnected):
        await election.leader()
    with pytest.raises(NotConnected):
        async for _ in election.terms():
            pass
    with pytest.raises(NotConnected):
        async for _ in election.watch():
            pass
    assert not await election.resign()
