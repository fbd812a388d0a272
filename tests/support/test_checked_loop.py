"""The event loop that tests on uvloop run on."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_RUN = """
import asyncio
from tests.support.checked_loop import CheckedLoop

async def main():
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    {end}
    return server

with asyncio.Runner(loop_factory=CheckedLoop) as runner:
    left = runner.run(main())
"""


@pytest.mark.parametrize(
    ("end", "complaint"), [("pass", "AssertionError: unclosed resource <TCPServer"), ("server.close()", "")]
)
def test_closing_names_what_was_left_open(end: str, complaint: str) -> None:
    """It ends: in a process of its own, for a hang could not be interrupted in this one."""
    command = [sys.executable, "-W", "error", "-c", _RUN.format(end=end)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=_ROOT)
    assert complaint in ended.stderr
    assert bool(ended.returncode) == bool(complaint)
