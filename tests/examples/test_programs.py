"""The whole programs on the pages: each runs as it is printed, on the private server that it starts."""

import asyncio
import re
import runpy
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp.test_utils
import litestar.testing
import pytest

from tests.support.logs import as_at_first
from tests.support.pages import DOCS, PAGES, ROOT, Block, blocks, python, title

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of starlette, which will have another HTTP client
    import starlette.testclient

# Guides of which the first Python is not a whole program yet. The list only gets shorter.
NOT_YET = {"cluster", "django", "sentinel"}
DOORS = 4  # on the home page, behind its first program
LINES = 12  # of a door, without empty ones


class Program(NamedTuple):
    """A program, and the output that its page shows behind it."""

    page: str
    block: Block
    output: list[str]


def is_whole(block: Block) -> bool:
    """Whether it needs nothing but the package."""
    return "Coordinator.embedded(" in block.text and "asyncio.run(" in block.text and not block.file


def is_application(block: Block) -> bool:
    """Whether it is a whole application, which a server of its framework runs."""
    return "Coordinator.embedded(" in block.text and "\napp = " in block.text and not block.file


def programs() -> list[Program]:
    """Those of all pages."""
    found: list[Program] = []
    for page in PAGES:
        shown = list(blocks(page.read_text("utf-8")))
        for block, after in zip(shown, [*shown[1:], None], strict=False):
            if block.language == "python" and is_whole(block):
                found.append(Program(title(page), block, output(after)))
    return found


def output(block: Block | None) -> list[str]:
    """The lines below `$ python ...`; none if the block is not such a one."""
    if block is None or not re.match(r"\$ python \w+\.py\n", block.text):
        return []
    return alike(block.text).splitlines()[1:]


def alike(text: str) -> str:
    """A text with all fencing tokens the same, and all ids of jobs."""
    return re.sub(r"\b\d{16}\b", "TOKEN", re.sub(r"\b[0-9a-f]{16}\.\d+\.\d+\b", "JOB", text))


def run(text: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that a program prints, with its log if it sets one up."""
    file = folder / "shop.py"
    file.write_text(text)
    capfd.readouterr()
    with as_at_first():
        runpy.run_path(str(file), run_name="__main__")
    printed = capfd.readouterr()
    assert printed.err == ""
    return [line.rstrip() for line in alike(printed.out).splitlines()]


@pytest.mark.parametrize("program", programs(), ids=lambda program: f"{program.page}:{program.block.line}")
def test_program_runs_as_it_is_printed(program: Program, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It ends without an error, and prints what the page shows."""
    printed = run(program.block.text, tmp_path, capfd)

    assert printed
    if program.output:
        assert printed == program.output


@pytest.mark.parametrize("page", [DOCS / "index.md", ROOT / "README.md"], ids=title)
def test_front_page_has_an_install_line_and_a_whole_program(page: Path) -> None:
    """In this order, and the output behind them, before anything else is shown."""
    install, program, then = list(blocks(page.read_text("utf-8")))[:3]

    assert install.text.startswith("$ pip install 'inconcert[embedded]'")
    assert is_whole(program)
    assert output(then)


def test_guide_begins_with_a_whole_program() -> None:
    """A reader who comes from a search engine has something to paste and run; the list of the others is exact."""
    guides = {page.stem: python(page.read_text("utf-8"))[:1] for page in (DOCS / "how-to").glob("*.md")}
    begin_so = {stem for stem, first in guides.items() if any(is_whole(one) or is_application(one) for one in first)}

    assert set(guides) - begin_so == NOT_YET


async def from_aiohttp(app: Any, method: str, path: str) -> str:
    """The answer to a request."""
    async with aiohttp.test_utils.TestClient(aiohttp.test_utils.TestServer(app)) as client:
        return await (await client.request(method, path)).text()


def from_asgi(client: Any, method: str, path: str) -> str:
    """The answer to a request, by a client that runs the application in a thread."""
    with client:
        return str(client.request(method, path).text)


def from_fastapi(app: Any, method: str, path: str) -> str:
    """The answer to a request."""
    return from_asgi(starlette.testclient.TestClient(app), method, path)


ANSWERS: dict[str, Callable[[Any, str, str], str]] = {
    "aiohttp": lambda app, method, path: asyncio.run(from_aiohttp(app, method, path)),
    "dashboard": from_fastapi,
    "fastapi": from_fastapi,
    "litestar": lambda app, method, path: from_asgi(litestar.testing.TestClient(app), method, path),
    "web": from_fastapi,
}


@pytest.mark.parametrize("page", ANSWERS)
def test_application_answers_as_its_page_shows(page: str, tmp_path: Path) -> None:
    """Opened by the test client of its framework."""
    shown = list(blocks((DOCS / "how-to" / f"{page}.md").read_text("utf-8")))
    program, shell = next(pair for pair in pairwise(shown) if is_application(pair[0]))
    asked = re.search(r"^\$ curl (?:-X (POST)|-s) localhost:\d+(\S+).*\n(.+)$", shell.text, re.MULTILINE)
    assert asked
    (tmp_path / "shop.py").write_text(program.text)

    answer = ANSWERS[page](runpy.run_path(str(tmp_path / "shop.py"))["app"], asked[1] or "GET", asked[2])

    assert alike(asked[3]) in alike(answer).splitlines()


def test_page_for_agents_has_twenty_rules_and_ten_programs() -> None:
    """Few enough to be read whole before each change."""
    text = (DOCS / "agents.md").read_text("utf-8")

    assert [int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)] == list(range(1, 21))
    assert len([block for block in python(text) if is_whole(block)]) == 10


def test_doors_are_short_whole_programs_with_a_tutorial_each() -> None:
    """The reader who comes in by one of them can run it, and go on."""
    text = (DOCS / "index.md").read_text("utf-8")
    doors = re.split(r"^### ", text.partition("## Start here\n")[2].partition("\n## ")[0], flags=re.MULTILINE)[1:]

    assert len(doors) == DOORS
    tutorials: set[str] = set()
    for door in doors:
        (program,) = python(door)
        assert is_whole(program)
        assert sum(bool(line.strip()) for line in program.text.splitlines()) <= LINES
        tutorials |= set(re.findall(r"\((tutorial/[\w-]+\.md)\)", door))
    assert tutorials == {path.relative_to(DOCS).as_posix() for path in (DOCS / "tutorial").glob("*.md")}
