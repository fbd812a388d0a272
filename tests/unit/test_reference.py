"""The reference, as it is built: what users call, and with what."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import DOCS, ROOT

# What only the engine has or gives: the session, the keys of a primitive, the state of a lease or a claim.
_OF_THE_ENGINE = re.compile(
    r"\b(?:ref|SessionRef|(?:Job|Permit|Item)State|StateT|JobKeys|Watches|EnqueueBatcher|Getters)\b"
)
_CONSTANT = re.compile(r"(?:= |default:\s*)[A-Z]+(?:_[A-Z]+)+\b")


pytestmark = pytest.mark.slow  # the site is built


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built site: that of `make docs`, unless something has changed since."""
    built = ROOT / "site" / "index.html"
    sources = [ROOT / "mkdocs.yml", *DOCS.rglob("*.md"), *DOCS.rglob("*.py"), *(ROOT / "src").rglob("*.py")]
    if built.exists() and built.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return built.parent
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    return site


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The text of each page of the reference, without what a reader does not see."""
    return {
        page.name: html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))
        for page in (site / "reference").glob("*.html")
    }


def test_no_argument_is_shown_that_users_never_give(pages: dict[str, str]) -> None:
    """The coordinator makes most objects, so what it alone gives to their constructors is not on a page."""
    assert len(pages) == len(list((DOCS / "reference").glob("*.md")))
    assert {name: found for name, text in pages.items() if (found := _OF_THE_ENGINE.findall(text))} == {}


def test_constructor_is_shown_of_what_users_construct(pages: dict[str, str]) -> None:
    """A coordinator, a quorum lock, the progress of a job, and what a body raises to come back."""
    shown = {name for text in pages.values() for name in re.findall(r"^\s*([A-Z]\w+)\(", text, re.MULTILINE)}

    assert shown == {"Coordinator", "QuorumLock", "Progress", "Retry", "Snooze"}


def test_defaults_are_shown_as_values(pages: dict[str, str]) -> None:
    """Also where the source names a constant, in a signature and in the list of arguments."""
    assert {name: found for name, text in pages.items() if (found := _CONSTANT.findall(text))} == {}
    assert "ttl: Seconds = 30.0," in pages["coordinator.html"]
    assert re.search(r"ttl\s*\(Seconds, default:\s*86400.0\s*\)", pages["events.html"])


def test_index_for_language_models_has_each_page(site: Path) -> None:
    """`llms.txt` links all of the navigation, and says what each guide is about, without links inside."""
    lines = (site / "llms.txt").read_text("utf-8").splitlines()
    entries = dict(re.findall(r"^- \[[^\]]+\]\(https://[^)]*?/inconcert/([^)]+)\)(.*)", "\n".join(lines), re.MULTILINE))
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert entries.keys() == built
    assert lines[:3] == ["# inconcert", "", "> Coordination for asyncio services on Redis and Valkey"]
    assert "share a server" in entries["how-to/upgrades.html"]
    assert not any("](" in about for about in entries.values())
