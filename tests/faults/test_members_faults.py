"""Members whose processes are killed and paused: each key has one owner at a time, and none is left idle for long.

Each child says which keys it was given, when, and when it was given them no more, by the clock that all processes of a
machine share.  A key is certainly had from the first until the second, or until its process was killed or paused.
"""

import asyncio
import logging
import random
import time
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from inconcert import Coordinator, LeaseLost, OutcomeUnknown, Unavailable
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.members import KEYS, TTL, Held, all_keys_are_had, history
from tests.support.processes import Child, spawn
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

log = logging.getLogger(__name__)


def check_history(found: dict[str, list[Held]]) -> None:
    """No two had a key at once, and its token rose from one to the next."""
    for key, held in found.items():
        for before, after in pairwise(held):
            assert before.end <= after.begin, (key, before, after)
            assert before.token < after.token, (key, before, after)


async def test_keys_of_a_killed_process_go_to_the_others(server: RealServer, namespace: str) -> None:
    """When its lease has lapsed."""
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(spawn("tests.support.members:share", server.url, namespace))
            for _ in range(3)
        ]
        await all_keys_are_had(*children)
        killed_at = time.monotonic()
        children[0].kill()
        await all_keys_are_had(*children[1:])
        assert time.monotonic() - killed_at < 3 * TTL + 5
        check_history(history({children[0]: killed_at, children[1]: None, children[2]: None}))


async def test_paused_member_learns_that_it_was_lost(server: RealServer, namespace: str) -> None:
    """Its keys went elsewhere, with larger tokens; it joins again, and gets a part of them back."""
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(spawn("tests.support.members:share", server.url, namespace))
            for _ in range(2)
        ]
        await all_keys_are_had(one, two)
        before = {**one.messages[-1]["keys"]}
        one.pause()
        await all_keys_are_had(two)
        assert all(two.messages[-1]["keys"][key] > token for key, token in before.items())
        one.resume()
        await one.wait_for("lost")
        await all_keys_are_had(one, two)


async def test_member_that_is_cut_off_stops_before_others_have_its_keys(server: RealServer, namespace: str) -> None:
    """By its own clock; when the link is back it joins again, and its keys come with larger tokens."""
    had: list[tuple[str, dict[str, int]]] = []

    async def take_part(who: str, concert: Coordinator) -> None:
        while True:
            try:
                async with concert.members("crawlers", ttl=TTL) as me:
                    async for keys in me.shares(KEYS):
                        had.append((who, keys))  # noqa: PERF401 - it is looked at while this goes on
            except (LeaseLost, Unavailable, OutcomeUnknown):
                had.append((who, {}))
                await asyncio.sleep(0.01)

    def latest(who: str) -> dict[str, int]:
        return next((keys for name, keys in reversed(had) if name == who), dict[str, int]())

    async with (
        Proxy(server.tcp_url) as proxy,
        Coordinator(proxy.url, namespace=namespace) as far,
        Coordinator(server.url, namespace=namespace) as near,
        in_background(take_part("far", far)),
        in_background(take_part("near", near)),
    ):
        await eventually(lambda: latest("far") and latest("near") and len(latest("far") | latest("near")) == len(KEYS))
        before, cut_at = latest("far"), len(had)
        proxy.refuse()
        proxy.cut()
        await eventually(lambda: len(latest("near")) == len(KEYS), timeout=30)
        since = had[cut_at:]
        assert since.index(("far", {})) < min(at for at, (_, keys) in enumerate(since) if before.keys() & keys.keys())
        assert all(latest("near")[key] > token for key, token in before.items())
        await proxy.heal()
        await eventually(lambda: latest("far") and len(latest("far") | latest("near")) == len(KEYS), timeout=30)


@pytest.mark.torture
async def test_one_owner_whoever_dies(server: RealServer, namespace: str, request: pytest.FixtureRequest) -> None:
    """Kills in random moments, for as long as `--seconds` says."""
    draw = random.Random(request.config.option.seed)
    seconds: float = request.config.option.seconds
    until = time.monotonic() + seconds
    stopped: dict[Child, float | None] = {}
    async with AsyncExitStack() as stack:
        while time.monotonic() < until:
            living = [child for child, at in stopped.items() if at is None]
            if len(living) < 4:
                child = await stack.enter_async_context(spawn("tests.support.members:share", server.url, namespace))
                stopped[child] = None
            else:
                victim = draw.choice(living)
                stopped[victim] = time.monotonic()
                victim.kill()
            await asyncio.sleep(draw.random() * 0.5)
        living = [child for child, at in stopped.items() if at is None]
        await all_keys_are_had(*living)
        found = history(stopped)
        check_history(found)
        log.info("%d kills, %d keys handed out", len(stopped) - len(living), sum(map(len, found.values())))
