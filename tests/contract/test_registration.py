"""Registering tasks: with options or without, what is refused, and what a task of a script is called."""

import subprocess
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inconcert import Coordinator
from inconcert.tasks.sending.task import Task

HERE = __name__


async def test_task_may_be_registered_without_options(any_concert: Coordinator) -> None:
    """With parentheses or without; it is the same."""
    ran: list[int] = []

    @any_concert.task
    async def plain(number: int) -> None:
        ran.append(number)

    @any_concert.task()
    async def called(number: int) -> None:
        ran.append(number)

    await plain.enqueue(1)
    await called.enqueue(2)
    await any_concert.run_worker("default", burst=True)
    assert sorted(ran) == [1, 2]
    assert plain.name == f"{HERE}.test_task_may_be_registered_without_options.<locals>.plain"


def lines() -> Generator[int]:
    """No task: it returns nothing."""
    yield 1


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (lines, "is a generator function"),
        (partial(lines), "is a generator function"),
        (Path, "is not a function; put @concert.task on a function"),
        ("high", "'high' is not a function"),
        (Coordinator().task(print), "is a task already"),
    ],
    ids=range(5),
)
@pytest.mark.parametrize("with_options", [False, True])
def test_what_can_be_no_task_is_refused(thing: Any, message: str, *, with_options: bool) -> None:
    """Where it is registered, and not when a job of it runs."""
    concert = Coordinator()
    register: Any = concert.task(name="t") if with_options else concert.task
    with pytest.raises(TypeError, match=message):
        register(thing)
    assert isinstance(concert.task(name="t")(print), Task)


SCRIPT = """
from inconcert import Coordinator

concert = Coordinator()

@concert.task
async def hello() -> None: ...

@concert.every(60)
async def tidy() -> None: ...

if __name__ == "__main__":
    print(hello.name, *concert._timetable._entries)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["jobs.py"], "jobs"),
        (["shop/jobs.py"], "jobs"),
        (["-m", "jobs"], "jobs"),
        (["-m", "shop.jobs"], "shop.jobs"),
        (["-m", "shop"], "shop.__main__"),
        (["-c", SCRIPT], "__main__"),
    ],
    ids=str,
)
def test_task_of_a_script_is_called_as_others_import_it(tmp_path: Path, command: list[str], module: str) -> None:
    """So `inconcert worker jobs:concert` runs what `python jobs.py` enqueues."""
    (tmp_path / "shop").mkdir()
    for name in ("jobs.py", "shop/jobs.py", "shop/__init__.py", "shop/__main__.py"):
        (tmp_path / name).write_text(SCRIPT if name != "shop/__init__.py" else "")
    python = [sys.executable, *command]
    found = subprocess.run(python, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [f"{module}.hello", f"{module}.tidy"]


@pytest.mark.slow
def test_script_that_is_imported_too_is_told_of_its_two_coordinators(tmp_path: Path) -> None:
    """The one that `jobs` has is not the one that the script has opened."""
    (tmp_path / "app.py").write_text(
        "import asyncio\n"
        "from inconcert import Coordinator\n"
        "concert = Coordinator('redis://localhost:1')\n"
        "import jobs\n"
        "if __name__ == '__main__':\n"
        "    asyncio.run(jobs.main())\n"
    )
    (tmp_path / "jobs.py").write_text("import app\nasync def main():\n    await app.concert.lock('x').acquire()\n")
    ran = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the coordinator is not open" in ran.stderr
    assert "app.py runs as a script and was imported as 'app', too: each has a coordinator" in ran.stderr
