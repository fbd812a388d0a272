"""How a coordinator is made, opened and closed."""

import asyncio
import inspect
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, get_type_hints

import pytest
from fakeredis.aioredis import FakeRedis

from inconcert import (
    Coordinator,
    CoordinatorOptions,
    InvalidName,
    NotConnected,
    OutcomeUnknown,
    SyncProducer,
    Unavailable,
    WrongLayout,
)
from inconcert._core import session as session_module
from inconcert._core.layout import FORMAT
from inconcert._core.session import Session, on_unclaimed
from tests.support.eventually import eventually
from tests.support.raw import client_of, new_client, raw
from tests.support.servers import RealServer, free_port


async def test_from_env_prefers_the_url_of_its_own(
    server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INCONCERT_URL comes before REDIS_URL, and INCONCERT_NAMESPACE names the namespace."""
    monkeypatch.setenv("REDIS_URL", "redis://nobody.invalid")
    monkeypatch.setenv("INCONCERT_URL", server.url)
    monkeypatch.setenv("INCONCERT_NAMESPACE", namespace)

    async with Coordinator.from_env() as concert, concert.lock("a"):
        keys = [key async for key in raw(concert).scan_iter(match=f"*{namespace}:lock:a*")]

    assert keys


async def test_from_env_takes_redis_url(server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without INCONCERT_URL the server is that of REDIS_URL."""
    monkeypatch.delenv("INCONCERT_URL", raising=False)
    monkeypatch.setenv("REDIS_URL", server.url)

    async with Coordinator.from_env() as concert:
        assert concert.url == server.admin_url  # it never holds a user


def test_from_env_without_a_url_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither variable set is an error that names both."""
    monkeypatch.delenv("INCONCERT_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)

    with pytest.raises(ValueError, match="INCONCERT_URL nor REDIS_URL"):
        Coordinator.from_env()


class Shop(Coordinator):
    """A subclass with defaults and state of its own."""

    def __init__(
        self, url: Any = "redis://shop.invalid", *, namespace: str = "shop", timeout: float = 3.0, **options: Any
    ) -> None:
        super().__init__(url, namespace=namespace, timeout=timeout, **options)
        self.carts: list[str] = []


@pytest.mark.parametrize("way", ["url", "from_client", "from_env", "embedded"])
def test_subclass_is_constructed_by_each_constructor(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `__init__` runs, its defaults hold where nothing else is given, and what is given reaches it."""
    monkeypatch.setenv("INCONCERT_URL", "redis://shop.invalid")
    monkeypatch.delenv("INCONCERT_NAMESPACE", raising=False)
    monkeypatch.delenv("INCONCERT_SIGNING_KEYS", raising=False)
    make: dict[str, Callable[..., Shop]] = {
        "url": Shop,
        "from_client": partial(Shop.from_client, FakeRedis()),
        "from_env": Shop.from_env,
        "embedded": Shop.embedded,
    }

    shop = make[way]()

    assert shop.carts == []
    assert "namespace='shop'" in repr(shop)
    assert shop._timeout == 3.0
    if way == "from_env":
        monkeypatch.setenv("INCONCERT_NAMESPACE", "market")
        assert "namespace='market'" in repr(Shop.from_env())
    else:
        assert "namespace='market'" in repr(make[way](namespace="market"))


async def test_subclass_opens_on_a_client(concert: Coordinator, namespace: str) -> None:
    """It works as any coordinator."""
    async with Shop.from_client(client_of(concert), namespace=namespace) as shop:
        assert isinstance(shop, Shop)
        assert await shop.lock("a").try_acquire() is not None


def test_options_of_all_constructors_are_the_same() -> None:
    """What `Coordinator` takes by keyword, `from_client` and `embedded` take."""
    parameters = inspect.signature(Coordinator).parameters.values()
    keywords = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}

    assert set(get_type_hints(CoordinatorOptions)) == keywords


@pytest.mark.parametrize("namespace", ["", "a b", "a:b", "{a}", "x" * 65])
def test_bad_namespace_is_refused(namespace: str) -> None:
    """A namespace without a doubt, or none."""
    with pytest.raises(InvalidName, match="namespace"):
        Coordinator(namespace=namespace)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_bad_timeout_is_refused(timeout: float) -> None:
    """A call must have some time."""
    with pytest.raises(ValueError, match="timeout"):
        Coordinator(timeout=timeout)


@pytest.mark.one_server("counts the connections of the pool of one; a cluster's client keeps a pool for each node")
async def test_a_shared_client_is_left_open(server: RealServer, namespace: str) -> None:
    """Closing the coordinator gives back the connections of a user's pool, and leaves the others alone."""
    async with new_client(server.url) as client, client.pubsub() as subscription:
        await subscription.subscribe(f"{namespace}:news")
        async with Coordinator.from_client(client, namespace=namespace) as concert, concert.lock("a"):
            assert concert.redis is client
        assert await client.publish(f"{namespace}:news", "still here") == 1
        pool: Any = client.connection_pool  # `get_connection_count()` is not in every version
        assert (len(pool._available_connections), len(pool._in_use_connections)) == (2, 1)


async def test_opening_twice_is_refused_and_harms_nothing(concert: Coordinator) -> None:
    """The second opening raises, and the first goes on."""
    with pytest.raises(RuntimeError, match=r"open> cannot be opened twice; open it once"):
        async with concert:
            pass

    async with concert.lock("a"):
        pass


async def test_missing_server_is_reported_within_the_deadline() -> None:
    """Opening fails with Unavailable, and the coordinator can be opened again."""
    concert = Coordinator(f"redis://127.0.0.1:{free_port()}", timeout=1)
    for _ in range(2):
        with pytest.raises(Unavailable, match="could not be reached"):
            async with asyncio.timeout(5), concert:
                pass


async def test_closed_coordinator_raises_not_connected() -> None:
    """Before it is opened and after it is closed, whatever it made raises NotConnected."""
    client = FakeRedis()
    concert = Coordinator.from_client(client)
    lock = concert.lock("a")
    with pytest.raises(NotConnected):
        await lock.acquire()
    async with concert, lock:
        pass
    with pytest.raises(NotConnected):
        await lock.try_acquire()
    with pytest.raises(NotConnected):
        _ = concert.redis
    await client.aclose()


async def test_embedded_server_is_reached_by_others_through_its_url(namespace: str) -> None:
    """While it is open, `url` leads other processes to the embedded server; then the server is gone."""
    concert = Coordinator.embedded(namespace=namespace)
    async with concert:
        url = concert.url
        assert url
        async with concert.lock("a"), Coordinator(url, namespace=namespace) as other:
            assert await other.lock("a").locked()

    with pytest.raises(Unavailable):
        async with Coordinator(url, timeout=1):
            pass


# How a namespace is divided.


async def test_another_number_than_the_namespace_has_is_refused_with_both(server: RealServer, namespace: str) -> None:
    """The first who opened it has settled it, also for later processes; nothing stays open."""
    async with Coordinator(server.url, namespace=namespace, chat_groups=2) as first:
        await first.chat.create("ann", ["bob"], "hello")
        other = Coordinator(server.url, namespace=namespace)
        with pytest.raises(WrongLayout, match="has chat_groups=2, and was opened with chat_groups=4") as refused:
            await other.__aenter__()
    assert (refused.value.namespace, refused.value.parameter) == (namespace, "chat_groups")
    assert (refused.value.given, refused.value.recorded) == (4, 2)
    async with Coordinator(server.url, namespace=namespace, chat_groups=2) as again:
        assert [batch.chat_id for batch in await again.chat.fetch("bob")]
        keys = [key.decode() async for key in raw(again).scan_iter(match=f"{{{namespace}:chats:*")]
    assert {key.partition("}")[0].rpartition(":")[2] for key in keys} <= {"0", "1"}


@pytest.mark.parametrize("recorded", [0, FORMAT + 1])
async def test_namespace_with_another_stored_format_is_refused(
    concert: Coordinator, server: RealServer, namespace: str, recorded: int
) -> None:
    """Of a release before or after this one: with both numbers, and before anything is read or written."""
    key = f"{{{namespace}:namespace}}:layout"
    if recorded:
        await raw(concert).hset(key, "format", recorded)
    else:
        await raw(concert).hdel(key, "format")
    before = await raw(concert).hgetall(key)
    match = f"'{namespace}' has the stored format {recorded}, and this release of inconcert has {FORMAT}; open it with"
    with pytest.raises(WrongLayout, match=match) as refused:
        await Coordinator(server.url, namespace=namespace).__aenter__()
    assert (refused.value.parameter, refused.value.given, refused.value.recorded) == ("format", FORMAT, recorded)
    with SyncProducer(server.url, namespace=namespace) as producer, pytest.raises(WrongLayout, match=match):
        await asyncio.to_thread(producer.enqueue, "t")
    assert await raw(concert).hgetall(key) == before


@pytest.mark.parametrize("number", [0, 1025, 2.0, True])
def test_number_of_groups_is_checked_without_a_server(number: Any) -> None:
    """A whole number from 1 to 1,024."""
    with pytest.raises(ValueError, match=r"chat_groups is .*; give a whole number from 1 to 1,024"):
        Coordinator(chat_groups=number)


async def test_primitive_that_is_imported_late_leaves_for_callers_that_have_gone(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module may be imported when the coordinator is open already."""
    monkeypatch.setattr(session_module, "_leaves", {})
    session, left = concert._ref.session, list[tuple[Session, str, str]]()
    on_unclaimed("late", lambda session, address, rest: left.append((session, address, rest)))
    session.inbox.dispatch("1.1 late some key")
    assert left == [(session, "1.1", "some key")]


async def test_ping_says_whether_the_server_answers(own_server: RealServer, namespace: str) -> None:
    """Over the connection of all calls: at once while it does, and an error within the time for a call otherwise."""
    concert = Coordinator(own_server.url, namespace=namespace, timeout=1.0)
    with pytest.raises(NotConnected):
        await concert.ping()
    async with concert:
        await concert.ping()
        own_server.pause()
        with pytest.raises(OutcomeUnknown):
            await concert.ping()
        own_server.resume()
        await eventually(lambda: answers(concert))


async def answers(concert: Coordinator) -> bool:
    """Whether the server answers, or does so again."""
    with suppress(Unavailable, OutcomeUnknown):
        await concert.ping()
        return True
    return False


async def test_each_caller_that_waits_at_close_has_an_error_of_its_own(server: RealServer, namespace: str) -> None:
    """Its traceback shows where this one waited, not where another did."""
    async with Coordinator(server.url, namespace=namespace) as concert:
        await concert.lock("a").acquire()
        waits = [asyncio.create_task(concert.lock("a").acquire()), asyncio.create_task(concert.signal("s").wait())]
        lines = concert._ref.session.lines._lines
        await eventually(lambda: sum(len(line.waiters) for line in lines.values()) == len(waits))
    await asyncio.wait(waits)
    places = ["".join(traceback.format_exception(wait.exception())) for wait in waits]
    assert ["signal.py" in place for place in places] == [False, True]
