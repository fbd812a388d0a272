"""What an earlier release has stored is read by this one, and the file of each format is there."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from inconcert import Coordinator
from inconcert._core.layout import FORMAT
from tests.conftest import nothing_is_left
from tests.support import golden
from tests.support.pages import DOCS, ROOT
from tests.support.raw import raw
from tests.support.servers import RealServer

FILES = sorted((ROOT / "tests" / "golden").glob("format-*.json"))

pytestmark = pytest.mark.one_server("its files are of one server; what is stored on a cluster is the same")


class Stored:
    """What a file has, on a server, and a coordinator of this release."""

    def __init__(self, names: dict[str, Any], namespace: str, concert: Coordinator) -> None:
        self.names = names
        self.namespace = namespace
        self.concert = concert


@pytest.fixture(params=[path for path in FILES if path.stem == f"format-{FORMAT}"], ids=lambda path: path.stem)
async def stored(request: pytest.FixtureRequest, server: RealServer, namespace: str) -> AsyncIterator[Stored]:
    """The file of the format that this release shares with others."""
    names = golden.load(json.loads(request.param.read_text("utf-8")), server.admin_url, namespace)
    async with Coordinator(server.url, namespace=namespace) as concert:
        golden.add(concert)
        yield Stored(names, namespace, concert)
    await nothing_is_left(server, namespace)


async def test_jobs_that_were_stored_are_run_and_read(stored: Stored) -> None:
    """One that waits and its child run, one that sleeps goes on behind its step, and an ended one has its result."""
    tasks, names = stored.concert.tasks, stored.names
    await tasks.job(names["sleeping"]).send("answer", "is there")
    [dead] = await tasks.dead(limit=10)
    await tasks.replay(dead.id, args=[False])
    await stored.concert.run_worker("golden", burst=True)

    assert (dead.id, dead.task, dead.error) == (names["dead"], "golden.fail", "ValueError: as it should")
    assert "in fail" in (dead.traceback or "")
    results = {
        name: await tasks.job(names[name]).result(timeout=5.0)
        for name in ("done", "ready", "child", "sleeping", "dead")
    }
    assert results == {"done": 3, "ready": 22, "child": 42, "sleeping": "SWORD is there", "dead": "never"}
    assert (await tasks.stats("golden")).queues["golden"].delayed == 1


async def test_messages_that_were_stored_are_read(stored: Stored) -> None:
    """Items in their order, a message of a mailbox, and an unread one of a chat."""
    concert = stored.concert
    items: list[object] = []
    for _ in range(2):
        async with await concert.queue("items").get(timeout=5.0) as item:
            items.append(item)
    letters = await concert.mailbox("ann").fetch(limit=10)
    [batch] = await concert.chat.fetch("bob")

    assert items == ["first", {"second": 2}]
    assert [letter.body for letter in letters] == [{"text": "hello"}]
    assert (batch.chat_id, [message.body for message in batch.messages]) == (stored.names["chat"], ["lunch?"])


async def test_states_that_were_stored_hold(stored: Stored) -> None:
    """A lock is held, and its tokens rise from the stored one; a latch, an event, a rate and an index are there."""
    concert = stored.concert
    held = concert.lock("held")

    assert await held.try_acquire() is None
    assert await held.holders() == [stored.names["holder"]]
    await raw(concert).delete(f"{{{stored.namespace}:lock:held}}:holders")  # its lease has lapsed
    async with held as lease:
        assert lease.fencing_token > stored.names["fencing_token"]
    assert await concert.event("ready").is_set()
    assert await concert.latch("two", 2).remaining() == 1
    assert not await concert.rate_limiter("login", 3, period=3600).try_acquire()
    assert [hit.id for hit in await concert.index("articles").search("lock*")] == ["doc:1"]


def test_each_format_has_its_file_and_is_on_the_page() -> None:
    """From the first to the one of this release, without a gap."""
    page = (DOCS / "explanation" / "stored-format.md").read_text("utf-8")
    numbers = [int(re.sub(r"\D", "", path.stem)) for path in FILES]

    assert sorted(numbers) == list(range(1, FORMAT + 1))
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == sorted(numbers)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_says_of_which_format_it_is(path: Path) -> None:
    """And the namespace in it has the same number."""
    text = json.loads(path.read_text("utf-8"))

    assert path.stem == f"format-{text['format']}"
    assert text["keys"]["{golden:namespace}:layout"]["content"]["format"] == str(text["format"])
