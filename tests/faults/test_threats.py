"""What each kind of access to the server allows, as docs/explanation/threats.md says."""

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import redis

from inconcert import Coordinator, OutcomeUnknown, Unavailable
from inconcert._redis.operate.rights import least_rights
from tests.support.eventually import eventually
from tests.support.pages import DOCS, ROOT
from tests.support.raw import new_client
from tests.support.servers import RealServer, command

PAGE = (DOCS / "explanation/threats.md").read_text("utf-8")
KEY = {"now": "a secret of 16 bytes"}


def test_page_names_tests_that_are_there() -> None:
    """Each claim that it says is tested."""
    named = re.findall(r"`(?:(tests/\w+/test_\w+\.py)::)?(test_\w+)`", PAGE)
    assert len(named) > 10
    for file, name in named:
        path = ROOT / (file or "tests/faults/test_threats.py")
        assert re.search(rf"^(?:async )?def {name}\(", path.read_text("utf-8"), re.MULTILINE), (path.name, name)


@pytest.fixture
def guarded(own_server: RealServer) -> RealServer:
    """A server with a user for each of two services, who have what `inconcert acl` prints."""
    for namespace in "shop", "bank":
        rules = least_rights(namespace, server=own_server.version)
        own_server.command("ACL", "SETUSER", namespace, "on", f">{namespace}", *rules)
    return own_server


def url_of(server: RealServer, user: str, database: int = 0) -> str:
    """The server's, for a user whose password is their name."""
    return server.url_of(database).replace("unix://", f"unix://{user}:{user}@")


@asynccontextmanager
async def service(server: RealServer, name: str, **options: Any) -> AsyncGenerator[Coordinator]:
    """A coordinator of that namespace, with the user of that name."""
    async with Coordinator(url_of(server, name), namespace=name, **options) as concert:
        yield concert


@contextmanager
def refused(code: str = "NOPERM") -> Generator[None]:
    """The server refuses with this code."""
    with pytest.raises(
        (redis.ResponseError, redis.AuthenticationError), match=f"(?i){code}|no permission|can't (access|publish)"
    ):
        yield


async def test_stranger_on_the_network_may_do_nothing(guarded: RealServer) -> None:
    """If the default user is off."""
    guarded.command("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
    guarded.command("ACL", "SETUSER", "default", "off")
    try:
        for words in (["PING"], ["GET", "a"], ["EVAL", "return 1", "0"], ["PUBLISH", "a", "b"], ["ACL", "WHOAMI"]):
            with refused("Authentication required"):
                command(f"unix://{guarded.socket}", *words)
        with pytest.raises(Unavailable, match="password"):
            await Coordinator(f"unix://{guarded.socket}", namespace="shop").__aenter__()
    finally:
        command(url_of(guarded, "admin"), "ACL", "SETUSER", "default", "on")


@pytest.mark.parametrize("signing_keys", [None, KEY])
async def test_reader_reads_what_is_stored_and_changes_nothing(guarded: RealServer, signing_keys: Any) -> None:
    """Arguments and messages are not encrypted, signed or not; what is published needs a right of its own."""
    keys = "~{shop:*" if guarded.kind == "redis6" else "%R~{shop:*"
    guarded.command("ACL", "SETUSER", "reader", "on", ">reader", "resetchannels", keys, "+@read", "+subscribe")
    async with service(guarded, "shop", signing_keys=signing_keys) as concert:

        @concert.task(name="pay")
        async def pay(card: str) -> None: ...

        await pay.enqueue("card 1234")
    url = url_of(guarded, "reader")
    [bodies] = guarded.command("KEYS", "{shop:tasks*:bodies")
    assert "card 1234" in str(command(url, "HGETALL", bodies))
    for words in (["DEL", bodies], ["EVAL", "return 1", "0"], ["SUBSCRIBE", "shop:0:event:a"]):
        with refused():
            command(url, *words)


async def test_user_of_a_namespace_reaches_no_other(guarded: RealServer) -> None:
    """Neither its keys, declared or not, nor its channels, nor the names of what it has."""
    async with service(guarded, "bank") as concert:
        await concert.event("a").set()
    url = url_of(guarded, "shop")
    flag = "{bank:event:a}:flag"
    for words in (
        ["GET", flag],
        ["DEL", flag],
        ["EVAL", "return redis.call('GET', KEYS[1])", "1", flag],
        ["EVAL", f"return redis.call('GET', '{flag}')", "0"],
        ["PUBLISH", "bank:0:event:a", "1"],
        ["EVAL", "return redis.call('PUBLISH', 'bank:0:event:a', '1')", "0"],
        ["SUBSCRIBE", "bank:0:event:a"],
        ["PSUBSCRIBE", "*"],
        ["PSUBSCRIBE", "bank:*"],
        ["SCAN", "0"],
        ["KEYS", "*"],
        ["RANDOMKEY"],
        ["PUBSUB", "CHANNELS"],
    ):
        with refused():
            command(url, *words)
    with pytest.raises(Unavailable):
        await Coordinator(url, namespace="bank").__aenter__()


async def test_who_holds_what_may_be_asked_by_operators_only(guarded: RealServer) -> None:
    """The right that it needs is not one of a namespace; a user without it is told which, and answers."""
    async with service(guarded, "shop") as concert:
        with pytest.raises(OutcomeUnknown, match=r"pubsub\|channels"):
            await concert.inspect()
        guarded.command("ACL", "SETUSER", "shop", "+pubsub|channels")
        async with concert.lock("door"):
            [process] = (await concert.inspect()).processes
        assert [entry.name for entry in process.holds] == ["door"]


async def test_user_of_a_namespace_may_not_administer(guarded: RealServer) -> None:
    """What reads, stops or changes the server itself."""
    for text in (
        *("FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "SHUTDOWN NOSAVE", "DEBUG SLEEP 0", "SAVE", "REPLICAOF NO ONE"),
        *(
            "CONFIG GET *",
            "CONFIG SET maxmemory 1",
            "ACL LIST",
            "ACL SETUSER shop ~*",
            "MONITOR",
            "INFO",
            "SLOWLOG GET",
        ),
        *("CLIENT LIST", "CLIENT KILL TYPE normal", "CLIENT PAUSE 1", "SCRIPT FLUSH", "SCRIPT KILL", "FUNCTION FLUSH"),
    ):
        if not (text.startswith("FUNCTION") and guarded.kind == "redis6"):
            with refused():
                command(url_of(guarded, "shop"), *text.split())


async def test_user_of_a_namespace_has_it_in_every_database(guarded: RealServer) -> None:
    """Rules for keys do not name a database."""
    async with Coordinator(url_of(guarded, "shop", 1), namespace="shop") as concert:
        await concert.event("a").set()
    assert command(url_of(guarded, "shop", 1), "GET", "{shop:event:a}:flag") == "1"


async def test_user_of_a_namespace_may_take_what_others_hold(guarded: RealServer) -> None:
    """Locks are agreements; the fencing token still rises, so a resource that compares it keeps to the newer holder."""
    async with service(guarded, "shop") as concert:
        lease = await concert.lock("a").acquire()
        command(url_of(guarded, "shop"), "DEL", "{shop:lock:a}:holders")
        other = await concert.lock("a").acquire(timeout=5)
        assert other.fencing_token > lease.fencing_token
        await other.release()


async def run_forged(server: RealServer, **options: Any) -> tuple[list[str], list[str]]:
    """What a worker with these options runs of what another process without a key enqueues, and what is set aside."""
    ran: list[str] = []
    async with service(server, "shop", **options) as worker, service(server, "shop") as attacker:

        @worker.task(name="pay")
        async def pay(card: str) -> None:
            ran.append(card)

        await attacker.enqueue("pay", args=["forged"])
        await worker.run_worker("default", burst=True)
        dead = [job.error for job in await worker.tasks.dead()]
    return ran, dead


async def test_user_of_a_namespace_makes_any_task_run(guarded: RealServer) -> None:
    """Without signing, with arguments of their choice."""
    assert await run_forged(guarded) == (["forged"], [])


async def test_user_of_a_namespace_without_a_key_makes_none_run(guarded: RealServer) -> None:
    """With signing it is set aside, unread."""
    ran, [reason] = await run_forged(guarded, signing_keys=KEY)
    assert ran == []
    assert "not signed" in reason


async def test_user_of_a_namespace_makes_up_what_is_not_signed(guarded: RealServer) -> None:
    """With signing, too: signals, messages of chats and mailboxes, and the end of another's wait."""
    async with service(guarded, "shop", signing_keys=KEY) as concert, service(guarded, "shop") as attacker:
        async with concert.signal("deploy").subscribe() as subscription:
            await attacker.signal("deploy").broadcast("forged")
            assert await subscription.next(timeout=5) == "forged"
        await attacker.mailbox("ann").send("forged")
        [message] = await concert.mailbox("ann").fetch()
        assert message.body == "forged"


async def test_key_without_the_server_is_of_no_use(guarded: RealServer) -> None:
    """Who has a signing key still needs a user who may write in the namespace."""
    with pytest.raises(Unavailable, match="password"):
        await Coordinator(url_of(guarded, "nobody"), namespace="shop", signing_keys=KEY).__aenter__()


async def test_user_of_a_namespace_can_hold_up_the_server(guarded: RealServer) -> None:
    """For all other namespaces, too: a script runs alone, until an administrator stops it."""
    guarded.command("CONFIG", "SET", "lua-time-limit", 50)
    stuck = asyncio.create_task(asyncio.to_thread(command, url_of(guarded, "shop"), "EVAL", "while true do end", "0"))

    async def is_busy() -> bool:
        async with new_client(url_of(guarded, "bank"), socket_timeout=1) as client:
            try:
                await client.get("{bank:a}:b")
            except redis.ResponseError as error:
                return "BUSY" in str(error) or "busy" in str(error)
            return False

    await eventually(is_busy)
    guarded.command("SCRIPT", "KILL")
    with pytest.raises(redis.ResponseError):
        await stuck
