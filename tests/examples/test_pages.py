"""The Python on the pages and in docstrings runs, with what it takes for granted in application.py."""

import ast
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import CodeType
from typing import Any

import anyio
import pytest
import redis.asyncio

from inconcert import BarrierBroken, Coordinator, SyncProducer
from tests.support.eventually import eventually
from tests.support.logs import as_at_first
from tests.support.pages import DOCS, IMPORTS, NAMESPACE, PAGES, ROOT, SOURCES, URL, Block, python, title
from tests.support.processes import Leashed
from tests.support.servers import RealServer

APPLICATION = Path(__file__).parent / "application.py"

# Blocks that are elsewhere: compared with an example, or without the servers they need.
NOT_HERE = {
    "docs/how-to/quorum-locks.md",
    "docs/tutorial/marketplace.md",
    "src/inconcert/quorum/lock.py",
}


def parts(page: Path) -> list[Block]:
    """The blocks that run one after the other; whole files and whole programs have tests of their own."""
    return [block for block in python(page.read_text("utf-8")) if not block.file and "asyncio.run(" not in block.text]


RUN = [page for page in [*PAGES, *SOURCES] if parts(page) and title(page) not in NOT_HERE]


class OneTurn(ast.NodeTransformer):
    """Let what never ends make one turn: loops over what comes, and workers."""

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        node.body.append(ast.Break())
        return self.generic_visit(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        node.body.append(ast.Break())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "run_worker":
            node.keywords = [word for word in node.keywords if word.arg != "burst"]
            node.keywords.append(ast.keyword("burst", ast.Constant(value=True)))
        return self.generic_visit(node)


def compiled(block: Block, page: Path, url: str, namespace: str) -> CodeType:
    """A block for the server of the tests, with its lines as they are on the page."""
    text = block.text.replace(URL, url).replace(NAMESPACE, repr(namespace))
    tree = OneTurn().visit(ast.parse("\n" * (block.line - 1) + text))
    code: CodeType = compile(ast.fix_missing_locations(tree), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


async def a_worker(concert: Coordinator) -> None:
    """Run the jobs that the page enqueues."""
    await concert.run_worker("default", "high", "low")


async def somebody_in_the_chat(concert: Coordinator) -> None:
    """Talk to bob."""
    chat_id = await concert.chat.create("ann", ["bob", "cy"], "hello")
    while True:
        await concert.chat.send(chat_id, "ann", "still there?")
        await anyio.sleep(0.02)


async def other_parties(concert: Coordinator) -> None:
    """Set the event, count the latch down, and meet at the barrier, round after round, until it is aborted."""
    await concert.event("catalogue-ready").set()
    for day in ("2024-06", "2026-11-21"):
        for _ in range(11):
            await concert.latch(f"import:{day}", count=12).count_down()

    async def party() -> None:
        with suppress(BarrierBroken):
            while True:
                await concert.barrier("epoch", parties=4).wait()

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(party())


async def a_sender(concert: Coordinator) -> None:
    """Leave messages."""
    while True:
        await concert.mailbox("jack451").send("hello")
        await anyio.sleep(0.02)


async def signallers(concert: Coordinator) -> None:
    """Broadcast whatever the page listens to."""
    while True:
        for name in ("deploy", "deploy.eu", "stop", "a", "b"):
            await concert.signal(name).broadcast({"version": 7})
        await anyio.sleep(0.02)


async def an_enqueuer(concert: Coordinator) -> None:
    """Enqueue by name, and put."""
    while True:
        await concert.queue("thumbnails").put("photos/18.jpg")
        for queue in ("high", "sms"):
            await concert.enqueue("anything", queue=queue)
        await anyio.sleep(0.02)


async def another_crawler(concert: Coordinator) -> None:
    """Take part in the page's group."""
    async with concert.members("crawlers"):
        await anyio.sleep_forever()


PARTNERS: dict[str, Callable[[Coordinator], Coroutine[Any, Any, None]]] = {
    "README.md": a_worker,
    "docs/how-to/chat.md": somebody_in_the_chat,
    "docs/how-to/events.md": other_parties,
    "docs/how-to/jobs.md": a_worker,
    "docs/how-to/mailboxes.md": a_sender,
    "docs/how-to/members.md": another_crawler,
    "docs/how-to/signals.md": signallers,
    "docs/how-to/tasks.md": an_enqueuer,
    "src/inconcert/barrier.py": other_parties,
    "src/inconcert/chat/chats.py": somebody_in_the_chat,
    "src/inconcert/event.py": other_parties,
    "src/inconcert/latch.py": other_parties,
    "src/inconcert/queues/delivery.py": an_enqueuer,
    "src/inconcert/signals/patterns.py": signallers,
    "src/inconcert/signals/signal.py": signallers,
    "src/inconcert/signals/subscription.py": signallers,
    "src/inconcert/tasks/running/consumer.py": an_enqueuer,
}


@asynccontextmanager
async def beside(
    partner: Callable[[Coordinator], Coroutine[Any, Any, None]] | None, concert: Coordinator
) -> AsyncGenerator[None]:
    """Let the other side do its part while the page runs."""
    if partner is None:
        yield
        return
    task = asyncio.create_task(partner(concert))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("page", RUN, ids=title)
async def test_page_runs(page: Path, server: RealServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block runs after those above it, to its end, without an error."""
    for name, value in {
        "INCONCERT_URL": server.url,
        "INCONCERT_NAMESPACE": namespace,
        "SHOP_SIGNING_KEY": "a secret of 16 bytes or more",
    }.items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("application", APPLICATION)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "application", module)
    spec.loader.exec_module(module)
    names = vars(module)
    if page in SOURCES:
        exec(IMPORTS, names)
    is_open: Coordinator = names["concert"]
    async with AsyncExitStack() as stack:
        stack.enter_context(as_at_first())
        await stack.enter_async_context(is_open)
        await stack.enter_async_context(beside(PARTNERS.get(title(page)), is_open))
        for block in parts(page):
            if re.search(r"^async with concert[,:]", block.text, re.MULTILINE):
                names["concert"] = Coordinator.from_env()  # the block opens it
            came: Any = eval(compiled(block, page, server.url, namespace), names)
            if came is not None:
                await asyncio.wait_for(came, 10)
            made: Coordinator = names["concert"]
            if made is not is_open and made.url == is_open.url:
                is_open = await stack.enter_async_context(made)
            names["concert"] = is_open
    for left in names.values():  # what a page leaves open until its process ends
        if isinstance(left, SyncProducer):
            left.close()
        elif isinstance(left, redis.asyncio.Redis):
            await left.aclose()


async def test_worker_in_a_program_of_its_own_runs(
    concert: Coordinator, server: RealServer, namespace: str, tmp_path: Path
) -> None:
    """The program of docs/how-to/workers.md works, and ends in good order at SIGTERM."""
    (program,) = [
        block for block in python((DOCS / "how-to" / "workers.md").read_text()) if "add_signal_handler(" in block.text
    ]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text("from inconcert import Coordinator\n\nconcert = Coordinator.from_env()\n")

    with (tmp_path / "errors").open("w+b") as errors:
        leashed = Leashed(
            [sys.executable, "-W", "error", "-c", program.text],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")]),
                "INCONCERT_URL": server.url,
                "INCONCERT_NAMESPACE": namespace,
            },
        )

        async def works() -> bool:
            return (await concert.tasks.stats("high")).workers == 1

        try:
            await eventually(works)
            assert leashed.terminate() == 0
        finally:
            leashed.kill()
        errors.seek(0)
        assert errors.read() == b""
