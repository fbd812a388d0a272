"""Each package logs to a logger of its name, and a page lists what each logger says."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.pages import DOCS, ROOT

PACKAGE = ROOT / "src" / "inconcert"
PAGE = (DOCS / "how-to" / "logs.md").read_text("utf-8")
OTHER_NAMES = {"core": "leases"}  # what users know it by


class Line(NamedTuple):
    """What is logged, or what the page says of it; of no logger if the caller's is used."""

    logger: str | None
    level: str
    message: str


@cache
def sources() -> list[tuple[Path, str | None, ast.Module]]:
    """Each file, with the name of its logger."""
    read: list[tuple[Path, str | None, ast.Module]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        found = [
            ast.literal_eval(node.value.args[0])
            for node in tree.body
            if isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "_log"
            and isinstance(node.value, ast.Call)
        ]
        read.append((path, found[0] if found else None, tree))
    return read


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls of methods of these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names:
            yield node


@cache
def logged() -> list[Line]:
    """Every message in the code."""
    return [
        Line(logger, {"exception": "ERROR"}.get(call.func.attr, call.func.attr.upper()), ast.literal_eval(call.args[0]))
        for _, logger, tree in sources()
        for call in calls(tree, "debug", "info", "warning", "error", "exception", "critical")
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("_log", "log")
    ]


def listed() -> list[Line]:
    """Every row of the page."""
    return [
        Line(logger, *row)
        for logger, section in re.findall(r"^## (inconcert\.\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
        for row in re.findall(r"^\| ([A-Z]+) \| `(.+?)` \|", section, re.MULTILINE)
    ]


def is_of(line: Line, row: Line) -> bool:
    """Whether the row is of this line."""
    words = ".*".join(re.escape(part) for part in row.message.split("..."))
    return line.logger in (None, row.logger) and line.level == row.level and bool(re.search(words, line.message))


def test_logger_has_the_name_of_its_package() -> None:
    """Without the underscore of a private one."""
    found: dict[Path, tuple[str, str]] = {}
    for path, logger, _ in sources():
        if logger is not None:
            package = path.relative_to(PACKAGE).with_suffix("").parts[0].lstrip("_")
            found[path] = (logger, f"inconcert.{OTHER_NAMES.get(package, package)}")

    assert len(found) > 20
    assert [path.name for path, (logger, expected) in found.items() if logger != expected] == []


def test_every_message_is_on_the_page() -> None:
    """With its logger and its level."""
    rows = listed()

    assert len(logged()) > 40
    assert [line for line in logged() if not any(is_of(line, row) for row in rows)] == []


def test_every_message_on_the_page_is_logged() -> None:
    """By that logger, at that level."""
    lines = logged()

    assert [row for row in listed() if not any(is_of(line, row) for line in lines)] == []


@pytest.mark.parametrize(
    ("line", "is_there"),
    [
        (Line("inconcert.claims", "WARNING", "worker %s is dead"), True),
        (Line("inconcert.claims", "ERROR", "worker %s is dead"), False),
        (Line("inconcert.tasks", "WARNING", "worker %s is dead"), False),
        (Line("inconcert.claims", "WARNING", "worker %s is alive"), False),
        (Line(None, "WARNING", "worker %s is dead"), True),
    ],
)
def test_row_is_of_one_logger_level_and_message(line: Line, *, is_there: bool) -> None:
    """What is compared is all three."""
    assert is_of(line, Line("inconcert.claims", "WARNING", "worker ... is dead")) == is_there
