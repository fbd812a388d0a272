"""The embedded cluster: all its masters serve, ask for a password, and end with the program that started them."""

import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pytest
import redis

from inconcert import Coordinator
from inconcert._redis.embedded import embedded_cluster
from inconcert._redis.embedded.embedded_cluster import EmbeddedCluster
from inconcert.errors import Unavailable
from tests.support.eventually import eventually
from tests.support.processes import is_alive, spawn, tell
from tests.support.servers import command


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A running cluster of three."""
    cluster = EmbeddedCluster(3)
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
def temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which temporary ones are made, for this test alone."""
    temp = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    yield temp
    shutil.rmtree(temp)


def ports_of(url: str) -> list[int]:
    """The ports of its nodes."""
    return [int(place.rpartition(":")[2]) for place in urlsplit(url).netloc.split(",")]


def password_file_of(url: str) -> Path:
    """Where its password is."""
    return Path(parse_qs(urlsplit(url).query)["password_file"][0])


def run(port: int, password: str | None, *args: str) -> Any:
    """Run one command at one node."""
    login = "" if password is None else f":{password}@"
    return command(f"redis://{login}127.0.0.1:{port}", *args)


def pids_of(url: str) -> list[int]:
    """The ids of the nodes' own processes."""
    password = password_file_of(url).read_text("utf-8")
    return [run(port, password, "INFO", "server")["process_id"] for port in ports_of(url)]


async def serve() -> None:
    """In a child: start a cluster and never stop it."""
    cluster = EmbeddedCluster(2)
    await cluster.start()
    tell("serving", pids=pids_of(cluster.url), folder=str(password_file_of(cluster.url).parent))
    await anyio.sleep_forever()


@pytest.mark.parametrize("masters", [1, 3])
async def test_its_masters_share_the_slots(masters: int) -> None:
    """Each has its part, and the work goes to all of them."""
    async with Coordinator.embedded(cluster=masters) as concert:
        assert concert.url is not None
        ports = ports_of(concert.url)
        assert len(ports) == masters
        for number in range(30):
            await concert.event(f"item:{number}").set()
        password = password_file_of(concert.url).read_text("utf-8")
        for port in ports:
            assert "cluster_slots_ok:16384" in run(port, password, "CLUSTER", "INFO")
            assert run(port, password, "DBSIZE") > 0


async def test_other_processes_reach_it_through_its_url() -> None:
    """Signals arrive, too, and a coordinator can be opened again: on a new cluster."""
    concert = Coordinator.embedded(cluster=2)
    for _ in range(2):
        async with concert:
            assert concert.url is not None
            async with Coordinator(concert.url) as other:
                async with concert.lock("a"):
                    assert await other.lock("a").locked()
                async with other.signal("go").subscribe() as heard:
                    await concert.signal("go").broadcast(1)
                    assert await heard.next() == 1
    assert concert.url is None


async def test_who_cannot_read_the_file_is_refused(cluster: EmbeddedCluster) -> None:
    """All commands need the password, which no process has on its command line."""
    for port in ports_of(cluster.url):
        with pytest.raises(redis.AuthenticationError):
            run(port, None, "PING")
    password_file = password_file_of(cluster.url)
    assert stat.S_IMODE(password_file.parent.stat().st_mode) == 0o700
    ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert password_file.read_text("utf-8") not in ps.stdout + cluster.url


async def test_two_at_once_are_apart(cluster: EmbeddedCluster) -> None:
    """With ports and passwords of their own."""
    async with Coordinator.embedded(cluster=1) as other:
        assert other.url is not None
        assert not set(ports_of(other.url)) & set(ports_of(cluster.url))
        async with other.lock("a"), Coordinator(cluster.url) as concert:
            assert not await concert.lock("a").locked()


async def test_stop_leaves_nothing_behind(temp: Path) -> None:
    """Neither files nor processes; stopping again does nothing, and there is an address only while it runs."""
    cluster = EmbeddedCluster(2)
    await cluster.start()
    with pytest.raises(RuntimeError, match="already started"):
        await cluster.start()
    pids = pids_of(cluster.url)
    await cluster.stop()
    assert not any(map(is_alive, pids))
    assert list(temp.iterdir()) == []
    await cluster.stop()
    with pytest.raises(Unavailable, match=r"start\(\) it first"):
        cluster.url  # noqa: B018 - looking is what fails


async def test_it_ends_with_its_parent() -> None:
    """Killed with -9: all nodes end, and their folders go."""
    async with spawn("tests.faults.test_embedded_cluster:serve") as child:
        serving = await child.wait_for("serving")
        child.kill()
        await eventually(lambda: not any(map(is_alive, serving["pids"])))
        await eventually(lambda: not Path(serving["folder"]).exists())


async def test_cancelled_start_leaves_nothing(temp: Path) -> None:
    """A cluster does not serve at once, so a start is often cancelled."""
    with anyio.move_on_after(0.5) as scope:
        await EmbeddedCluster(2).start()
    assert scope.cancelled_caught
    assert list(temp.iterdir()) == []


async def test_taken_port_is_replaced_by_another(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, temp: Path
) -> None:
    """Another program takes a port between our choice and the node's start: the next ports are tried."""
    original = embedded_cluster._Node.several
    tries: list[int] = []

    def several(count: int) -> list[Any]:
        nodes = original(count)
        tries.append(count)
        return [nodes[0]._replace(port=ports_of(cluster.url)[0]), *nodes[1:]] if len(tries) < 3 else nodes

    monkeypatch.setattr(embedded_cluster._Node, "several", several)
    second = EmbeddedCluster(2)
    await second.start()
    assert len(tries) == 3
    await second.stop()
    assert list(temp.iterdir()) == []


@pytest.mark.parametrize("masters", [0, -1, 33, True, 3.0])
def test_bad_number_is_refused_at_once(masters: int) -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match=r"cluster is .*; give a whole number from 1 to 32"):
        Coordinator.embedded(cluster=masters)


def test_folder_for_a_cluster_is_refused() -> None:
    """It keeps nothing, and does not hide that."""
    with pytest.raises(ValueError, match="data_dir is for one server"):
        Coordinator.embedded("data", cluster=3)
