"""Each private package says what belongs in it, how it works, what does not belong, and where to begin reading."""

import ast
import re
from pathlib import Path

import pytest

from inconcert.tasks.records.life import LIFE
from tests.support.pages import ROOT

SOURCES = ROOT / "src" / "inconcert"
ROOMS = ["records", "durable", "following", "sending", "schedules", "running", "operating", "front"]
PACKAGES = sorted(
    path.parent
    for path in [
        *SOURCES.glob("_*/__init__.py"),
        *SOURCES.glob("_redis/*/__init__.py"),
        *SOURCES.glob("tasks/*/__init__.py"),
    ]
)


def test_packages_are_found() -> None:
    """All of them, and the rooms of two."""
    assert {path.name for path in PACKAGES} >= {"_claims", "_core", "_redis", "_rules", "running", "wire"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_package_has_a_doorplate(package: Path) -> None:
    """Its docstring has 2 to 60 lines, and the files that it names exist."""
    doorplate = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    named = re.findall(r"`((?:\w+/)?\w+\.py)`", doorplate)

    assert 2 <= len(doorplate.splitlines()) <= 60
    assert named != []
    assert [name for name in named if not any((base / name).is_file() for base in (package, package.parent))] == []


def test_tasks_have_their_theory_of_operation() -> None:
    """Every state of a job, and every hook of a plug, are on the doorplate of the room of jobs, with its rooms."""
    doorplate = ast.get_docstring(ast.parse((SOURCES / "tasks" / "__init__.py").read_text("utf-8"))) or ""
    plugs = "".join(path.read_text("utf-8") for path in (SOURCES / "_lua" / "plugs" / "jobs").glob("*.lua"))
    hooks = set(re.findall(r"^local function \w+?_(on_\w+)\(", plugs, re.MULTILINE))
    rooms = {path.parent.name for path in (SOURCES / "tasks").glob("*/__init__.py")}

    assert hooks >= {"on_end", "on_release"}
    assert [name for name in (*LIFE, *sorted(hooks)) if not re.search(rf"^    {name} ", doorplate, re.MULTILINE)] == []
    assert re.findall(r"^    (\w+)/ ", doorplate, re.MULTILINE) == [name for name in ROOMS if name in rooms]
    assert len(rooms) == len(ROOMS)
