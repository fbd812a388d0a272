"""The pages on coming from another library: the programs of both sides run beside each other, on one server.

Needs packages from an index, so what cannot be downloaded is skipped.
"""

import asyncio
import os
import re
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import pytest

from inconcert import Coordinator
from tests.support.environments import Environment
from tests.support.eventually import eventually
from tests.support.pages import DOCS, ROOT, blocks, files
from tests.support.processes import Leashed
from tests.support.raw import new_client
from tests.support.servers import RealServer

PAGES = DOCS / "how-to" / "migrate"
PACKAGES = {
    "arq": ["arq==0.28.*"],
    "celery": ["celery[redis]==5.7.*"],
    "docket": ["pydocket==0.27.*"],
    "rq": ["rq==3.0.*"],
    "saq": ["saq[redis]==0.26.*", "typing-extensions"],
    "taskiq": ["taskiq==0.13.*", "taskiq-redis==1.2.*"],
}
# What the pages say of a peer's defaults, as expressions of its own environment.
FACTS = {
    "arq": [
        "signature(import_module('arq').Worker).parameters['job_timeout'].default == 300",
        "signature(import_module('arq').Worker).parameters['job_completion_wait'].default == 0",
        "import_module('arq.constants').expires_extra_ms == 86_400_000",
        "signature(import_module('arq.jobs').Job.result).parameters['poll_delay'].default == 0.5",
    ],
    "celery": [
        "import_module('celery').Celery().conf.task_acks_late is False",
        "import_module('kombu.transport.redis').Channel.visibility_timeout == 3600",
    ],
    "docket": [
        "import_module('docket').Retry().attempts == 1",
        "signature(import_module('docket').Docket).parameters['execution_ttl'].default.total_seconds() == 900",
        "signature(import_module('docket').Worker).parameters['redelivery_timeout'].default.total_seconds() == 300",
        "signature(import_module('docket').Worker).parameters['scheduling_resolution'].default.total_seconds() == 0.25",
        (
            "signature(import_module('docket').Worker.run).parameters['minimum_check_interval'].default.total_seconds()"
            " == 0.1"
        ),
    ],
    "rq": [
        "import_module('rq').Queue.DEFAULT_TIMEOUT == 180",
        "import_module('rq.serializers').resolve_serializer(None).__name__ == 'DefaultSerializer'",
        "import_module('rq.serializers').DefaultSerializer.loads is import_module('pickle').loads",
    ],
    "saq": ["import_module('saq').Job('f').timeout == 10", "import_module('saq').Job('f').retries == 1"],
    "taskiq": [
        "signature(import_module('taskiq_redis').RedisStreamBroker).parameters['idle_timeout'].default == 600_000",
        "signature(import_module('taskiq').AsyncTaskiqTask.wait_result).parameters['check_interval'].default == 0.2",
        "signature(import_module('taskiq_redis').RedisAsyncResultBackend).parameters['result_ex_time'].default is None",
        "signature(import_module('taskiq_redis').RedisAsyncResultBackend).parameters['keep_results'].default is True",
    ],
}

LATER = 6.0  # seconds of a delay, in which a program that looks can start and end
# The pages' programs at the pace of a test.
PACE = {
    "_defer_by=60": f"_defer_by={LATER}",
    "countdown=60": f"countdown={LATER}",
    "delay=60": f"delay={LATER}",
    "seconds=60": f"seconds={LATER}",
    "time.time() + 60": f"time.time() + {LATER}",
    "seconds=5)": "seconds=0.1)",
    "defer=5": "defer=0.1",
    "delay=5": "delay=1",
    "interval=5": "interval=1",
    "failures: 5": "failures: 0.1",
}
EACH_SECOND = {
    '@concert.cron("0 3 * * *")': "@concert.cron(every=1)",
    'CronJob(clean_up, cron="0 3 * * *")': 'CronJob(clean_up, cron="* * * * * *")',
    'Cron("0 3 * * *")': 'Cron("* * * * * *")',  # docket
    'cron="0 3 * * *"': "interval=1",  # RQ
    '{"cron": "0 3 * * *"}': '{"interval": 1}',  # taskiq
    "cron(clean_up, hour=3, minute=0)": "cron(clean_up, second=set(range(60)))",  # arq
    "crontab(hour=3, minute=0)": "1.0",  # Celery
}
# The reader's own code: each receipt fails at its first attempt, and what was done is written down.
BODIES = """
import os
from pathlib import Path

SIDE, HERE = os.environ["SIDE"], Path(__file__).parent


def note(what: object) -> None:
    with (HERE / "done").open("a") as done:
        done.write(f"{SIDE} {what}\\n")


def attempt(order_id: int) -> None:
    try:
        (HERE / f"{SIDE}-{order_id}").touch(exist_ok=False)
    except FileExistsError:
        note(order_id)
    else:
        raise ConnectionError("the mail server is away")


"""


class Move:
    """A folder with the files of a page, and what runs in it."""

    def __init__(self, page: Path, environment: Environment, folder: Path, server: RealServer, namespace: str) -> None:
        self._text = page.read_text("utf-8")
        self._binaries = environment.python.parent
        self._folder = folder
        self._ours = {"redis://localhost:6379/0": server.tcp_url, '"shop"': repr(namespace)} | PACE
        self.write(EACH_SECOND)
        receipts = folder / "receipts.py"
        text = receipts.read_text().replace(": ...", ': note("drafts")')
        receipts.write_text(BODIES + text.replace("    return f", "    attempt(order_id)\n    return f"))

    def write(self, schedules: Mapping[str, str], *, only: str = "") -> None:
        """Write the files, or those whose name begins with `only`."""
        for name, text in files(self._text).items():
            if name.startswith(only):
                (self._folder / name).write_text(_replace(text, {**schedules, **self._ours}))

    def programs(self) -> list[str]:
        """The workers and what else stays running, in the order of the page; the last one is ours."""
        shown = [block.text for block in blocks(self._text) if block.language == "console"]
        commands = [command for text in shown for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE)]
        return [_replace(command, self._ours) for command in commands]

    def printed(self) -> str:
        """What the page says that the programs which enqueue print."""
        [text] = [block.text for block in blocks(self._text) if block.language == "text"]
        return text

    @contextmanager
    def running(self, command: str, side: str) -> Generator[Leashed]:
        """Run a program until the body ends, and let it end as an operator does."""
        name, *arguments = command.split()
        with (self._folder / f"{side} {name}.log").open("ab") as log:
            leashed = Leashed(
                ["/bin/sh", "-c", 'cd "$0" && exec "$@"', str(self._folder), str(self._binaries / name), *arguments],
                stdout=log,
                stderr=log,
                env=self._variables(side),
            )
            try:
                yield leashed
            finally:
                leashed.terminate()

    async def run(self, name: str) -> str:
        """Run a file to its end, and return what it prints."""
        program = await asyncio.create_subprocess_exec(
            *(self._binaries / "python", name), cwd=self._folder, env=self._variables("asks"), stdout=PIPE, stderr=PIPE
        )
        output, errors = await asyncio.wait_for(program.communicate(), 60)
        assert program.returncode == 0, errors.decode() + self.logs()
        return output.decode()

    def done(self) -> Counter[str]:
        """What was done, by which side."""
        return Counter((self._folder / "done").read_text().splitlines() if (self._folder / "done").exists() else [])

    async def does(self, all_of: set[str]) -> None:
        """Wait until all of these were done."""
        try:
            await eventually(lambda: all_of <= self.done().keys(), timeout=60.0)
        except AssertionError as error:
            raise AssertionError(f"not done: {all_of - self.done().keys()}\n{self.logs()}") from error

    async def is_drained(self) -> bool:
        """Whether the program that asks what is left says that nothing is."""
        return int(await self.run("left.py")) == 0

    def logs(self) -> str:
        """What the programs said."""
        return "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(self._folder.glob("*.log")))

    def _variables(self, side: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
        return kept | {"SIDE": side, "PYTHONPATH": str(self._folder)}


def _replace(text: str, words: Mapping[str, str]) -> str:
    for theirs, ours in words.items():
        text = text.replace(theirs, ours)
    return text


@pytest.fixture
def move(request: pytest.FixtureRequest, tmp_path: Path, server: RealServer, namespace: str) -> Move:
    """A page, in an environment with the peer and with us."""
    peer: str = request.param
    environment = Environment(tmp_path)
    ended = environment.pip(
        "download", "--no-deps", "--retries=0", "--dest", str(tmp_path / "wheel"), PACKAGES[peer][0]
    )
    if ended.returncode:
        pytest.skip(f"{peer} cannot be downloaded: {ended.stderr.strip().splitlines()[-1]}")
    environment.install(f"{ROOT}[cli]", *PACKAGES[peer])
    facts = "from importlib import import_module; from inspect import signature\n"
    ended = environment.run("-c", facts + "\n".join(f"assert {fact}, {fact!r}" for fact in FACTS[peer]))
    assert ended.returncode == 0, ended.stderr
    (tmp_path / "move").mkdir()
    return Move(PAGES / f"{peer}.md", environment, tmp_path / "move", server, namespace)


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("move", PACKAGES, indirect=True)
async def test_programs_of_both_sides_run_beside_each_other(move: Move, server: RealServer) -> None:
    """Each does what the page says, with a retry, a delay and a schedule; and the old side is seen to run empty."""
    server.command("FLUSHALL")  # peers have no namespaces
    *theirs, ours = move.programs()
    orders = {f"{side} {order}" for side in ("old", "new") for order in (17, 18)}
    with ExitStack() as new:
        new.enter_context(move.running(ours, "new"))
        with ExitStack() as old:
            for command in theirs:
                old.enter_context(move.running(command, "old"))
            assert await move.run("order_old.py") == move.printed()
            assert int(await move.run("left.py")) > 0  # the delayed one
            assert await move.run("order_new.py") == move.printed()
            await move.does(orders | {"old drafts", "new drafts"})

        move.write({}, only="old")  # whose schedules are not due soon
        with ExitStack() as old:
            for command in theirs:
                old.enter_context(move.running(command, "old"))
            await eventually(move.is_drained, timeout=60.0)
    assert [move.done()[f"new {order}"] for order in (17, 18)] == [1, 1]


class Stock:
    """Something that only one may use, and how many did at once."""

    def __init__(self) -> None:
        self._inside = 0
        self.most = 0
        self.uses = 0

    async def use(self) -> None:
        self._inside += 1
        self.most = max(self.most, self._inside)
        await asyncio.sleep(0.001)
        self._inside -= 1
        self.uses += 1


@pytest.mark.parametrize("releases", [("redis-py", "both"), ("both", "ours")])
async def test_releases_that_follow_one_another_exclude_each_other(
    concert: Coordinator, server: RealServer, namespace: str, releases: tuple[str, str]
) -> None:
    """As docs/how-to/migrate/redis-lock.md says: theirs alone, then both with ours inside, then ours alone."""
    stock = Stock()
    async with new_client(server.url) as client:

        async def sell(release: str) -> None:
            for _ in range(10):
                async with AsyncExitStack() as held:
                    if release != "ours":
                        await held.enter_async_context(client.lock(f"{namespace}:sword", timeout=30, sleep=0.001))
                    if release != "redis-py":
                        await held.enter_async_context(concert.lock("stock:sword"))
                    await stock.use()

        await asyncio.gather(*(sell(release) for release in (*releases, *releases)))
    assert (stock.most, stock.uses) == (1, 40)
