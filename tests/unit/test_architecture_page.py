"""The map for contributors names what is there."""

import re
from pathlib import Path

from inconcert._redis.protocol.scripts import parameters
from tests.support.each import each

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contributing/architecture.md").read_text("utf-8")
SOURCE = ROOT / "src/inconcert"
LUA = SOURCE / "_lua"


def named_files() -> list[str]:
    """Files and folders of the package that the page names."""
    return sorted(set(re.findall(r"`((?:[\w/]+/)?\w+\.(?:py|lua)|_\w+(?:/\w+)*/)`", PAGE)))


def named_scripts() -> list[str]:
    """Scripts that the page names, as `folder/verb`."""
    folders = "|".join(path.name for path in LUA.iterdir() if path.is_dir())
    return sorted(set(re.findall(rf"`((?:{folders})/\w+)`", PAGE)))


def test_something_is_found() -> None:
    """The other tests here have something to look at."""
    assert len(named_files()) > 20
    assert len(named_scripts()) > 5


@each("name", named_files())
def test_file_is_there(name: str) -> None:
    """A file that the page names exists, in the package or in the repository."""
    assert (SOURCE / name).exists() or (ROOT / name).exists()


@each("name", named_scripts())
def test_script_is_there(name: str) -> None:
    """A script that the page names exists."""
    assert (LUA / f"{name}.lua").exists()


@each(
    "key",
    sorted(
        given.name
        for given in {given for path in LUA.rglob("*.lua") for given in parameters(path.read_text("utf-8"))}
        if given.array == "KEYS" and not given.has_any_length
    ),
)
def test_key_is_in_the_table(key: str) -> None:
    """Each key that a script is given has its row."""
    assert re.search(rf"`{key}[`:]", PAGE)
