"""A server that goes back in time, as a failover or a restart from a file makes it, while the processes live on.

What it did last is undone: it believes that workers hold what they have ended, and has forgotten their last claims.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import anyio
import pytest

from inconcert import Coordinator, LeaseLost, Limit, Member, NotClaimed, Unavailable, current_job
from inconcert._claims.ends import Ack
from inconcert._redis.wire.call import Call
from inconcert.tasks.running.claimed_job import ClaimedJob
from inconcert.tasks.running.worker_lease import JobWorkerLease
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.everything import Everything
from tests.support.ledger import all_done
from tests.support.raw import raw
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer
from tests.support.short_lease import with_lease

log = logging.getLogger(__name__)

LEASE = 1.0  # seconds of a heartbeat, here


def worker_of(job: ClaimedJob) -> JobWorkerLease:
    """The worker that holds a job."""
    worker = job._state._claimer
    assert isinstance(worker, JobWorkerLease)
    return worker


def compare(worker: JobWorkerLease) -> None:
    """Have it compared with the server now, as after a reconnect."""
    worker._reconnects = -1
    worker._compare(len(worker.held))


async def test_job_whose_end_was_undone_runs_again(own_server: RealServer, namespace: str) -> None:
    """With its place in a limit, so that the next job of its task has it then; its worker lives on."""
    async with Coordinator(own_server.url, namespace=namespace) as concert:
        runs: list[int] = []
        may_end = anyio.Event()

        @concert.task(limit=Limit(1), max_attempts=1, max_crashes=1)
        async def limited(number: int) -> int:
            runs.append(number)
            await may_end.wait()
            return current_job().attempt

        async with in_background(concert.run_worker("default")):
            first = await limited.enqueue(1)
            await eventually(lambda: runs)
            own_server.command("SAVE")
            may_end.set()
            assert await first.result(timeout=5) == 1
            own_server.go_back()
            second = await limited.enqueue(2)
            assert [await first.result(timeout=5), await second.result(timeout=5)] == [1, 1]
        assert runs == [1, 1, 2]
        assert (await concert.tasks.stats()).limits[limited.name].in_use == 0


async def test_item_whose_acknowledgement_was_undone_is_handed_out_again(own_server: RealServer) -> None:
    """To the same process, which lives on."""
    async with Coordinator(own_server.url) as concert:
        queue = concert.queue("q")
        await queue.put("x")
        async with await queue.get() as item:
            own_server.command("SAVE")
        own_server.go_back()
        async with await queue.get(timeout=5) as again:
            assert (item, again) == ("x", "x")
        assert await queue.size() == 0


async def test_job_whose_claim_was_undone_is_stopped_and_runs_again(own_server: RealServer, namespace: str) -> None:
    """The server holds as many for the worker as that does, but another one, which has ended."""
    async with Coordinator(own_server.url, namespace=namespace) as concert:
        runs: list[str] = []
        stopped: list[str] = []
        may_end = {"first": anyio.Event(), "second": anyio.Event()}

        @concert.task(limit=Limit(1))
        async def one(name: str) -> None:
            runs.append(name)
            try:
                await may_end[name].wait()
            except asyncio.CancelledError:
                stopped.append(name)
                raise

        async with in_background(concert.run_worker("default", concurrency=1)):
            await one.enqueue("first")
            await eventually(lambda: runs)
            await one.enqueue("second")
            own_server.command("SAVE")
            may_end["first"].set()
            await eventually(lambda: len(runs) == 2)
            own_server.go_back()
            await eventually(lambda: runs[3:] == ["second"])
            may_end["second"].set()
            await all_done(concert)
        assert runs == ["first", "second", "first", "second"]
        assert stopped == ["second"]


async def test_job_that_the_server_has_not_any_more_goes_on(own_server: RealServer, namespace: str) -> None:
    """Nobody else can run it, so its body is not stopped."""
    async with Coordinator(own_server.url, namespace=namespace) as concert, concert.consume("q") as jobs:
        await concert.enqueue("first", queue="q")
        await (await anext(jobs)).ack()  # so that the server knows the worker
        own_server.command("SAVE")
        await concert.enqueue("second", queue="q")
        async with await anext(jobs) as job:
            worker = worker_of(job)
            own_server.go_back()
            await eventually(lambda: worker._reconnects == concert._ref.session.reconnects > 0)
        assert job.outcome == "done"


async def test_claim_that_the_worker_does_not_know_is_found_by_its_heartbeats(
    concert: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a reconnect, and it is not counted as an attempt."""
    with_lease(concert, LEASE)
    async with concert.consume("q") as jobs:
        await concert.enqueue("hello", queue="q")
        job = await anext(jobs)
        worker_of(job)._held.clear()
        async with await asyncio.wait_for(anext(jobs), 5) as again:
            assert (again.id, again.attempt) == (job.id, 1)
        with pytest.raises(NotClaimed):
            await job.ack()
    assert "requeued: 1, stopped: 0" in caplog.text


@pytest.mark.parametrize("end", ["refused", "not confirmed"])
async def test_claim_whose_end_is_under_way_is_not_given_back(
    concert: Coordinator, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not know of that end when it is asked what the worker holds; the job does not run again."""
    async with concert.consume("q") as jobs:
        await concert.enqueue("hello", queue="q")
        job = await anext(jobs)
        worker = worker_of(job)
        if end == "refused":
            await raw(concert).script_flush()
            await _compared(worker)  # this script is there from now on, and that which requeues; no other is
            await worker._send_nack("unknown", 1, "q", "back")
        ending = asyncio.ensure_future(job.ack())
        if end == "not confirmed":
            monkeypatch.setattr(worker._session.channel, "submit", _refuse_ends(worker._session.channel.submit))
            with pytest.raises(Unavailable):
                await ending
            monkeypatch.undo()
            assert worker._unconfirmed
        await asyncio.sleep(0)
        await _compared(worker)
        assert (await concert.tasks.stats()).queues["q"].ready == 0
        worker._end_again()
        await asyncio.wait([ending])
        await all_done(concert)


async def _compared(worker: JobWorkerLease) -> None:
    compare(worker)
    await eventually(lambda: worker._reconnects != -1)


def _refuse_ends(submit: Any) -> Any:
    def refuse(call: Call) -> None:
        if isinstance(call, Ack):
            raise Unavailable("not now")
        submit(call)

    return refuse


async def test_keys_that_a_member_had_let_go_of_are_not_its_own_again(own_server: RealServer, namespace: str) -> None:
    """It asks for none by then, and would have them as long as it lives."""
    keys = [f"key {number}" for number in range(20)]
    shares: dict[str, set[str]] = {"here": set(), "there": set()}

    async def share(name: str, member: Member) -> None:
        async for owned in member.shares(keys):
            shares[name] = {*owned}

    async def take_part(concert: Coordinator) -> None:
        while True:
            with suppress(LeaseLost):
                async with concert.members("g", ttl=1) as member:
                    await share("there", member)

    async with (
        Coordinator(own_server.url, namespace=namespace) as here,
        Coordinator(own_server.url, namespace=namespace) as there,
        here.members("g", ttl=5) as me,
    ):
        sharing = asyncio.create_task(share("here", me))
        await eventually(lambda: len(shares["here"]) == len(keys))
        own_server.command("SAVE")
        async with in_background(take_part(there)):
            await eventually(lambda: len(shares["here"]) + len(shares["there"]) == len(keys) > len(shares["here"]))
            sharing.cancel()
            await asyncio.wait([sharing])
            await me.list()  # whoever has this reply has let go
            shares["there"] = set()
            own_server.go_back()
            await eventually(lambda: shares["there"])
            assert not me.is_lost


def cut_off_replicas(master: RealServer) -> None:
    """From now on its replicas fall behind."""
    master.command("ACL", "SETUSER", "default", "-psync", "-sync")
    master.command("CLIENT", "KILL", "TYPE", "replica")


@asynccontextmanager
async def going_back(topology: str, draw: random.Random) -> AsyncGenerator[tuple[str, Callable[[], Awaitable[None]]]]:
    """A place for coordinators; and what undoes its last second there, or less."""
    with ExitStack() as opened:
        if topology == "Sentinel":
            sentinels = opened.enter_context(SentinelSet())

            async def fail_over() -> None:
                before = sentinels.master
                cut_off_replicas(before)
                await anyio.sleep(draw.random())
                before.kill()
                await asyncio.to_thread(sentinels.wait_for_new_master, before)
                before.start()
                await asyncio.to_thread(sentinels.settle)

            yield sentinels.url, fail_over
            return
        if topology == "a file":
            server = opened.enter_context(RealServer())
            nodes, url = [server], server.url
        else:
            cluster = opened.enter_context(RealCluster(cluster_node_timeout="5000"))
            nodes, url = [*cluster.nodes], cluster.url

        async def restart() -> None:
            node = draw.choice(nodes)
            node.command("SAVE")
            await anyio.sleep(draw.random())
            await asyncio.to_thread(node.go_back)

        yield url, restart


@pytest.mark.torture
@pytest.mark.parametrize("topology", ["a file", "Sentinel", "a cluster"])
async def test_everything_comes_right_however_often_the_server_went_back(
    namespace: str, topology: str, request: pytest.FixtureRequest
) -> None:
    """By a restart from a file, a failover to a replica that was behind, or a restart of a master of a cluster."""
    draw = random.Random(f"{request.config.option.seed} {topology}")
    partitions = 3 if topology == "a cluster" else 1
    async with (
        going_back(topology, draw) as (url, go_back),
        Everything().under_way(url, namespace, partitions=partitions) as everything,
    ):
        stops_at, times = time.monotonic() + request.config.option.seconds, 0
        while time.monotonic() < stops_at or not times:
            await everything.goes_on()
            await go_back()
            times += 1
        await everything.goes_on()
        await everything.comes_right()
        log.info("%s: went back %d times; rounds: %s", topology, times, dict(everything.rounds))


async def test_everything_comes_right_after_the_server_went_back(own_server: RealServer, namespace: str) -> None:
    """Under all kinds of work: each goes on, and nothing runs, waits or is held with nobody behind it."""
    async with Everything().under_way(own_server.url, namespace) as everything:
        await everything.goes_on()
        own_server.command("SAVE")
        await everything.goes_on()
        await asyncio.to_thread(own_server.go_back)
        await everything.goes_on()
        await everything.comes_right()
