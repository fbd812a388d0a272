"""The verbs of the Makefile that depend on what the machine has."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKE = shutil.which("make")


@pytest.mark.skipif(MAKE is None, reason="there is no make")
@pytest.mark.parametrize("has_redis7", [True, False])
def test_server_that_is_not_here_is_left_out_by_name(has_redis7: bool, tmp_path: Path) -> None:
    """`make servers` says so instead of passing in silence."""
    (tmp_path / "sh").symlink_to("/bin/sh")
    if has_redis7:
        (tmp_path / "redis-server").symlink_to("/bin/sh")
    ended = subprocess.run(
        [str(MAKE), "--dry-run", "servers"],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("left out: redis7" in ended.stdout) is not has_redis7
    assert ("for server in valkey redis6 redis7;" in ended.stdout) is has_redis7
