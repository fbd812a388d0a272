"""Opening a coordinator where it cannot work: it says what is wrong at once, and what to change."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial

import pytest
import redis.exceptions

from inconcert import Coordinator, Unavailable
from inconcert._redis.wire import greeting as greeting_module
from inconcert._redis.wire.call import PlainCall
from tests.support.raw import new_client, raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer, free_port


@pytest.fixture(scope="module")
def guarded() -> Iterator[RealServer]:
    """A server with a password, and with a user who may do nothing."""
    with RealServer(requirepass="word") as running:
        running.command("ACL", "SETUSER", "nobody", "on", ">word", "-@all")
        yield running


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        ("redis://", "/0", "it requires a password: write redis://user:password@"),
        ("redis://", "/0?protocol=2", "it requires a password: write redis://user:password@"),
        ("redis://ann:wrong@", "/0", "check the user name and the password"),
        ("redis://:wrong@", "/0?protocol=2", "check the user name and the password"),
        ("redis://nobody:word@", "/0", "give the user this right with ACL SETUSER"),
        ("redis://:word@", "/99", "refused the connection: DB index is out of range"),
        ("rediss://:word@", "/0", "if it does not speak TLS on this port, write redis://"),
        ("rediss://:word@", "/0?ssl_ca_certs=/no/ca.pem", "/no/ca.pem not found"),
    ],
)
async def test_refusal_is_not_taken_for_a_server_that_is_away(
    guarded: RealServer, start: str, end: str, reason: str
) -> None:
    """The message says what to change, and does not hold the password."""
    with pytest.raises(Unavailable) as caught:
        await Coordinator(f"{start}127.0.0.1:{guarded.port}{end}", timeout=0.6).__aenter__()
    assert reason in str(caught.value)
    assert "could not be reached" not in str(caught.value)
    assert "word@127" not in str(caught.value)


async def test_server_that_is_missing_is_told_of_without_the_lines_of_the_driver() -> None:
    """The cause is the driver's error, in one line; an error of the user's own code would be shown in full."""
    with pytest.raises(Unavailable, match="could not be reached") as caught:
        async with Coordinator(f"redis://127.0.0.1:{free_port()}/0"):
            pass
    cause = caught.value.__cause__
    assert isinstance(cause, redis.exceptions.ConnectionError)
    assert (cause.__traceback__, cause.__cause__, cause.__context__) == (None, None, None)


async def test_replica_is_refused(own_server: RealServer) -> None:
    """It would let us subscribe, and refuse the first script."""
    own_server.command("REPLICAOF", "127.0.0.1", free_port())
    for url in own_server.url, f"{own_server.tcp_url}?protocol=2":
        with pytest.raises(Unavailable, match=r"is a replica.*connect to the master"):
            await Coordinator(url).__aenter__()
    async with new_client(own_server.url, decode_responses=True) as client:
        with pytest.raises(Unavailable, match="is a replica"):
            await Coordinator.from_client(client).__aenter__()
    own_server.command("REPLICAOF", "NO", "ONE")
    async with Coordinator(own_server.url) as concert, concert.lock("door"):
        pass


async def test_node_of_a_cluster_is_refused() -> None:
    """It would serve some names, and refuse the others."""
    with (
        RealServer(cluster_enabled="yes") as node,
        pytest.raises(Unavailable, match="a node of a cluster; write redis"),
    ):
        await Coordinator(node.url).__aenter__()


async def test_server_that_does_not_say_what_it_is_is_taken_for_good(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one before Redis 6."""
    monkeypatch.setattr(greeting_module, "PlainCall", partial(PlainCall, "WHO-ARE-YOU"))
    async with Coordinator(server.url, namespace=namespace) as concert, concert.lock("door"):
        pass


async def test_opening_while_it_opens_is_refused(server: RealServer) -> None:
    """The message does not call it closed; that it is in the end."""
    concert = Coordinator(server.url)
    opening = asyncio.create_task(concert.__aenter__())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match=r"opening> cannot be opened twice"):
        await concert.__aenter__()
    await opening
    await concert.__aexit__(None, None, None)
    assert "closed>" in repr(concert)


def test_another_event_loop_than_that_of_asyncio_is_refused(server: RealServer) -> None:
    """As under trio: with one clear error, and nothing left behind."""
    opening = Coordinator(server.url).__aenter__()
    with pytest.raises(RuntimeError, match="needs asyncio"):
        opening.send(None)


THEIRS = (
    "the coordinator was opened on a client of the process of which this one is a fork; "
    "make a client and a coordinator here"
)
FORK = """
    import asyncio, os, sys
    from redis.asyncio import Redis
    from inconcert import Coordinator

    url = sys.argv[1]
    concert = Coordinator(url, namespace=sys.argv[2])
    theirs = Coordinator.from_client(Redis.from_url(url), namespace=sys.argv[2])
    queue = concert.queue("work")

    @concert.every(60)
    async def often():
        pass

    async def in_child():
        try:
            await theirs.__aenter__()
        except RuntimeError as error:
            print(error)
        async with concert:
            async with concert.lock("door") as lease:
                print("child", lease.fencing_token > 0)
            async with await queue.get() as item:
                print("child got", item)
        print(repr(concert).split()[-1])

    async def main():
        async with concert, theirs:
            getting = asyncio.create_task(queue.get())
            await concert.lock("mine").acquire()
            session = concert._ref.session
            before = session.channel._wire, session.inbox._pubsub._wire
            await asyncio.sleep(0)
            getting.cancel()
            await queue.put("item")
            sys.stdout.flush()
            child = os.fork()
            if not child:
                asyncio.run(in_child())
                sys.stdout.flush()
                os._exit(0)
            await asyncio.to_thread(os.waitpid, child, 0)
            print("parent", await concert.lock("mine").locked(), repr(concert).split()[-1])
            print(before == (session.channel._wire, session.inbox._pubsub._wire))
            other = asyncio.create_task(concert.lock("mine").acquire(timeout=0.2))
            print(type((await asyncio.gather(other, return_exceptions=True))[0]).__name__)

    asyncio.run(main())
"""


@pytest.mark.filterwarnings("ignore")
def test_fork_may_open_what_its_parent_has_open(server: RealServer, namespace: str) -> None:
    """With connections of its own, and those of the parent go on; but not on a client of the parent's."""
    code = textwrap.dedent(FORK)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, server.url, namespace],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == [
        THEIRS,
        "child True",
        "child got item",
        "closed>",
        "parent True open>",
        "True",
        "AcquireTimeout",
    ]


@pytest.mark.twice("sessions/open")
@pytest.mark.parametrize(("channel", "is_refused"), [("shop:0:nowhere", False), ("other:nowhere", True)])
async def test_second_opening_answers_the_same(guarded: RealServer, channel: str, is_refused: bool) -> None:
    """Why the user may not publish there, or that it may; and nothing is stored."""
    guarded.command("ACL", "SETUSER", "shop", "on", ">word", "~*", "resetchannels", "&shop:*", "+@all")
    async with Coordinator(f"redis://shop:word@127.0.0.1:{guarded.port}/0", namespace="shop") as concert:
        opening = command_of("sessions/open", bell="{shop}:bell", channel=channel)
        answers = [await concert._ref.session.run(opening) for _ in range(2)]
        assert answers[0] == answers[1]
        assert bool(answers[0]) == is_refused
        assert await raw(concert).keys() == [b"{shop:namespace}:layout"]


@pytest.mark.twice("sessions/layout")
async def test_second_record_of_a_layout_changes_nothing(concert: Coordinator, namespace: str) -> None:
    """The first number stays, whatever comes later."""
    key = f"{{{namespace}}}:layout"
    numbers = (1, 3), (1, 3), (2, 5)
    commands = [
        command_of("sessions/layout", layout=key, format=version, partitions=number, chat_groups=7)
        for version, number in numbers
    ]
    assert [await concert._ref.session.run(command) for command in commands] == [[1, 3, 7]] * 3
    await raw(concert).delete(key)
