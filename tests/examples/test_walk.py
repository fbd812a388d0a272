"""A newcomer's walk: the tasks of the how-to pages are run by a worker, and do what the text beside them says."""

import ast
import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from inconcert import Coordinator, Job, JobCancelled, JobStatus, LimitStats
from tests.support.background import in_background
from tests.support.jobs import status
from tests.support.pages import DOCS, NAMESPACE, URL, Block, python
from tests.support.servers import RealServer

WITHIN = 20.0  # seconds
QUEUES = ("default", "orders", "answers", "low")

DEFINITIONS = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign

Names = dict[str, Any]


class Walk:
    """A reader, who has typed the blocks of a page in, one after the other.

    Args:
        server: Where the page's coordinators are.
        namespace: Theirs.
    """

    def __init__(self, server: RealServer, namespace: str) -> None:
        self._server = server
        self._namespace = namespace

    @asynccontextmanager
    async def page(self, name: str, heading: str, *, queues: Sequence[str] = QUEUES) -> AsyncGenerator[Names]:
        """What the blocks define down to this heading, with the one below it, while a worker runs the tasks."""
        text = (DOCS / "how-to" / f"{name}.md").read_text("utf-8")
        line = text[: text.index(f"\n## {heading}\n")].count("\n")
        above = [block for block in python(text) if block.line < line]
        below = next(block for block in python(text) if block.line > line)
        names: Names = {"__name__": "shop", "concert": Coordinator(self._server.url, namespace=self._namespace)}
        for block in [below] if "concert = " in below.text else [*above, below]:
            self._define(block, names)
        concert: Coordinator = names["concert"]
        async with concert, in_background(concert.run_worker(*queues)):
            yield names

    def _define(self, block: Block, names: Names) -> None:
        tree = ast.parse(block.text.replace(URL, self._server.url).replace(NAMESPACE, repr(self._namespace)))
        tree.body = [part for part in tree.body if isinstance(part, DEFINITIONS) and not _awaits(part)]
        exec(compile(tree, "page", "exec"), names)


def _awaits(part: ast.stmt) -> bool:
    return isinstance(part, ast.Assign) and isinstance(part.value, ast.Await)


@pytest.fixture
def walk(server: RealServer, namespace: str) -> Walk:
    """Of one reader."""
    return Walk(server, namespace)


async def until(names: Names, job: Job[Any], expected: JobStatus) -> None:
    """Wait until a job is in a state."""
    await status(names["concert"], job, expected)


async def test_steps_keep_what_a_job_has_done(walk: Walk) -> None:
    """A payment, and a parcel that takes its id; though packing fails at first."""
    async with walk.page("steps", "Keep what a job has done") as names:
        charge, pack, charged, fails = names["charge"], names["pack"], list[Any](), [True]

        async def counted(*args: Any) -> Any:
            charged.append(args)
            return await charge(*args)

        async def broken(*args: Any) -> Any:
            if fails:
                raise ConnectionError(fails.pop())
            return await pack(*args)

        counted.__annotations__, broken.__annotations__ = charge.__annotations__, pack.__annotations__
        names["charge"], names["pack"] = counted, broken
        job = await names["fulfil"].enqueue("7", 950)
        assert await job.result(timeout=WITHIN) == "parcel of 7"
        assert charged == [("7", 950, f"{job.id}:charge")]


async def test_job_sleeps_for_a_week(walk: Walk) -> None:
    """And may be cancelled meanwhile."""
    async with walk.page("steps", "Sleep for a week") as names:
        job = await names["follow_up"].enqueue("7")
        await until(names, job, JobStatus.DELAYED)
        [sleep] = await job.steps()
        assert (sleep.name, sleep.function) == ("a week", "durable.sleep")
        assert await job.cancel(timeout=WITHIN)


async def test_job_waits_for_a_message(walk: Walk) -> None:
    """The first wins."""
    async with walk.page("steps", "Wait for a message") as names:
        job = await names["deliver"].enqueue("7")
        await until(names, job, JobStatus.DELAYED)
        assert await names["on_packed"](job.id, "TR-1")
        assert not await names["on_packed"](job.id, "TR-2")
        assert await job.result(timeout=WITHIN) == "TR-1"


async def test_what_was_begun_is_undone(walk: Walk) -> None:
    """When the job is cancelled while it waits."""
    async with walk.page("steps", "Undo what was begun") as names:
        refunded: list[str] = []

        async def refund(payment: str) -> None:
            refunded.append(payment)

        names["refund"] = refund
        job = await names["sell"].enqueue("7")
        await until(names, job, JobStatus.DELAYED)
        await job.cancel(timeout=WITHIN)
        with pytest.raises(JobCancelled):
            await job.result(timeout=WITHIN)
        assert refunded == ["payment of 7"]


async def test_loops_and_values(walk: Walk) -> None:
    """All customers get an invoice; there is a winner."""
    async with walk.page("steps", "Go through many items") as names:
        sent: list[tuple[int, str]] = []

        async def send_invoice(customer: int, key: str) -> None:
            sent.append((customer, key))

        names["send_invoice"] = send_invoice
        job = await names["invoices"].enqueue([1, 2, 3])
        await job.result(timeout=WITHIN)
        assert sent == [(customer, f"{job.id}:invoice {customer}") for customer in (1, 2, 3)]
    async with walk.page("steps", "Values that stay the same") as names:
        job = await names["draw"].enqueue(["ann", "bob"])
        assert re.match(r"(ann|bob) won with ticket [0-9a-f-]{36} at \d+", await job.result(timeout=WITHIN))


async def test_streams_are_followed(walk: Walk, capsys: pytest.CaptureFixture[str]) -> None:
    """By who has asked, and by another process; a step inside keeps what it has found."""
    async with walk.page("streams", "Yield items, and follow them") as names:
        await asyncio.wait_for(names["ask"]("how long?"), WITHIN)
        assert capsys.readouterr().out == "It\ndepends\n"
    async with walk.page("streams", "Follow a job from another process") as names:
        job = await names["answer"].enqueue("how long?")
        await job.result(timeout=WITHIN)
        await asyncio.wait_for(names["show"](job.id, None), WITHIN)
        first, second = (line.split() for line in capsys.readouterr().out.splitlines())
        assert (first[1], second[1]) == ("It", "depends")
        await asyncio.wait_for(names["show"](job.id, first[0]), WITHIN)
        assert capsys.readouterr().out == " ".join(second) + "\n"
    async with walk.page("streams", "Survive a crash") as names:
        job = await names["research"].enqueue("locks")
        found: list[Any] = [item async for item in job.stream()]
        assert [item.value for item in found] == ["a page on locks"]


async def test_callback_reports_on_its_group(walk: Walk) -> None:
    """As the first block says it, and as members are added."""
    async with walk.page("groups", "Add members while they are found") as names:
        concert, send, report = names["concert"], names["send"], names["report"]
        group = await concert.group([send.call(user) for user in range(3)], then=report.call(), when="ended")
        assert await group.callback.result(timeout=WITHIN) == "3 of 3 sent"
        group = await concert.group(then=report.call())
        await group.add(send.call(user) for user in range(10))
        await group.add(send.call(user) async for user in names["users"]() if user < 10)
        assert await group.callback.status() is JobStatus.WAITING
        await concert.tasks.group(group.id).close()
        assert await group.callback.result(timeout=WITHIN) == "20 of 20 sent"
        assert await group.cancel() == 0


async def test_limits_hold_jobs_back(walk: Walk) -> None:
    """Five of a task, and two of a tenant; what waits is shown."""
    async with walk.page("limits", "Limit how many begin in a period", queues=["mails"]) as names:
        concert, import_file = names["concert"], names["import_file"]
        async with concert.consume("imports") as jobs:
            for task, args in ((import_file, ()), (names["import_for"], ("acme",))):
                for number in range(7):
                    await task.enqueue(*args, f"{number}.csv")
            held = await asyncio.wait_for(jobs.claim(20), WITHIN)
            assert [job.args[0] for job in held] == ["0.csv", "1.csv", "2.csv", "3.csv", "4.csv", "acme", "acme"]
            stats = await concert.tasks.stats("imports")
            assert stats.queues["imports"].held_back == 7
            assert stats.limits[import_file.name] == LimitStats(queue="imports", places=5, in_use=5)
        await (await names["send_mail"].enqueue("ada@example.com")).result(timeout=WITHIN)


async def test_schedules_are_followed(walk: Walk) -> None:
    """What was triggered runs, and a launch whose instant has come."""
    async with walk.page("schedules", "Change schedules while workers run") as names:
        concert: Coordinator = names["concert"]
        await concert.schedules.put("nightly", names["send_report"].call("sales"), cron="0 3 * * *", tz="Europe/Berlin")
        job = await concert.schedules.trigger("nightly")
        await job.result(timeout=WITHIN)
        [nightly] = [each for each in await concert.schedules.list() if not each.is_in_code]
        assert nightly.rule == "0 3 * * * Europe/Berlin"
        assert nightly.next_at is not None
