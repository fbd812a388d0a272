"""docs/how-to/testing.md, copied: its files pass as they are, under pytest as it is set by default."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.pages import DOCS, ROOT, files


def test_page_passes_as_it_is_written(tmp_path: Path) -> None:
    """All tests on the page pass, without configuration."""
    named = files((DOCS / "how-to" / "testing.md").read_text("utf-8"))
    for name, text in named.items():
        (tmp_path / name).write_text(text)
    tests = sum(len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE)) for text in named.values())

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_inconcert", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert tests >= 9
    assert re.search(rf"^{tests} passed(?:, \d+ warnings?)? in", ended.stdout, re.MULTILINE), (
        ended.stdout + ended.stderr
    )
