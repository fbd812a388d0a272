"""Processes that share keys, and the history of who had which."""

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from inconcert import Coordinator, LeaseLost
from tests.support.eventually import eventually
from tests.support.forked import Forked
from tests.support.processes import Child, tell

__all__ = ["Held", "all_keys_are_had", "history", "keys_of", "share"]

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
