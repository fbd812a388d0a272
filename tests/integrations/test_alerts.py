"""The alerts and the board of docs/how-to/metrics.md, in a Prometheus that scrapes a process where it all happens."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inconcert import Coordinator, LeaseLost, Limit
from inconcert.testing import lapse
from tests.support.eventually import eventually
from tests.support.pages import DOCS
from tests.support.processes import Leashed
from tests.support.raw import raw
from tests.support.schedules import keys_of
from tests.support.servers import free_port

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry

from inconcert.integrations.prometheus import Metrics, serve

PAGE = (DOCS / "how-to" / "metrics.md").read_text("utf-8")
BOARD = DOCS / "assets" / "grafana.json"
CONFIG = """
global: {{scrape_interval: 100ms, scrape_timeout: 100ms, evaluation_interval: 100ms}}
rule_files: [{rules}]
scrape_configs: [{{job_name: inconcert, static_configs: [{{targets: ["127.0.0.1:{port}"]}}]}}]
"""

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus is not installed; on Debian: apt-get install prometheus"
)


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    async def ask(self, path: str) -> Any:
        """Its answer; None before it listens."""

        def fetched() -> Any:
            try:
                with urllib.request.urlopen(self._url + path) as answer:
                    return json.load(answer)["data"]
            except OSError:
                return None

        return await asyncio.to_thread(fetched)

    async def firing(self) -> set[str]:
        """The names of alerts."""
        data = await self.ask("alerts")
        alerts: list[dict[str, Any]] = data["alerts"] if data else []
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def fires(self, alert: str) -> bool:
        """Whether this one does."""
        return alert in await self.firing()

    async def series(self, expression: str) -> int:
        """How many an expression has now."""
        data = await self.ask("query?" + urllib.parse.urlencode({"query": expression}))
        return len(data["result"]) if data else 0


@asynccontextmanager
async def prometheus(folder: Path, scraped: int) -> AsyncGenerator[Prometheus]:
    """With the alerts of the page, none of which has to last."""
    [rules] = re.findall(r"```yaml\n(groups:.*?)```", PAGE, re.DOTALL)
    (folder / "rules.yml").write_text(re.sub(r"\n +for: .*", "", rules))
    (folder / "config.yml").write_text(CONFIG.format(rules=folder / "rules.yml", port=scraped))
    port = free_port()
    with (folder / "log").open("w+b") as log:
        leashed = Leashed(
            [
                "prometheus",
                f"--config.file={folder / 'config.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        try:
            yield Prometheus(port)
        finally:
            leashed.kill()


async def make_trouble(concert: Coordinator) -> None:
    """Do each of what there is an alert for, and go on until cancelled."""
    keys = concert._jobs.partitions[0]
    old = await concert.enqueue("anything", queue="unserved")
    seconds, _ = await raw(concert).time()
    await raw(concert).hset(keys.bodies, old.id, f"{seconds - 400}000 {{}}")
    lease = await concert.lock("door").acquire()
    await lapse(lease)
    with pytest.raises(LeaseLost):
        await lease.release()
    await concert.enqueue("fail", queue="mail", max_attempts=1)
    await concert.run_worker("mail", burst=True)
    await concert.enqueue("anything", queue="mail")
    async with concert.consume("mail") as dying, concert.consume("mail") as living:
        await dying.claim(1)
        [worker] = await raw(concert).zrange(keys.workers, 0, -1)
        await raw(concert).zadd(keys.workers, {worker: 0})
        opened = living._opened
        assert opened is not None
        opened._partitions[0].on_dead_workers([worker.decode()])
        await living.claim(1)
    await concert.schedules.put("unreadable", concert.task(name="anything")(print).call(), every=3600)
    await raw(concert).hset(keys_of(concert, "unreadable").definitions, "unreadable", "{")
    await concert.enqueue("fail", queue="full", max_attempts=1, delay=0.001)
    await concert.enqueue("wait", queue="full", delay=0.01)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(concert.run_worker("full", concurrency=1))
        while True:  # as if no worker had looked at schedules for long
            await raw(concert).set(keys.looked, f"{seconds - 400}000")
            await asyncio.sleep(0.05)


@needs_prometheus
async def test_each_alert_fires_and_the_board_has_something_to_show(concert: Coordinator, tmp_path: Path) -> None:
    """The first time that something happens, too; none of them fires before."""
    expected = set(re.findall(r"- alert: (\w+)", PAGE))
    assert len(expected) == 8

    @concert.task(name="fail", queue="mail")
    async def fail() -> None:
        raise LookupError

    @concert.task(name="wait", queue="full")
    async def wait() -> None:
        await asyncio.Event().wait()

    @concert.task(name="limited", queue="mail", limit=Limit(5))
    async def limited() -> None: ...

    registry = CollectorRegistry()
    metrics = Metrics(concert, queues=["unserved"], members=["crawlers"], registry=registry)
    with serve("127.0.0.1", 0, registry=registry) as port:
        async with prometheus(tmp_path, port) as server:
            await eventually(lambda: server.series('inconcert_jobs_dead_total{task="fail"}'))
            assert await server.firing() == set()
            trouble = asyncio.create_task(make_trouble(concert))
            try:
                for alert in sorted(expected):
                    await eventually(partial(server.fires, alert), timeout=30)
                for expression in shown():
                    await eventually(partial(server.series, expression))
            finally:
                trouble.cancel()
                await asyncio.wait([trouble])
    metrics.close()


def shown() -> list[str]:
    """The expressions of the board, for the shortest window and all tasks and queues."""
    expressions = re.findall(r'"expr": "(.*?[^\\])"', BOARD.read_text("utf-8"))
    assert len(expressions) > 10
    return [json.loads(f'"{one}"').replace("$__rate_interval", "5s").replace("$queue", ".*") for one in expressions]


def test_board_is_of_metrics_that_there_are() -> None:
    """Each is in the page's table."""
    known = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    used = {re.sub("_bucket$", "", name) for one in shown() for name in re.findall(r"inconcert_\w+", one)}
    assert used <= known
    assert json.loads(BOARD.read_text("utf-8"))["title"] == "inconcert"
