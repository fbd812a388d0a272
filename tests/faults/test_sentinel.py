"""What happens when the master changes: Sentinels promote a replica, or are themselves away."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any, cast

import anyio
import pytest
import redis.asyncio
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool

from inconcert import Coordinator, Job, JobStatus, Unavailable
from inconcert._redis.find import master_watch
from inconcert._redis.operate.rights import Server, sentinel_rights
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer

ONE_SECOND = 1.0  # after the new master is known, all who wait must be served again
NEVER = 60.0  # seconds that a test would wait for what has been lost


@pytest.fixture
def sentinels() -> Iterator[SentinelSet]:
    """A master, a replica and three Sentinels for this test alone."""
    with SentinelSet() as running:
        yield running


@pytest.fixture(scope="module")
def calm() -> Iterator[SentinelSet]:
    """One for all tests that leave it as it is."""
    with SentinelSet() as running:
        yield running


def our_clients(server: RealServer) -> list[str]:
    """The connections of coordinators to a server."""
    return [line for line in server.command("CLIENT", "LIST").splitlines() if "name=inconcert" in line]


def manual(sentinels: SentinelSet) -> RealServer:
    """The old master lives, and would serve anyone who is still there."""
    return sentinels.fail_over()


def killed(sentinels: SentinelSet) -> RealServer:
    """The old master is gone."""
    before = sentinels.master
    before.kill()
    return sentinels.wait_for_new_master(before)


def paused(sentinels: SentinelSet) -> RealServer:
    """Its connections stay open, and are silent."""
    before = sentinels.master
    before.pause()
    return sentinels.wait_for_new_master(before)


@pytest.mark.parametrize(
    "fault", [pytest.param(manual, marks=pytest.mark.torture), pytest.param(killed, marks=pytest.mark.torture), paused]
)
async def test_all_who_wait_go_on_with_the_new_master_at_once(
    sentinels: SentinelSet, namespace: str, fault: Callable[[SentinelSet], RealServer]
) -> None:
    """In line, for a message and for a job: each is served within a second after the new master is known."""
    before = sentinels.master
    async with (
        Coordinator(sentinels.url, namespace=namespace) as here,
        Coordinator(sentinels.url, namespace=namespace) as there,
        there.consume("high") as jobs,
        anyio.create_task_group() as tasks,
    ):
        served: dict[str, float] = {}

        async def wait(what: str, waits: Callable[[], Any]) -> None:
            await waits()
            served[what] = time.monotonic()

        lease = await here.lock("door", ttl=NEVER).acquire()
        tasks.start_soon(wait, "lock", there.lock("door").acquire)
        tasks.start_soon(wait, "signal", there.signal("bell").wait)
        tasks.start_soon(wait, "job", lambda: anext(jobs))
        await in_line(here.lock("door"), 1)
        await eventually(lambda: any("cmd=blpop" in line for line in our_clients(before)))
        sentinels.settle()

        new = await asyncio.to_thread(fault, sentinels)
        known_at = time.monotonic()
        await lease.release()
        await here.enqueue("work", queue="high")
        while "signal" not in served:
            await here.signal("bell").broadcast("now")
            await anyio.sleep(0.01)
        await eventually(lambda: len(served) == 3)

        assert max(served.values()) - known_at < ONE_SECOND, served
        assert len(our_clients(new)) >= 5  # two coordinators: commands, wake-ups, and one that sleeps for jobs
        if before.is_running():
            before.resume()
            await eventually(lambda: not our_clients(before))


async def test_nothing_acknowledged_is_lost_when_a_living_master_is_replaced(
    sentinels: SentinelSet, namespace: str
) -> None:
    """Its connections leave it before a replica is promoted, and no call fails meanwhile.

    They have 0.1 s.  On a machine so busy that they leave later, jobs may be lost: see docs/explanation/topology.md.
    Only a process that was in time shows anything.
    """
    async with Coordinator(sentinels.url, namespace=namespace) as concert:
        jobs: list[Job[Any]] = []

        async def enqueue() -> None:
            while True:
                jobs.append(await concert.enqueue("t", queue="q"))

        await eventually(lambda: all("cmd=subscribe" in one.command("CLIENT", "LIST") for one in sentinels.sentinels))
        enqueuing = asyncio.create_task(enqueue())
        before = sentinels.master
        await asyncio.to_thread(manual, sentinels)
        await eventually(lambda: enqueuing.done() or not our_clients(before))
        enqueuing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueuing
        assert len(jobs) > 10
        assert {await job.status() for job in jobs} == {JobStatus.QUEUED}


@pytest.mark.parametrize("says", ["abort", "nothing"])
async def test_master_that_stays_is_used_again(
    calm: SentinelSet, namespace: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failover is given up, or the Sentinel that leads it dies: calls wait, and none fails."""
    monkeypatch.setattr(master_watch, "_LONGEST_AWAY", NEVER if says == "abort" else 0.5)
    async with Coordinator(calm.url, namespace=namespace) as concert:
        watch: Any = cast("Any", concert._ref.session)._wiring._watch
        about = f"master shop 127.0.0.1 {calm.master.port}".encode()
        watch.on_message("+failover-state-select-slave", about)
        locking = asyncio.create_task(concert.lock("door").acquire())
        await eventually(lambda: not our_clients(calm.master))
        assert not locking.done()
        if says == "abort":
            watch.on_message("-failover-abort-no-good-slave", about)
        with anyio.fail_after(3.0):
            await (await locking).release()


async def test_waiters_keep_their_places(sentinels: SentinelSet, namespace: str) -> None:
    """As far as the new master has them: those who stood in line are served in its order."""
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        enter = stack.enter_async_context
        concerts = [await enter(Coordinator(sentinels.url, namespace=namespace)) for _ in range(3)]
        lease = await concerts[0].lock("door", ttl=NEVER).acquire()
        order: list[int] = []

        async def stand(number: int) -> None:
            async with concerts[number % 3].lock("door"):
                order.append(number)

        for number in range(6):
            tasks.start_soon(stand, number)
            await in_line(concerts[0].lock("door"), number + 1)
        sentinels.settle()
        new = await asyncio.to_thread(killed, sentinels)
        # One whose process does not listen yet would be passed over, and have its place again when it does.
        await eventually(lambda: len([one for one in our_clients(new) if " sub=1 " in one]) == len(concerts))
        await in_line(concerts[0].lock("door"), 6)
        await lease.release()
        await eventually(lambda: len(order) == 6)
        assert order == sorted(order)


async def test_lease_that_the_new_master_lacks_ends_its_body_at_once(sentinels: SentinelSet, namespace: str) -> None:
    """Not at its next renewal, a third of a ttl later."""
    async with Coordinator(sentinels.url, namespace=namespace) as concert:
        kept = await concert.lock("kept", ttl=NEVER).acquire()
        lost = await concert.lock("lost", ttl=NEVER).acquire()
        sentinels.settle()
        # As if the grant had not reached the replica.
        [replica] = sentinels.replicas
        replica.command("CONFIG", "SET", "replica-read-only", "no")
        replica.command("DEL", f"{{{namespace}:lock:lost}}:holders")
        await asyncio.to_thread(killed, sentinels)
        known_at = time.monotonic()
        await lost.lost()
        assert time.monotonic() - known_at < ONE_SECOND
        assert not kept.is_lost
        assert kept.remaining > NEVER - 5
        await kept.release()


async def test_replica_is_never_written_to(calm: SentinelSet, namespace: str) -> None:
    """Not even one that takes writes, when a Sentinel that has not heard of the failover names it."""
    [replica] = calm.replicas
    replica.command("CONFIG", "SET", "replica-read-only", "no")

    class Stale:
        async def discover_master(self, name: str) -> tuple[str, int]:
            del name
            return "127.0.0.1", replica.port

    make: Any = redis.asyncio.Redis
    async with make.from_pool(cast("Any", SentinelConnectionPool)("shop", Stale())) as client:
        with pytest.raises(Unavailable, match="is a replica, not a master"):
            await Coordinator.from_client(client, namespace=namespace).__aenter__()


async def test_without_sentinels_the_known_master_serves(sentinels: SentinelSet, namespace: str) -> None:
    """Connections that are lost meanwhile are made again to it."""
    async with Coordinator(sentinels.url, namespace=namespace) as concert:
        for sentinel in sentinels.sentinels:
            sentinel.kill()
        master = sentinels.servers[0]
        for kind in "normal", "pubsub":
            master.command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        async with concert.lock("door", timeout=5):
            pass


async def test_sentinel_that_does_not_answer_costs_little(sentinels: SentinelSet, namespace: str) -> None:
    """They are all asked at once, whichever comes first in the URL."""
    sentinels.sentinels[0].pause()
    began = time.monotonic()
    async with Coordinator(sentinels.url, namespace=namespace) as concert, concert.lock("door"):
        assert time.monotonic() - began < ONE_SECOND


@pytest.mark.torture
async def test_sentinel_cut_off_with_the_master_is_replaced(
    sentinels: SentinelSet, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that would tell of the failover knows nothing of it, so it is asked for signs of life."""
    monkeypatch.setattr(master_watch, "_PING_EVERY", 0.2)
    monkeypatch.setattr(master_watch, "_TIMEOUT", 0.5)
    listened_to = sentinels.sentinels[0]
    async with Coordinator(sentinels.url, namespace=namespace) as concert:
        await eventually(lambda: "cmd=subscribe" in listened_to.command("CLIENT", "LIST"))
        async with concert.signal("bell").subscribe():
            listened_to.pause()
            new = await asyncio.to_thread(paused, sentinels)
            await eventually(lambda: len(our_clients(new)) == 3, timeout=3)


@pytest.mark.torture
async def test_client_of_sentinels_goes_on_with_the_new_master(sentinels: SentinelSet, namespace: str) -> None:
    """One that the user has made, and that asks one Sentinel after the other."""
    asked = cast("Any", Sentinel)([("127.0.0.1", one.port) for one in sentinels.sentinels])
    client: Any = asked.master_for("shop")
    async with client, Coordinator.from_client(client, namespace=namespace) as concert:
        async with concert.lock("door"):
            new = await asyncio.to_thread(manual, sentinels)
            known_at = time.monotonic()
            await eventually(lambda: len([line for line in _clients(new) if "cmd=eval" in line]) == 1)
            assert time.monotonic() - known_at < ONE_SECOND
        assert await concert.lock("door").try_acquire()
    for one in asked.sentinels:
        await one.aclose()


async def test_name_that_no_sentinel_knows_is_said(calm: SentinelSet) -> None:
    """With what each of them answered, and without trying for long."""
    concert = Coordinator(calm.url_of(calm.sentinels, name="shpo"))
    with pytest.raises(Unavailable, match=r"no Sentinel knows the master 'shpo' .*No such master"):
        await concert.__aenter__()


async def test_sentinels_may_have_a_login_of_their_own(calm: SentinelSet, namespace: str) -> None:
    """It is not the master's, and neither is shown."""
    for sentinel in calm.sentinels:
        sentinel.command("ACL", "SETUSER", "watch", "on", ">secret", *sentinel_rights(Server.VALKEY))
        sentinel.command("ACL", "LOG", "RESET")
    wrong = Coordinator(f"{calm.url}?sentinel_username=watch&sentinel_password=secrets", namespace=namespace)
    with pytest.raises(Unavailable, match="invalid username-password"):
        await wrong.__aenter__()
    right = Coordinator(f"{calm.url}?sentinel_username=watch&sentinel_password=secret", namespace=namespace)
    async with right as concert, concert.lock("door"):
        assert "secret" not in f"{concert!r} {concert.url}"
        await eventually(lambda: "cmd=subscribe" in calm.sentinels[0].command("CLIENT", "LIST"))
        assert concert.url == calm.url
    reasons = [str(entry) for sentinel in calm.sentinels for entry in sentinel.command("ACL", "LOG")]
    assert [reason for reason in reasons if "'command'" in reason or "'channel'" in reason] == []


@pytest.mark.torture
async def test_each_right_at_a_sentinel_is_needed(calm: SentinelSet, namespace: str) -> None:
    """Without it, a Sentinel refuses something that a coordinator asks of it."""
    rights = sentinel_rights(Server.VALKEY)
    url = f"{calm.url}?sentinel_username=watch&sentinel_password=secret"
    for right in [rule[1:] for rule in rights if rule.startswith("+")]:
        for sentinel in calm.sentinels:
            sentinel.command("ACL", "SETUSER", "watch", "on", ">secret", *rights, f"-{right}")
            sentinel.command("ACL", "LOG", "RESET")

        def is_refused(right: str = right) -> bool:
            return any(right in entry for one in calm.sentinels for entry in one.command("ACL", "LOG"))

        with suppress(Unavailable):
            async with Coordinator(url, namespace=namespace, timeout=2.0):
                await eventually(is_refused)
        assert is_refused(), right


def _clients(server: RealServer) -> list[str]:
    listed: str = server.command("CLIENT", "LIST")
    return listed.splitlines()
