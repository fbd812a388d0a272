"""Everything that the commands print leaves by one exit, which shows control characters as escapes."""

import json
import re

import pytest

from inconcert.cli.output import json_text, printable
from tests.support.pages import ROOT

CLI = ROOT / "src/inconcert/cli"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab, in Grüßen", "two\nlines\tand a tab, in Grüßen"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J\x7f\r", r"\x9b2J\x7f\x0d"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_shown(text: str, shown: str) -> None:
    """And nothing else is changed."""
    assert printable(text) == shown


def test_json_stays_what_it_is() -> None:
    """A program reads the same text from it."""
    text = "\x9b2J\x7f\u202e\ud800\x1b"
    document = json_text(json.dumps([text], ensure_ascii=False))
    assert (json.loads(document), printable(document)) == ([text], document)


def test_nothing_else_prints() -> None:
    """The bar of a long command, and the demo, print no text of users."""
    others = {path.name for path in CLI.glob("*.py") if re.search(r"typer\.echo|\bConsole\(", path.read_text("utf-8"))}
    assert others == {"output.py", "actions.py", "demo.py"}
