"""Errors of calls name the method that was called and the object it was called on, and no script or key."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from inconcert import Coordinator, OutcomeUnknown, Unavailable, WrongState
from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

Verb = Callable[[Coordinator], Awaitable[object]]

CHAT = "AbCdEfGh"
JOB = "0123456789abcdef.11"

# What is called, and what its errors say of it: the method, the kind and the name.
VERBS: list[tuple[Verb, tuple[str, str, str | None]]] = [
    (lambda concert: concert.lock("item:42").try_acquire(), ("acquire", "lock", "item:42")),
    (lambda concert: concert.lock("a}b").holders(), ("holders", "lock", "a}b")),
    (lambda concert: concert.locks("b", "a").try_acquire(), ("acquire", "locks", "b, a")),
    (lambda concert: concert.semaphore("s", limit=2).try_acquire(), ("acquire", "semaphore", "s")),
    (lambda concert: concert.rwlock("r").write().try_acquire(), ("acquire", "rwlock", "r")),
    (lambda concert: concert.rate_limiter("l", 1, 1).try_acquire(), ("acquire", "rate limiter", "l")),
    (lambda concert: concert.election("e").try_acquire(), ("acquire", "election", "e")),
    (lambda concert: concert.event("e").set(), ("set", "event", "e")),
    (lambda concert: concert.event("e").is_set(), ("is_set", "event", "e")),
    (lambda concert: concert.latch("l", 2).count_down(), ("count_down", "latch", "l")),
    (lambda concert: concert.latch("l", 2).remaining(), ("remaining", "latch", "l")),
    (lambda concert: concert.barrier("b", 2).n_waiting(), ("n_waiting", "barrier", "b")),
    (lambda concert: concert.signal("s").broadcast(), ("broadcast", "signal", "s")),
    (lambda concert: concert.signal("s").notify(), ("notify", "signal", "s")),
    (lambda concert: concert.mailbox("m").send(1), ("send", "mailbox", "m")),
    (lambda concert: concert.mailbox("m").unread(), ("unread", "mailbox", "m")),
    (lambda concert: concert.queue("q").put(1), ("put", "queue", "q")),
    (lambda concert: concert.queue("q").counts(), ("counts", "queue", "q")),
    (lambda concert: concert.queue("q").purge_dead(), ("purge_dead", "queue", "q")),
    (lambda concert: concert.index("i").add("d", "text"), ("add", "index", "i")),
    (lambda concert: concert.index("i").search("text"), ("search", "index", "i")),
    (lambda concert: concert.chat.send(CHAT, "ann", "hello"), ("send", "chat", CHAT)),
    (lambda concert: concert.chat.members(CHAT), ("members", "chat", CHAT)),
    (lambda concert: concert.enqueue("t", queue="mail"), ("enqueue", "task queue", "mail")),
    (lambda concert: concert.tasks.stats("mail"), ("stats", "tasks", None)),
    (lambda concert: concert.tasks.pause("mail"), ("pause", "task queue", "mail")),
    (lambda concert: concert.tasks.dead(), ("dead", "tasks", None)),
    (lambda concert: concert.tasks.job(JOB).status(), ("result", "job", JOB)),
]  # fmt: skip


@pytest.fixture
async def own_concert(own_server: RealServer) -> AsyncIterator[tuple[RealServer, Coordinator]]:
    """A coordinator of a user whose rights may be taken away."""
    own_server.command("ACL", "SETUSER", "shop", "reset", "on", ">secret", "+@all", "~*", "&*")
    url = own_server.url_of(0).replace("unix://", "unix://shop:secret@")
    async with Coordinator(url, namespace="shop", timeout=2.0) as concert:
        yield own_server, concert


async def errors_of_all(concert: Coordinator, error_type: type[Any]) -> list[str]:
    """Call all verbs at once, check the attributes of what they raise, and return the messages."""
    outcomes: list[Any] = await asyncio.gather(*(call(concert) for call, _ in VERBS), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [error_type] * len(VERBS)
    seen = [(outcome.operation, outcome.kind, outcome.name) for outcome in outcomes]
    assert seen == [said for _, said in VERBS]
    return [str(outcome) for outcome in outcomes]


def check(messages: list[str]) -> None:
    """Each begins with what was called, and has nothing of how it is done."""
    for message, (_, (verb, kind, name)) in zip(messages, VERBS, strict=True):
        thing = kind if name is None else f"{kind} {name!r}"
        assert message.startswith(f"{thing}: {verb} was ")
        text = message.removeprefix(thing)
        assert not any(part in text for part in ("{", "}", ".lua", "shop:", "user_script", "script:")), message
        assert "/" not in text.replace("docs/how-to", "").replace("/tmp/", ""), message


async def test_refused_calls_are_named(own_concert: tuple[RealServer, Coordinator]) -> None:
    """The server lets this user run nothing any more."""
    server, concert = own_concert
    server.command("ACL", "SETUSER", "shop", "-evalsha", "-eval")
    messages = await errors_of_all(concert, Unavailable)
    check(messages)
    assert all("NOPERM" in message and "ACL SETUSER" in message for message in messages)
    server.command("ACL", "SETUSER", "shop", "+@all")


async def test_calls_without_a_reply_are_named(own_server: RealServer) -> None:
    """They were sent, and the server says nothing."""
    async with Proxy(own_server.tcp_url) as proxy, Coordinator(proxy.url, namespace="shop", timeout=0.5) as concert:
        proxy.mute()
        messages = await errors_of_all(concert, OutcomeUnknown)
        await proxy.heal()
    assert all("was not answered within 0.5 s" in message and "check before" in message for message in messages)
    check([message.partition(" (")[0] for message in messages])


async def test_calls_that_were_not_sent_are_named(own_server: RealServer) -> None:
    """The server is away."""
    async with Coordinator(own_server.url, namespace="shop", timeout=0.4) as concert:
        own_server.kill()
        await asyncio.gather(concert.event("e").is_set(), return_exceptions=True)
        messages = await errors_of_all(concert, Unavailable)
    assert all("was not sent within 0.4 s" in message and "nothing was executed" in message for message in messages)
    check([message.partition(" (")[0] for message in messages])


@pytest.mark.parametrize(
    ("call", "said"), [pytest.param(*VERBS[at], id=VERBS[at][1][1]) for at in (0, 5, 7, 12, 14, 16, 19, 21, 23)]
)
async def test_foreign_keys_are_reported_in_the_words_of_the_caller(
    own_server: RealServer, monkeypatch: pytest.MonkeyPatch, call: Verb, said: tuple[str, str, str | None]
) -> None:
    """Another program has filled the keys of this call with streams, which no primitive uses."""
    submitted: list[Call] = []

    async with Coordinator(own_server.url, namespace="shop") as concert:
        session = concert._ref.session
        assert isinstance(session, Session)
        submit = session.channel.submit

        def note(call: Call) -> None:
            submitted.append(call)
            submit(call)

        monkeypatch.setattr(session.channel, "submit", note)
        await asyncio.gather(call(concert), return_exceptions=True)
        for key in submitted[0].command.keys:
            own_server.command("DEL", key)
            own_server.command("XADD", key, "*", "field", "value")
        with pytest.raises(WrongState) as caught:
            await call(concert)
    error = caught.value
    assert (error.operation, error.kind, error.name) == said
    text = str(error).removeprefix(f"{error.kind} {error.name!r}")
    assert not any(part in text for part in ("{", ".lua", "/", "shop:", "user_script", "script:")), text


async def test_subscription_that_is_refused_is_named(own_concert: tuple[RealServer, Coordinator]) -> None:
    """By the signal, and not by its channel."""
    server, concert = own_concert
    server.command("ACL", "SETUSER", "shop", "resetchannels", "&shop:0:inbox:*", "&shop:0:session:*")
    with pytest.raises(Unavailable, match=r"^signal 'deploy': subscribe was refused by the server: ") as caught:
        await concert.signal("deploy").subscribe().__aenter__()
    error = caught.value
    assert (error.operation, error.kind, error.name) == ("subscribe", "signal", "deploy")
    server.command("ACL", "SETUSER", "shop", "+@all", "&*")


async def test_error_of_a_call_can_be_pickled(own_concert: tuple[RealServer, Coordinator]) -> None:
    """As a worker of another process would send it."""
    server, concert = own_concert
    server.command("ACL", "SETUSER", "shop", "-evalsha", "-eval")
    with pytest.raises(Unavailable) as caught:
        await concert.lock("item:42").acquire()
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.operation, copied.name) == (str(caught.value), "acquire", "item:42")
    server.command("ACL", "SETUSER", "shop", "+@all")
