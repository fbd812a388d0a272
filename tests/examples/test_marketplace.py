import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.marketplace.facts import Evidence, facts, report
from examples.marketplace.outside import Mail
from tests.support.demos import Demo, without_numbers
from tests.support.eventually import eventually
from tests.support.pages import blocks, python

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial/marketplace.md").read_text("utf-8")


@pytest.fixture
def demo() -> Iterator[Demo]:
    """The demo in a small size, started."""
    with tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True) as folder:
        running = Demo(Path(folder), "examples.marketplace.demo", "--purchases", "60")
        yield running
        running.close()


@pytest.mark.in_turn("demo")
async def test_demo_finds_its_facts_right(demo: Demo) -> None:
    """In a small size everything is as it must be, is said as the tutorial shows it, and nothing is left."""
    summary = demo.read_until("commands while idle")

    (shown,) = [block for block in blocks(PAGE) if block.language == "text"]
    assert demo.wait() == 0
    assert without_numbers(shown.text) - without_numbers(summary) == {"..."}
    assert "WRONG" not in summary
    assert "items sold                   40 of 40" in summary
    await eventually(lambda: not demo.left())
    assert [path.name for path in demo.folder.iterdir()] == ["errors"]


@pytest.mark.in_turn("demo")
@pytest.mark.parametrize(
    ("number", "to_all"),
    [
        (signal.SIGINT, True),
        pytest.param(signal.SIGINT, False, marks=pytest.mark.torture),
        pytest.param(signal.SIGTERM, True, marks=pytest.mark.torture),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.torture),
    ],
)
async def test_stopped_demo_leaves_nothing(demo: Demo, number: signal.Signals, to_all: bool) -> None:
    """Ctrl-C and SIGTERM, to the demo or to all of its group, end it, its children and its server, in good order."""
    demo.read_until("items are on offer")
    (os.killpg if to_all else os.kill)(demo.process.pid, number)

    assert demo.read_until("nothing is left running")
    assert demo.wait() == 130
    await eventually(lambda: not demo.left())
    assert [path.name for path in demo.folder.iterdir()] == ["errors"]
    assert (demo.folder / "errors").read_text() == ""


@pytest.mark.in_turn("demo")
@pytest.mark.torture
@pytest.mark.parametrize("when", ["workers are up", "one worker is killed"])
async def test_killed_demo_leaves_no_process(demo: Demo, when: str) -> None:
    """Children see the end of a demo that could not say goodbye."""
    demo.read_until(when)
    demo.leashed.kill()

    await eventually(lambda: not demo.left(), timeout=20)


SOLD = Mail("ann", "sold", sent_at=10.0, due_at=None, sent_by=2)
INVOICE = Mail("bob", "invoice", sent_at=10.0, due_at=None, sent_by=1)
FEEDBACK = Mail("bob", "feedback", sent_at=13.1, due_at=13.0, sent_by=2)
GOOD = Evidence(
    wanted={"item"},
    sold=Counter(item=1),
    charges={"item": 1},
    most_payments=5,
    mail={"job-1": SOLD, "job-2": INVOICE, "job-3": FEEDBACK},
    refused_mail=1,
    killed=1,
    left_behind={"job-1"},
    recovered_after=9.5,
    said={"ann": {("chat", "hello")}},
    heard={"ann": {("chat", "hello")}},
    connections=(2, 10),
    idle_commands=2.0,
)


def with_mail(job: str, mail: Mail) -> Evidence:
    """The good evidence with one e-mail that is another."""
    return replace(GOOD, mail={**GOOD.mail, job: mail})


def test_good_evidence_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    """Every fact holds, and the exit status says so."""
    assert report(facts(GOOD)) == 0
    assert "WRONG" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "seen"),
    [
        ("items sold", replace(GOOD, sold=Counter())),
        ("items sold or paid twice", replace(GOOD, sold=Counter(item=2))),
        ("items sold or paid twice", replace(GOOD, charges={"item": 2})),
        ("most payments at once", replace(GOOD, most_payments=6)),
        ("e-mails lost", replace(GOOD, mail={"job-1": SOLD, "job-3": FEEDBACK})),
        ("e-mails sent twice", with_mail("job-4", INVOICE)),
        ("jobs of the killed worker", with_mail("job-1", replace(SOLD, sent_by=1))),
        ("jobs of the killed worker", replace(GOOD, left_behind=set())),
        ("delayed e-mails sent", with_mail("job-3", replace(FEEDBACK, sent_at=12.9))),
        ("chat messages delivered", replace(GOOD, heard={})),
        ("service's connections", replace(GOOD, connections=(4, 10))),
        ("commands while idle", replace(GOOD, idle_commands=50.0)),
    ],
)
def test_broken_fact_fails_the_demo(wrong: str, seen: Evidence, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not as it must be is marked, and the exit status is 1."""
    assert report(facts(seen)) == 1
    assert re.search(rf"WRONG  [a-z ]{{13}} {wrong}  ", capsys.readouterr().out)


def test_tutorial_shows_the_code_that_runs() -> None:
    """Each piece of Python on the page stands in the example, word for word."""
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "examples/marketplace").glob("*.py"))
    pieces = [block.text for block in python(PAGE)]

    assert pieces
    assert [piece for piece in pieces if piece not in code] == []
