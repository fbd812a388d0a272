"""Members whose processes are killed and paused: each key has one owner at a time, and none is left idle for long.

Each child says which keys it was given, when, and when it was given them no more, by the clock that all processes of a
machine share.  A key is certainly had from the first until the second, or until its process was killed or paused.
"""

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from inconcert import Coordinator, LeaseLost, OutcomeUnknown, Unavailable
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.processes import Child, spawn, tell
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

log = logging.getLogger(__name__)

KEYS = [f"site:{number}" for number in range(60)]
TTL = 1.5


async def share(url: str, namespace: str) -> None:
    """In a process of its own: take part, and say which keys that gives."""
    async with Coordinator(url, namespace=namespace) as concert:
        while True:
            try:
                async with concert.members("crawlers", ttl=TTL) as me:
                    async for keys in me.shares(KEYS):
                        tell("keys", keys=keys, at=time.monotonic())
            except LeaseLost:
                tell("lost", keys={}, at=time.monotonic())


class Held(NamedTuple):
    """One key, from when to when one process certainly had it."""

    begin: float
    end: float
    token: int
    process: int


def history(children: Mapping[Child, float | None] | Mapping[Forked, float | None]) -> dict[str, list[Held]]:
    """Who had each key, in order; children are given with the time of their death or pause."""
    found: defaultdict[str, list[Held]] = defaultdict(list)
    for child, stopped_at in children.items():
        had: dict[str, tuple[float, int]] = {}
        end = stopped_at or time.monotonic()
        told: list[tuple[float, dict[str, int]]] = [
            (each["at"], each["keys"]) for each in child.messages if "keys" in each
        ]
        for at, keys in [*told, (end, {})]:
            for key in had.keys() - keys.keys():
                begin, token = had.pop(key)
                found[key].append(Held(begin, at, token, child.pid))
            for key, token in keys.items():
                had.setdefault(key, (at, token))
    return {key: sorted(held) for key, held in found.items()}


def check_history(found: dict[str, list[Held]]) -> None:
    """No two had a key at once, and its token rose from one to the next."""
    for key, held in found.items():
        for before, after in pairwise(held):
            assert before.end <= after.begin, (key, before, after)
            assert before.token < after.token, (key, before, after)


def keys_of(child: Child | Forked) -> set[str]:
    """The keys that a child was given last."""
    messages: list[dict[str, Any]] = child.messages
    return set(next((each["keys"] for each in reversed(messages) if "keys" in each), ()))


async def all_keys_are_had(*children: Child | Forked) -> None:
    """Return when these have all keys, and each of them some."""
    await eventually(
        lambda: all(map(keys_of, children)) and sum(len(keys_of(child)) for child in children) == len(KEYS), timeout=20
    )
    assert set().union(*map(keys_of, children)) == set(KEYS)


async def test_keys_of_a_killed_process_go_to_the_others(server: RealServer, namespace: str) -> None:
    """When its lease has lapsed."""
    async with AsyncExitStack() as stack:
        children = [
            await stack.enter_async_context(spawn(f"{__name__}:share", server.url, namespace)) for _ in range(3)
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
            await stack.enter_async_context(spawn(f"{__name__}:share", server.url, namespace)) for _ in range(2)
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
                child = await stack.enter_async_context(spawn(f"{__name__}:share", server.url, namespace))
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
