"""What the page about any call says, docstrings do not repeat."""

import re
from pathlib import Path

from tests.support.each import each
from tests.support.pages import DOCS, ROOT

SOURCES = sorted((ROOT / "src" / "inconcert").rglob("*.py"))
REPEATED = re.compile(
    r"""^\ +(?:
    NotConnected:\ The\ (?:coordinator|producer)\ (?:is|was)\ (?:not\ open|closed|closing)
        (?:,\ or\ was\ closed)?(?:\ meanwhile)?
    |Unavailable:\ The\ server\ could\ not\ be\ asked(?:;\ nothing\ was\ (?:changed|added|acquired))?
    |OutcomeUnknown:\ The\ server\ did\ not\ answer
        (?:;\ (?:it|they|the\ \w+)\ (?:may\ (?:have\ been|be)\ \w+|(?:was|were)\ \w+\ once,\ or\ not\ at\ all))?
    |InvalidName:\ (?:(?:A|The)\ (?:name|pattern|key)|`\w+`(?:\ or\ `\w+`)?)\ is\ empty\ or\ longer\ than\ 512\ bytes
    |InvalidName:\ (?:This\ cannot\ be\ a|(?:One|It|`job_id`)\ is\ not\ a)\ job\ id
    |InvalidName:\ (?:No\ \w+|Nothing)\ can\ have\ this\ (?:name|id)
    |InvalidName:\ `namespace`\ is\ invalid
    |ValueError:\ `\w+`(?:\ or\ `\w+`)?\ is\ out\ of\ (?:its\ )?range
    |Cost:\ 1\ round\ trip
    )\.$""",
    re.MULTILINE | re.VERBOSE,
)


@each("path", SOURCES, ids=lambda path: path.relative_to(ROOT / "src" / "inconcert").as_posix())
def test_nothing_is_repeated(path: Path) -> None:
    """An error that any call may raise is named where there is more to say of it; so is a cost."""
    assert REPEATED.findall(path.read_text("utf-8")) == []


def test_page_has_what_is_not_repeated() -> None:
    """Each of the errors has its line, and the cost its sentence."""
    page = (DOCS / "reference" / "calls.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)`", page, re.MULTILINE)
    assert {"NotConnected", "Unavailable", "OutcomeUnknown", "WrongState", "InvalidName"} <= set(rows)
    assert "A call costs 1 round trip, unless its docstring has a `Cost`." in page
