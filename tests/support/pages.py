"""What is on the pages: those beside README.md, in .github and under docs; and the examples in docstrings."""

import re
import textwrap
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "DOCS",
    "IMPORTS",
    "NAMESPACE",
    "PAGES",
    "ROOT",
    "SOURCES",
    "URL",
    "Block",
    "anchors",
    "blocks",
    "files",
    "links",
    "python",
    "targets",
    "title",
]

URL, NAMESPACE = "redis://localhost:6379/0", '"shop"'  # as the pages have them; the tests put their own there
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *DOCS.rglob("*.md")])
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if "```python" in path.read_text("utf-8"))

# What the examples in docstrings leave out.
IMPORTS = (
    "from collections.abc import AsyncGenerator; from contextlib import asynccontextmanager; from inconcert import *; "
    "from inconcert.testing import *"
)

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(
    r"\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\[[^\]]+\]:\s*(?P<reference>\S+)", re.MULTILINE
)
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced piece of a page.

    Attributes:
        line: The line of the page on which its text starts.
        language: The first word after the fence: "python", "console", "text"; "" if there is none.
        file: The file that it is, or is a part of, from `title="..."` after the language; "" if there is none.
        text: What is between the fences, without the indentation of a list.
    """

    line: int
    language: str
    file: str
    text: str


def title(page: Path) -> str:
    """A page by its path from the project's root."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> Iterator[Block]:
    """All fenced pieces of a page, from its top to its end."""
    for block in _FENCE.finditer(text):
        file = re.search(r'title="([^"]+)"', block["info"])
        yield Block(
            line=text.count("\n", 0, block.start("body")) + 1,
            language=(block["info"].split() or [""])[0].lower(),
            file=file[1] if file else "",
            text=textwrap.dedent(block["body"]),
        )


def python(text: str) -> list[Block]:
    """The Python of a page."""
    return [block for block in blocks(text) if block.language in {"python", "py"}]


def files(text: str) -> dict[str, str]:
    """The files that a page names, each with the text of all its parts."""
    named: dict[str, str] = {}
    for block in blocks(text):
        if block.file:
            named[block.file] = f"{named[block.file]}\n\n{block.text}" if block.file in named else block.text
    return named


def targets(text: str) -> Iterator[str]:
    """Where the links and pictures of a page point to, as they are written."""
    prose = re.sub(r"`[^`\n]+`", "", _FENCE.sub("", text))
    for link in _LINK.finditer(prose):
        yield link["target"] or link["reference"]


def links(text: str) -> Iterator[tuple[str, str]]:
    """The links to the project's own pages: the file, "" for the page itself, and the anchor, "" for the page's top."""
    for target in targets(text):
        if not re.match(r"[a-z][a-z+.-]*:", target):
            file, _, anchor = target.partition("#")
            yield file, anchor


def anchors(text: str) -> set[str]:
    """What a link may name after `#`: the page's headings, each as the site makes an anchor of it."""
    return {_anchor(heading["text"]) for heading in _HEADING.finditer(_FENCE.sub("", text))}


def _anchor(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    letters = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", letters).strip().lower())
