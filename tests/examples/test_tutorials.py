"""The tutorials, followed step by step: the programs print what the pages show, but for ids, instants and numbers."""

import argparse
import asyncio
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from inconcert import Coordinator
from tests.integrations.django_shop import PACKAGE
from tests.support.eventually import eventually
from tests.support.pages import DOCS, ROOT, Block, blocks, files, python
from tests.support.processes import Leashed
from tests.support.servers import RealServer, free_port
from tests.support.transcripts import JOB, alike, commands, shown

FIRST_LOCK = (DOCS / "tutorial" / "first-lock.md").read_text("utf-8")
TASKS = (DOCS / "tutorial" / "tasks.md").read_text("utf-8")
ORDER = (DOCS / "tutorial" / "order.md").read_text("utf-8")
DJANGO = (DOCS / "tutorial" / "django.md").read_text("utf-8")
DAILY = (DOCS / "tutorial" / "daily.md").read_text("utf-8")
BESIDE_A_DATABASE = "## Lose the server, too"  # see test_order_beside_a_database.py
# Instead of a second for each month: half of a report at once, and the rest when the test has seen enough.
PACE = """if month == 6:
            while not __import__("os").path.exists("go"):
                await asyncio.sleep(0.01)"""
# Instead of two seconds for each answer: at once, but for what is held back. While it holds the strings, the line in
# front of them takes so long that the position behind it is kept.
ANSWER = """while (held := Path("held").read_text()) and held in key:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.1 if held == "strings" and "guitar" in key else 0)"""
HELD = ["strings", "", "", "refund", ""]  # at the beginning, and after each kill
PROGRAMS = {
    "python": sys.executable,
    "inconcert": f"{sys.executable} -m inconcert",
    "django-admin": f"{sys.executable} -m django",
}
AGAIN = ("cat ", "inconcert show ", "inconcert explain ")  # what the reader looks at until it is so
CURL = argparse.ArgumentParser()
CURL.add_argument("-X", dest="method", default="GET")
CURL.add_argument("-H", dest="headers", action="append", default=[])
CURL.add_argument("url")


def following(heading: str, language: str, page: str) -> list[Block]:
    """The blocks of a language under a heading."""
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [block for block in blocks(section) if block.language == language]


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_first_lock(tmp_path: Path) -> None:
    """Each customer waits for the one before, and the last comes too late."""
    ended = run(files(FIRST_LOCK)["first_lock.py"], tmp_path)

    (block,) = following("The program", "console", FIRST_LOCK)
    assert ended.stderr == ""
    assert alike(ended.stdout).splitlines() == shown(block)


def test_first_lock_without_the_lock(tmp_path: Path) -> None:
    """Four buy three pieces, and two are left."""
    program = re.sub(r"async with concert\.lock\(.*\) as lease:", "if True:", files(FIRST_LOCK)["first_lock.py"])
    program = program.replace(', "bought one, fencing token", lease.fencing_token', ', "bought one"')
    ended = run(program, tmp_path)

    (block,) = following("Without the lock", "console", FIRST_LOCK)
    *customers, left = ended.stdout.splitlines()
    assert ended.stderr == ""
    assert [*sorted(customers), left] == [*sorted(shown(block)[:-1]), shown(block)[-1]]


def test_first_lock_broken(tmp_path: Path) -> None:
    """The others give up, and it is told what was given back."""
    program = files(FIRST_LOCK)["first_lock.py"].replace("asyncio.sleep(0.1)", "asyncio.sleep(60)")
    ended = run(program.replace("timeout=5.0", "timeout=0.5, ttl=3.0"), tmp_path)

    (block,) = following("Break it", "text", FIRST_LOCK)
    said = alike(ended.stderr).splitlines()
    assert ended.returncode == 1
    assert [line for line in said if not line.startswith(" ")] == shown(block)


class Terminal:
    """A process in a terminal of its own, in the tutorial's folder."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._output = (folder / f"{name}.log").open("w+b")
        self._read = 0
        self._interrupted = False
        self.leashed = Leashed(
            ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(folder), sys.executable, *arguments],
            stdout=self._output,
            stderr=self._output,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
        )

    async def shows(self, lines: list[str], *, order: Callable[[list[str]], list[str]] = list) -> None:
        """Wait for so many more lines, and compare them, in this order."""

        def new() -> list[str]:
            return self.lines()[self._read :]

        await eventually(lambda: len(new()) >= len(lines), timeout=20.0)
        assert order(new()[: len(lines)]) == order(lines)
        self._read += len(lines)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Ctrl-C, or `kill`."""
        self._interrupted = True
        self.leashed.process.send_signal(number)

    def end(self) -> None:
        """Ctrl-C, unless it ends already, and wait."""
        if not self._interrupted:
            self.interrupt()
        assert self.leashed.process.wait(20) == 0

    def lines(self) -> list[str]:
        """All that it has shown."""
        return alike(os.pread(self._output.fileno(), 1_000_000, 0).decode()).splitlines()

    def close(self) -> None:
        self.leashed.kill()
        self._output.close()


class Tutorial:
    """Its files, its terminals, and `curl`."""

    def __init__(self, server: RealServer, namespace: str, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.namespace = namespace
        self._workers = f"{{{namespace}:tasks:0}}:workers"  # those that hold something
        self._alive = f"{{{namespace}:tasks:0}}:alive"
        self._server = server
        self._stack = stack
        self._jobs: dict[str, str] = {}  # ids on the page -> ids here
        self._http: httpx.AsyncClient | None = None
        self._numbers = itertools.count(1)
        self._background: list[Terminal] = []  # `%1` is the first of them

    def save(self, name: str, text: str) -> None:
        """Write a file of the page, for the server and at the pace of the test."""
        for theirs, ours in {
            "redis://localhost:6379/0": self._server.url,
            '"reports"': repr(self.namespace),
            "await asyncio.sleep(1)  # reads the orders of a month": PACE,
            "every=20": "every=1",
            "every=60": "every=1",
            "await asyncio.sleep(2)  # it answers late": ANSWER,
            '"cool down", 20': '"cool down", 2',
        }.items():
            text = text.replace(theirs, ours)
        (self.folder / name).write_text(text)

    def go(self) -> None:
        """Let reports that have been begun, and all that follow, come to their end."""
        (self.folder / "go").touch()

    def halt(self) -> None:
        """Let reports stop half-way."""
        (self.folder / "go").unlink()

    async def worker(self, name: str, *options: str) -> Terminal:
        """Start a worker, and wait until it says what it serves, and lives."""
        before = self.workers()
        terminal = self._start(name, "-m", "inconcert", "worker", "tasks:concert", "--queues", "high,low", *options)
        await terminal.shows(shown(following("Two tasks", "text", TASKS)[0]))
        await eventually(lambda: self.workers() - before, timeout=20.0)
        return terminal

    def background(self, command: str) -> Terminal:
        """Start a worker by the command of a page that ends in `&`."""
        return self._start(f"worker{next(self._numbers)}", "-m", *command.removesuffix(" &").split())

    def workers(self) -> set[str]:
        """All that live, or have died unnoticed."""
        return set(self._server.command("ZRANGE", self._alive, 0, -1))

    def age(self, *workers: str) -> None:
        """Let the heartbeats of killed workers have been missing for long."""
        for worker in workers:
            self._server.command("ZADD", self._workers, "XX", 0, worker)

    async def shell(self, command: str, expected: str) -> None:
        """Run a command of a page, and compare what it prints."""
        ours = JOB.sub(lambda job: self._jobs[job[0]], command)
        ours = re.sub(r"^(python|inconcert|django-admin)\b", lambda found: PROGRAMS[found[0]], ours)

        async def printed() -> str:
            child = await asyncio.create_subprocess_shell(
                ours, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            output, _ = await child.communicate()
            return output.decode().strip()

        async def is_so() -> bool:
            return alike(await printed()) == alike(expected)

        if command.startswith(AGAIN):
            await eventually(is_so, timeout=30.0)
            return
        answer = await printed()
        assert alike(answer) == alike(expected)
        self._jobs |= dict(zip(JOB.findall(expected), JOB.findall(answer), strict=True))

    async def service(self) -> Terminal:
        """Start the service."""
        socket = self.folder / "socket"
        terminal = self._start("service", "-m", "uvicorn", "web:app", "--uds", str(socket))
        transport = httpx.AsyncHTTPTransport(uds=str(socket), retries=5)
        self._http = await self._stack.enter_async_context(
            httpx.AsyncClient(base_url="http://reports", transport=transport, timeout=20.0)
        )
        await eventually(socket.exists, timeout=20.0)
        return terminal

    def tests(self) -> str:
        """Run the tests of the page, as pytest is set by default, and return what it prints."""
        plain = ("-p", "pytest_inconcert", "-p", "no:cacheprovider", "-p", "no:xdist")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *plain],
            cwd=self.folder,
            env=variables | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return ended.stdout + ended.stderr

    async def django(self) -> Terminal:
        """Start the service of a project of Django."""
        port = free_port()
        terminal = self._start("service", "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}")
        self._http = await self._stack.enter_async_context(
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", transport=httpx.AsyncHTTPTransport(retries=7), timeout=20.0
            )
        )
        return terminal

    def program(self, name: str) -> str:
        """Run a program of the page to its end."""
        ended = subprocess.run(
            [sys.executable, name],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        return alike(ended.stdout).strip()

    async def follow(self, block: Block) -> None:
        """Run the commands of a block, and compare what each prints."""
        for command, expected in commands(block):
            await self.do(command, expected)

    async def do(self, command: str, expected: str) -> None:
        """Run one command of a block."""
        if command.startswith("curl "):
            await self._curl(command, expected)
        elif command.startswith("python "):
            assert self.program(command.split()[1]) == alike(expected)

    async def _curl(self, command: str, expected: str) -> None:
        asked = CURL.parse_args(shlex.split(command)[1:])
        assert self._http
        http, path = self._http, JOB.sub(lambda job: self._jobs[job[0]], asked.url.removeprefix("localhost:8000"))
        path = path.replace("delay=10", "delay=1000")  # it does not come between
        headers = dict(header.split(": ") for header in asked.headers)
        if asked.method != "GET":
            answer = (await http.request(asked.method, path, headers=headers)).text
            assert alike(answer) == alike(expected)
            self._jobs |= dict(zip(JOB.findall(expected), JOB.findall(answer), strict=True))
        else:

            async def is_so() -> bool:
                return alike((await http.get(path, headers=headers)).text) == alike(expected)

            await eventually(is_so)

    async def type(self, command: str, expected: str) -> None:
        """Run a command of a page on which all goes on in one terminal."""
        if command.startswith("uvicorn "):
            self._background.append(await self.service())
        elif command.startswith("python manage.py runserver "):
            self._background.append(await self.django())
        elif command.endswith(" &"):
            self._background.append(self.background(command))
        elif command == "kill %1":
            self._background[0].interrupt(signal.SIGTERM)
            self._background[0].end()
        elif command == "pytest -q":
            assert f"{expected} in" in self.tests()
        elif command.startswith("curl "):
            await self.do(command, expected)
        elif not command.startswith("export "):  # the test has set it
            await self.shell(command, expected)

    def has_shown(self, lines: list[str]) -> bool:
        """Whether these lines are on that terminal."""
        return set(lines) <= {line for job in self._background for line in job.lines()}

    def _start(self, name: str, *arguments: str) -> Terminal:
        terminal = Terminal(self.folder, name, *arguments)
        self._stack.callback(terminal.close)
        return terminal


@pytest.fixture
async def tutorial(concert: Coordinator, server: RealServer, namespace: str, tmp_path: Path) -> AsyncIterator[Tutorial]:
    """An empty folder."""
    async with AsyncExitStack() as stack:
        yield Tutorial(server, namespace, tmp_path, stack)


@pytest.mark.in_turn("tutorial")
@pytest.mark.slow
async def test_tasks(tutorial: Tutorial) -> None:
    """docs/tutorial/tasks.md: reports and mails, a cancelled one, a killed worker, a repaired job, and a schedule."""
    *parts, schedule = [(block.file, block.text) for block in python(TASKS)]
    for name, text in parts:
        tutorial.save(name, text)

    worker = await tutorial.worker("one")
    await tutorial.service()
    order, look, *rest = commands(following("A service", "console", TASKS)[1])
    await tutorial.do(*order)
    await tutorial.do(*look)
    tutorial.go()
    for command in rest:
        await tutorial.do(*command)
    await worker.shows(shown(following("A service", "text", TASKS)[0]))
    worker.end()
    tutorial.halt()

    worker = await tutorial.worker("two", "--concurrency", "1")
    _, order_all, cancel, ask = following("First things first", "console", TASKS)
    starts, *then = shown(following("First things first", "text", TASKS)[0])
    first, *rest = commands(order_all)
    await tutorial.do(*first)
    await worker.shows([starts])
    for command in rest:
        await tutorial.do(*command)
    await tutorial.follow(cancel)
    await worker.shows(then)
    await tutorial.follow(ask)

    stops, *then = shown(following("Later", "text", TASKS)[0])
    worker.interrupt()
    await worker.shows([stops])
    tutorial.go()
    await worker.shows(then)
    worker.end()
    tutorial.halt()
    worker = await tutorial.worker("three")
    await tutorial.follow(following("Later", "console", TASKS)[0])
    worker.end()

    worker = await tutorial.worker("killed")
    (killed,) = tutorial.workers()
    _, order_one, _, look_again = following("Kill a worker", "console", TASKS)
    await tutorial.follow(order_one)
    worker.close()
    tutorial.age(killed)
    other = await tutorial.worker("other")
    dead, starts, done = shown(following("Kill a worker", "text", TASKS)[0])
    await other.shows([dead, starts])
    look, result = commands(look_again)
    await tutorial.do(*look)
    tutorial.go()
    await tutorial.do(*result)
    await other.shows([done])

    for block in following("Repair what failed", "console", TASKS):
        await tutorial.follow(block)
    other.end()

    tutorial.save("tasks.py", "\n\n".join([dict(parts)["tasks.py"], schedule[1]]))
    counter = await tutorial.worker("counter")
    for block in following("By the clock", "text", TASKS):
        # A job may start before the answer to its enqueueing is here.
        await counter.shows(shown(block), order=sorted)
    counter.end()


@pytest.mark.torture
async def test_order(tutorial: Tutorial, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorial/order.md, its first part: workers die in a loop, a wait and a sleep, and while they undo."""
    monkeypatch.setenv("INCONCERT_URL", server.url)
    monkeypatch.setenv("INCONCERT_NAMESPACE", namespace)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    held, worker = iter(HELD), None
    tutorial.save("held", next(held))
    first_part = ORDER[ORDER.index("## The outside world") : ORDER.index(BESIDE_A_DATABASE)]
    for block in blocks(first_part):
        if block.file:
            tutorial.save(block.file, block.text)
        elif block.language == "text":
            assert worker
            await worker.shows(shown(block))
        for command, expected in commands(block) if block.language == "console" else ():
            if command.startswith("inconcert worker "):
                worker = tutorial.background(command)
            elif command.startswith("kill "):
                assert worker
                if command == "kill $!":
                    worker.interrupt(signal.SIGTERM)
                    worker.end()
                    continue
                worker.close()
                tutorial.age(*tutorial.workers())
                tutorial.save("held", next(held))
            else:
                await tutorial.shell(command, expected)
    assert not list(held)


@pytest.mark.in_turn("tutorial")
@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_daily(tutorial: Tutorial, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorial/daily.md, from top to end: a service, a worker, tests, and a second release beside the first."""
    monkeypatch.setenv("INCONCERT_URL", server.url)
    monkeypatch.setenv("INCONCERT_NAMESPACE", namespace)
    texts: dict[str, str] = {}
    for block in blocks(DAILY[DAILY.index("## A mail in the background") :]):
        if block.file:
            texts[block.file] = f"{texts.get(block.file, '')}\n\n{block.text}"
            tutorial.save(block.file, texts[block.file])
        elif block.language == "text":
            await eventually(partial(tutorial.has_shown, shown(block)), timeout=30.0)
        for command, expected in commands(block) if block.language == "console" else ():
            await tutorial.type(command, expected)


@pytest.mark.torture
@pytest.mark.timeout(240)
async def test_django(tutorial: Tutorial, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorial/django.md, from top to end: a project, its worker, its test, and the list of dead letters."""
    pytest.importorskip("django")
    monkeypatch.setenv("INCONCERT_URL", server.url)
    monkeypatch.setenv("INCONCERT_NAMESPACE", namespace)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    for block in blocks(DJANGO[DJANGO.index("## A project") :]):
        if block.file:
            path = tutorial.folder / block.file
            is_settings = block.file == "shop/settings.py"
            text = block.text.replace('"shop"}', f'"{namespace}"}}')
            if PACKAGE == "django_tasks":  # as the page says of Django 5.2
                text = re.sub(r"(?<!integrations\.)django\.tasks", "django_tasks", text)
                text = text.replace('["orders"]', '["orders", "django_tasks"]')
            tutorial.save(block.file, f"{path.read_text()}\n{text}" if is_settings else text)
        elif block.language == "text":
            await eventually(partial(tutorial.has_shown, shown(block)), timeout=30.0)
        for command, expected in commands(block) if block.language == "console" else ():
            await tutorial.type(command, expected)
