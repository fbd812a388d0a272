"""Jobs of several partitions while masters of a cluster are killed: what came of each, in the recorded history."""

import asyncio
import itertools
import sys
import time
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from inconcert import Coordinator, current_job
from inconcert.tasks.records.store import JobKeys
from tests.support.clusters import Node, RealCluster
from tests.support.eventually import eventually
from tests.support.ledger import read_ledger
from tests.support.raw import raw

COUNT = 6  # partitions: two on each master
LAG = 0.5  # seconds of which a killed master's replica may lack what was acknowledged
SOON = 10.0  # seconds; docs/explanation/topology.md has what a calm machine takes


class History:
    """What was enqueued and what ran.

    Attributes:
        kept: Jobs that a replica had when it was asked.
        runs: When each job began and ended to run, and each time that it did.
        outages: From when a master was killed until all nodes knew the next.
        errors: How often a caller got one.
    """

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self._cluster = cluster
        self._marks = [f"{{{namespace}:tasks:{number}}}:mark" for number in range(COUNT)]
        self.find_masters()
        self.kept: set[str] = set()
        self.runs: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.outages: list[tuple[float, float]] = []
        self.errors = 0

    @property
    def lost(self) -> set[str]:
        """Those that a replica had, and that did not run."""
        return self.kept - self.runs.keys()

    @property
    def doubled(self) -> dict[str, list[tuple[float, float]]]:
        """Those that ran more than once."""
        return {job: runs for job, runs in self.runs.items() if len(runs) > 1}

    @property
    def unexplained(self) -> list[list[tuple[float, float]]]:
        """The runs of those that ran again although no master died that may have known better."""

        def is_explained(before: tuple[float, float], after: tuple[float, float]) -> bool:
            (began, ended), (again, _) = before, after
            return any(began <= known + LAG and ended >= killed - LAG <= again for killed, known in self.outages)

        return [
            runs for runs in self.doubled.values() if not all(itertools.starmap(is_explained, itertools.pairwise(runs)))
        ]

    async def runs_everywhere(self) -> float:
        """Wait until jobs of each partition have run that began from now on; returns the seconds that took."""
        since = time.monotonic()

        def found() -> bool:
            partitions = {job.rpartition(".")[2] for job, runs in self.runs.items() if runs[-1][0] > since}
            return len(partitions) == COUNT

        await eventually(found, timeout=15)
        return time.monotonic() - since

    def find_masters(self) -> None:
        """Ask which master has which partition now."""
        self._masters = {mark: self._cluster.owner(mark) for mark in self._marks}

    def is_replicated(self) -> bool:
        """Whether replicas have all that the masters of the partitions have written until now."""
        return all(_has_replicated(node, mark) for mark, node in self._masters.items())

    async def enqueue(self, concert: Coordinator) -> None:
        """Enqueue jobs, a few at a time. By name they would all lie in the partition of their task."""

        @concert.task(name="t", queue="q", result_ttl=0)
        async def run() -> None: ...

        while True:
            calls = [run.enqueue() for _ in range(20)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            jobs = {job.id for job in answers if not isinstance(job, BaseException)}
            self.errors += len(answers) - len(jobs)
            if await asyncio.to_thread(self.is_replicated):
                self.kept |= jobs

    async def work(self, concert: Coordinator, *, burst: bool = False) -> None:
        """Run jobs."""

        @concert.task(name="t", queue="q", result_ttl=0)
        async def run() -> None:
            began = time.monotonic()
            await asyncio.sleep(0.005)
            self.runs[current_job().id].append((began, time.monotonic()))

        del run
        await concert.run_worker("q", concurrency=5, burst=burst)


def _has_replicated(node: Node, mark: str) -> bool:
    make: Any = redis.Redis
    with suppress(redis.RedisError), make(port=node.port, retry=Retry(NoBackoff(), 0)) as client:
        client.set(mark, 1, px=1000)  # WAIT is about the writes of its own connection
        return bool(client.wait(1, 500))
    return False


async def under_kills(cluster: RealCluster, namespace: str, times: int) -> tuple[History, float]:
    """Kill the masters of partitions in turn while jobs run; also returns the longest time until all went on."""
    history, longest = History(cluster, namespace), 0.0

    def new() -> Coordinator:
        return Coordinator(cluster.url, namespace=namespace, partitions=COUNT)

    async with new() as one, new() as two, new() as three:
        tasks = [asyncio.create_task(history.work(concert)) for concert in (one, two)]
        enqueueing = asyncio.create_task(history.enqueue(three))
        await history.runs_everywhere()
        for number in range(times):
            await asyncio.to_thread(cluster.settle)
            master = cluster.owner(JobKeys(one._ref.keys, number % COUNT).workers)
            killed_at = time.monotonic()
            master.kill()
            await asyncio.to_thread(cluster.wait_for_new_master, master)
            history.outages.append((killed_at, time.monotonic()))
            longest = max(longest, await history.runs_everywhere())
            await asyncio.to_thread(master.start)
            await asyncio.to_thread(history.find_masters)
        await history.runs_everywhere()
        enqueueing.cancel()
        await eventually(lambda: not history.lost, timeout=20)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.wait([*tasks, enqueueing])
        async with new() as four:  # what these still held for a master that did not know that it had ended
            await history.work(four, burst=True)
        assert (await read_ledger(raw(three), namespace)).bodies == []
    return history, longest


async def test_jobs_of_all_partitions_go_on_when_a_master_is_killed(own_cluster: RealCluster, namespace: str) -> None:
    """Workers claim by themselves from the one that takes its place; what a replica had runs."""
    history, longest = await under_kills(own_cluster, namespace, times=1)
    assert (history.lost, history.unexplained) == (set(), [])
    assert longest < SOON


@pytest.mark.torture
async def test_jobs_are_neither_lost_nor_doubled_however_often_masters_are_killed(
    own_cluster: RealCluster, namespace: str
) -> None:
    """The figures of docs/explanation/topology.md are what this writes with `-s`."""
    history, longest = await under_kills(own_cluster, namespace, times=10)
    sys.stdout.write(
        f"\n| jobs: a master is killed | 10 | {sum(map(len, history.runs.values())):,} | {len(history.kept):,} "
        f"| {len(history.lost)} | {len(history.doubled)} | {len(history.unexplained)} | {history.errors} "
        f"| {longest:.2f} s |\n"
    )
    assert (history.lost, history.unexplained) == (set(), [])
