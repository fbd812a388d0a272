"""What docs/how-to/web.md says of all frameworks is what the integrations answer with."""

import re
from importlib import import_module

import pytest

from inconcert.errors import AcquireTimeout, InconcertError, RateLimited, Unavailable
from inconcert.integrations._answers import ANSWERED, answer_to
from tests.support.pages import DOCS

PAGE = (DOCS / "how-to" / "web.md").read_text("utf-8")
FRAMEWORKS = ["fastapi", "aiohttp", "litestar"]  # the columns, in their order


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def told() -> set[tuple[str, int, str]]:
    """Each error, with its status and `Retry-After`, as the page has them."""
    return {
        (name, int(status), "7" if retry_after == "when there is room" else retry_after)
        for errors, status, retry_after in rows("Which status an error has")
        for name in re.findall(r"`(\w+)`", errors)
        if status.isdigit()
    }


def raised() -> list[InconcertError]:
    """One of each that is answered, and those that are answered in several ways."""
    unanswered = AcquireTimeout("lock", "a", 2.0)
    unanswered.__cause__ = Unavailable("away")
    limited = RateLimited("a", 2.0, retry_after=7.0)
    others = [error.__new__(error) for error in ANSWERED if error not in (AcquireTimeout, RateLimited)]
    return [AcquireTimeout("lock", "a", 2.0), limited, unanswered, *others]


def test_page_has_each_answer() -> None:
    """The status and `Retry-After` of all errors that are answered, and of no other."""
    answered: set[tuple[str, int, str]] = set()
    for error in raised():
        answer = answer_to(error)
        assert answer is not None
        answered.add((type(error).__name__, answer.status, dict(answer.headers).get("retry-after", "")))

    assert told() == answered


@pytest.mark.parametrize("column", range(len(FRAMEWORKS)), ids=FRAMEWORKS)
def test_page_has_each_part_of_a_framework(column: int) -> None:
    """All public names of its module are in its column of the table of parts."""
    pytest.importorskip(FRAMEWORKS[column])
    names: list[str] = import_module(f"inconcert.integrations.{FRAMEWORKS[column]}").__all__
    cells = " ".join(row[column + 1] for row in rows("The parts side by side"))

    assert [name for name in names if not re.search(rf"`[^`]*\b{name}\b[^`]*`", cells)] == []
