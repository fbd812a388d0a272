"""The scripts of queues, each run twice: one whose reply was lost is sent again, and answers as its TWICE line says.

Those that queues share with tasks are in test_tasks_twice.py.
"""

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import ANY

import pytest

from inconcert import Coordinator
from inconcert.queues.store import ACK, ItemKeys
from tests.support.queues import read_items
from tests.support.raw import raw
from tests.support.scripts import command_of
from tests.support.waiters import wait_as

WORKER = "session.1"


class Scene:
    """A queue in which one is ready and one is delayed."""

    def __init__(self, concert: Coordinator) -> None:
        self.client: Any = raw(concert)
        self.session = concert._ref.session
        self.keys = ItemKeys(concert._ref.keys, "q")
        self.claimed = self.keys.claimed(WORKER)
        self.listeners: list[Any] = []
        self._namespace = concert._ref.keys.namespace

    async def run(self, script: str, /, **named: Any) -> Any:
        """Run a script once."""
        return await self.session.run(command_of(script, self.keys, self.keys.only, **named))

    async def put(self, *ids: str, request: str = "", delay_ms: int = 0, maxsize: int = -1, waits: bool = False) -> int:
        """Run the script that puts in; the ids are given if there is a request beside them."""
        items = [part for id_ in ids for part in (id_, f'"{id_}"')]
        answer: int
        if not request and not delay_ms and maxsize < 0:
            answer = await self.run("queues/put_plain", front=0, items=items)
            return answer
        answer = await self.run(
            "queues/put",
            front=0,
            delay_ms=delay_ms,
            maxsize=maxsize,
            waits=int(waits),
            inboxes=self.session.inboxes(""),
            request=request or ids[0],
            is_given=int(bool(request)),
            items=items,
        )
        return answer

    async def begin(self) -> None:
        """Let the worker begin."""
        await self.run(
            "claims/heartbeat", claimed=self.claimed, worker=WORKER, ttl_ms=60_000, is_new=1, skip=0, about=""
        )

    async def get(self, number: int, count: int) -> Any:
        """Run the script that takes items."""
        return await self.run("queues/get", claimed=self.claimed, worker=WORKER, number=number, count=count, suspects=1)

    async def ack(self, *items: object) -> Any:
        """Run the script that ends these: ids, each with its place."""
        inboxes = self.session.inboxes("")
        command = ACK(self.keys, claimed=self.claimed, inboxes=inboxes, worker=WORKER, items=items)
        return await self.session.run(command)

    async def leave(self, address: str) -> Any:
        """Run the script that leaves the line."""
        return await self.run("queues/leave", address=address, inboxes=self.session.inboxes(""))

    async def purge(self) -> Any:
        """Run the script that drops all; it is one request, however often."""
        return await self.run("queues/purge", inboxes=self.session.inboxes(""), request="request")

    async def everything(self) -> object:
        """What is there."""
        items = await read_items(self.client, self._namespace, "q")
        return items, await self.client.zrange(self.keys.line, 0, -1), await self.client.llen(self.keys.only.bell)


@pytest.fixture
async def scene(any_concert: Coordinator) -> AsyncIterator[Scene]:
    """`a.1` may be taken, `a.2` is not due."""
    made = Scene(any_concert)
    assert await made.put("a.1") == 1
    assert await made.put("a.2", delay_ms=3_600_000) == 1
    yield made
    for pubsub in made.listeners:
        await pubsub.aclose()


@pytest.mark.parametrize(
    "delay_ms",
    [
        pytest.param(0, marks=pytest.mark.twice("queues/put_plain")),
        pytest.param(1000, marks=pytest.mark.twice("queues/put")),
    ],
)
async def test_second_put_adds_nothing(scene: Scene, delay_ms: int) -> None:
    """Not even if its items are done by then."""
    assert await scene.put("b.1", "b.2", delay_ms=delay_ms) == 1
    before = await scene.everything()
    assert await scene.put("b.1", "b.2", delay_ms=delay_ms) == 1
    assert await scene.everything() == before
    assert await scene.purge() == 4
    before = await scene.everything()
    assert await scene.put("b.1", "b.2", delay_ms=delay_ms, maxsize=1) == 1
    assert await scene.everything() == before


@pytest.mark.twice("queues/put")
async def test_second_put_of_an_id_answers_as_the_first(scene: Scene) -> None:
    """That it added the item, or that it did not, whatever has become of the item since."""
    for request, answer in ("b.1", 1), ("b.2", 2):
        assert await scene.put("mine", request=request) == answer
    assert await scene.purge() == 3
    before = await scene.everything()
    for request, answer in ("b.1", 1), ("b.2", 2), ("b.3", 2):
        assert await scene.put("mine", request=request) == answer
    assert await scene.everything() == before


@pytest.mark.twice("queues/get")
async def test_second_get_answers_with_the_same_items(scene: Scene) -> None:
    """And no others, even if there are more by now; without those that are done, each at its old place."""
    await scene.begin()
    await scene.put("b.1", "b.2", "b.3")
    first = await scene.get(3, 2)
    assert first[5::2] == [b"a.1", b"b.1"]
    again = await scene.get(3, 3)
    assert (again[1], again[2:9]) == (0, first[2:])  # there is more
    assert again[9:] == [0, 3001, 1, 0, 0, b"", 1, 3002, 1, 0, 0, b""]
    assert await scene.ack("a.1", 3001) == [1]
    assert (await scene.get(3, 2))[3:] == [1, b"", *first[7:], 0, 3002, 1, 0, 0, b""]
    assert await scene.get(2, 3) == [1, -1, ANY, 0, b""]  # its first sending comes late
    assert (await scene.get(4, 3))[5::2] == [b"b.2", b"b.3"]


async def test_get_passes_over_what_was_purged(scene: Scene) -> None:
    """However many there are before an item; and twice, it answers the same."""
    await scene.begin()
    await scene.client.hdel(scene.keys.bodies, "a.1")
    await scene.put("b.1")
    for _ in range(2):
        assert (await scene.get(1, 1))[5] == b"b.1"
    items = [f"c.{number}" for number in range(1_200)]
    for first in range(0, 1_200, 400):
        await scene.put(*items[first : first + 400])
    await scene.client.hdel(scene.keys.bodies, *items[:-1])
    answer = await scene.get(2, 1)
    assert (answer[1], answer[3:]) == (0, [0, b""])  # it looked at a thousand, and is to be asked again
    assert await scene.client.llen(scene.keys.only.bell) == 1
    assert (await scene.get(3, 1))[5::2] == [b"c.1199"]


@pytest.mark.twice("queues/ack")
async def test_second_ack_finds_nothing(scene: Scene) -> None:
    """Nor does one of another place; and a worker that holds nothing more leaves no key without a TTL."""
    await scene.begin()
    await scene.put("b.1")
    assert (await scene.get(1, 2))[5::2] == [b"a.1", b"b.1"]
    assert [await scene.ack("a.1", 1001, "b.1", 1001) for _ in range(2)] == [[1, 0], [0, 0]]
    assert await scene.client.pttl(scene.claimed) == -1
    assert await scene.ack("b.1", 1002) == [1]
    assert await scene.client.exists(scene.keys.workers) == 0
    assert await scene.client.pttl(scene.claimed) > 0
    assert await scene.client.pttl(scene.keys.alive) > 0


async def test_put_of_an_id_is_remembered_as_one(scene: Scene) -> None:
    """As that of any other item, so that as many others may follow."""
    before = await scene.client.hlen(scene.keys.recent)
    assert await scene.put("mine", request="b.1") == 1
    assert await scene.client.hlen(scene.keys.recent) == before + 1


async def test_second_refused_put_adds_nothing(scene: Scene) -> None:
    """Not even if there is room by then: it was said that it is not in."""
    assert await scene.put("b.1", maxsize=2) == 0
    assert await scene.put("b.1", maxsize=3) == 0
    assert await scene.put("b.2", maxsize=3) == 1


@pytest.mark.twice("queues/put")
async def test_second_put_that_waits_keeps_its_place(scene: Scene) -> None:
    """In line once, and in at last."""
    one, two = (f"{scene.session.id}.{number}" for number in (1001, 1002))
    wait_as(scene.session, one, two)
    for address in (one, two, one):
        assert await scene.put(address, maxsize=2, waits=True) == 0
    assert await scene.put(two, maxsize=3, waits=True) == -1
    assert await scene.client.zrange(scene.keys.line, 0, -1) == [one.encode(), two.encode()]
    assert await scene.client.pttl(scene.keys.line) > 59_000
    for _ in range(2):
        assert await scene.put(one, maxsize=3, waits=True) == 1
    assert await scene.client.zrange(scene.keys.line, 0, -1) == [two.encode()]


@pytest.mark.twice("queues/leave")
async def test_second_leave_changes_nothing(scene: Scene) -> None:
    """It has left, and what it waited to put in is not put in any more."""
    address = f"{scene.session.id}.1001"
    await scene.put(address, maxsize=2, waits=True)
    assert await scene.leave(address) == 1
    assert await scene.leave(address) == 0
    assert await scene.put(address, maxsize=3, waits=True) == 0
    assert await scene.client.zcard(scene.keys.line) == 0


async def test_line_passes_over_a_process_that_stands_still(scene: Scene) -> None:
    """All of its places, 2 s after it was told that there is room, unless it has come since."""
    me, other = f"{scene.session.id}.1001", await _someone_else(scene)
    for address in (f"{other}.1", f"{other}.2", me):
        assert await scene.put(address, maxsize=2, waits=True) == 0
    assert await scene.put(me, maxsize=3, waits=True) == -1
    await _let_seconds_pass(scene, 3)
    assert await scene.put(f"{other}.2", maxsize=3, waits=True) == -1  # it has come
    assert await scene.put(me, maxsize=3, waits=True) == -1
    await _let_seconds_pass(scene, 3)
    assert await scene.put(me, maxsize=3, waits=True) == 1
    assert await scene.client.zcard(scene.keys.line) == 0


async def test_line_drops_those_whose_process_is_gone(scene: Scene) -> None:
    """Nobody waits behind the dead."""
    for number in range(3):
        await scene.client.zadd(scene.keys.line, {f"gone.{number}": number})
    assert await scene.put("b.1", maxsize=3) == 1
    assert await scene.client.zcard(scene.keys.line) == 0


@pytest.mark.twice("queues/purge")
async def test_second_purge_drops_nothing(scene: Scene) -> None:
    """Not even what came since."""
    assert await scene.purge() == 2
    await scene.put("b.1")
    before = await scene.everything()
    assert await scene.purge() == 2
    assert await scene.everything() == before


@pytest.mark.twice("queues/join")
async def test_second_join_is_told_once(scene: Scene) -> None:
    """As long as something is left it waits in one place, for a minute."""
    keys = scene.keys
    await scene.client.zadd(keys.joiners, {"gone.1": 1})
    for _ in range(2):
        assert await scene.run("queues/join", address="a.9") == 2
        assert await scene.client.zrange(keys.joiners, 0, -1) == [b"a.9"]
    assert 59_000 < await scene.client.pttl(keys.joiners) <= 60_000
    assert await scene.purge() == 2
    for _ in range(2):
        assert await scene.run("queues/join", address="a.9") == 0
        assert await scene.client.zcard(keys.joiners) == 0


@pytest.mark.twice("queues/shut")
async def test_second_shutdown_does_not_shut_what_was_opened_since(scene: Scene) -> None:
    """Nor the other way round; and consumers are told once."""

    async def shut(state: int, request: str) -> Any:
        return await scene.run("queues/shut", state=state, inboxes=scene.session.inboxes(""), request=request)

    await scene.client.zadd(scene.keys.standby, {f"a.{number}": 1 for number in range(150)})
    assert [await shut(1, "first") for _ in range(2)] == [1, 1]
    assert await scene.client.zcard(scene.keys.standby) == 50
    assert [await shut(1, "second") for _ in range(2)] == [0, 0]
    assert await scene.put("a.3") == 3
    assert [await shut(0, "third") for _ in range(2)] == [0, 0]
    assert await shut(1, "second") == 0
    assert await scene.put("a.4") == 1
    assert await shut(2, "fourth") == 0
    assert await shut(0, "third") == 0
    assert [await scene.put("a.5") for _ in range(2)] == [3, 3]


@pytest.mark.twice("queues/standby")
async def test_second_standby_is_told_once(scene: Scene) -> None:
    """It waits in one place for a minute; if the queue is shut down, until nothing is left."""
    keys = scene.keys
    await scene.client.zadd(keys.standby, {"gone.1": 1})
    for _ in range(2):
        assert await scene.run("queues/standby", address="a.9") == 0
        assert await scene.client.zrange(keys.standby, 0, -1) == [b"a.9"]
    assert 59_000 < await scene.client.pttl(keys.standby) <= 60_000
    await scene.run("queues/shut", state=1, inboxes=scene.session.inboxes(""), request="shut")
    for _ in range(2):
        assert await scene.run("queues/standby", address="a.9") == 0
        assert await scene.client.zrange(keys.joiners, 0, -1) == [b"a.9"]
        assert await scene.client.zcard(keys.standby) == 0
    assert await scene.purge() == 2
    for _ in range(2):
        assert await scene.run("queues/standby", address="a.9") == 1
        assert await scene.client.zcard(keys.joiners) == 0


@pytest.mark.twice("queues/inspect")
async def test_second_look_answers_the_same(scene: Scene) -> None:
    """It changes nothing."""
    answers = [await scene.run("queues/inspect", skip=0, limit=5) for _ in range(2)]
    assert [answer[:4] for answer in answers] == [[1, 1, 0, 0]] * 2
    assert answers[0][7:] == answers[1][7:]


@pytest.mark.twice("bells/ring")
async def test_second_ring_leaves_one_token(scene: Scene) -> None:
    """For a minute."""
    for _ in range(2):
        assert await scene.run("bells/ring") == 1
        assert await scene.client.llen(scene.keys.only.bell) == 1
    assert 0 < await scene.client.pttl(scene.keys.only.bell) <= 60_000


@pytest.mark.twice("bells/sleep", "bells/leave")
async def test_second_sleeper_has_one_place(scene: Scene) -> None:
    """For a minute; what rang before, or for one that leaves, is a token while nobody listens."""
    bell = scene.keys.only.bell
    await scene.client.delete(bell)
    for _ in range(2):
        assert await scene.run("bells/sleep", sleeper="inbox a.1") == 1
        assert await scene.client.lrange(bell, 0, -1) == [b"inbox a.1"]
    assert 0 < await scene.client.pttl(bell) <= 60_000
    for left in [], [b"1"], [b"1"]:
        assert await scene.run("bells/leave", sleeper="inbox a.1") == 1
        assert await scene.client.lrange(bell, 0, -1) == left
    assert await scene.run("bells/sleep", sleeper="inbox a.1") == 1
    assert await scene.client.lrange(bell, 0, -1) == [b"1"]


async def _someone_else(scene: Scene) -> str:
    """Another session that listens, as a process that stands still does."""
    pubsub = scene.client.pubsub()
    scene.listeners.append(pubsub)
    await pubsub.subscribe(f"{scene.session.inboxes('')}other")
    return "other"


async def _let_seconds_pass(scene: Scene, seconds: int) -> None:
    """Since whoever is first in line was told that there is room."""
    for session, at in (await scene.client.hgetall(scene.keys.told)).items():
        await scene.client.hset(scene.keys.told, session, int(at) - seconds * 1000)
