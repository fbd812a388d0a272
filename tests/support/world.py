"""The world in which the tests run: on which server, as which user, in which database, on which event loop.

    pytest tests/contract --server=redis6 --protocol=2 --least-rights --database=5 --loop=uvloop
    pytest tests/contract --cluster

What the tests look at the server with, and do it harm with, stays the default user, in the same database.
"""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from inconcert._redis.operate.rights import Server, least_rights

__all__ = ["USER", "Kind", "World", "examples", "new_loop", "world"]

Kind = Literal["valkey", "redis6", "redis7"]

USER = "tests"  # whom coordinators log in as in a world of least rights

_VARIABLE = "INCONCERT_TESTS_WORLD"  # by which the processes that tests start know it
_PASSWORD = "least-rights"
_NAMESPACES = ("test-*", "inconcert", "shop", "a*")  # of all tests


@dataclass(frozen=True)
class World:
    """What `server.url` names, and where coroutines run.

    Attributes:
        least_rights: Whether coordinators log in as a user with the rights that `inconcert acl` prints.
        database: The number of the server's database.
        loop: `asyncio` or `uvloop`.
        server: Which server, of those that `tests/support/servers.py` knows.
        protocol: RESP 2 or 3; 0 for what the driver speaks by default.
        cluster: Whether it is a cluster of three such servers.
        examples: How many times as many examples as usual Hypothesis draws.
    """

    least_rights: bool = False
    database: int = 0
    loop: str = "asyncio"
    server: Kind = "valkey"
    protocol: int = 0
    cluster: bool = False
    examples: float = 1.0

    @property
    def login(self) -> str | None:
        """`user:password` of coordinators; None for the server's default user."""
        return f"{USER}:{_PASSWORD}" if self.least_rights else None

    def user(self, server: Server, *, cluster: bool = False) -> list[str]:
        """The user's name and rules on this server, with the namespaces of the tests; empty without one."""
        if not self.least_rights:
            return []
        found = [USER, "on", f">{_PASSWORD}"]
        for rule in least_rights("shop", server=server, cluster=cluster):
            found += [rule.replace("shop:", f"{namespace}:") for namespace in _NAMESPACES if "shop:" in rule] or [rule]
        return found

    def make(self) -> None:
        """Make it the world of this process and of all that it starts."""
        os.environ[_VARIABLE] = json.dumps(asdict(self))


def world() -> World:
    """The world of this process."""
    return _read(os.environ.get(_VARIABLE, "{}"))


@cache
def _read(text: str) -> World:
    return World(**json.loads(text))


def examples(usual: int) -> int:
    """How many examples Hypothesis draws in this world."""
    return max(1, round(usual * world().examples))


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes event loops in this world; None for asyncio's own."""
    if world().loop == "asyncio":
        return None
    import uvloop

    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return]
