"""The world in which the tests run: as which user, in which database, on which event loop.

    pytest tests/contract --least-rights --database=5 --loop=uvloop

What the tests look at the server with, and do it harm with, stays the default user, in the same database.
"""

import asyncio
import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["USER", "World", "documented_rules", "new_loop", "world"]

USER = "tests"  # whom coordinators log in as in a world of least rights

_VARIABLE = "INCONCERT_TESTS_WORLD"  # by which the processes that tests start know it
_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md"
_PASSWORD = "least-rights"
_NAMESPACES = ("test-*", "inconcert", "shop", "a*")  # of all tests


@dataclass(frozen=True)
class World:
    """What `server.url` names, and where coroutines run.

    Attributes:
        least_rights: Whether coordinators log in as the user that `docs/how-to/deploy.md` prints.
        database: The number of the server's database.
        loop: `asyncio` or `uvloop`.
    """

    least_rights: bool = False
    database: int = 0
    loop: str = "asyncio"

    @property
    def login(self) -> str | None:
        """`user:password` of coordinators; None for the server's default user."""
        return f"{USER}:{_PASSWORD}" if self.least_rights else None

    @property
    def user(self) -> list[str]:
        """The user's name and rules, with the namespaces of the tests; empty without one."""
        if not self.least_rights:
            return []
        found = [USER, f">{_PASSWORD}"]
        for rule in documented_rules():
            if "shop:" in rule:
                found += [rule.replace("shop:", f"{namespace}:") for namespace in _NAMESPACES]
            elif not rule.startswith(">"):
                found.append(rule)
        return found

    def make(self) -> None:
        """Make it the world of this process and of all that it starts."""
        os.environ[_VARIABLE] = json.dumps(asdict(self))


def world() -> World:
    """The world of this process."""
    return World(**json.loads(os.environ.get(_VARIABLE, "{}")))


def new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes event loops in this world; None for asyncio's own."""
    if world().loop == "asyncio":
        return None
    import uvloop

    factory: Any = uvloop.new_event_loop
    return factory  # type: ignore[no-any-return]


@cache
def documented_rules() -> list[str]:
    """The rules of the user that the page prints for the namespace `shop`, as the server takes them."""
    [command] = re.findall(r"^\$ redis-cli ACL SETUSER shop (on (?:.*\\\n)*.*)$", _PAGE.read_text(), re.MULTILINE)
    return shlex.split(command.replace("\\\n", " "))
