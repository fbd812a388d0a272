"""What a server that is not the master any more, or refuses, can do to those who wait."""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from inconcert import AcquireTimeout, Coordinator, NotConnected, Unavailable
from inconcert._redis.protocol.slots import slot_of
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.raw import new_client, raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer

GUARD = 1.5  # seconds
END_OF_A_SECOND = 0.9


async def test_who_listens_on_a_replica_is_not_served(own_server: RealServer, namespace: str) -> None:
    """Messages reach those who listen there, but do not count them; so they are passed over, and told of nothing."""
    own_server.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    inbox = f"{namespace}:0:inbox:left-behind"
    with RealServer() as replica:
        replica.command("REPLICAOF", "127.0.0.1", own_server.port)
        await eventually(lambda: replica.command("INFO", "replication")["master_link_status"] == "up")
        async with (
            Coordinator(own_server.url, namespace=namespace) as concert,
            new_client(replica.url) as there,
            there.pubsub() as subscription,
        ):
            await subscription.subscribe(inbox)
            lock = concert.lock("door")
            lease = await lock.acquire()
            await raw(concert).zadd(f"{{{namespace}:lock:door}}:waiters", {"1:2000:30000 left-behind.1": 1})

            await lease.release()

            assert await lock.holders() == []
            assert await lock.waiters() == 0
            await raw(concert).publish(inbox, "the last message")
            told: list[bytes] = []
            async with asyncio.timeout(10):
                while b"the last message" not in told:
                    message = await subscription.get_message(ignore_subscribe_messages=True, timeout=5)
                    if message:  # None stands for one that was ignored
                        told.append(message["data"])
            assert told == [b"the last message"]


async def test_consumer_that_may_not_sleep_does_not_spin(own_server: RealServer, namespace: str) -> None:
    """A server that refuses BLPOP is asked for jobs at growing distances, and the jobs are done."""
    own_server.command("ACL", "SETUSER", "shop", "on", ">secret", "~*", "&*", "+@all", "-blpop")

    def refusals() -> int:
        return int(own_server.command("INFO", "errorstats").get("errorstat_NOPERM", {}).get("count", 0))

    url = own_server.tcp_url.replace("redis://", "redis://shop:secret@")
    async with Coordinator(url, namespace=namespace) as concert, concert.consume("high") as jobs:
        started_at = time.monotonic()
        waiting = asyncio.ensure_future(anext(jobs))
        await eventually(lambda: refusals() >= 6)
        assert time.monotonic() - started_at > 0.1

        await concert.enqueue("hello", [1], queue="high")
        async with await waiting as job:
            assert job.args == [1]


@pytest.mark.parametrize("empty", [True, pytest.param(False, marks=pytest.mark.torture)])
async def test_restarted_server_hands_out_nothing_until_old_leases_have_lapsed(
    own_server: RealServer, namespace: str, empty: bool
) -> None:
    """Their holders, of whom it may know nothing, have been told by then.

    It starts at the end of a second: there its age, which counts in whole seconds, is the most above the true one.
    """
    async with Coordinator(own_server.url, namespace=namespace, failover_guard=GUARD) as here:
        lease = await here.lock("door", ttl=GUARD).acquire()
        await anyio.sleep((END_OF_A_SECOND - time.time()) % 1)
        stopped_at = time.monotonic()
        own_server.restart(empty=empty)
        if empty:
            await lease.lost()
        else:
            await lease.release()
        async with Coordinator(own_server.url, namespace=namespace, failover_guard=GUARD) as there:
            assert await there.lock("door").try_acquire() is None
            assert await there.locks("door", "gate").try_acquire() is None
            assert await there.lock("door").holders() == []
            await there.lock("door").acquire()
            assert time.monotonic() - stopped_at >= GUARD


async def test_promoted_replica_hands_out_nothing_until_old_leases_have_lapsed(
    own_server: RealServer, namespace: str
) -> None:
    """Whichever process connects to it first, all count from then; and it is over for good."""
    with replica_of(own_server) as replica:
        await eventually(lambda: own_server.command("INFO", "server")["uptime_in_seconds"] > GUARD + 1)
        async with Coordinator(own_server.url, namespace=namespace, failover_guard=GUARD) as concert:
            began = time.monotonic()
            async with concert.lock("door"):
                assert time.monotonic() - began < GUARD / 2  # it was always the master
            await eventually(lambda: offset_of(replica) == offset_of(own_server))
        replica.command("REPLICAOF", "NO", "ONE")
        promoted_at = time.monotonic()
        for _ in range(2):
            concert = Coordinator(replica.url, namespace=namespace, failover_guard=GUARD)
            async with concert, concert.locks("door", "gate"):
                assert GUARD <= time.monotonic() - promoted_at < GUARD + 1


async def test_coordinator_with_a_guard_opens_only_where_it_can_ask(own_server: RealServer, namespace: str) -> None:
    """Rather than with a guard that never knows."""
    rights = f"~{{{namespace}:* &{namespace}:* +@all -info"
    own_server.command("ACL", "SETUSER", "shop", "on", ">secret", *rights.split())
    url = own_server.tcp_url.replace("redis://", "redis://shop:secret@")
    with pytest.raises(Unavailable, match=r"failover_guard .*; give the user the right to INFO"):
        await Coordinator(url, namespace=namespace, failover_guard=GUARD).__aenter__()


@pytest.mark.twice("sessions/guard")
async def test_age_of_a_master_is_the_same_when_it_is_asked_for_again(concert: Coordinator, namespace: str) -> None:
    """It is only noted once."""
    command = command_of("sessions/guard", master=f"{{{namespace}:namespace}}:master")
    first, second = [await concert._ref.session.run(command) for _ in range(2)]
    assert first <= second < first + 5_000


async def test_grant_is_handed_out_when_replicas_have_it(own_server: RealServer, namespace: str) -> None:
    """All of one moment by one WAIT, and each of several locks."""
    with replica_of(own_server) as replica:
        async with Coordinator(own_server.url, namespace=namespace, replicas=1) as concert:
            async with concert.lock("first"), concert.semaphore("pool", limit=2), concert.locks("a", "b"):
                for key in "lock:first", "semaphore:pool", "lock:a", "lock:b":
                    assert replica.command("ZCARD", f"{{{namespace}:{key}}}:holders") == 1
            before = waits(own_server)
            leases = await asyncio.gather(*(concert.lock(f"item:{number}").acquire() for number in range(50)))
            assert waits(own_server) - before <= 5
            waiting = asyncio.ensure_future(concert.lock("item:0").acquire())
            await in_line(concert.lock("item:0"), 1)
            await leases[0].release()
            assert (await waiting).remaining > 20  # handed over, and then renewed


async def test_grant_that_replicas_do_not_acknowledge_is_given_back(own_server: RealServer, namespace: str) -> None:
    """With an error that says so, and what was there before."""
    with replica_of(own_server) as replica:
        async with Coordinator(own_server.url, namespace=namespace, replicas=1, timeout=2) as concert:
            replica.pause()
            with pytest.raises(Unavailable, match=r"lock 'door' was granted and released .* 0 of 1 replicas") as caught:
                await concert.lock("door").acquire()
            assert (caught.value.kind, caught.value.name) == ("lock", "door")
            with pytest.raises(AcquireTimeout):
                await concert.lock("door").acquire(timeout=0.1)
            await eventually(lambda: own_server.command("EXISTS", f"{{{namespace}:lock:door}}:holders") == 0)
            waiting = asyncio.ensure_future(concert.lock("door").acquire())
            await asyncio.sleep(0)
            replica.resume()
            await (await waiting).release()
            replica.pause()
            waiting = asyncio.ensure_future(concert.lock("door").acquire())
            await eventually(lambda: "cmd=wait" in own_server.command("CLIENT", "LIST"))
        with pytest.raises(NotConnected):
            await waiting


@pytest.mark.parametrize(
    "options", [{"failover_guard": -1}, {"failover_guard": "1"}, {"replicas": -1}, {"replicas": 1.0}, {"replicas": 101}]
)
def test_condition_out_of_range_is_refused(options: Any) -> None:
    """Before any I/O."""
    with pytest.raises(ValueError, match=f"{next(iter(options))} is"):
        Coordinator(**options)


def test_failover_guard_is_refused_on_a_cluster() -> None:
    """Rather than ignored."""
    with pytest.raises(ValueError, match="a cluster does not have it"):
        Coordinator("redis+cluster://host1,host2", failover_guard=30)


async def test_grant_of_a_cluster_is_handed_out_when_replicas_of_its_master_have_it(
    own_cluster: RealCluster, namespace: str
) -> None:
    """Each master for itself; also when another has taken its place."""
    names = "abcdefgh"
    async with Coordinator(own_cluster.url, namespace=namespace, replicas=1, timeout=6) as concert:
        own_cluster.settle()
        for name in names:
            async with concert.lock(name):
                pass
        masters = {name: own_cluster.owner(f"{{{namespace}:lock:{name}}}") for name in names}
        assert set(masters.values()) == set(own_cluster.masters)
        assert {waits(master) > 0 for master in own_cluster.masters} == {True}
        [replica] = own_cluster.replicas_of(masters["a"])
        replica.pause()
        elsewhere = next(name for name in names if masters[name] is not masters["a"])
        async with concert.lock(elsewhere):
            with pytest.raises(Unavailable, match=r"lock 'a' was granted and released .* 0 of 1 replicas"):
                await concert.lock("a").acquire()
        waiting = asyncio.ensure_future(concert.lock("a").acquire())
        await eventually(lambda: masters["a"].command("INFO", "clients")["blocked_clients"])
        own_cluster.migrate_atomically([slot_of(f"{{{namespace}:lock:a}}")], masters[elsewhere])
        await (await waiting).release()
        replica.resume()
        masters["a"] = masters[elsewhere]
        successor = await asyncio.to_thread(own_cluster.fail_over, masters["a"])
        own_cluster.settle()
        async with concert.lock("a", timeout=10):
            assert waits(successor) > 0
        await eventually(lambda: "cmd=wait" not in masters["a"].command("CLIENT", "LIST"))


def waits(server: RealServer) -> int:
    """How often a server was told to WAIT."""
    return int(server.command("INFO", "commandstats").get("cmdstat_wait", {}).get("calls", 0))


def offset_of(server: RealServer) -> int:
    """How much of the master's stream it has."""
    replication = server.command("INFO", "replication")
    return int(replication.get("slave_repl_offset", replication["master_repl_offset"]))


@contextmanager
def replica_of(master: RealServer) -> Generator[RealServer]:
    """A replica that has all that its master has."""
    master.command("CONFIG", "SET", "repl-diskless-sync-delay", "0")
    with RealServer("valkey", replicaof=f"127.0.0.1 {master.port}") as replica:
        deadline = time.monotonic() + 10
        while replica.command("INFO", "replication")["master_link_status"] != "up":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield replica
