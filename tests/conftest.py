"""Servers and coordinators for all tests, and what must hold after each of them."""

import asyncio
import gc
import inspect
import secrets
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, cast, get_args

import pytest
from fakeredis.aioredis import FakeRedis
from hypothesis import HealthCheck, settings

from inconcert import Coordinator
from inconcert._redis.protocol.keys import is_permanent
from inconcert._redis.protocol.scripts import Command
from tests.support.cases import chosen, is_chosen
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.quick_drivers import install as install_quick_drivers
from tests.support.raw import client_of, close_raw, has_raw
from tests.support.servers import RealServer
from tests.support.twice import commands, names, not_repeated
from tests.support.world import Kind, World, examples, world

pytest_plugins = ("pytester",)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[RealServer | RealCluster]:
    """A real server for all tests that do it no harm; with `--cluster` the cluster."""
    if world().cluster:
        yield request.getfixturevalue("cluster")
        return
    with RealServer() as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[RealServer]:
    """A real server for this test alone, which may pause, fill or kill it."""
    with RealServer() as running:
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """A cluster of three masters for all tests that do it no harm; they may move slots."""
    with RealCluster(cluster_node_timeout="5000") as running:
        yield running


@pytest.fixture
def own_cluster() -> Iterator[RealCluster]:
    """A cluster of three masters and three replicas for this test alone."""
    with RealCluster(replicas=1) as running:
        yield running


@pytest.fixture
async def proxy(server: RealServer) -> AsyncIterator[Proxy]:
    """A bad network to the common server."""
    async with Proxy(server.tcp_url) as opened:
        yield opened


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"test-{secrets.token_hex(4)}"


@pytest.fixture
async def concert(server: RealServer | RealCluster, namespace: str) -> AsyncIterator[Coordinator]:
    """An open coordinator on a real server."""
    async with Coordinator(server.url, namespace=namespace) as opened:
        yield opened
    await nothing_is_left(server, namespace)


@pytest.fixture
async def spread(server: RealServer | RealCluster, namespace: str) -> AsyncIterator[Coordinator]:
    """An open coordinator of a namespace with three partitions."""
    async with Coordinator(server.url, namespace=namespace, partitions=3) as opened:
        yield opened


@pytest.fixture(params=["real", "fakeredis"])
async def any_concert(
    request: pytest.FixtureRequest, server: RealServer | RealCluster, namespace: str
) -> AsyncIterator[Coordinator]:
    """An open coordinator on a real server, and on fakeredis: for what is pure logic."""
    if request.param == "real":
        async with Coordinator(server.url, namespace=namespace) as opened:
            yield opened
        await nothing_is_left(server, namespace)
    else:
        protocol: dict[str, Any] = {"protocol": world().protocol} if world().protocol else {}
        client = FakeRedis(db=world().database, **protocol)
        async with Coordinator.from_client(client, namespace=namespace) as opened:
            yield opened
        await client.aclose()
        for task in asyncio.all_tasks():  # what fakeredis leaves waiting of a BLPOP whose connection was closed
            if "AsyncFakeSocket._async_blocking" in repr(task.get_coro()):
                task.cancel()
                await asyncio.wait([task])


@pytest.fixture
def here(request: pytest.FixtureRequest) -> Coordinator:
    """The coordinator of the test: `any_concert` where it is asked for, otherwise `concert`."""
    name = "any_concert" if "any_concert" in request.fixturenames else "concert"
    opened: Coordinator = request.getfixturevalue(name)
    return opened


@pytest.fixture
async def elsewhere(here: Coordinator, namespace: str) -> AsyncIterator[Coordinator]:
    """A second coordinator on the same server, as another process has it."""
    async with Coordinator.from_client(client_of(here), namespace=namespace) as opened:
        yield opened


@pytest.fixture
def complaints() -> list[Any]:
    """What the event loop has said to its exception handler."""
    found: list[Any] = []
    asyncio.get_event_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


@pytest.fixture(autouse=True)
def no_task_is_left(request: pytest.FixtureRequest) -> None:
    """After each test its event loop runs nothing any more; thousands of plain functions of unit tests have none."""
    if "unit" not in request.path.parts or inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("idle_loop")


@pytest.fixture
def idle_loop(_function_scoped_runner: asyncio.Runner) -> Iterator[None]:
    """At the end the event loop runs nothing; a plain fixture, because one that is a coroutine costs much more."""
    yield
    if has_raw():
        _function_scoped_runner.run(close_raw())
    loop = _function_scoped_runner.get_loop()
    if asyncio.all_tasks(loop):  # such as one that closes a generator which was collected as the test ended
        _function_scoped_runner.run(asyncio.sleep(0.01))
    assert not asyncio.all_tasks(loop)


def pytest_addoption(parser: pytest.Parser) -> None:
    """In which world the tests run; see `tests/support/world.py`."""
    parser.addoption("--least-rights", action="store_true", help="log in with the rights that `inconcert acl` prints")
    parser.addoption("--database", type=int, default=0, help="the number of the server's database")
    parser.addoption("--server", choices=get_args(Kind), default="valkey", help="which server")
    parser.addoption("--cluster", action="store_true", help="a cluster of three such servers")
    parser.addoption("--protocol", type=int, choices=[2, 3], default=0, help="RESP 2 or 3; else the driver's default")
    parser.addoption("--seed", type=int, default=1, help="of the faults that torture tests draw")
    parser.addoption("--seconds", type=float, default=30.0, help="how long each torture test makes faults")
    parser.addoption("--examples", type=float, default=1.0, help="how many times as many as usual Hypothesis draws")
    parser.addoption("--one-each", type=int, metavar="N", help="one case of each Nth function that is no unit test")
    parser.addoption("--one-fake-each", type=int, metavar="N", help="one case on fakeredis of each Nth that has both")
    parser.addoption("--each-value", action="store_true", help="each value of each parameter, not all combinations")
    parser.addoption("--in-turn", type=int, metavar="N", help="of the cases of a function 1 / N, other ones each day")
    parser.addoption("--day", type=int, default=datetime.now(UTC).toordinal(), help="which of them are in turn")
    parser.addoption("--loop", choices=["asyncio", "uvloop"], default="asyncio", help="the event loop")


def pytest_configure(config: pytest.Config) -> None:
    """Also in each process that runs tests beside others."""
    gc.disable()  # until all is collected, of which there is much, and no garbage
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it for what it runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    install_quick_drivers()
    options = config.option
    World(
        least_rights=options.least_rights,
        database=options.database,
        loop=options.loop,
        server=options.server,
        protocol=options.protocol,
        cluster=options.cluster,
        examples=options.examples,
    ).make()
    slow = [HealthCheck.too_slow]  # a busy machine fails no example
    settings.register_profile("here", max_examples=examples(100), deadline=None, suppress_health_check=slow)
    settings.load_profile("here")
    if options.loop == "uvloop":
        config.pluginmanager.register(_Loops())


class _Loops:
    """Where tests and fixtures run, if not on asyncio's own event loop."""

    def pytest_asyncio_loop_factories(self) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
        from tests.support.checked_loop import CheckedLoop

        return {"uvloop": CheckedLoop}


def pytest_report_header(config: pytest.Config) -> str:
    """Which world that is, and which day."""
    in_turn: int | None = config.option.in_turn
    return f"world: {world()}" + (f"; cases in turn: --in-turn {in_turn} --day {config.option.day}" if in_turn else "")


@pytest.hookimpl(trylast=True)  # so that `-k` and `-m` have chosen before
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a cluster, leave out what only one server has; choose cases; and begin with what takes long."""
    for item in items:
        mark = item.get_closest_marker("one_server")
        if mark is not None and world().cluster:
            item.add_marker(pytest.mark.skip(reason=f"one server only: {mark.args[0]}"))
    kept = chosen(items, config.option)
    left_out = set(items).difference(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = sorted(kept, key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
    """Make no cases of functions that are left out, for that takes most of the time of a collection."""
    each: int | None = collector.config.option.one_each
    is_function = name.startswith("test_") and "unit" not in collector.path.parts
    return [] if each and is_function and not is_chosen(f"{collector.nodeid}::{name}", each) else None


def pytest_collection_finish() -> None:
    """What is there for the whole run need not be looked at by any garbage collection, which would pause a test."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """A test that is marked `twice` runs the scripts of its marks twice itself, not in a fixture."""
    marked = names(item.iter_markers())
    with commands() if marked else nullcontext(Counter[Command]()) as counted:
        yield
    if missed := not_repeated(marked, counted):
        pytest.fail(f"marked `twice`, but not run twice alike: {', '.join(sorted(missed))}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What a test logs or compares may be no valid Unicode, and processes that run tests pass on nothing else."""
    return _valid((yield))


def _valid(part: Any) -> Any:
    if isinstance(part, str):
        return part.encode(errors="backslashreplace").decode()
    if isinstance(part, dict):
        named = cast("dict[str, Any]", part)
        return {name: _valid(value) for name, value in named.items()}
    if isinstance(part, list | tuple):
        parts = map(_valid, cast("list[Any]", part))
        return tuple(parts) if isinstance(part, tuple) else list(parts)
    return part


async def nothing_is_left(server: RealServer | RealCluster, namespace: str) -> None:
    """After a test with this namespace: every key ends by itself or is meant to stay, and nobody listens.

    Then its keys are removed, for whoever looks next looks through all that there are.
    """
    for node in server.nodes if isinstance(server, RealCluster) else [server]:
        client = node.client
        keys = list(client.scan_iter(match=f"*{namespace}:*", count=1000))
        with client.pipeline(transaction=False) as asked:
            for key in keys:
                asked.pttl(key)
            for key, left in zip(keys, asked.execute(), strict=True):
                name = key.decode()
                assert left != -1 or is_permanent(name), f"{name} would stay forever"
            for key in keys:
                asked.unlink(key)
            asked.execute()

        def no_inbox(client: Any = client) -> bool:
            listed = "SHARDCHANNELS" if isinstance(server, RealCluster) else "CHANNELS"
            return not client.execute_command(f"PUBSUB {listed}", f"{namespace}:*:inbox:*")

        await eventually(no_inbox)
