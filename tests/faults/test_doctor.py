"""`inconcert doctor` finds each thing that is wrong, says what to do, and goes on where it may not look."""

import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from inconcert import Coordinator
from inconcert._redis.operate.examination import ONE_SERVER_TRIALS, TRIALS, Examination, Machine, examine
from inconcert._redis.operate.rights import Server, least_rights
from inconcert.cli.findings import CHECKS, Finding, Seen, findings
from inconcert.tasks.operating.queue_stats import TaskStats
from tests.support.clusters import RealCluster
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.raw import client_of, raw
from tests.support.sentinels import SentinelSet
from tests.support.servers import RealServer, command
from tests.support.world import world

PAGE = Path(__file__).parents[2] / "docs/how-to/doctor.md"

_AS_IT_SHOULD_BE = (
    ("timeout", "0"),
    ("tcp-keepalive", "300"),
    ("save", ""),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("appendonly", "yes"),
    ("client-output-buffer-limit", "pubsub 33554432 8388608 60"),
    ("min-replicas-to-write", "0"),
)

pytestmark = pytest.mark.one_server("the cluster has a test of its own")


@pytest.fixture(scope="module")
def healthy() -> Iterator[RealServer]:
    """A server as it should be."""
    with RealServer(appendonly="yes") as running:
        yield running


@pytest.fixture
async def patient(healthy: RealServer, namespace: str) -> AsyncIterator[Coordinator]:
    """An open coordinator on it; what a test changes is undone."""
    async with Coordinator(healthy.url, namespace=namespace) as opened:
        yield opened
    for name, value in {
        "timeout": "0",
        "tcp-keepalive": "300",
        "save": "",
        "maxmemory": "0",
        "appendonly": "yes",
    }.items():
        command(healthy.admin_url, "CONFIG", "SET", name, value)
    command(healthy.admin_url, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    command(healthy.admin_url, "CONFIG", "SET", "client-output-buffer-limit", "pubsub 33554432 8388608 60")
    command(healthy.admin_url, "CONFIG", "SET", "min-replicas-to-write", "0")


async def found(concert: Coordinator) -> dict[str, dict[str, str]]:
    """What the doctor finds, by its checks."""
    ended = await here(concert, "doctor", "--json")
    document = json.loads(ended.stdout)
    assert ended.exit_code == (1 if document["findings"] else 0)
    return {one["check"]: one for one in document["findings"]}


async def test_nothing_is_found_where_all_is_well(patient: Coordinator) -> None:
    """In an empty namespace; nothing is left behind there."""
    ended = await here(patient, "doctor")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "nothing was found\n", "")
    namespace = patient._ref.keys.namespace
    assert not [key async for key in raw(patient).scan_iter(f"{{{namespace}:doctor*")]


@pytest.mark.parametrize(
    ("check", "setting", "so"),
    [
        ("eviction", ("maxmemory-policy", "volatile-lru"), "maxmemory-policy is volatile-lru"),
        ("memory", ("maxmemory", "{used}"), "of the "),
        ("persistence", ("appendonly", "no"), "a restart loses everything"),
        ("timeout", ("timeout", "60"), "timeout is 60 s"),
        ("keepalive", ("tcp-keepalive", "0"), "tcp-keepalive is 0"),
        ("buffer", ("client-output-buffer-limit", "pubsub 1000000 0 0"), "1,000,000 bytes"),
        ("min-replicas", ("min-replicas-to-write", "1"), "0 replicas follow it"),
    ],
)
async def test_setting_is_found(
    patient: Coordinator, healthy: RealServer, check: str, setting: tuple[str, str], so: str
) -> None:
    """That one and no other; it says what to do."""
    name, value = setting
    if value == "{used}":
        value = str(int((await raw(patient).info("memory"))["used_memory"] * 1.05))
    async with patient.consume("q"):  # open already, because a server may refuse new ones then
        seen = await _seen(patient, lambda: command(healthy.admin_url, "CONFIG", "SET", name, value))
    [finding] = findings(seen)
    assert (finding.check, finding.thing) == (check, "server")
    assert so in finding.so
    assert finding.do


async def _seen(concert: Coordinator, change: Callable[[], object]) -> Seen:
    stats, workers = await concert.tasks.stats(), await concert.tasks.workers()
    change()
    return Seen(await examine(concert.redis, concert._ref.keys), stats, [one for one in workers if not one.is_alive])


async def test_dead_job_that_stops_its_key_is_found(patient: Coordinator) -> None:
    """With how many wait for it."""

    @patient.task(name="ordered", queue="q", key=lambda: "a", key_order="strict", max_attempts=1)
    async def ordered() -> None:
        raise ValueError

    first, *_ = [await ordered.enqueue() for _ in range(3)]
    await patient.run_worker("q", burst=True)
    stopped = (await found(patient))["stopped"]
    assert stopped["thing"] == f"job {first.id}"
    assert "jobs of its key wait for it in strict order (2)" in stopped["so"]


async def test_snapshots_lose_less(patient: Coordinator, healthy: RealServer) -> None:
    """It says what a restart loses."""
    for name, value in (("appendonly", "no"), ("save", "3600 1")):
        command(healthy.admin_url, "CONFIG", "SET", name, value)
    assert "what came since the last snapshot" in (await found(patient))["persistence"]["so"]


async def test_keys_without_an_end_are_found(patient: Coordinator) -> None:
    """Those that nothing of ours would leave; jobs are meant to stay."""
    namespace = patient._ref.keys.namespace
    await patient.enqueue("t", queue="q")
    await raw(patient).set(f"{{{namespace}:lock:a}}:holders", "x")
    keys = (await found(patient))["keys"]
    assert keys["so"] == f"keys have no TTL, and would stay (1): {{{namespace}:lock:a}}:holders"


async def test_queues_that_nobody_serves_and_paused_ones_are_found(patient: Coordinator) -> None:
    """By their names, and how many jobs wait."""
    await patient.enqueue("t", queue="mail")
    await patient.tasks.pause("mail")
    both = await found(patient)
    assert list(both) == ["unserved", "paused"]
    assert {one["thing"] for one in both.values()} == {"queue 'mail'"}
    assert both["unserved"]["so"] == "jobs wait (1), and nobody serves it"


async def test_worker_that_is_presumed_dead_is_found(patient: Coordinator) -> None:
    """With what it holds."""
    await patient.enqueue("t", queue="q")
    async with patient.consume("q") as jobs:
        [job] = await jobs.claim(1)
        [keys] = patient._jobs.partitions
        [worker] = await raw(patient).zrange(keys.workers, 0, -1)
        await raw(patient).zadd(keys.workers, {worker: 1})
        dead = [one for one in findings(await _seen(patient, lambda: None)) if one.check == "workers"]
        assert "holds jobs (1)" in dead[0].so
        with anyio.CancelScope(shield=True):
            await eventually(lambda: job.is_over)


async def test_rights_that_are_missing_are_found(patient: Coordinator, healthy: RealServer) -> None:
    """Each by its name; what the user may not ask, it could not see, and nothing else fails."""
    namespace = patient._ref.keys.namespace
    rules = least_rights(namespace, server=healthy.version)
    command(healthy.admin_url, "ACL", "SETUSER", "few", "on", ">secret", *rules, "-incrby", "-zpopmin")
    url = healthy.url_of(world().database).replace("unix://", "unix://few:secret@")
    async with Coordinator(url, namespace=namespace) as few:
        ended = await here(few, "doctor", "--json", "--url", url)
    document = json.loads(ended.stdout)
    [finding] = document["findings"]
    assert finding["check"] == "rights"
    assert "its user may not send incrby, zpopmin" in finding["so"]
    assert {line.partition(":")[0] for line in document["unseen"]} == {"CONFIG GET", "INFO", "SCAN"}
    assert "could not be seen: INFO: " in (await here(few, "doctor", "--url", url)).stdout


async def test_each_master_of_a_cluster_is_looked_at(cluster: RealCluster, namespace: str) -> None:
    """Its keys and its settings; all slots have a master."""
    async with Coordinator(cluster.url, namespace=namespace) as concert:
        await concert.redis_cluster.set(f"{{{namespace}:lock:a}}:holders", "x")
        document = json.loads((await here(concert, "doctor", "--json", "--url", cluster.url)).stdout)
        await concert.redis_cluster.delete(f"{{{namespace}:lock:a}}:holders")
    things = {(one["check"], one["thing"]) for one in document["findings"]}
    of_each = {(check, node) for check in ("persistence", "replicas") for node in _masters(cluster)}
    assert things == {*of_each, ("keys", "namespace")}
    assert document["unseen"] == []


@pytest.mark.slow
async def test_slots_that_no_master_has_are_found(namespace: str) -> None:
    """Although the cluster serves nobody then; a master that is followed is no finding."""
    with RealCluster(replicas=1, appendonly="yes") as cluster:
        concert = Coordinator(cluster.url, namespace=namespace)
        assert await found(concert) == {}
        for node in cluster.nodes:  # each has its own picture
            node.command("CLUSTER", "DELSLOTS", 1, 2, 3)
        ended = await here(concert, "doctor", "--json")
    document = json.loads(ended.stdout)
    [finding] = document["findings"]
    assert (ended.exit_code, finding["check"]) == (1, "slots")
    assert finding["so"].startswith("no master has 3 of the 16,384 slots: ")
    assert "no other slot either" in finding["so"]
    [unseen] = document["unseen"]
    assert unseen.startswith("jobs and workers: ")


async def test_what_sentinels_need_is_found(namespace: str) -> None:
    """A replica that can take the place of the master, and a master that stops when it is cut off."""
    with SentinelSet(appendonly="yes") as sentinels:
        async with Coordinator(sentinels.url, namespace=namespace) as concert:
            assert [finding.check for finding in await _found_of(concert)] == ["min-replicas"]
            sentinels.master.command("CONFIG", "SET", "min-replicas-to-write", 1)
            assert await _found_of(concert) == []
            sentinels.master.command("CONFIG", "SET", "min-replicas-to-write", 0)
            [replica] = sentinels.replicas
            replica.kill()
            await eventually(lambda: _is_found(concert, "no replica follows it"))


async def _found_of(concert: Coordinator) -> list[Finding]:
    examination = await examine(client_of(concert), concert._ref.keys)
    return findings(Seen(examination, await concert.tasks.stats(), []))


async def _is_found(concert: Coordinator, so: str) -> bool:
    return any(so in finding.so for finding in await _found_of(concert))


@pytest.mark.slow
async def test_server_that_does_not_answer_is_asked_once(own_server: RealServer, namespace: str) -> None:
    """It ends with the error of opening, and does not wait for each thing that it would ask."""
    concert = Coordinator(own_server.url, namespace=namespace)
    own_server.pause()
    began_at = time.monotonic()
    ended = await here(concert, "doctor")
    assert time.monotonic() - began_at < 30
    own_server.resume()
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "did not answer within" in ended.stderr


async def test_master_that_does_not_answer_is_found_and_hides_no_other(namespace: str) -> None:
    """Why it does not is among what could not be seen."""
    with RealCluster() as cluster:
        concert = Coordinator(cluster.url, namespace=namespace)
        async with concert:
            cluster.nodes[0].kill()
            examination = await examine(client_of(concert), concert._ref.keys)
    assert {machine.name for machine in examination.machines} == set(_masters(cluster)[1:])
    assert any(text.startswith(_masters(cluster)[0]) for text in examination.unseen)
    [away] = [finding for finding in findings(Seen(examination)) if finding.check == "masters"]
    assert away.thing == _masters(cluster)[0]


async def test_disk_that_takes_no_snapshot_is_found(patient: Coordinator, healthy: RealServer) -> None:
    """A folder is in its way."""
    _, data = command(healthy.admin_url, "CONFIG", "GET", "dir")
    in_its_way = Path(data) / "dump.rdb"
    in_its_way.mkdir()
    command(healthy.admin_url, "BGSAVE")
    await eventually(lambda: _is_found(patient, "rdb_last_bgsave_status is err"))
    in_its_way.rmdir()
    command(healthy.admin_url, "BGSAVE")
    await eventually(lambda: _is_well(patient))


async def _is_well(concert: Coordinator) -> bool:
    return not await _found_of(concert)


def _masters(cluster: RealCluster) -> list[str]:
    return [f"127.0.0.1:{node.port}" for node in cluster.nodes]


@pytest.mark.parametrize(("cluster", "trials"), [(False, (*TRIALS, *ONE_SERVER_TRIALS)), (True, TRIALS)])
def test_each_right_of_scripts_is_tried(cluster: bool, trials: Sequence[str]) -> None:
    """And no other."""
    rights = least_rights("n", server=Server.REDIS_7, cluster=cluster)
    scripts = {rule[1:] for rule in rights if rule.startswith("+")}
    tried = {trial.partition(" ")[0] for trial in trials}
    connections = {"asking", "client|setname", "cluster|slots", "eval", "evalsha", "ping", "select"}
    messages = {rule for rule in scripts if re.search("p?(un)?subscribe|pub", rule)}
    assert tried == scripts - connections - messages


def seen(uncovered: int = 0, **facts: Any) -> Seen:
    """What is seen of servers that cannot be had here."""
    machine = replace(Machine("server", {}, {}), **facts)
    nothing = TaskStats(workers=0, dead=0, queues={}, unserved=(), limits={})
    return Seen(Examination([machine], uncovered=uncovered), nothing, [])


@pytest.mark.parametrize(
    ("check", "changes", "so"),
    [
        ("version", {"info": {"redis_version": "6.0.16", "aof_enabled": 1}}, "it is redis 6.0.16"),
        ("disk", {"info": {"aof_last_write_status": "err", "aof_enabled": 1}}, "aof_last_write_status is err"),
        ("clock", {"clock_ahead": -12.0, "clock_error": 0.1}, "its clock is 12.0 s behind"),
        ("replicas", {"info": {"slave0": {"ip": "a", "state": "wait_bgsave"}, "aof_enabled": 1}}, "it is wait_bgsave"),
        ("replicas", {"info": {"slave0": {"state": "online", "lag": 60}, "aof_enabled": 1}}, "last heard 60 s ago"),
        ("slots", {"uncovered": 5461}, "5,461 of the 16,384 slots"),
    ],
)
def test_rare_state_is_found(check: str, changes: dict[str, Any], so: str) -> None:
    """That one and no other."""
    [finding] = findings(seen(**changes))
    assert isinstance(finding, Finding)
    assert finding.check == check
    assert so in finding.so


@pytest.mark.parametrize(
    "changes",
    [
        {"info": {"valkey_version": "9.0.1", "redis_version": "7.2.4", "aof_enabled": 1}},
        {"info": {"slave0": {"state": "online", "lag": 1}, "aof_enabled": 1}},
        {"clock_ahead": 1.5, "clock_error": 0.6},
        {},
    ],
)
def test_healthy_state_is_not_found(changes: dict[str, Any]) -> None:
    """A server of which nothing may be asked is none that is ill."""
    assert findings(seen(**changes)) == []


def test_page_has_each_check() -> None:
    """In the order in which they are made."""
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE) == list(CHECKS)
