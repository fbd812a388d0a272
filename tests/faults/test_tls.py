"""TLS: what is not proved is refused, and what is works as without it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio.connection
import redis.exceptions

from inconcert import Coordinator, SyncProducer, Unavailable
from inconcert._redis.driver.failures import cannot_connect
from inconcert._redis.protocol.scripts import Command, Script
from tests.support.background import in_background
from tests.support.blocking import blocking_channel
from tests.support.eventually import eventually
from tests.support.inner import channel_of
from tests.support.raw import raw
from tests.support.servers import RealServer
from tests.support.tls import encrypted


async def works(concert: Coordinator) -> None:
    """Commands, wake-ups, bells, and a connection that is made again."""
    async with asyncio.timeout(10):
        lease = await concert.lock("a").acquire()
        waiter = asyncio.create_task(concert.lock("a").acquire())
        getter = asyncio.create_task(concert.queue("q").get())
        await eventually(concert.lock("a").waiters)
        await lease.release()
        await (await waiter).release()
        await concert.queue("q").put(1)
        await (await getter).ack()
        channel_of(concert._ref.session)._link.drop(ConnectionError("cut"))
        await asyncio.gather(*(concert.event(f"{number}").set() for number in range(50)))


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_everything_works_over_tls(server: RealServer, namespace: str, tmp_path: Path, scheme: str) -> None:
    """With the certificate of the issuer in the URL."""
    with encrypted(server, tmp_path) as behind:
        async with Coordinator(behind.url(scheme), namespace=namespace) as concert:
            await works(concert)


@pytest.mark.parametrize("ca", ["the system's", "another"])
async def test_certificate_of_an_unknown_issuer_is_refused(server: RealServer, tmp_path: Path, ca: str) -> None:
    """Nothing is sent to that server."""
    with encrypted(server, tmp_path) as behind:
        own = behind.ca.rename(tmp_path / "own")
        with encrypted(server, tmp_path) as other:
            url = behind.url(ssl_ca_certs=other.ca if ca == "another" else None)
            with pytest.raises(Unavailable, match=r"(?i)certificate verify failed"):
                await Coordinator(url).__aenter__()
        async with Coordinator(behind.url(ssl_ca_certs=own)):
            pass


async def test_certificate_for_another_host_is_refused(server: RealServer, tmp_path: Path) -> None:
    """By default, with each version of redis-py, and by the blocking connection, too."""
    with encrypted(server, tmp_path, host="other.example") as behind:
        concert = Coordinator(behind.url())
        with pytest.raises(Unavailable, match=r"(?i)hostname mismatch"):
            await concert.__aenter__()
        source: Any = concert._source
        with (
            blocking_channel(source.new_client(timeout=5).connection_pool) as channel,
            pytest.raises(Unavailable, match=r"(?i)hostname mis"),
        ):
            channel.run(Command(Script("tests/one", "return 1"), ("key",), ()))


async def test_client_shows_its_certificate(server: RealServer, namespace: str, tmp_path: Path) -> None:
    """All connections do, the blocking one, too; its files are options of the URL."""
    with encrypted(server, tmp_path, asks_for_client=True) as behind:
        url = behind.url(ssl_certfile=behind.client, ssl_keyfile=behind.client)
        async with Coordinator(url, namespace=namespace) as concert:
            await works(concert)
            with blocking_channel(concert.redis.connection_pool) as channel:
                assert channel.run(Command(Script("tests/one", "return 1"), ("key",), ())) == 1


async def test_client_without_a_certificate_is_told_what_to_give(server: RealServer, tmp_path: Path) -> None:
    """When the server demands one."""
    with (
        encrypted(server, tmp_path, asks_for_client=True) as behind,
        pytest.raises(Unavailable, match="ssl_certfile= and ssl_keyfile="),
    ):
        await Coordinator(behind.url()).__aenter__()


@pytest.mark.parametrize("ended", [ConnectionResetError(104, "reset"), BrokenPipeError(32, "broken"), None])
def test_what_to_give_is_told_however_the_connection_ends(ended: OSError | None) -> None:
    """The alert that says why is lost when more was sent before it came."""
    error = redis.exceptions.ConnectionError("reset" if ended else "Connection closed by server.")
    error.__cause__ = ended
    told = cannot_connect(error, redis.asyncio.connection.SSLConnection(), timeout=1)
    assert "ssl_certfile= and ssl_keyfile=" in str(told)


async def test_producer_works_over_tls(server: RealServer, namespace: str, tmp_path: Path) -> None:
    """With a certificate of its own; and its waits for results, which have a connection each."""
    with encrypted(server, tmp_path, asks_for_client=True) as behind:
        url = behind.url(ssl_certfile=behind.client, ssl_keyfile=behind.client)
        async with Coordinator(server.url, namespace=namespace) as concert:

            @concert.task(name="double")
            async def double(number: int) -> int:
                return 2 * number

            with SyncProducer(url, namespace=namespace) as producer:
                job = await asyncio.to_thread(producer.enqueue, "double", [21])
                watchers = concert._jobs.of_id(job.id).watchers
                waiting = asyncio.create_task(asyncio.to_thread(producer.result, job.id, timeout=30.0))
                await eventually(lambda: raw(concert).zcard(watchers))
                async with in_background(concert.run_worker("default")):
                    assert await waiting == 42


@pytest.mark.parametrize("what", ["issuer", "host", "client"])
def test_producer_sends_nothing_to_whom_it_does_not_trust(server: RealServer, tmp_path: Path, what: str) -> None:
    """Nor does it without the certificate that the server demands, and it says which options to give."""
    host, reason = {
        "issuer": ("localhost", r"(?i)certificate verify failed"),
        "host": ("other.example", r"(?i)hostname mis"),
        "client": ("localhost", "ssl_certfile= and ssl_keyfile="),
    }[what]
    with encrypted(server, tmp_path, host=host, asks_for_client=what == "client") as behind:
        url = behind.url(ssl_ca_certs=None) if what == "issuer" else behind.url()
        with SyncProducer(url) as producer, pytest.raises(Unavailable, match=reason):
            producer.enqueue("t")
