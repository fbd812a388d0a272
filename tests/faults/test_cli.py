"""The command line, with real processes: signals, deaths, and what is said when it cannot start."""

import asyncio
import io
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from rich.console import Console

from inconcert import Coordinator, durable
from inconcert.cli import actions
from inconcert.cli import top as top_module
from inconcert.cli.bench import _jobs as bench_jobs
from inconcert.cli.tables import table_of
from inconcert.cli.worker import of_one
from tests.support.command_line import ROOT, SERVICE, here, start, variables_of
from tests.support.eventually import eventually
from tests.support.forks import Fork
from tests.support.ledger import ledger_of
from tests.support.lines import in_line
from tests.support.processes import Child, is_alive
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import scripts_run
from tests.support.servers import RealServer, free_port


async def attempts(concert: Coordinator, count: int) -> dict[str, int]:
    """Run what is ready, and return which attempts those are."""
    async with concert.consume("default") as jobs:
        claimed = await jobs.try_claim(count)
        for job in claimed:
            await job.ack()
    return {job.id: job.attempt for job in claimed}


# One process, one on uvloop, and several: those that are signalled, log and die in other tests.
WAYS = pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="one"),
        pytest.param(["--processes=2"], id="processes", marks=pytest.mark.torture),
        pytest.param(["--uvloop"], id="uvloop"),
    ],
)


# Signals.


@pytest.mark.loop_matters
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_first_signal_drains(concert: Coordinator, number: int) -> None:
    """What ends in the grace is done, the rest goes back at once, is not counted, and the exit code is 0."""
    async with start(
        concert, "worker", SERVICE, "--concurrency=2", "--grace=0.8", fresh=number == signal.SIGTERM
    ) as child:
        put = [(await concert.enqueue("wait", [seconds])).id for seconds in (0.3, 60, 0)]
        for _ in range(2):
            await child.wait_for("started")
        child.signal(number)
        assert await child.wait() == 0
        assert "Traceback" not in child.errors()
        assert (
            f"[{child.pid}]: job {put[1]} attempt 1 (task 'wait', queue 'default'): back, it took 0." in child.errors()
        )
    ledger = await ledger_of(concert)
    ledger.check(put=3, done=1)
    assert ledger.ready == {"default": put[1:]}
    assert (ledger.failures, ledger.crashes, ledger.workers) == ({}, {}, [])
    assert await attempts(concert, 2) == dict.fromkeys(put[1:], 1)


@pytest.mark.loop_matters
@pytest.mark.parametrize("options", [[], ["--processes=2"], ["--uvloop"]], ids=["one", "processes", "uvloop"])
async def test_second_signal_does_not_wait(concert: Coordinator, options: list[str]) -> None:
    """Everything goes back at once, uncounted."""
    async with start(concert, "worker", SERVICE, "--concurrency=1", "--grace=60", *options) as child:
        put = (await concert.enqueue("wait", [60])).id
        await child.wait_for("started")
        child.signal(signal.SIGTERM)
        await eventually(lambda: "with 60 s to end" in child.errors())
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=5) == 0
        assert "Traceback" not in child.errors()
    ledger = await ledger_of(concert)
    assert (ledger.ready, ledger.workers) == ({"default": [put]}, [])
    assert await attempts(concert, 1) == {put: 1}


@pytest.mark.parametrize("options", [[], ["--processes=2"]], ids=["one", "processes"])
async def test_terminal_that_is_closed_drains(concert: Coordinator, options: list[str]) -> None:
    """However often it says so: what runs has the whole grace."""
    async with start(concert, "worker", SERVICE, "--concurrency=1", "--grace=60", *options) as child:
        await concert.enqueue("wait", [1.5])
        await child.wait_for("started")
        child.signal(signal.SIGHUP)
        await eventually(lambda: "with 60 s to end" in child.errors())
        child.signal(signal.SIGHUP)
        assert await child.wait() == 0
        assert "Traceback" not in child.errors()
    (await ledger_of(concert)).check(put=1, done=1)


async def test_worker_under_nohup_outlives_its_terminal(concert: Coordinator) -> None:
    """It goes on as if nothing had been said."""
    async with start(concert, "worker", SERVICE, "--grace=60", how="run_under_nohup") as child:
        await concert.enqueue("wait", [0])
        await child.wait_for("started")
        child.signal(signal.SIGHUP)
        await concert.enqueue("wait", [0])
        await child.wait_for("started")
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0
    (await ledger_of(concert)).check(put=2, done=2)


@pytest.mark.parametrize(("how", "code"), [("run", -signal.SIGTERM), ("run_as_pid_1", 128 + signal.SIGTERM)])
async def test_third_signal_kills(concert: Coordinator, how: str, code: int) -> None:
    """For a thread that nobody can stop; also PID 1, which no signal ends by default."""
    async with start(concert, "worker", SERVICE, how=how) as child:
        for task in ("wait", "block"):
            await concert.enqueue(task, [30])
        await child.wait_for("started")
        await child.wait_for("blocking")
        child.signal(signal.SIGTERM)
        await eventually(lambda: " stops; jobs that still run: 2" in child.errors())
        child.signal(signal.SIGTERM)

        async def is_cancelled() -> bool:
            return bool((await ledger_of(concert)).ready)

        await eventually(is_cancelled)
        assert child.is_running()
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=5) == code


@pytest.mark.loop_matters
async def test_idle_worker_ends_at_once_while_the_server_is_away(own_server: RealServer) -> None:
    """It has nothing to give back, so it waits for no answer."""
    async with Coordinator(own_server.tcp_url, namespace="idle") as concert, start(concert, "worker", SERVICE) as child:
        job = await concert.enqueue("wait", [0])
        await job.result(timeout=20)  # so that its acknowledgement was answered
        own_server.kill()
        await eventually(lambda: "command channel: connection lost" in child.errors())
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=5) == 0


@pytest.mark.loop_matters
async def test_worker_that_connects_ends_at_once(server: RealServer) -> None:
    """It has nothing to drain, and does not wait for a server that may not answer for its whole timeout."""
    async with Proxy(server.tcp_url) as proxy:
        proxy.mute()
        async with start(Coordinator(proxy.url), "worker", SERVICE) as child:
            await eventually(lambda: proxy.open, timeout=20)
            child.signal(signal.SIGTERM)
            assert await child.wait(timeout=5) == 0


@pytest.mark.loop_matters
async def test_job_that_ends_the_process_has_crashed_it(concert: Coordinator) -> None:
    """It is not given back uncounted, for then it would end one worker after the other."""
    async with start(concert, "worker", SERVICE) as child:
        put = await concert.enqueue("exit")
        assert await child.wait() == 1
        assert "a job ended this process with SystemExit(2)" in child.errors()
    ledger = await ledger_of(concert)
    assert list(ledger.claimed.values()) == [[put.id]]
    assert len(ledger.workers) == 1  # until its heartbeat lapses; then the crash is counted


# Many processes.


async def pids_of(concert: Coordinator, child: Child, count: int) -> set[int]:
    """Have each of so many worker processes run a long job."""
    pids: set[int] = set()
    while len(pids) < count:
        await concert.enqueue("wait", [60])
        pids.add((await child.wait_for("started"))["pid"])
    return pids


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.torture)])
async def test_worker_process_that_has_ended_is_started_again(concert: Coordinator, number: int) -> None:
    """The others work on; at the end none is left."""
    async with start(concert, "worker", SERVICE, "--processes=2", "--concurrency=1", "--grace=0") as child:
        killed, other = await pids_of(concert, child, 2)
        os.kill(killed, number)
        [new] = await pids_of(concert, child, 1)
        assert new not in {killed, other}
        assert is_alive(other)
        assert re.search(r"worker process \d ended with (-9|0); another starts in \d\.\d s", child.errors())
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0
        assert not is_alive(other)
        assert not is_alive(new)


async def test_signal_to_all_processes_drains_them(concert: Coordinator) -> None:
    """Ctrl-C and systemd signal parent and children alike: that is one request, not two."""
    async with start(concert, "worker", SERVICE, "--processes=2", "--concurrency=1", "--grace=60") as child:
        put = (await concert.enqueue("wait", [0.5])).id
        started = await child.wait_for("started")
        for pid in (started["pid"], child.pid):
            os.kill(pid, signal.SIGTERM)
        assert await child.wait() == 0
        assert started["id"] == put
    assert (await ledger_of(concert)).bodies == []


async def sleeps(concert: Coordinator) -> bool:
    """Whether a worker waits for its bells."""
    return any(client["cmd"] == "blpop" for client in await raw(concert).client_list())


@WAYS
async def test_job_may_end_a_process_that_it_has_forked(concert: Coordinator, options: list[str]) -> None:
    """The signal ends that process, which has none of the worker's connections, and does not reach the worker."""
    async with start(concert, "worker", SERVICE, *options) as child:
        await eventually(lambda: sleeps(concert), timeout=30.0)  # then it has all its connections
        await concert.enqueue("fork")
        forked = await child.wait_for("forked")
        ended = await child.wait_for("ended")
        await concert.enqueue("wait", [0])
        await child.wait_for("started")
        assert ended["code"] == -signal.SIGTERM
        assert forked["sockets"] == []
        assert " stops; " not in child.errors()
        child.signal(signal.SIGTERM)
        assert await child.wait() == 0


@pytest.mark.loop_matters
async def test_workers_drain_when_their_parent_is_dead(concert: Coordinator) -> None:
    """They are not left behind."""
    async with start(concert, "worker", SERVICE, "--processes=2", "--concurrency=1", "--grace=0") as child:
        pids = await pids_of(concert, child, 2)
        child.kill()
        await eventually(lambda: not any(map(is_alive, pids)))
    ledger = await ledger_of(concert)
    assert len(ledger.ready["default"]) == 2
    assert ledger.workers == []


async def test_changed_code_is_loaded(concert: Coordinator, tmp_path: Path) -> None:
    """With --reload: running jobs go back, and run again in the new code; one that is broken waits for its repair."""
    code = (
        "import anyio\nfrom inconcert import Coordinator\nfrom tests.support.processes import tell\n"
        "concert = Coordinator.from_env()\n@concert.task(name='t')\n"
        "async def t():\n    tell('VERSION')\n    await anyio.sleep_forever()\n"
    )
    module = tmp_path / "fresh.py"
    module.write_text(code.replace("VERSION", "old"))
    async with start(concert, "worker", "fresh:concert", "--reload", "--grace=60", folder=tmp_path) as child:
        await concert.enqueue("t")
        await child.wait_for("old")
        module.write_text("import nothing_like_that")
        await eventually(lambda: "waiting for a change" in child.errors())
        module.write_text(code.replace("VERSION", "new"))
        await child.wait_for("new")
        assert "to end" not in child.errors()  # what ran went back at once
        assert ": back, it took" in child.errors()
        child.signal(signal.SIGTERM)
        await eventually(lambda: "with 60 s to end" in child.errors())
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=5) == 0
    assert (await ledger_of(concert)).failures == {}


# Bursts and health.


@WAYS
async def test_burst_ends_with_0(concert: Coordinator, options: list[str]) -> None:
    """When its queues are empty."""
    await concert.enqueue("wait", [0.1], queue="high")
    await concert.enqueue("wait", [0.0], queue="low")
    async with start(concert, "worker", SERVICE, "--queues=high, low", "--weights=3,1", "--burst", *options) as child:
        assert await child.wait() == 0
    assert (await ledger_of(concert)).bodies == []


async def test_worker_ends_after_as_many_jobs_as_it_may(concert: Coordinator) -> None:
    """With 0, and the rest is left; under a parent it is replaced."""
    for _ in range(3):
        await concert.enqueue("wait", [0])
    async with start(concert, "worker", SERVICE, "--max-jobs=2") as child:
        assert await child.wait() == 0
    assert len((await ledger_of(concert)).bodies) == 1
    async with start(concert, "worker", SERVICE, "--max-jobs=1", "--processes=2") as child:
        await eventually(lambda: "has run as many jobs as it may; another starts" in child.errors(), timeout=30)
        assert (await ledger_of(concert)).bodies == []
        child.signal(signal.SIGTERM)
        assert await child.wait(timeout=30) == 0


def test_processes_do_not_all_end_together() -> None:
    """Each runs up to a tenth fewer jobs than it may, and none of less than ten fewer."""
    assert {of_one(9) for _ in range(100)} == {9}
    assert {of_one(10) for _ in range(100)} == {9, 10}
    assert {of_one(40) for _ in range(1000)} == {36, 37, 38, 39, 40}


async def test_health_of_a_server_that_answers(concert: Coordinator) -> None:
    """0, a line of JSON, and nothing is left behind."""
    put = await concert.enqueue("wait", [0])
    ended = ask(concert, "health", SERVICE)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["status"] == "ok"
    ledger = await ledger_of(concert)
    assert (ledger.ready, ledger.workers) == ({"default": [put.id]}, [])


async def test_health_says_how_much_work_there_is(concert: Coordinator) -> None:
    """In the queues that are named, and it does not count itself."""
    await concert.enqueue("wait", [0], queue="high")
    ended = ask(concert, "health", SERVICE, "--queues", "high, low")
    assert (ended.returncode, ended.stderr) == (0, "")
    answer = json.loads(ended.stdout)
    assert (answer["status"], answer["workers"], answer["dead"]) == ("ok", 0, 0)
    assert [answer["queues"][name]["ready"] for name in ("high", "low")] == [1, 0]
    assert 0 <= answer["queues"]["high"]["oldest_age"] < 60
    assert answer["queues"]["low"]["oldest_age"] is None
    refused = ask(concert, "health", SERVICE, "--queues=high,high")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "none twice" in refused.stderr


async def test_health_of_a_server_that_is_down_or_mute(concert: Coordinator, own_server: RealServer) -> None:
    """1, and a line of JSON that says why."""
    own_server.pause()
    mute = ask(concert, "health", SERVICE, "--timeout=0.5", url=own_server.tcp_url)
    own_server.resume()
    own_server.kill()
    down = ask(concert, "health", SERVICE, url=own_server.tcp_url)
    for ended, why in ((mute, "no answer in 0.5 s"), (down, "could not be reached")):
        assert (ended.returncode, ended.stderr) == (1, "")
        answer = json.loads(ended.stdout)
        assert answer["status"] == "failed"
        assert why in answer["error"]


# Probes.


def free_ports(count: int) -> int:
    """The first of so many ports in a row that are free."""
    while True:
        first = free_port()
        try:
            with ExitStack() as bound:
                for port in range(first, first + count):
                    bound.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first


async def probe(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """What a worker answers there; 0 while nothing answers."""
    async with httpx.AsyncClient() as client:
        try:
            answer = await client.get(f"http://127.0.0.1:{port}/{path}")
        except httpx.TransportError:
            return 0, {}
    return answer.status_code, answer.json()


@pytest.mark.loop_matters
async def test_worker_answers_probes(concert: Coordinator) -> None:
    """While it runs."""
    port = free_ports(1)
    async with start(concert, "worker", SERVICE, f"--health=127.0.0.1:{port}") as child:

        async def is_ready() -> bool:
            return (await probe(port, "readyz"))[0] == 200

        await eventually(is_ready, timeout=60)
        status, answer = await probe(port, "livez")
        assert (status, answer["state"], answer["capacity"]) == (200, "live", 100)
        await concert.enqueue("wait", [60])
        await child.wait_for("started")
        assert "task 'wait'" in (await probe(port, "readyz"))[1]["oldest_job"]
        taken = ask(concert, "worker", SERVICE, f"--health=127.0.0.1:{port}")
        assert taken.returncode == 1
        assert f"probes cannot be answered at http://127.0.0.1:{port}" in taken.stderr
        child.signal(signal.SIGTERM)
        await eventually(lambda: " stops; jobs that still run: 1" in child.errors())
        status, answer = await probe(port, "readyz")
        assert (status, answer["state"]) == (503, "draining")
    refused = ask(concert, "worker", SERVICE, "--health=8081")
    assert (refused.returncode, "give HOST:PORT" in refused.stderr) == (2, True)


async def test_queues_without_their_option_are_refused_with_it(concert: Coordinator) -> None:
    """Nothing is run; the error has what to give instead."""
    refused = await here(concert, "worker", SERVICE, "mail", "default")
    assert (refused.exit_code, "give queues as  --queues mail,default" in refused.stderr) == (2, True)


@pytest.mark.torture
async def test_healthy_process_is_never_red(concert: Coordinator, request: pytest.FixtureRequest) -> None:
    """With the real limits: idle for a while, then under load, and so on; asked twice a second."""
    port = free_ports(1)
    async with start(concert, "worker", SERVICE, f"--health=127.0.0.1:{port}", "--log-level=warning") as child:

        async def is_ready() -> bool:
            return (await probe(port, "readyz"))[0] == 200

        await eventually(is_ready, timeout=60)
        answers: Counter[tuple[int, int]] = Counter()
        until = time.monotonic() + request.config.option.seconds
        while time.monotonic() < until:
            is_loaded = bool(sum(answers.values()) // 40 % 2)
            if is_loaded:
                await asyncio.gather(*(concert.enqueue("wait", [0]) for _ in range(1_000)))
            answers[(await probe(port, "livez"))[0], (await probe(port, "readyz"))[0]] += 1
            await anyio.sleep(0.5)
        assert set(answers) == {(200, 200)}
        assert child.errors() == ""


async def test_parent_answers_for_its_processes(concert: Coordinator) -> None:
    """One that stands still is not alive; one that died is about to be started, which no supervisor need do."""
    port = free_ports(3)
    options = ["--processes=2", f"--health=127.0.0.1:{port}"]
    async with start(concert, "worker", SERVICE, *options) as parent:
        answers: list[int] = []

        async def becomes(path: str, status: int) -> None:
            async def is_there() -> bool:
                answers.append((await probe(port, "livez"))[0])
                return (await probe(port, path))[0] == status

            await eventually(is_there, timeout=60)  # processes start slowly on a busy machine

        await becomes("readyz", 200)
        assert [one["state"] for one in (await probe(port, "readyz"))[1]["processes"]] == ["ready", "ready"]
        pids = [int(pid) for pid in re.findall(r"started, pid (\d+)", parent.errors())]
        os.kill(pids[0], signal.SIGSTOP)
        await becomes("livez", 503)
        os.kill(pids[0], signal.SIGCONT)
        await becomes("livez", 200)
        answers.clear()
        os.kill(pids[1], signal.SIGKILL)
        await becomes("readyz", 503)
        await becomes("readyz", 200)
        assert set(answers) == {200}


# Operators' commands.


async def test_queues_are_a_table_or_json(concert: Coordinator) -> None:
    """The same numbers in both, in the order in which the queues are named."""
    for queue in ("later", "sooner", "sooner"):
        await concert.enqueue("wait", [0], queue=queue, delay=60 if queue == "later" else 0)
    table = ask(concert, "queues", "sooner", "later")
    document = ask(concert, "queues", "sooner", "later", "--json")
    every = json.loads(ask(concert, "queues", "--json").stdout)["queues"]
    assert list(every) == ["later", "sooner"]
    assert (table.returncode, table.stderr, document.stderr) == (0, "", "")
    *lines, unserved = table.stdout.splitlines()
    assert unserved == "jobs wait, and nobody serves: sooner, later"
    heads, *rows, _ = (line.split() for line in lines)
    cells = [dict(zip(heads, row, strict=False)) for row in rows]
    assert [(row["queue"], row["ready"], row["delayed"]) for row in cells] == [
        ("sooner", "2", "0"),
        ("later", "0", "1"),
    ]
    queues = json.loads(document.stdout)["queues"]
    assert [(name, found["ready"], found["delayed"]) for name, found in queues.items()] == [
        ("sooner", 2, 0),
        ("later", 0, 1),
    ]


async def test_workers_are_a_table_or_json(concert: Coordinator) -> None:
    """What they serve, and what they run."""
    assert ask(concert, "workers").stdout == "no worker\n"
    async with concert.consume("high", "low") as jobs:
        await concert.enqueue("wait", [0], queue="low")
        await jobs.claim(1)
        table = ask(concert, "workers")
        document = ask(concert, "workers", "--json")
    assert (table.returncode, table.stderr, document.stderr) == (0, "", "")
    words = table.stdout.split()
    assert {"worker", "host", "pid", "queues", str(os.getpid()), "high,", "low", "wait,"} <= set(words)
    [worker] = json.loads(document.stdout)
    assert (worker["pid"], worker["queues"]) == (os.getpid(), ["high", "low"])
    assert [job["task"] for job in worker["running"]] == ["wait"]


async def test_what_is_held_is_a_table_or_json(concert: Coordinator) -> None:
    """Holders first, then waiters in line; or only what is named. A process that does not answer is named."""
    assert concert.url is not None
    quiet = Coordinator(concert.url, namespace=concert._ref.keys.namespace, report=False)
    async with (
        quiet,
        concert.lock("item", label="order"),
        concert.semaphore("door", limit=1),
        concert.members("them"),
        concert.signal("deploy").subscribe(),
    ):
        silent = f"did not answer: {quiet._ref.session.id}\n"
        waiter = asyncio.create_task(concert.lock("item").acquire())
        await in_line(concert.lock("item"), 1)
        each = [["ls"], ["ls", "lock:item", "--json"], ["ls", "lock:other"], ["ls", "item"]]
        table, document, nothing, refused = [await asyncio.to_thread(ask, concert, *words) for words in each]
    await (await waiter).release()
    assert (table.returncode, table.stderr, document.stderr) == (0, "", "")
    states = [line.split()[:3] for line in table.stdout.splitlines()[1:-1] if line[0] != " "]
    assert states == [
        ["lock", "item", "held"],
        ["lock", "item", "position"],
        ["members", "them", "held"],
        ["semaphore", "door", "held"],
        ["signal", "deploy", "heard"],
    ]
    assert table.stdout.endswith(silent)
    assert nothing.stdout == f"nothing is held or waited for\n{silent}"
    process, _ = json.loads(document.stdout)["processes"]  # the other one asks
    assert process["pid"] == os.getpid()
    [held], [waits] = process["holds"], process["waits"]
    assert (held["name"], held["label"], waits["name"], waits["position"]) == ("item", "order", "item", 1)
    assert (refused.returncode, refused.stderr) == (
        2,
        "inconcert: 'item' is not KIND:NAME; write such as lock:item\n",
    )


async def test_jobs_are_a_table_or_json(concert: Coordinator) -> None:
    """A page of them, and how to get the next."""
    assert ask(concert, "jobs").stdout == "no job on this page\n"
    put = [await concert.enqueue("wait", [n], queue="q") for n in range(3)]
    page = json.loads(ask(concert, "jobs", "--queue=q", "--state=queued", "--limit=2", "--json").stdout)
    assert [(job["id"], job["task"], job["args"], job["status"]) for job in page["jobs"]] == [
        (put[0].id, "wait", [0], "queued"),
        (put[1].id, "wait", [1], "queued"),
    ]
    rest = json.loads(ask(concert, "jobs", "--task=wait", "--after", page["after"], "--json").stdout)
    assert ([job["id"] for job in rest["jobs"]], rest["after"]) == ([put[2].id], None)
    table = ask(concert, "jobs", "--limit=1")
    assert (table.returncode, table.stderr) == (0, "")
    assert {"task", "state", "wait", "queued", "[0]"} <= set(table.stdout.split())
    assert "more with --after " in table.stdout
    refused = ask(concert, "jobs", "--state=succeeded")
    assert refused.returncode == 2
    assert "state is 'succeeded'; give one of" in refused.stderr


async def test_job_is_shown_with_its_call_its_steps_and_its_end(concert: Coordinator) -> None:
    """As far as it has them, while it waits and when it has ended."""

    @concert.task(name="add", queue="q")
    async def add(left: int, right: int) -> int:
        return await durable.step("sum", int.__add__, left, right)

    @concert.task(name="break", queue="q", max_attempts=1)
    async def break_() -> None:
        raise ValueError("out of eggs")

    good, bad = await add.enqueue(1, right=2), await break_.enqueue()
    later = await concert.enqueue("add", [3, 4], queue="q", after=[bad])
    shown = json.loads((await here(concert, "show", later.id, "--json")).stdout)
    assert (shown["status"], shown["described"]["after"], shown["described"]["args"]) == ("waiting", [bad.id], [3, 4])
    waiting = (await here(concert, "show", good.id)).stdout
    assert {"queued", "add", "[1,", '{"right":', "2}]"} <= set(waiting.split())
    await concert.run_worker("q", burst=True)
    assert "result  3" in (await here(concert, "show", good.id)).stdout
    failed = (await here(concert, "show", bad.id)).stdout
    assert "out of eggs" in failed
    assert "Traceback" in failed
    gone = await here(concert, "show", "0-0")
    assert (gone.exit_code, gone.stderr) == (
        1,
        "inconcert: there is no job '0-0' in this namespace, or its result is no longer kept\n",
    )
    assert (await here(concert, "show", "a b")).exit_code == 2


async def test_job_that_is_tried_again_is_shown_with_its_last_error(concert: Coordinator) -> None:
    """Alone, and in the list."""
    job = await concert.enqueue("break", queue="q")
    async with concert.consume("q") as jobs, await anext(jobs):
        raise ValueError("out of eggs")
    shown = (await here(concert, "show", job.id)).stdout
    assert "last error  ValueError: out of eggs" in shown
    assert "attempt 1   ValueError: out of eggs; " in shown
    [attempt] = json.loads((await here(concert, "show", job.id, "--json")).stdout)["attempts"]
    assert (attempt["number"], attempt["failure"], attempt["pid"]) == (1, "error", os.getpid())
    [listed] = json.loads((await here(concert, "jobs", "--json")).stdout)["jobs"]
    assert (listed["status"], listed["error"]) == ("delayed", "ValueError: out of eggs")


async def test_queue_of_items_is_shown(concert: Coordinator) -> None:
    """How much is where, what comes next, and why what was dead-lettered failed; an empty one likewise."""
    queue = concert.queue("photos", max_attempts=1)
    await queue.put_many([{"bad": 1}, {"image": 2}, {"image": 3}])
    async with await queue.get():
        raise LookupError("no such image")
    delivery = await queue.get()
    await queue.put("x" * 1000, delay=3600)
    document = json.loads((await here(concert, "show", "items:photos", "--json")).stdout)
    assert (document["name"], document["next"]) == ("photos", [{"image": 3}])
    counts = [document["counts"][name] for name in ("ready", "delayed", "claimed", "dead")]
    assert counts == [1, 1, 1, 1]
    [dead] = document["latest_dead"]
    assert (dead["item"], dead["reason"]) == ({"bad": 1}, "LookupError: no such image")
    table = (await here(concert, "show", "items:photos")).stdout
    assert '{"image": 3}' in table
    assert "LookupError: no such image, " in table
    await delivery.ack()
    await concert.queue("other").shutdown()
    empty = await here(concert, "show", "items:other")
    rows = [line.split() for line in empty.stdout.splitlines()]
    counted = [[name, "0"] for name in ("ready", "delayed", "claimed", "dead")]
    assert rows == [["items", "other"], ["state", "shut", "down"], *counted]
    assert (await here(concert, "show", "items:")).exit_code == 2


async def test_steps_that_wait_are_shown_in_words(concert: Coordinator) -> None:
    """When a sleep and a wait end, and how far a loop is; as JSON they are what they are."""

    @concert.task(name="fulfil", queue="q")
    async def fulfil() -> None:
        async for _ in durable.each("lines", ["guitar", "strings"], key=str):
            pass
        async for size in durable.each("labels", ["small", "large", "huge"], key=str):
            if size == "large":
                break
        async for line in durable.each("boxes", ["small", "large"], key=str):
            if line == "large":
                await durable.sleep("pause", 0)
                await durable.wait_for("packed", str, timeout=3600)

    job = await fulfil.enqueue()
    async with concert.consume("q") as jobs:
        [claimed] = await jobs.claim(1)
        async with claimed:
            await fulfil()
    lines = [line.rstrip() for line in (await here(concert, "show", job.id)).stdout.splitlines()]
    until = r"until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert "step lines   2 done, all of them" in lines
    assert 'step boxes   1 done, the last is "small"' in lines
    assert 'step labels  1 done, the last is "small"; it was left before its end' in lines
    assert any(re.fullmatch(f"step pause   {until}", line) for line in lines)
    assert any(re.fullmatch(f"step packed  is waited for, {until} at the latest", line) for line in lines)
    shown = json.loads((await here(concert, "show", job.id, "--json")).stdout)
    assert {step["name"]: step["is_awaited"] for step in shown["steps"]}["packed"]
    assert {step["name"]: step["value"] for step in shown["steps"]}["lines"] == [3, '"strings"', True, 0]


async def bury(concert: Coordinator, count: int, why: str) -> list[str]:
    """Dead-letter some jobs."""
    put = [await concert.enqueue("wait", [number], queue="q") for number in range(count)]
    async with concert.consume("q") as jobs:
        for _ in put:
            async with await anext(jobs) as job:
                await job.bury(ValueError(why))
    return [job.id for job in put]


async def test_dead_jobs_are_listed_replayed_and_purged(concert: Coordinator) -> None:
    """By their ids and by options; what cannot be done has another exit code, and is named."""
    declined, other = await bury(concert, 2, "card was declined"), await bury(concert, 2, "no")
    listed = json.loads((await here(concert, "dead", "list", "--reason=declined", "--queue=q", "--json")).stdout)
    assert {job["id"] for job in listed} == set(declined)
    table = await here(concert, "dead", "list", "--limit=1")
    assert ("ValueError: no" in table.stdout, "declined" in table.stdout) == (True, False)
    replayed = await here(concert, "dead", "replay", "--reason=declined", "--task=wait", "--yes")
    assert (replayed.exit_code, replayed.stdout, replayed.stderr) == (0, "replayed 2 dead letters\n", "")
    again = await here(concert, "dead", "purge", other[0], declined[0], "--yes", "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (1, {"purged": 1, "left": [declined[0]]})
    assert f"it is too late for {declined[0]}" in again.stderr
    child = await concert.enqueue("wait", queue="q", after=[other[1]])
    replayed = await here(concert, "dead", "replay", other[1], "-y", "--dependants")
    assert (replayed.stdout, await child.status()) == ("replayed 1 dead letter\n", "waiting")
    assert await child.cancel()
    unfit = await here(concert, "dead", "replay", "--all", "-y", "--dependants")
    assert (unfit.exit_code, "give the ids" in unfit.stderr) == (2, True)
    assert (await here(concert, "dead", "purge", "--all", "--older-than=0", "-y")).exit_code == 2
    assert (await here(concert, "dead", "purge", "--all", "-y")).stdout == "purged 0 dead letters\n"
    assert (await here(concert, "dead", "list")).stdout == "no dead letter\n"


EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2K\x9b2J\u202e"  # sets the clipboard, clears a line and the screen, turns the text


async def test_text_of_users_cannot_steer_the_terminal(concert: Coordinator) -> None:
    """Control characters are shown as escapes, by each command that prints names, arguments or errors."""

    @concert.task(name=f"import{EVIL}", queue="q", max_attempts=1, history=5)
    async def fail(text: str) -> None:
        raise ValueError(f"bad row {text}")

    job = await fail.enqueue(EVIL)
    await concert.queue(f"items{EVIL}").put(EVIL)
    await concert.run_worker("q", burst=True)
    async with concert.lock(f"item:{EVIL}", label=EVIL):
        for words in (
            *(
                ["dead", "list"],
                ["jobs"],
                ["history", fail.name],
                ["explain", f"job:{job.id}"],
                ["show", job.id],
                ["ls"],
            ),
            *(["explain", f"lock:item:{EVIL}"], ["show", f"items:items{EVIL}"], ["queues"], ["top", "--once"]),
            *(["dead", "purge", EVIL, "--yes"], ["release", f"lock:{EVIL}", "--yes"]),
        ):
            for format_ in ([], ["--json"]) if words[0] != "release" else ([],):
                shown = await here(concert, *words, *format_)
                printed = shown.stdout + shown.stderr
                assert printed
                assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", printed), (words, printed)
    page = json.loads((await here(concert, "dead", "list", "--json")).stdout)
    assert page[0]["args"] == [EVIL]


async def test_row_is_a_line_in_a_pipe(concert: Coordinator) -> None:
    """So that it can be searched for, however long it is."""
    (job_id,) = await bury(concert, 1, "a long reason " * 20)
    for words in (["dead", "list"], ["jobs"]):
        _, *rows = (await here(concert, *words)).stdout.splitlines()
        assert [row.split()[0] for row in rows] == [job_id]


def test_id_is_whole_on_a_narrow_terminal() -> None:
    """So that it can be copied; other columns make room."""
    job_id = "1af003ab09642686.216.0"
    narrow = Console(file=io.StringIO(), width=80, force_terminal=True)
    narrow.print(table_of(("job", "task", "call", "error"), [(job_id, "shop.jobs.send_mail", "x" * 60, "y " * 200)]))
    assert isinstance(narrow.file, io.StringIO)
    assert job_id in narrow.file.getvalue()


async def test_history_of_a_task_is_a_table_or_json(concert: Coordinator) -> None:
    """The latest first; that of a task which keeps none is empty."""

    @concert.task(name="pay", queue="q", history=10, max_attempts=1)
    async def pay(card: str) -> None:
        raise ValueError(f"{card} was declined")

    first = await pay.enqueue("visa")
    await concert.run_worker("q", burst=True)
    last = await pay.enqueue("visa")
    assert await last.cancel()
    found = json.loads((await here(concert, "history", "pay", "--json")).stdout)
    assert [(job["job_id"], job["outcome"], job["attempts"], job["error"]) for job in found] == [
        (last.id, "cancelled", 0, None),
        (first.id, "failed", 1, "ValueError: visa was declined"),
    ]
    table = await here(concert, "history", "pay")
    assert (table.exit_code, table.stderr) == (0, "")
    assert {"outcome", "cancelled", "failed", "declined"} <= set(table.stdout.split())
    assert len(json.loads((await here(concert, "history", "pay", "--limit=1", "--json")).stdout)) == 1
    assert (await here(concert, "history", "wait")).stdout == "no job in its history\n"
    refused = await here(concert, "history", "pay", "--limit=0")
    assert (refused.exit_code, "limit is 0; give a whole number" in refused.stderr) == (2, True)


async def test_history_has_the_calls_of_a_task_that_keeps_them(concert: Coordinator) -> None:
    """Or says why one is not there."""

    @concert.task(name="pay", queue="q", history=10, history_arguments=True)
    async def pay(card: str) -> None: ...

    for card in ("visa", "x" * 5000):
        await pay.enqueue(card)
        await concert.run_worker("q", burst=True)
    long, kept = json.loads((await here(concert, "history", "pay", "--json")).stdout)
    assert (kept["args"], kept["kwargs"], kept["is_too_long"]) == (["visa"], {}, False)
    assert (long["args"], long["kwargs"], long["is_too_long"]) == (None, None, True)
    words = (await here(concert, "history", "pay")).stdout.split()
    assert {'["visa"]', "longer", "KiB"} <= set(words)


async def test_schedules_are_listed_and_changed(concert: Coordinator) -> None:
    """One by one; what is not there, or was so before, is said."""
    assert (await here(concert, "schedules", "list")).stdout == "no schedule\n"
    assert (await here(concert, "schedules", "list", "--json")).stdout == "[]\n"

    @concert.task(name="fetch", queue="q")
    async def fetch(source: str) -> None: ...

    await concert.schedules.put("poll", fetch.call("shop"), every=86_400)
    [listed] = json.loads((await here(concert, "schedules", "list", "--json")).stdout)
    assert (listed["id"], listed["rule"], listed["args"]) == ("poll", "every 86400 s", ["shop"])
    table = (await here(concert, "schedules", "list")).stdout
    assert ("every 86400 s" in table, "paused" in table) == (True, False)
    assert (await here(concert, "schedules", "pause", "poll")).stdout == "paused poll\n"
    assert (await here(concert, "schedules", "pause", "poll")).stdout == "poll was paused before\n"
    assert "paused" in (await here(concert, "schedules", "list")).stdout
    assert (await here(concert, "schedules", "resume", "poll")).stdout == "resumed poll\n"
    assert json.loads((await here(concert, "schedules", "resume", "poll", "--json")).stdout) == {"resumed": False}
    assert json.loads((await here(concert, "schedules", "pause", "poll", "--json")).stdout) == {"paused": True}
    job = json.loads((await here(concert, "schedules", "trigger", "poll", "--json")).stdout)["job"]
    assert await concert.tasks.job(job).status() == "queued"
    assert (await here(concert, "schedules", "trigger", "poll")).stdout.startswith("enqueued job ")
    asked = await here(concert, "schedules", "delete", "poll")
    assert (asked.exit_code, "give --yes" in asked.stderr) == (2, True)
    assert (await here(concert, "schedules", "delete", "poll", "--yes")).stdout == "deleted 1 schedule\n"
    unknown = await here(concert, "schedules", "trigger", "poll")
    assert (unknown.exit_code, "there is no schedule 'poll'" in unknown.stderr) == (1, True)


async def test_jobs_are_cancelled_promoted_and_drained(concert: Coordinator) -> None:
    """Also where there are none."""
    assert (await here(concert, "drain", "q", "-y")).stdout == "cancelled 0 jobs\n"
    put = [await concert.enqueue("wait", [0], queue="q", delay=60) for _ in range(5)]
    assert (await here(concert, "promote", put[0].id, "--yes")).stdout == "promoted 1 delayed job\n"
    assert (await here(concert, "promote", "--queue=q", "--yes")).stdout == "promoted 4 delayed jobs\n"
    ended = await here(concert, "cancel", put[0].id, "nobody", "--yes", "--json")
    assert (ended.exit_code, json.loads(ended.stdout)) == (1, {"cancelled": 1, "left": ["nobody"]})
    assert (await here(concert, "cancel", "--state=queued", "--yes")).stdout == "cancelled 4 jobs\n"
    await concert.enqueue("wait", [0], queue="q")
    assert json.loads((await here(concert, "drain", "q", "--yes", "--json")).stdout) == {"cancelled": 1, "left": []}
    assert await concert.tasks.job(put[1].id).status() == "cancelled"


async def test_bench_measures_and_leaves_no_job(concert: Coordinator) -> None:
    """Each figure has its unit, and all of them were measured."""
    figures = json.loads((await here(concert, "bench", "--seconds=0.1", "--json")).stdout)
    assert [one["unit"] for one in figures] == ["ms"] * 3 + ["per s"] * 4
    assert all(one["value"] > 0 for one in figures)
    table = (await here(concert, "bench", "--seconds=0.1")).stdout
    assert all(one["what"] in table for one in figures)
    assert (await concert.tasks.stats()).queues["inconcert-bench"].ready == 0


async def test_bench_that_is_stopped_leaves_no_job(concert: Coordinator, elsewhere: Coordinator) -> None:
    """What it has enqueued by then is cancelled."""
    measuring = asyncio.create_task(bench_jobs(elsewhere, 60.0))

    async def has_jobs() -> bool:
        return (await concert.tasks.stats("inconcert-bench")).queues["inconcert-bench"].ready > 0

    await eventually(has_jobs)
    measuring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await measuring
    assert not await has_jobs()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["cancel"], "which jobs?"),
        (["promote", "--all", "--queue=q"], "which delayed jobs?"),
        (["dead", "purge", "job", "--task=wait"], "--queue, --task, --reason, --older-than, or --all"),
        (["dead", "replay", "--all"], "nobody can be asked whether to replay all dead letters; give --yes"),
        (["cancel", "--state=failed", "-y"], "purge_all() drops it"),
        (["dead", "list", "--limit=0"], "limit"),
    ],
)
async def test_change_that_is_not_clear_is_refused(concert: Coordinator, options: list[str], why: str) -> None:
    """In one line, and nothing is done."""
    ended = await here(concert, *options)
    assert (ended.exit_code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert why in ended.stderr


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1)])
async def test_operator_is_asked_before_something_is_changed(concert: Coordinator, answer: str, code: int) -> None:
    """On a terminal; it says what is meant, and what follows."""
    job = await concert.enqueue("wait", [0], queue="q")
    terminal, stdin = pty.openpty()
    with open(stdin), open(terminal, "w", buffering=1) as keyboard:  # noqa: PTH123
        keyboard.write(f"{answer}\n")
        ended = await asyncio.to_thread(ask_on_a_terminal, concert, "cancel", "--queue=q", stdin=stdin)
    assert "Cancel all jobs, queue 'q'? They will not run, and those that run are stopped. [y/N]" in ended.stderr
    assert ended.returncode == code
    assert await job.status() == ("queued" if code else "cancelled")


async def test_what_takes_long_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, until it has ended, also with an error."""
    shown = io.StringIO()
    monkeypatch.setattr(actions, "_SLOW", 0.0)
    monkeypatch.setattr(actions, "Console", partial(Console, file=shown, force_terminal=True))

    async def slow() -> None:
        await eventually(lambda: "purge" in shown.getvalue())
        raise LookupError

    with pytest.raises(LookupError):
        await actions.with_bar("purge", slow())


async def test_server_and_namespace_are_options_too(concert: Coordinator) -> None:
    """They go before the environment's."""
    await concert.enqueue("wait", [0], queue="sooner")
    namespace = concert._ref.keys.namespace
    assert concert.url is not None
    ended = ask(None, "queues", "sooner", "--json", "--url", concert.url, "--namespace", namespace)
    assert json.loads(ended.stdout)["queues"]["sooner"]["ready"] == 1


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        ([], 1, "could not be reached"),
        (["--url=http://here"], 2, "the URL must start with"),
        (["--namespace=a b"], 2, "'a b'"),
    ],
)
def test_server_that_an_operator_cannot_ask_is_named(options: list[str], code: int, why: str) -> None:
    """In one line; a wrong option has another exit code."""
    ended = ask(None, "queues", "sooner", *options)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (code, "", 1)
    assert why in ended.stderr


# What is logged.


@pytest.mark.parametrize(
    ("options", "level"),
    [
        *(([], level) for level in ("debug", "INFO", "warning", None)),
        (["--processes=2"], "debug"),
        *(pytest.param(["--processes=2"], level, marks=pytest.mark.torture) for level in ("INFO", "warning", None)),
    ],
)
async def test_log_level_is_the_lowest_that_is_logged(
    concert: Coordinator, level: str | None, options: list[str]
) -> None:
    """By us and by others, by default from INFO on; worker processes have it from their parent."""
    options = [*options, *([f"--log-level={level}"] if level else [])]
    await concert.enqueue("wait", [0], queue="late", delay=0.01)
    await concert.enqueue("fail", queue="late", delay=0.01)
    async with start(concert, "worker", SERVICE, "--queues=late", "--burst", *options) as child:
        assert await child.wait() == 0
        lines = child.errors()
    assert " ERROR inconcert.claims[" in lines
    assert (" INFO inconcert.tasks[" in lines) == (level != "warning")
    assert (" INFO shop[" in lines) == (level != "warning")
    assert (" DEBUG inconcert.claims[" in lines) == (level == "debug")


async def test_log_level_of_a_module_that_has_set_up_logging(concert: Coordinator, tmp_path: Path) -> None:
    """Its format and level stay; the option changes the level of our loggers, and of no other."""
    (tmp_path / "quiet.py").write_text(
        "import logging\nfrom inconcert import Coordinator\nlogging.basicConfig(format='MINE %(message)s')\n"
        "concert = Coordinator.from_env()\n@concert.task(name='t')\n"
        "async def t():\n    log = logging.getLogger('shop')\n    log.info('sold')\n    log.warning('sold out')\n"
    )
    said: list[str] = []
    for options in ([], ["--log-level=info"]):
        await concert.enqueue("t")
        async with start(concert, "worker", "quiet:concert", "--burst", *options, folder=tmp_path) as child:
            assert await child.wait() == 0
            said.append(child.errors())
    assert said[0] == "MINE sold out\n"
    assert "MINE worker " in said[1]
    assert "MINE sold\n" not in said[1]


@pytest.mark.parametrize("options", [[], ["--processes=2"]], ids=["one", "processes"])
async def test_log_of_json_has_the_fields_of_a_job(concert: Coordinator, options: list[str]) -> None:
    """One object a line, the traceback in it, also of a line that is not ours."""
    for task, args in (("wait", [0]), ("fail", [])):
        await concert.enqueue(task, args, queue="late")
    async with start(concert, "worker", SERVICE, "--queues=late", "--burst", "--log-format=json", *options) as child:
        assert await child.wait() == 0
        lines = [json.loads(line) for line in child.errors().splitlines()]
    assert all({"time", "level", "logger", "process", "message"} <= set(line) for line in lines)
    [failed] = [line for line in lines if line["level"] == "ERROR" and "traceback" in line]
    assert failed["logger"] == "inconcert.claims"
    assert (failed["task"], failed["queue"], failed["attempt"]) == ("fail", "late", 1)
    assert failed["job_id"] in failed["message"]
    assert failed["traceback"].startswith("Traceback")
    assert any(line["logger"] == "shop" for line in lines)


async def test_format_for_a_module_that_has_set_up_logging_is_refused(concert: Coordinator, tmp_path: Path) -> None:
    """Its lines would stay as they are."""
    (tmp_path / "loud.py").write_text(
        "import logging\nfrom inconcert import Coordinator\nlogging.basicConfig()\nconcert = Coordinator.from_env()\n"
    )
    async with start(concert, "worker", "loud:concert", "--log-format=json", folder=tmp_path) as child:
        assert await child.wait() == 2
        assert "--log-format has no effect" in child.errors()


# What cannot start.


def ask(concert: Coordinator | None, *args: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run `inconcert` to its end, in a fork: an interpreter takes a second to start."""
    target = url or (concert.url if concert else None) or "redis://localhost:1"
    namespace = concert._ref.keys.namespace if concert else "nobody"
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as errors:
        code = Fork(
            "tests.support.command_line:run", (target, namespace, str(ROOT), *args), stdout=out, stderr=errors
        ).wait(30)
        printed, said = [os.pread(each.fileno(), 1_000_000, 0).decode() for each in (out, errors)]
    return subprocess.CompletedProcess(args, code, printed, said)


def ask_on_a_terminal(concert: Coordinator, *args: str, stdin: int) -> subprocess.CompletedProcess[str]:
    """Run `inconcert` to its end, with a terminal that is read, as it is installed."""
    assert concert.url is not None
    return subprocess.run(
        [sys.executable, "-m", "inconcert", *args],
        cwd=ROOT,
        env={**os.environ, **variables_of(concert.url, concert._ref.keys.namespace)},
        capture_output=True,
        stdin=stdin,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("tests.support.service", "give module:attr"),
        (":concert", "give module:attr"),
        ("tests.support.nowhere:concert", "module 'tests.support.nowhere' was found neither here"),
        ("nowhere.at.all:concert", "module 'nowhere' was found neither here"),
        ("tests.support.service:nothing", "module 'tests.support.service' has no 'nothing'"),
        ("tests.support.service:wait", "'tests.support.service:wait' is an object of type 'Task'"),
    ],
)
def test_bad_target_is_named(target: str, why: str) -> None:
    """In one line, with exit code 2."""
    ended = ask(None, "worker", target)
    assert ended.returncode == 2
    assert ended.stderr.startswith("inconcert: ")
    assert ended.stderr.count("\n") == 1
    assert why in ended.stderr


def test_bad_target_ends_all_processes() -> None:
    """They are not started again and again."""
    ended = ask(None, "worker", "nowhere:concert", "--processes=2")
    assert ended.returncode == 2
    assert "module 'nowhere' was found neither here" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_module_that_cannot_be_imported_shows_where(tmp_path: Path) -> None:
    """The user's lines, and none of ours."""
    (tmp_path / "broken.py").write_text("import json\n\nimport nothing_like_that\n")
    script = Path(sys.executable).parent / "inconcert"  # a user's modules lie in the current directory
    ended = subprocess.run(
        [script, "worker", "broken:concert"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("inconcert: module 'broken' cannot be imported\nTraceback")
    assert f'File "{tmp_path}/broken.py", line 3' in ended.stderr
    assert "inconcert/cli" not in ended.stderr
    assert "importlib" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["mail", "default"], "give queues as  --queues mail,default"),
        (["--queues=a,a"], "none twice"),
        (["--queues=a,"], "name"),
        (["--grace=inf"], "grace is inf"),
        (["--log-level=loud"], "'loud' is not one of"),
        (["--queues=a,b", "--weights=1"], "a whole number for each of the 2 queues"),
        (["--queues=a,b", "--weights=1,-2"], "a whole number for each of the 2 queues"),
    ],
)
def test_bad_options_are_named(options: list[str], why: str) -> None:
    """Before anything is opened."""
    ended = ask(None, "worker", SERVICE, *options)
    assert ended.returncode == 2
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_server_that_cannot_be_reached_is_named() -> None:
    """With exit code 1: another try may go better."""
    ended = ask(None, "worker", SERVICE)
    assert ended.returncode == 1
    assert ended.stderr.startswith("inconcert: the server could not be reached")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("library", ["typer", "rich", "pythonjsonlogger"])
def test_missing_extra_is_named(library: str) -> None:
    """Without its libraries, some of which others bring, there is no command line, but a hint."""
    code = f"import sys; sys.modules['{library}'] = None; from inconcert.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "worker", SERVICE], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == f"inconcert: the command line needs {library}; run  pip install 'inconcert[cli]'\n"


async def test_lock_is_released_by_force(concert: Coordinator, elsewhere: Coordinator) -> None:
    """If the operator says so; what is free, or cannot be released, is named."""
    lease = await elsewhere.lock("item:42").acquire()
    unsure = await here(concert, "release", "lock:item:42")
    assert (unsure.exit_code, "nobody can be asked whether to release lock 'item:42' by force" in unsure.stderr) == (
        2,
        True,
    )
    assert not lease.is_lost
    released = await here(concert, "release", "lock:item:42", "--yes", f"--holder={lease.holder}")
    assert (released.exit_code, released.stdout) == (0, "released 1 holder\n")
    await eventually(lambda: lease.is_lost)
    again = await here(concert, "release", "lock:item:42", "--yes")
    assert (again.exit_code, "nobody holds lock 'item:42' now" in again.stderr) == (1, True)
    for thing, words in (
        ("item", "is not KIND:NAME; write such as lock:item:42"),
        ("lock:", "'lock:' is not KIND:NAME; write such as lock:item:42"),
        ("mailbox:x", "kind is 'mailbox'"),
    ):
        refused = await here(concert, "release", thing, "--yes")
        assert (refused.exit_code, words in refused.stderr) == (2, True)


async def test_items_that_are_held_and_waited_for_are_shown(concert: Coordinator) -> None:
    """With the lines of code, in the table after the rest; or only those that are named."""
    queue = concert.queue("photos")
    await queue.put("a", id="a")

    async def wait() -> None:
        await concert.queue("other").get()

    waiter = asyncio.create_task(wait(), name="idle")
    delivery = await queue.get()
    async with concert.lock("item"):
        await eventually(lambda: _waits_for_items(concert))
        table, named = [await here(concert, "ls", *more) for more in ([], ["items:other", "--json"])]
    waiter.cancel()
    await delivery.ack()
    states = [line.split()[:3] for line in table.stdout.splitlines()[1:] if line[0] != " "]
    assert states == [["lock", "item", "held"], ["items", "other", "waited"], ["items", "photos", "a"]]
    process, _ = json.loads(named.stdout)["processes"]  # the other one asks
    assert process["holds"] == []
    [consumer] = process["consumers"]
    assert (consumer["name"], consumer["waiting"], consumer["task"]) == ("other", 1, "idle")


async def _waits_for_items(concert: Coordinator) -> bool:
    return any(each.waiting for process in (await concert.inspect()).processes for each in process.consumers)


async def test_what_waits_is_explained(concert: Coordinator, elsewhere: Coordinator) -> None:
    """As text or JSON; what cannot be explained, or is not there, is named."""
    async with elsewhere.lock("item:42", label="order 7"):
        text, document = [await here(concert, "explain", "lock:item:42", *more) for more in ([], ["--json"])]
    assert text.exit_code == document.exit_code == 0
    title, held = text.stdout.splitlines()
    assert title == "lock 'item:42' is held"
    who = rf"process {os.getpid()} on .*, label 'order 7', at {__file__}:\d+"
    assert re.fullmatch(rf"- held for .* s by {who}; lost in \d+ s unless renewed", held)
    found = json.loads(document.stdout)
    assert (found["state"], [reason["code"] for reason in found["reasons"]]) == ("held", ["held"])
    assert [holder["label"] for holder in found["holders"]] == ["order 7"]
    for thing, state in ("queue:mail", "queue 'mail' is unknown"), ("items:mail", "items 'mail' are unknown"):
        empty = await here(concert, "explain", thing)
        assert empty.stdout.startswith(f"{state}\n")
    for thing, code, words in (
        ("item", 2, "is not KIND:NAME"),
        ("lock:", 2, "must not be empty"),
        ("job:1.11.0", 1, "job 1.11.0 does not exist"),
        ("schedule:nightly", 1, "there is no schedule 'nightly'"),
    ):
        refused = await here(concert, "explain", thing)
        assert (refused.exit_code, words in refused.stderr) == (code, True)


async def test_top_shows_what_goes_on(concert: Coordinator, elsewhere: Coordinator) -> None:
    """Of an empty namespace, too; as JSON, or as text where there is no terminal."""
    empty = await here(concert, "top", "--once")
    assert (empty.exit_code, empty.stdout) == (0, "0 workers, 0 dead letters; 0 held, 0 waited for\n")
    await concert.enqueue("t", queue="mail")
    async with elsewhere.lock("item"):
        waiter = asyncio.create_task(concert.lock("item").acquire())
        await in_line(concert.lock("item"), 1)
        text, document = [await here(concert, "top", *more) for more in ([], ["--json"])]
    await (await waiter).release()
    assert text.exit_code == document.exit_code == 0
    assert text.stdout.startswith("0 workers, 0 dead letters; 1 held, 1 waited for\n")
    first = [line.split()[:2] for line in text.stdout.splitlines()]
    assert all(words in first for words in (["mail", "1"], ["lock", "item"], ["queue", "ready"], ["held", "name"]))
    assert "jobs wait, and nobody serves: mail" in text.stdout
    found = json.loads(document.stdout)
    assert (found["tasks"]["queues"]["mail"]["ready"], len(found["held"]), len(found["waiters"])) == (1, 1, 1)
    assert (await here(concert, "top", "--every", "0.1")).exit_code == 2


async def test_top_refreshes_on_a_terminal(concert: Coordinator) -> None:
    """With few commands each time, and the rate of what has ended since; it ends with what it was asked by."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=120, height=40, highlight=False, markup=False)
    await concert.enqueue("t", queue="mail")

    async def job_done() -> None:
        async with concert.consume("mail") as jobs, await anext(jobs):
            pass

    def shown() -> str:
        assert isinstance(screen.file, io.StringIO)
        return screen.file.getvalue()

    client: Any = raw(concert)
    watching = asyncio.create_task(top_module._watch(concert, screen, 0.05))
    await eventually(lambda: "jobs wait, and nobody serves: mail" in shown())
    await job_done()
    await eventually(lambda: re.search(r"mail +0 +0 +0 +0 +0\.0", shown()))
    looks = shown().count("workers, ")
    before = scripts_run(await client.info("commandstats"))
    await eventually(lambda: shown().count("workers, ") >= looks + 10)
    sent = scripts_run(await client.info("commandstats")) - before
    looks = shown().count("workers, ") - looks
    assert sent <= 12 * (looks + 1)
    watching.cancel()
    await asyncio.wait([watching])
    assert watching.cancelled()
