"""What a server that is not the master any more, or refuses, can do to those who wait."""

import asyncio
import time

from inconcert import Coordinator
from tests.support.eventually import eventually
from tests.support.raw import new_client, raw
from tests.support.servers import RealServer


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
