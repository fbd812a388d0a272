"""A namespace in one database of a server is another in the next, also for what is said on its channels."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis

from inconcert import Coordinator
from tests.support.eventually import eventually
from tests.support.inner import broadcasts_of
from tests.support.raw import new_client
from tests.support.servers import RealServer


@pytest.fixture(params=["url", "client", "fakeredis"])
async def pair(
    request: pytest.FixtureRequest, own_server: RealServer, namespace: str
) -> AsyncIterator[list[Coordinator]]:
    """Two coordinators of one namespace, in databases 0 and 1."""
    async with AsyncExitStack() as stack:
        concerts: list[Coordinator] = []
        fake = FakeServer()
        for database in (0, 1):
            if request.param == "url":
                concert = Coordinator(own_server.url_of(database), namespace=namespace)
            else:
                client = (
                    new_client(own_server.url_of(database))
                    if request.param == "client"
                    else FakeRedis(server=fake, db=database)
                )
                concert = Coordinator.from_client(await stack.enter_async_context(client), namespace=namespace)
            concerts.append(await stack.enter_async_context(concert))
        yield concerts


async def test_what_is_said_in_one_database_is_not_heard_in_another(pair: list[Coordinator]) -> None:
    """Of events, latches, barriers, signals, elections and chats of one name: those who wait go on waiting."""
    here, there = pair
    chat_id = await there.chat.create("ann", ["bob"], "hello")

    async def watch() -> None:
        async for record in here.election("boss").watch():
            assert record is None

    async def subscribe() -> None:
        async with here.signals("*").subscribe() as subscription:
            raise AssertionError(await subscription.next())

    async def listen() -> None:
        async for _ in here.chat.listen("ann"):
            raise AssertionError

    waiting = [
        asyncio.create_task(story)
        for story in (
            here.event("ready").wait(),
            here.latch("jobs", 1).wait(),
            here.barrier("start", 2).wait(),
            here.signal("deploy").wait(),
            watch(),
            subscribe(),
            listen(),
        )
    ]
    listened = broadcasts_of(here._ref.session)
    await eventually(lambda: sum(topic.is_confirmed for topic in listened._channels.values()) == 6)
    await eventually(lambda: all(topic.is_confirmed for topic in listened._patterns.values()) and listened._patterns)
    heard: list[bytes] = []
    for topic in [*listened._channels.values(), *listened._patterns.values()]:
        topic.listeners[Ear(heard)] = None

    await there.event("ready").set()
    await there.latch("jobs", 1).count_down()
    with suppress(TimeoutError):
        await there.barrier("start", 1).wait()
    assert await there.signal("deploy").broadcast({"env": "staging"}) == 0
    async with there.election("boss"):
        pass
    await there.chat.send(chat_id, "ann", "more")
    await there.chat.join(chat_id, "ann")

    # All is heard on one connection, in its order: had any of that been heard, it would have been before this.
    await here.event("ready").set()
    await waiting[0]
    assert len(heard) == 1
    for task in waiting[1:]:
        assert not task.done()
        task.cancel()
    await asyncio.wait(waiting)


class Ear:
    """Hears what everybody hears."""

    def __init__(self, heard: list[bytes]) -> None:
        self.heard = heard

    def on_message(self, channel: str, text: bytes) -> None:
        del channel
        self.heard.append(text)

    def missed(self) -> None:
        """Nothing is said here."""

    def closed(self, error: Exception) -> None:
        """The test is over."""
