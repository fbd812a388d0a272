"""Elections while leaders die, stand still or are cut off, servers forget, and callers vanish at every await."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, Election, ElectionRecord, LeaseLost
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert.periodic import PeriodicElection
from inconcert.periodic import _Keys as PeriodicKeys
from tests.support.cancelling import MOMENTS, Means, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.inner import broadcasts_of
from tests.support.lines import in_line
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer

HERE = "tests.faults.test_election_faults"


async def is_free(election: Election) -> bool:
    """Whether nobody leads, nobody waits, and nobody is said to lead."""
    return await election.holders() == [] and await election.waiters() == 0 and await election.leader() is None


# What children do.


async def lead(url: str, namespace: str, ttl: float) -> None:
    """In a child: lead again and again, and tell of each term."""
    async with Coordinator(url, namespace=namespace) as concert:
        async for term in concert.election("scheduler", ttl=ttl).terms():
            async with term:
                tell("leads", number=term.number, at=time.monotonic())
                await anyio.sleep_forever()
            tell("stopped", number=term.number, is_lost=term.is_lost)


async def lead_once(url: str, namespace: str) -> None:
    """In a child: lead, and end when told to."""
    async with Coordinator(url, namespace=namespace) as concert, concert.election("scheduler"):
        tell("leads")
        while not await raw(concert).exists(f"{namespace}:may-end"):
            await anyio.sleep(0.01)
        tell("ends", at=time.monotonic())


async def lead_and_write(url: str, namespace: str, ttl: float) -> None:
    """In a child: lead again and again, and write the beginning and the end of each body to one list."""
    async with Coordinator(url, namespace=namespace) as concert:
        client = raw(concert)
        async for term in concert.election("scheduler", ttl=ttl).terms():
            async with term:
                await client.rpush(f"{namespace}:history", f"begin {term.number}")
                tell("leads", number=term.number)
                try:
                    await anyio.sleep(0.15)
                finally:
                    await client.rpush(f"{namespace}:history", f"end {term.number}")


async def run_every(url: str, namespace: str, period: float) -> None:
    """In a child: a periodic function that tells when it runs."""
    concert = Coordinator(url, namespace=namespace)

    @concert.every(period, name="tidy")
    async def tidy() -> None:
        tell("runs", at=time.monotonic())

    entry = concert._timetable._entries["tidy"]
    entry._election = PeriodicElection(concert._ref, "tidy", ttl=0.4)
    async with concert:
        tell("open")
        await anyio.sleep_forever()


# Processes that die or stand still.


async def test_next_leads_within_the_lease_of_a_killed_leader(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """`kill -9`: nobody tells the candidates."""
    election = concert.election("scheduler", ttl=0.6)
    async with spawn(f"{HERE}:lead", server.url, namespace, 0.6) as child:
        number = (await child.wait_for("leads"))["number"]
        waiter = asyncio.create_task(election.acquire())
        await in_line(election, 1)
        child.kill()
        killed_at = time.monotonic()
        term = await waiter
        assert time.monotonic() - killed_at < 0.6 + 1.0
        assert term.number > number
        await term.release()


async def test_next_leads_at_once_after_a_clean_exit(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """By one message, whatever the ttl."""
    election = concert.election("scheduler", ttl=30)
    async with spawn(f"{HERE}:lead_once", server.url, namespace) as child:
        await child.wait_for("leads")
        waiter = asyncio.create_task(election.acquire())
        await in_line(election, 1)
        await raw(concert).set(f"{namespace}:may-end", 1, px=10_000)
        term = await waiter
        led_at = time.monotonic()
        assert led_at - (await child.wait_for("ends"))["at"] < 1.0
        await term.release()


async def test_paused_leader_has_lost_its_term_when_it_goes_on(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """SIGSTOP for longer than the lease: its body is stopped, and it stands for election again."""
    election = concert.election("scheduler", ttl=0.5)
    async with spawn(f"{HERE}:lead", server.url, namespace, 0.5) as child:
        number = (await child.wait_for("leads"))["number"]
        child.pause()
        async with election as term:
            assert term.number > number
            child.resume()
            stopped = await child.wait_for("stopped")
            assert (stopped["number"], stopped["is_lost"]) == (number, True)
            await in_line(election, 1)
        assert (await child.wait_for("leads"))["number"] > term.number


async def test_one_body_at_a_time_while_leaders_are_killed(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """Five processes, four of which are killed while they lead: what their bodies have written tells."""
    killed: set[int] = set()
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(spawn(f"{HERE}:lead_and_write", server.url, namespace, 0.4))
            for _ in range(5)
        ]
        for child in children[:4]:
            killed.add((await child.wait_for("leads"))["number"])
            child.kill()
        for _ in range(3):
            await children[4].wait_for("leads")
        children[4].kill()
    history = [line.decode().split() for line in await raw(concert).lrange(f"{namespace}:history", 0, -1)]
    await raw(concert).delete(f"{namespace}:history")
    leader, numbers = 0, list[int]()
    for what, number in history:
        if what == "begin":
            assert leader == 0 or leader in killed
            leader = int(number)
            numbers.append(leader)
        else:
            assert leader == int(number)
            leader = 0
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 7
    assert killed <= set(numbers)


async def test_periodic_function_is_run_by_another_process_when_its_own_was_killed(
    server: RealServer, namespace: str
) -> None:
    """When it is due, or when the lease of the dead one has lapsed, if that is later; never sooner."""
    period = 0.5
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(spawn(f"{HERE}:run_every", server.url, namespace, period))
        await first.wait_for("open")
        second = await stack.enter_async_context(spawn(f"{HERE}:run_every", server.url, namespace, period))
        await second.wait_for("open")
        await first.wait_for("runs")
        last = await first.wait_for("runs")
        first.kill()
        taken_over = await second.wait_for("runs")
        assert 0.45 < taken_over["at"] - last["at"] < 5.0
        again = await second.wait_for("runs")
        assert 0.4 < again["at"] - taken_over["at"] < 5.0


# Event loops that stand still, servers that forget, links that break.


async def test_body_that_blocked_the_loop_for_longer_than_its_term_has_lost_it(concert: Coordinator) -> None:
    """It is stopped at its next await, and the loop leads again."""
    numbers: list[int] = []
    async for term in concert.election("scheduler", ttl=0.1).terms():
        async with term:
            numbers.append(term.number)
            if len(numbers) == 2:
                break
            time.sleep(0.15)
            await anyio.sleep_forever()
        assert term.is_lost
    assert numbers[1] > numbers[0]


@pytest.mark.parametrize("empty", [True, False])
async def test_leading_goes_on_after_a_restart_of_the_server(own_server: RealServer, empty: bool) -> None:
    """In the same term if the server has kept it, else in a new one: nothing ends with an error."""
    async with Coordinator(own_server.url, timeout=2.0) as concert:
        election = concert.election("scheduler", ttl=1.5, candidate="ann")
        numbers: list[int] = []
        async for term in election.terms():
            async with term:
                numbers.append(term.number)
                if len(numbers) == 2:
                    break
                own_server.restart(empty=empty)
                if empty:
                    await anyio.sleep_forever()
                await term.renew()
                break
            assert term.is_lost
        assert len(numbers) == (2 if empty else 1)


async def test_leading_goes_on_after_a_long_absence_of_the_server(own_server: RealServer) -> None:
    """The body is stopped by its own clock, and the loop stands for election until there is a server again."""
    async with Coordinator(own_server.url, timeout=0.3) as concert:
        election = concert.election("scheduler", ttl=0.4)
        lost = False
        with anyio.fail_after(10):
            async for term in election.terms():
                async with term:
                    if lost:
                        break
                    own_server.kill()
                    await anyio.sleep_forever()
                assert term.is_lost
                lost = True
                asyncio.get_running_loop().call_later(0.8, own_server.start)


async def test_leader_stays_while_its_connections_are_killed(own_server: RealServer) -> None:
    """The same term, and nobody notices."""
    async with Coordinator(own_server.url) as concert, Coordinator(own_server.url) as elsewhere:
        seen: list[ElectionRecord | None] = []

        async def watch() -> None:
            async for record in elsewhere.election("scheduler").watch():
                seen.append(record)  # noqa: PERF401 - it is looked at while this goes on

        watching = asyncio.create_task(watch())
        await eventually(lambda: seen)
        async with concert.election("scheduler", ttl=10.0) as term:
            for _ in range(5):
                for kind in ("NORMAL", "PUBSUB"):
                    own_server.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "YES")
                await term.renew()
                await anyio.sleep(0.1)
        await eventually(lambda: len(seen) == 3)
        assert [record and record.number for record in seen] == [None, term.number, None]
        watching.cancel()


async def test_watcher_sees_what_has_changed_while_it_was_cut_off(
    concert: Coordinator, server: RealServer, namespace: str
) -> None:
    """It looks when it is back."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
        seen: list[ElectionRecord | None] = []

        async def watch() -> None:
            async for record in elsewhere.election("scheduler").watch():
                seen.append(record)  # noqa: PERF401 - it is looked at while this goes on

        watching = asyncio.create_task(watch())
        await eventually(lambda: seen)
        proxy.refuse()
        proxy.cut()
        async with concert.election("scheduler", candidate="ann") as term:
            await proxy.heal()
            await eventually(lambda: len(seen) == 2)
            assert seen[1] is not None
            assert (seen[1].candidate, seen[1].number) == ("ann", term.number)
        watching.cancel()


async def test_body_is_stopped_before_the_next_leads_when_the_server_cannot_be_reached(own_server: RealServer) -> None:
    """By the leader's own clock, which nobody has to tell."""
    async with (
        Proxy(own_server.tcp_url) as proxy,
        Coordinator(proxy.url, timeout=0.4) as concert,
        Coordinator(own_server.url) as elsewhere,
    ):
        stopped_at = 0.0
        entered = asyncio.Event()

        async def body() -> None:
            nonlocal stopped_at
            try:
                async with concert.election("scheduler", ttl=0.6):
                    entered.set()
                    await anyio.sleep_forever()
            except LeaseLost:
                stopped_at = time.monotonic()

        task = asyncio.create_task(body())
        await entered.wait()
        proxy.mute()
        async with elsewhere.election("scheduler"):
            entered_at = time.monotonic()
            assert stopped_at
            assert stopped_at <= entered_at
        await task
        await proxy.heal()


async def test_term_whose_proclamation_was_lost_on_its_way_is_proclaimed_all_the_same(
    server: RealServer, namespace: str, concert: Coordinator
) -> None:
    """It is sent again over the next connection, and told to those who watch once."""
    async with Proxy(server.tcp_url) as proxy, Coordinator(proxy.url, namespace=namespace) as elsewhere:
        seen: list[ElectionRecord | None] = []

        async def watch() -> None:
            async for record in concert.election("scheduler").watch():
                seen.append(record)  # noqa: PERF401 - it is looked at while this goes on

        watching = asyncio.create_task(watch())
        await eventually(lambda: seen)
        proxy.cut_after_replies(1, lose_next=True)  # the first is that of the acquire
        async with elsewhere.election("scheduler", candidate="ann") as term:
            await eventually(concert.election("scheduler").leader)
        await eventually(lambda: len(seen) == 3)
        assert [record and record.number for record in seen] == [None, term.number, None]
        watching.cancel()


# Callers that vanish.


async def with_body(election: Election) -> None:
    """The whole of it."""
    async with election:
        await anyio.sleep(0)
        await anyio.sleep(0)


async def in_terms(election: Election) -> None:
    """The loop, left in its second turn."""
    number = 0
    async for term in election.terms():
        async with term:
            number += 1
            await anyio.sleep(0)
            if number == 2:
                break


async def not_entered(election: Election) -> None:
    """The loop, without a body."""
    async for _ in election.terms():
        await anyio.sleep(0)
        break


async def running(election: Election) -> None:
    """A function."""
    await election.run(anyio.sleep, 0)


async def resigning(election: Election) -> None:
    """Without a body."""
    term = await election.acquire()
    await election.resign()
    assert term._state.is_over


async def watching_once(election: Election) -> None:
    """How things stand."""
    async for _ in election.watch():
        await election.record()
        break


@pytest.mark.parametrize("how", [(moment, means) for moment in MOMENTS for means in ("task", "scope")], ids=" by ".join)
@pytest.mark.parametrize("story", [with_body, in_terms, not_entered, running, resigning, watching_once])
async def test_cancellation_at_any_await_leaves_nothing(
    concert: Coordinator,
    elsewhere: Coordinator,
    story: Callable[[Election], Coroutine[Any, Any, None]],
    how: tuple[Moment, Means],
) -> None:
    """No leader, no candidate and no record, and who comes next leads at once."""
    election, other = concert.election("scheduler"), elsewhere.election("scheduler")
    number = 1
    while await cancel_at(number, how[0], story(election), means=how[1]):
        with anyio.fail_after(1.8):  # less than the life of a lease that is handed over
            async with other:
                pass
        await eventually(lambda: is_free(election))
        number += 1
    assert number > 2
    assert not broadcasts_of(concert._ref.session)._channels


async def test_cancellation_of_a_body_that_resigns_itself_is_never_swallowed(concert: Coordinator) -> None:
    """At any turn of the event loop; nothing is left behind."""
    election = concert.election("scheduler")

    async def lead() -> None:
        async with election:
            await election.resign()

    outcomes: list[bool] = []
    for turns in range(40):
        task = asyncio.create_task(lead())
        for _ in range(turns):
            await asyncio.sleep(0)
        was_asked = task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == was_asked
        outcomes.append(was_asked)
        await eventually(lambda: is_free(election))
    assert outcomes[0]


# Scripts that are sent again.


async def run(concert: Coordinator, name: str, **named: Argument) -> Reply:
    """Run a script of the election `door` once."""
    election = concert.election("door")
    return await concert._ref.session.run(command_of(name, election._keys, record=election._record, **named))


async def renew(concert: Coordinator, holder: str, *, number: int = 7, candidate: str = "ann") -> Reply:
    """Run the script that renews a term, and proclaims it."""
    named: dict[str, Argument] = {"holder": holder, "number": number, "candidate": candidate}
    return await run(concert, "elections/renew", **named, ttl_ms=30_000, changes="changes")


async def vacate(concert: Coordinator, holder: str) -> Reply:
    """Run the script that strikes out a term."""
    return await run(concert, "elections/vacate", holder=holder, changes="changes")


async def record(concert: Coordinator) -> bytes | None:
    """Who is proclaimed."""
    proclaimed: bytes | None = await raw(concert).get(concert.election("door")._record)
    return proclaimed


async def take(concert: Coordinator, holder: str, ttl_ms: int = 30_000) -> None:
    """Give someone the candidacy."""
    seconds, microseconds = await raw(concert).time()
    holders = concert.election("door")._keys.holders
    await raw(concert).zadd(holders, {holder: seconds * 1000 + microseconds // 1000 + ttl_ms})
    await raw(concert).pexpire(holders, 30_000)


@pytest.mark.twice("elections/renew")
async def test_second_renewal_proclaims_nothing_again(any_concert: Coordinator) -> None:
    """The same record, the same message once, and a lease that counts from the second run."""
    await take(any_concert, "s.1", 1000)
    async with raw(any_concert).pubsub() as ear:
        await ear.subscribe("changes")
        assert await renew(any_concert, "s.1") == 1
        first = await record(any_concert)
        assert first is not None
        assert await renew(any_concert, "s.1") == 1
        assert await record(any_concert) == first
        await raw(any_concert).publish("changes", "last")
        said = [await ear.get_message(timeout=5) for _ in range(3)]
    assert [message["data"].split()[2:] for message in said[1:2]] == [first.split()]
    assert said[2]["data"] == b"last"


@pytest.mark.twice("elections/renew")
async def test_renewal_of_what_is_not_held_is_refused_twice(any_concert: Coordinator) -> None:
    """And proclaims nothing."""
    await take(any_concert, "s.1", -1)
    for holder in ("s.1", "s.2"):
        for _ in range(2):
            assert await renew(any_concert, holder) == 0
    assert await record(any_concert) is None


@pytest.mark.twice("elections/vacate")
@pytest.mark.parametrize("is_released", [True, False], ids=["", "before its release"])
async def test_term_is_struck_out_once(any_concert: Coordinator, *, is_released: bool) -> None:
    """The second run answers 0 and says nothing, and leaves another's record alone.

    A server that has forgotten the script of the release runs that behind.
    """
    await take(any_concert, "s.1")
    await renew(any_concert, "s.1")
    if is_released:
        await raw(any_concert).zrem(any_concert.election("door")._keys.holders, "s.1")
    async with raw(any_concert).pubsub() as ear:
        await ear.subscribe("changes")
        assert await vacate(any_concert, "s.1") == 1
        assert await vacate(any_concert, "s.1") == 0
        await raw(any_concert).publish("changes", "last")
        said = [await ear.get_message(timeout=5) for _ in range(3)]
    assert said[1]["data"].endswith(b" 0 ")
    assert said[2]["data"] == b"last"
    await take(any_concert, "s.2")
    await renew(any_concert, "s.2", number=8, candidate="bob")
    assert await vacate(any_concert, "s.1") == 0
    assert await any_concert.election("door").leader() == "bob"


@pytest.mark.twice("elections/record")
async def test_looking_changes_nothing(any_concert: Coordinator) -> None:
    """The same answer twice, but for the time."""
    await take(any_concert, "s.1")
    await renew(any_concert, "s.1")
    first = await record(any_concert)
    looks = [await run(any_concert, "elections/record") for _ in range(2)]
    assert await record(any_concert) == first
    assert looks[0].split()[2:] == looks[1].split()[2:]
    assert looks[0].split()[2:4] == [b"s.1", b"7"]


@pytest.mark.twice("periodic/begin")
async def test_run_that_has_begun_begins_again_for_the_same_request_only(any_concert: Coordinator) -> None:
    """One whose reply was lost is not left out; another waits until it is due.  A late one begins no other run."""
    access = any_concert._ref
    keys = access.keys.of(PeriodicKeys, "periodic", "door")
    begin = partial(command_of, "periodic/begin", keys, period_ms=30_000)
    for _ in range(2):
        assert await access.session.run(begin(request="s.1")) == 0
    waits_ms = await access.session.run(begin(request="s.2"))
    assert 29_000 < waits_ms <= 30_000
    await raw(any_concert).delete(keys.latest)  # the next is due
    for request, answer in (("s.1", 0), ("s.2", waits_ms)):
        assert await access.session.run(begin(request=request)) == answer
        assert not await raw(any_concert).exists(keys.latest)
