"""What the page about any call says, docstrings do not repeat."""

import re
from pathlib import Path

from tests.support.each import each
from tests.support.pages import DOCS, ROOT

SOURCES = sorted(
    path
    for path in (ROOT / "src" / "inconcert").rglob("*.py")
    if not {"_claims", "durable", "front", "records", "running", "sending"} & set(path.parts)
)
REPEATED = re.compile(
    r"""^\ +(?:
    NotConnected:\ The\ (?:coordinator\ is\ not\ open|producer\ is\ closed)(?:,\ or\ was\ closed\ meanwhile)?
    |Unavailable:\ The\ server\ could\ not\ be\ asked
    |OutcomeUnknown:\ The\ server\ did\ not\ answer
    |InvalidName:\ (?:`(?:name|pattern)`|The\ name)\ is\ empty\ or\ longer\ than\ 512\ bytes
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
