"""Scripts that a test runs twice: the same command again, as one whose reply was lost.

A test marked `twice("queues/put")` says that it does so, and fails if it does not; see `tests/conftest.py`.
"""

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from inconcert._core.session import Session
from inconcert._redis.find.peers import Answer, Peer
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from tests.support.lua_files import file_of

__all__ = ["commands", "names", "names_of_module", "not_repeated"]


@contextmanager
def commands() -> Generator[Counter[Command]]:
    """How often each command is run by a session, or by one server of a quorum, from now on."""
    counted = Counter[Command]()
    run_by_session, run_by_peer = Session.run, Peer.run

    async def run(session: Session, command: Command) -> Reply:
        counted[command] += 1
        return await run_by_session(session, command)

    async def ask(peer: Peer, command: Command, **options: Any) -> Answer:
        counted[command] += 1
        return await run_by_peer(peer, command, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "run", run)
        patch.setattr(Peer, "run", ask)
        yield counted


def not_repeated(scripts: Iterable[str], counted: Counter[Command]) -> set[str]:
    """Those of the scripts that were not run twice with the same keys and arguments."""
    return set(scripts) - {file_of(command.script.name) for command, times in counted.items() if times > 1}


def names(marks: Iterable[pytest.Mark]) -> set[str]:
    """The scripts that marks name."""
    return {script for mark in marks if mark.name == "twice" for script in mark.args}


def names_of_module(module: ModuleType) -> set[str]:
    """The scripts that the marks of a module's tests name, and of their parameters."""
    marks = [mark for test in vars(module).values() for mark in getattr(test, "pytestmark", [])]
    sets = [values for mark in marks if mark.name == "parametrize" for values in mark.args[1]]
    return names([*marks, *(mark for values in sets for mark in getattr(values, "marks", []))])
