"""The pages hold together: their Python compiles, their links lead somewhere, and the site shows them all."""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import inconcert

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(
    r"\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(?P<reference>\S+)", re.MULTILINE
)
_DIRECTIVE = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)


def title(page: Path) -> str:
    """A page by its path from the project's root."""
    return str(page.relative_to(ROOT))


def python_blocks(text: str) -> Iterator[tuple[int, str]]:
    """The Python in a page: the line on which each block starts, and its code."""
    for block in _FENCE.finditer(text):
        if block["info"].split() and block["info"].split()[0].lower() in {"python", "py"}:
            yield text.count("\n", 0, block.start("body")) + 1, textwrap.dedent(block["body"])


def relative_links(text: str) -> Iterator[str]:
    """The files that a page links to; links to the web and within the page are left out, and so is code."""
    prose = re.sub(r"`[^`\n]+`", "", _FENCE.sub("", text))
    for link in _LINK.finditer(prose):
        target = (link["target"] or link["reference"]).partition("#")[0]
        if target and not re.match(r"[a-z][a-z+.-]*:", target):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_python_on_a_page_compiles(page: Path) -> None:
    """Every Python block parses, with `await` allowed outside a function."""
    for line, code in python_blocks(page.read_text("utf-8")):
        source = "\n" * (line - 1) + code  # so that an error names the page's own line
        compile(source, page, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    """Every relative link names a file or folder that is there."""
    assert [link for link in relative_links(page.read_text("utf-8")) if not (page.parent / link).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    """The site's menu leads to every page under docs/."""
    _, found, menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")
    listed = re.findall(r"[\w./-]+\.md\b", menu)

    assert found
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_reference_has_every_public_name() -> None:
    """Each name that `inconcert` exports has its entry on a reference page, or its whole module has."""
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").rglob("*.md"))
    entries = {entry["name"] for entry in _DIRECTIVE.finditer(text)}
    documented = {
        name
        for name in inconcert.__all__
        if f"inconcert.{name}" in entries or getattr(vars(inconcert)[name], "__module__", None) in entries
    }

    assert entries
    assert {name for name in inconcert.__all__ if not name.startswith("__")} - documented == set()


def test_broken_python_is_found_with_its_line() -> None:
    """A block that does not parse is reported by its line on the page."""
    text = "# Page\n\n- item\n\n    ```python\n    await one()\n    two(\n    ```\n"

    [(line, code)] = python_blocks(text)

    assert (line, code) == (6, "await one()\ntwo(\n")


def test_links_in_code_and_to_the_web_are_left_out() -> None:
    """Only what should be a file of ours is looked for."""
    ours = '[a](x.md#top) ![b](img/y.png "why")\n\n[i]: j.md\n'
    not_ours = "[c](https://z.org/) [d](#here) `[e](f.md)`\n\n```\n[g](h.md)\n```\n"

    assert list(relative_links(ours + not_ours)) == ["x.md", "img/y.png", "j.md"]
