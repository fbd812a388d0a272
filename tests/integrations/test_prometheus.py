"""What is scraped from a process: exact numbers, few series, and queues asked for only then."""

import asyncio
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import AsyncGenerator, Coroutine, Iterator, MutableMapping
from concurrent.futures import Future
from functools import partial
from math import inf
from typing import Any

import pytest

from inconcert import Coordinator, Job, JobStatus, LeaseLost, Limit, durable
from inconcert.coordinator import session_ref_of
from inconcert.members.group import Group
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.command_line import SERVICE, start
from tests.support.durable import wake
from tests.support.eventually import eventually
from tests.support.jobs import status
from tests.support.pages import DOCS
from tests.support.raw import raw
from tests.support.schedules import keys_of, look_at_all
from tests.support.servers import RealServer

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry, generate_latest

from inconcert.integrations import prometheus
from inconcert.integrations.prometheus import Metrics, serve
from inconcert.tasks.schedules.schedules import ScheduleCounts, count_schedules

PAGE = (DOCS / "how-to" / "metrics.md").read_text("utf-8")


@pytest.fixture
def registry() -> CollectorRegistry:
    """Of this test alone."""
    return CollectorRegistry()


@pytest.fixture
def metrics(concert: Coordinator, registry: CollectorRegistry) -> Iterator[Metrics]:
    """Of the coordinator."""
    metrics = Metrics(concert, queues=["mail"], registry=registry)
    yield metrics
    metrics.close()


def fetched(port: int) -> str:
    """What a scrape gets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return str(answer.read().decode())


async def scraped(registry: CollectorRegistry) -> dict[str, float]:
    """Series -> its value, as Prometheus would get them."""
    with serve("127.0.0.1", 0, registry=registry) as port:
        text = await asyncio.to_thread(fetched, port)
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {series: float(value) for series, _, value in lines}


async def test_scrape_has_what_it_asked_for_itself(
    metrics: Metrics, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although another one begins between the server's answer and its reading."""
    loop, asked = asyncio.get_running_loop(), threading.Event()
    others: list[asyncio.Task[None]] = []
    looks = 0

    async def count(*args: Any) -> ScheduleCounts:
        nonlocal looks
        looks += 1
        if looks > 1:
            asked.set()
        return await count_schedules(*args)

    def another() -> None:
        others.append(loop.create_task(metrics.refresh()))

    class Asking(Future[Any]):
        """The question of a scrape, whose answer another scrape overtakes."""

        def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
            super().__init__()
            self._asking = asyncio.run_coroutine_threadsafe(coroutine, loop)

        def result(self, timeout: float | None = None) -> Any:
            answer = self._asking.result(timeout)
            loop.call_soon_threadsafe(another)
            asked.wait(timeout)
            return answer

    def ask(coroutine: Coroutine[Any, Any, Any], _: asyncio.AbstractEventLoop) -> Asking:
        return Asking(coroutine)

    monkeypatch.setattr(prometheus, "count_schedules", count)
    monkeypatch.setattr(prometheus, "run_coroutine_threadsafe", ask)
    text = await asyncio.to_thread(generate_latest, registry)
    await asyncio.gather(*others)
    assert b'inconcert_queue_depth{queue="mail",state="ready"} 0.0' in text


async def test_leaving_the_server_does_not_hold_up_the_loop(registry: CollectorRegistry) -> None:
    """It does not wait for a poll, nor for a client that says nothing."""
    longest = 0.0
    for _ in range(3):
        with serve("127.0.0.1", 0, registry=registry) as port, socket.create_connection(("127.0.0.1", port)):
            await asyncio.to_thread(fetched, port)
            before = time.perf_counter()
        longest = max(longest, time.perf_counter() - before)
    assert longest < 0.2


async def test_jobs_are_counted_and_measured(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """By task and queue; a queue that no code declares is one of the others."""

    @concert.task(name="send", queue="mail", max_attempts=2, backoff=lambda _: 0.0)
    async def send(number: int) -> None:
        if number == 2:
            raise LookupError

    await send.enqueue(1)
    await send.enqueue(2)
    await send.options(queue="user:17").enqueue(3)
    await concert.run_worker("mail", burst=True)
    await concert.run_worker("mail", burst=True)
    values = await scraped(registry)

    labels = '{queue="mail",task="send"}'
    found = {
        fact: values[f"inconcert_jobs_{fact}_total{labels}"]
        for fact in ("enqueued", "started", "succeeded", "failed", "retried", "dead")
    }
    assert found == {"enqueued": 2, "started": 3, "succeeded": 1, "failed": 2, "retried": 1, "dead": 1}
    assert values['inconcert_jobs_enqueued_total{queue="other",task="send"}'] == 1
    assert values[f"inconcert_job_run_seconds_count{labels}"] == 3
    assert values[f"inconcert_job_wait_seconds_count{labels}"] == 2
    assert values["inconcert_worker_up"] == 0
    assert values["inconcert_worker_busy"] == 0
    assert values["inconcert_commands_total"] > 0


async def kept_steps(job: Job[Any], count: int) -> bool:
    """Whether so many steps of a job are kept."""
    return len(await job.steps()) == count


async def test_a_job_that_sleeps_and_waits_is_counted_once(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """Its sleep is not a wait in line; its steps and its stream are counted as they come."""

    @concert.task(name="sell", queue="mail")
    async def sell() -> AsyncGenerator[str]:
        await durable.uuid()
        await durable.sleep("pause", 3600)
        yield await durable.wait_for("packed", str, timeout=3600)
        yield "done"

    jobs = [await sell.enqueue(), await sell.options(delay=0.001).enqueue()]
    async with in_background(concert.run_worker("mail")):
        for job in jobs:
            await eventually(partial(kept_steps, job, 2))
            await status(concert, job, JobStatus.DELAYED)
            await wake(concert, job, "pause")
            await job.reschedule(delay=0)
            await eventually(partial(kept_steps, job, 3))
            await status(concert, job, JobStatus.DELAYED)
            await job.send("packed", "TR-1")
            await job.result(timeout=10.0)
    values = await scraped(registry)

    labels = '{queue="mail",task="sell"}'
    assert values[f"inconcert_job_wait_seconds_count{labels}"] == 1
    assert values[f"inconcert_job_lateness_seconds_count{labels}"] == 1
    assert values[f"inconcert_jobs_suspended_total{labels}"] == 4
    assert values[f"inconcert_jobs_started_total{labels}"] == 6
    assert values['inconcert_steps_total{outcome="ran",task="sell"}'] == 6
    assert values['inconcert_steps_total{outcome="kept",task="sell"}'] == 10
    assert values['inconcert_steps_total{outcome="failed",task="sell"}'] == 0
    assert values['inconcert_stream_items_total{task="sell"}'] == 4
    assert values["inconcert_worker_busy"] == 0


@pytest.mark.parametrize("keeps", [False, True])
async def test_wait_of_a_job_that_a_stopping_worker_gives_back_counts_once(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry, keeps: bool
) -> None:
    """Whether it had kept a step by then, or not."""
    runs: list[int] = []

    @concert.task(name="send", queue="mail")
    async def send() -> None:
        if keeps:
            await durable.uuid()
        runs.append(1)
        if len(runs) < 3:
            await asyncio.Event().wait()

    job = await send.enqueue()
    for run in (1, 2):
        async with in_background(concert.run_worker("mail")):
            await eventually(lambda: len(runs) == run)  # noqa: B023 - called here
    await concert.run_worker("mail", burst=True)
    assert await job.status() is JobStatus.SUCCEEDED
    values = await scraped(registry)
    assert values['inconcert_job_wait_seconds_count{queue="mail",task="send"}'] == 1
    assert values['inconcert_jobs_started_total{queue="mail",task="send"}'] == 3


async def test_counts_begin_at_zero(concert: Coordinator, metrics: Metrics, registry: CollectorRegistry) -> None:
    """For tasks, queues and leases, although nothing has happened: the first dead job is an increase to Prometheus."""

    @concert.task(name="send", queue="mail")
    async def send() -> None: ...

    values = await scraped(registry)
    for series in (
        'inconcert_jobs_dead_total{queue="mail",task="send"}',
        'inconcert_jobs_dead_total{queue="mail",task=""}',
        'inconcert_jobs_recovered_total{queue="mail"}',
        'inconcert_jobs_suspended_total{queue="mail",task="send"}',
        'inconcert_steps_total{outcome="failed",task="send"}',
        'inconcert_stream_items_total{task="send"}',
        'inconcert_leases_lost_total{kind="lock",name=""}',
        'inconcert_leases_lost_total{kind="members",name=""}',
        "inconcert_schedules_unread_total",
    ):
        assert values[series] == 0


async def test_a_delayed_job_is_late_and_did_not_wait(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """So that a delay is not taken for a backlog."""

    @concert.task(name="send", queue="mail")
    async def send() -> None: ...

    await send.options(delay=0.02).enqueue()
    async with concert.consume("mail") as jobs:
        [job] = await jobs.claim(1)
        async with job:
            pass
    values = await scraped(registry)

    assert values['inconcert_job_lateness_seconds_count{queue="mail",task="send"}'] == 1
    assert 'inconcert_job_wait_seconds_count{queue="mail",task="send"}' not in values


async def test_queues_are_asked_for_when_scraped(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """And a queue that nobody serves has no consumers."""
    await concert.enqueue("send", queue="mail")
    await concert.enqueue("send", queue="mail", delay=60)
    values = await scraped(registry)

    assert values['inconcert_queue_depth{queue="mail",state="ready"}'] == 1
    assert values['inconcert_queue_depth{queue="mail",state="delayed"}'] == 1
    assert values['inconcert_queue_oldest_seconds{queue="mail"}'] >= 0
    assert values['inconcert_queue_consumers{queue="mail"}'] == 0


async def test_limits_make_few_series_whatever_keys_there_are(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """Those of a task, and of the jobs that wait for any limit of a queue."""
    free, begun = asyncio.Event(), asyncio.Semaphore(0)

    def own(key: int) -> int:
        return key

    @concert.task(name="import", queue="imports", limit=Limit(3), key=own, key_limit=1)
    async def import_(key: int) -> None:
        begun.release()
        await free.wait()

    @concert.task(name="export", queue="exports", limit=concert.limit("api", 2))
    async def export() -> None: ...

    for begin in range(0, 10_000, 1_000):
        await concert.enqueue_many([import_.call(key) for key in range(begin, begin + 1_000)])
    before = await scraped(registry)
    async with in_background(concert.run_worker("imports")):
        for _ in range(3):
            await begun.acquire()
        values = await scraped(registry)

    assert before['inconcert_limit_places_in_use{limit="",queue="imports",task="import"}'] == 0
    assert values['inconcert_limit_places_in_use{limit="",queue="imports",task="import"}'] == 3
    assert values['inconcert_limit_places{limit="",queue="imports",task="import"}'] == 3
    assert values['inconcert_limit_places{limit="api",queue="exports",task="export"}'] == 2
    assert values['inconcert_limit_jobs_waiting{queue="imports"}'] > 0
    assert values['inconcert_limit_jobs_waiting{queue="mail"}'] == 0
    assert len(values) < 200


async def test_keys_that_a_dead_job_stops_are_counted(concert: Coordinator, registry: CollectorRegistry) -> None:
    """Those in strict order."""
    Metrics(concert, registry=registry)

    def itself(key: int) -> int:
        return key

    @concert.task(name="ordered", key=itself, key_order="strict", max_attempts=1)
    async def ordered(key: int) -> None:
        raise ValueError

    await concert.enqueue_many([ordered.call(key) for key in (1, 2, 1)])
    assert (await scraped(registry))["inconcert_stopped_keys"] == 0
    await concert.run_worker("default", burst=True)
    assert (await scraped(registry))["inconcert_stopped_keys"] == 2


async def test_job_that_is_undone_is_counted_as_dead(concert: Coordinator, registry: CollectorRegistry) -> None:
    """When all is undone."""
    Metrics(concert, registry=registry)

    @concert.task(name="book", queue="mail", max_attempts=1)
    async def book() -> None:
        async with durable.undo() as undo:
            await durable.step("book", cancel)
            undo.later("cancel", cancel)
            raise ValueError

    async def cancel() -> None: ...

    await book.enqueue()
    await concert.run_worker("mail", burst=True)
    assert (await scraped(registry))['inconcert_jobs_dead_total{queue="mail",task="book"}'] == 1


async def test_items_are_counted_where_their_queue_is_named(concert: Coordinator, registry: CollectorRegistry) -> None:
    """Also without tasks; and whether it was shut down."""
    metrics = Metrics(concert, items=["thumbnails"], registry=registry)
    queue = concert.queue("thumbnails")
    await queue.put_many([1, 2])
    await queue.put(3, delay=60)
    delivery = await queue.get(timeout=0)
    values = await scraped(registry)
    async with delivery:
        await queue.shutdown()
    later = await scraped(registry)
    metrics.close()

    def found(state: str) -> float:
        return values[f'inconcert_items{{queue="thumbnails",state="{state}"}}']

    assert [found(state) for state in ("ready", "delayed", "claimed", "dead")] == [1, 1, 1, 0]
    assert 0 <= values['inconcert_items_oldest_seconds{queue="thumbnails"}'] < 60
    assert values['inconcert_items_shut_down{queue="thumbnails"}'] == 0
    assert later['inconcert_items_shut_down{queue="thumbnails"}'] == 1
    assert not any(series.startswith("inconcert_queue") for series in later)


async def test_members_are_counted_where_their_group_is_named(
    concert: Coordinator, elsewhere: Coordinator, registry: CollectorRegistry
) -> None:
    """In all processes; those that this one loses are told apart by the same names, and no others."""
    metrics = Metrics(concert, members=["crawlers", "readers"], registry=registry)
    assert (await scraped(registry))['inconcert_leases_lost_total{kind="members",name="crawlers"}'] == 0
    async with elsewhere.members("crawlers"):
        lost = await concert.members("crawlers").join()
        other = await concert.members("tenant-17").join()
        async with concert.members("crawlers"):
            values = await scraped(registry)
        assert values['inconcert_members{name="crawlers"}'] == 3
        assert values['inconcert_members{name="readers"}'] == 0
        for member in (lost, other):
            keys = Group.of(session_ref_of(concert), member.name).keys
            await raw(concert).zadd(keys.members, {member.id: 1})
            with pytest.raises(LeaseLost):
                await member.renew()
        values = await scraped(registry)
    metrics.close()

    assert values['inconcert_members{name="crawlers"}'] == 1
    assert values['inconcert_leases_lost_total{kind="members",name="crawlers"}'] == 1
    assert values['inconcert_leases_lost_total{kind="members",name=""}'] == 1
    assert values['inconcert_lease_hold_seconds_count{kind="members",name="crawlers"}'] == 2
    assert not any("tenant-17" in series for series in values)


async def test_schedules_are_counted_and_watched(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """How many, for how long no worker has looked at them, and those that none here can read."""
    nothing = await scraped(registry)
    task = concert.task(name="send", queue="mail")(print)
    for id_ in ("a", "b", "bad"):
        await concert.schedules.put(id_, task.call(), every=3600)
    await concert.schedules.pause("b")
    unseen = await scraped(registry)
    await raw(concert).hset(keys_of(concert, "bad").definitions, "bad", "{")
    await look_at_all(concert)
    seen = await scraped(registry)
    for keys in concert._jobs.partitions:
        await raw(concert).decrby(keys.looked, 400_000)
    late = await scraped(registry)

    def states(values: dict[str, float]) -> list[float]:
        return [values[f'inconcert_schedules{{state="{state}"}}'] for state in ("active", "paused")]

    assert [states(values) for values in (nothing, seen)] == [[0, 0], [2, 1]]
    gauge = "inconcert_schedules_unfollowed_seconds"
    assert (nothing[gauge], unseen[gauge]) == (0, inf)
    assert 0 <= seen[gauge] < 60
    assert 400 <= late[gauge] < 460
    assert (unseen["inconcert_schedules_unread_total"], late["inconcert_schedules_unread_total"]) == (0, 1)


async def test_a_scrape_without_a_server_leaves_queues_out(
    concert: Coordinator,
    metrics: Metrics,
    registry: CollectorRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In time, and with everything else."""
    monkeypatch.setattr("inconcert.integrations.prometheus._LONGEST_QUESTION", 0.05)

    async def hang(*names: str) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(concert.tasks, "stats", hang)
    values = await scraped(registry)

    assert "inconcert_worker_up" in values
    assert not any(
        series.startswith(("inconcert_queue", "inconcert_limit", "inconcert_schedules{", "inconcert_schedules_unf"))
        for series in values
    )


async def test_many_lock_names_make_few_series(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """At most 200, of 100,000 names, with and without a name in metrics."""
    tallies = metrics._tallies

    class Lease:
        kind = "lock"

        def __init__(self, name: str, metrics_name: str) -> None:
            self.name = name
            self.metrics_name = metrics_name

    for number in range(100_000):
        lease = Lease(f"item:{number}", "items" if number % 2 else "")
        tallies.lease_acquired(lease, 0.1)
        tallies.lease_ended(lease, 0.1, is_lost=False)
    async with concert.lock("item:1", metrics_name="items"):
        pass
    values = await scraped(registry)

    assert values['inconcert_lease_wait_seconds_count{kind="lock",name="items"}'] == 50_001
    assert len(values) < 200


async def test_names_that_are_made_up_at_run_time_are_bounded(metrics: Metrics) -> None:
    """The first hundred are told apart, and no more."""
    tallies = metrics._tallies

    class Lease:
        kind = "lock"
        name = "any"
        metrics_name = ""

    for number in range(1_000):
        lease = Lease()
        lease.metrics_name = f"item:{number}"
        tallies.lease_acquired(lease, 0.1)

    assert len(tallies.lease_wait) == 101
    assert tallies.lease_wait["lock", "other"].counts[2] == 900


async def test_the_asgi_application_asks_on_its_own_loop(concert: Coordinator, metrics: Metrics) -> None:
    """Where a collector could not wait for the answer."""
    await concert.enqueue("send", queue="mail")
    sent: list[bytes] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message.get("body", b""))

    scope: dict[str, object] = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": []}
    await metrics.asgi(scope, receive, send)

    assert b'inconcert_queue_depth{queue="mail",state="ready"} 1.0' in b"".join(sent)


async def test_a_second_one_in_a_registry_is_refused(
    concert: Coordinator, metrics: Metrics, registry: CollectorRegistry
) -> None:
    """Its series would be those of the first; and it does not count in secret."""
    observers = len(session_ref_of(concert).observers)
    with pytest.raises(ValueError, match="Duplicated"):
        Metrics(concert, registry=registry)

    assert len(session_ref_of(concert).observers) == observers


async def test_a_closed_one_counts_no_more(concert: Coordinator, registry: CollectorRegistry) -> None:
    """And its registry is free for another."""
    Metrics(concert, registry=registry).close()
    Metrics(concert, registry=registry).close()

    assert session_ref_of(concert).observers == []


async def test_the_rules_look_at_metrics_that_there_are(metrics: Metrics) -> None:
    """Each expression of the page's eight rules names metrics that a scrape has."""
    exposed = {family.name for family in metrics.describe()} | {
        "inconcert_queue_depth",
        "inconcert_queue_oldest_seconds",
        "inconcert_queue_consumers",
        "inconcert_schedules_unfollowed_seconds",
    }
    expressions = re.findall(r"^ +expr: (.+)$", PAGE, re.MULTILINE)
    named = {
        re.sub(r"_(total|bucket|count|sum)$", "", name) for name in re.findall(r"inconcert_\w+", " ".join(expressions))
    }

    assert len(expressions) == 8
    assert named <= exposed


async def test_the_list_that_keda_measures_is_the_queue(server: RealServer | RealCluster) -> None:
    """As the page names it."""
    key = Coordinator(server.url, namespace="shop")._jobs.partitions[0].queue("mail").queue

    assert f'listName: "{key}"' in PAGE


async def test_each_process_of_a_worker_serves_its_metrics(concert: Coordinator) -> None:
    """At ports one above the other."""
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
    async with start(concert, "worker", SERVICE, f"--metrics=127.0.0.1:{port}", "--processes=2", "--grace=0") as child:
        await eventually(lambda: child.errors().count("worker") and child.errors().count(" starts;") == 2, timeout=30.0)
        for each in (port, port + 1):  # each knows of itself first, and of the other once that serves the queue

            async def counts_both() -> bool:
                page = await asyncio.to_thread(fetched, each)  # noqa: B023 - asked at once
                return "inconcert_worker_up 1.0" in page and 'inconcert_queue_consumers{queue="default"} 2.0' in page

            await eventually(counts_both)
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0


@pytest.mark.parametrize("address", ["9090", "localhost:", "localhost:99999", "::1:9090"])
async def test_a_bad_address_is_refused(concert: Coordinator, address: str) -> None:
    """Before anything is opened, and with an example."""
    async with start(concert, "worker", SERVICE, f"--metrics={address}") as child:
        assert await child.wait() == 2
        assert "give HOST:PORT" in child.errors()
