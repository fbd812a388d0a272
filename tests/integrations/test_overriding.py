"""A coordinator at module level is opened on another server while a test runs, and afterwards it is as before."""

import asyncio
import threading
import warnings
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from inconcert import Coordinator, Unavailable
from inconcert.testing import assert_enqueued, override
from tests.support.eventually import eventually
from tests.support.servers import RealServer
from tests.support.world import world

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of starlette, which will have another HTTP client
    from starlette.testclient import TestClient

LOOKS_AT_ALL_KEYS = pytest.mark.skipif(world().least_rights, reason="tests of users look at all keys")
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def shop() -> Coordinator:
    """A coordinator as a service has it, whose server cannot be reached."""
    return Coordinator(NOWHERE, namespace="shop", timeout=0.5)


def app_of(shop: Coordinator) -> Starlette:
    """An application that opens it, and enqueues a job for each request."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with shop:
            yield

    async def order(request: Request) -> PlainTextResponse:
        await shop.enqueue("order", [request.path_params["item"]])
        return PlainTextResponse("ordered")

    return Starlette(routes=[Route("/{item}", order)], lifespan=lifespan)


async def test_coordinator_is_open_inside_and_closed_afterwards(shop: Coordinator) -> None:
    """On a fakeredis, whatever its URL is; then its URL is its own again."""
    async with override(shop) as opened:
        assert opened is shop
        assert NOWHERE not in repr(shop)
        async with shop.lock("item:42"):
            assert await shop.lock("item:42").try_acquire() is None
    assert shop.url == NOWHERE
    with pytest.raises(Unavailable, match="could not be reached"):
        await shop.__aenter__()


async def test_next_override_has_nothing_of_the_last(shop: Coordinator) -> None:
    """Also of an object that was made before both."""
    mailbox = shop.mailbox("jack")
    for _ in range(2):
        async with override(shop):
            assert await mailbox.unread() == 0
            await mailbox.send("hello")


async def test_application_inside_shares_it(shop: Coordinator) -> None:
    """It may open and close it, one opening in the other; the test's goes on."""
    async with override(shop):
        async with shop, shop:
            await shop.mailbox("jack").send("hello")
        assert await shop.mailbox("jack").unread() == 1


async def test_nothing_is_left_running(shop: Coordinator) -> None:
    """A worker has slept, a candidate has led, someone has listened: after the override no task of theirs is there."""
    tasks, threads = asyncio.all_tasks(), threading.active_count()

    async def lead() -> None:
        async with shop.election("boss"):
            await anyio.sleep_forever()

    async def listen() -> None:
        async with shop.signal("s").subscribe() as signals:
            await signals.next()

    async def work() -> None:
        await shop.run_worker("default", unknown_task_grace=0)

    async with override(shop):
        started = [asyncio.create_task(each()) for each in (lead, listen, work)]
        job = await shop.enqueue("unknown")
        await eventually(lambda: is_(job.status(), "failed"))
        await eventually(lambda: is_(leader(shop), True))
        for task in started:
            task.cancel()
        await asyncio.wait(started)
    assert asyncio.all_tasks() == tasks
    assert threading.active_count() <= threads + 1  # the watchdog's lives on for a while


async def is_(coroutine: Coroutine[Any, Any, object], expected: object) -> bool:
    """Whether it returns this."""
    return await coroutine == expected


async def leader(shop: Coordinator) -> bool:
    """Whether somebody leads."""
    return await shop.election("boss").leader() is not None


async def test_worker_of_the_application_runs_jobs(shop: Coordinator) -> None:
    """One that its lifespan has started."""

    @shop.task
    async def double(n: int) -> int:
        return 2 * n

    async with override(shop), shop, anyio.create_task_group() as group:
        group.start_soon(shop.run_worker, "default")
        assert await (await double.enqueue(21)).result(timeout=10) == 42
        group.cancel_scope.cancel()


async def test_periodic_function_is_not_run(shop: Coordinator) -> None:
    """Neither one that was there before, nor one that comes while it is open; outside of the override they are."""
    runs: list[str] = []

    @shop.every(60.0, name="before")
    async def before() -> None:
        runs.append("before")

    async with override(shop):

        @shop.every(60.0, name="meanwhile")
        async def meanwhile() -> None:
            runs.append("meanwhile")

        await shop.event("e").set()  # by now they would have been elected
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("inconcert every")]
        await before()
    assert runs == ["before"]


async def test_safeguards_of_production_do_not_hold_a_test_up() -> None:
    """A fakeredis has no replicas, and has just become the master."""
    guarded = Coordinator(NOWHERE, failover_guard=60.0, replicas=2)
    async with override(guarded):
        with anyio.fail_after(5):
            await (await guarded.lock("x").acquire()).release()


async def test_override_in_an_override_is_refused(shop: Coordinator) -> None:
    """And the outer one goes on."""
    async with override(shop):
        with pytest.raises(RuntimeError, match="overridden already; leave that override first"):
            await override(shop).__aenter__()
        with pytest.raises(RuntimeError, match="overridden already"), override(shop):
            pass
        await shop.event("e").set()


async def test_open_coordinator_is_refused(concert: Coordinator) -> None:
    """Its connections would be elsewhere."""
    with pytest.raises(RuntimeError, match="cannot be overridden while it is open"):
        await override(concert).__aenter__()
    await concert.event("e").set()


async def test_application_that_is_closed_too_late_is_told(shop: Coordinator) -> None:
    """The coordinator is closed and as before; what the application does later changes nothing."""
    under = override(shop)
    await under.__aenter__()
    await shop.__aenter__()
    with pytest.raises(RuntimeError, match="still open inside the override that ends"):
        await under.__aexit__(None, None, None)
    assert shop.url == NOWHERE
    await shop.__aexit__(None, None, None)
    async with override(shop):
        await shop.event("e").set()


async def test_error_of_the_test_is_not_replaced(shop: Coordinator) -> None:
    """By that of an application that it has left open."""

    async def test() -> None:
        async with override(shop):
            await shop.__aenter__()
            raise KeyError

    with pytest.raises(KeyError):
        await test()
    assert shop.url == NOWHERE


async def test_cancelled_test_leaves_it_as_before(shop: Coordinator) -> None:
    """It is closed, and may be overridden again."""
    with anyio.move_on_after(0.05):
        async with override(shop):
            await anyio.sleep_forever()
    async with override(shop):
        await shop.event("e").set()


async def test_opening_that_fails_leaves_it_as_before(shop: Coordinator) -> None:
    """A server that does not answer is the client's."""
    server = FakeServer()
    server.connected = False
    async with FakeRedis(server=server) as client:
        with pytest.raises(Exception, match=r"(?i)connect"):
            await override(shop, client).__aenter__()
    async with override(shop):
        await shop.event("e").set()


@pytest.mark.one_server("a client of one server")
@LOOKS_AT_ALL_KEYS
async def test_keys_on_a_server_of_the_test_are_gone_afterwards(shop: Coordinator, server: RealServer) -> None:
    """Those of the namespace, and no others."""
    async with Coordinator(server.url, namespace="shop-2") as other:
        await other.mailbox("ann").send("hello")
        for _ in range(2):
            async with override(shop, other.redis):
                assert shop.url is None
                await shop.enqueue("order", ["sword"])
                await assert_enqueued(shop, "order", "sword")
        client: Any = other.redis  # whose options have no types
        assert await client.keys("{shop:*") == []
        assert await other.mailbox("ann").unread() == 1
        await other.mailbox("ann").purge()


@pytest.mark.one_server("a client of one server")
@LOOKS_AT_ALL_KEYS
async def test_namespace_that_is_in_use_is_refused(concert: Coordinator, server: RealServer, namespace: str) -> None:
    """So nothing of a server that serves others is touched, and keys that were there stay."""
    await concert.mailbox("ann").send("hello")
    shop = Coordinator(NOWHERE, namespace=namespace)
    with pytest.raises(RuntimeError, match=f"namespace.* already, with the key '{{{namespace}:"):
        await override(shop, concert.redis).__aenter__()
    assert await concert.mailbox("ann").unread() == 1
    await concert.mailbox("ann").purge()


async def test_cluster_and_server_are_not_exchanged(shop: Coordinator) -> None:
    """Objects at module level have the keys of one or of the other."""
    sharded = Coordinator("redis+cluster://127.0.0.1:1", namespace="shop")
    with pytest.raises(ValueError, match=r"for a cluster, and one server is given.*embedded\(cluster=1\)"):
        await override(sharded).__aenter__()


@pytest.mark.parametrize("times", [1, 2])
def test_application_with_a_loop_of_its_own(shop: Coordinator, times: int) -> None:
    """Starlette's TestClient opens it in a thread; what is there stays from one client to the next."""
    with override(shop):
        for _ in range(times):
            with TestClient(app_of(shop)) as client:
                http: Any = client  # of a library that has no types yet
                assert http.get("/sword").text == "ordered"
                assert client.portal
                client.portal.call(assert_enqueued, shop, "order", "sword")
    assert shop.url == NOWHERE


def test_server_is_exchanged_back_although_the_application_is_open(shop: Coordinator) -> None:
    """And the test is told."""
    under = override(shop)
    under.__enter__()
    with TestClient(app_of(shop)):
        with pytest.raises(RuntimeError, match="still open when its override ended"):
            under.__exit__(None, None, None)
        assert shop.url == NOWHERE


async def test_application_on_another_loop_is_told_what_to_write(shop: Coordinator) -> None:
    """If the test has opened the coordinator on its own loop."""
    async with override(shop):
        with pytest.raises(RuntimeError, match=r"write `with override\(...\)`"):
            await asyncio.to_thread(lambda: TestClient(app_of(shop)).__enter__())


async def test_client_is_not_for_another_loop(shop: Coordinator) -> None:
    """It is refused at once."""
    async with FakeRedis() as client:
        with pytest.raises(TypeError, match="belongs to one event loop"), override(shop, client):
            pass
