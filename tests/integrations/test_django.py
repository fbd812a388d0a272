"""Tasks of a real Django project with SQLite, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "django_shop" / "program.py"


def test_project_runs_its_tasks(server: RealServer, namespace: str, tmp_path: Path) -> None:
    """Enqueued on commit and never on rollback, run with the database, with results, errors and delays."""
    pytest.importorskip("django_tasks")
    settings = {"url": server.url, "namespace": namespace, "database": str(tmp_path / "db.sqlite3")}
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), json.dumps(settings)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "in the transaction: unknown",
        "after rollback: unknown",
        "after commit: READY",
        "foreign path: unknown",
        "priority: InvalidTask",
        "unknown queue: InvalidTask",
        "not due: READY",
        "add: SUCCESSFUL 5",
        "attempt: SUCCESSFUL 1",
        "later: SUCCESSFUL ABC",
        "rows: SUCCESSFUL 1",
        "fails: FAILED ValueError: on purpose",
        "raised: True",
        "raised by the app: True",
        "enqueued as before: True",
        "signal: add finished SUCCESSFUL",
        "signal: add started RUNNING",
        "signal: attempt finished SUCCESSFUL",
        "signal: attempt started RUNNING",
        "signal: fails finished FAILED",
        "signal: fails started RUNNING",
        "signal: later finished SUCCESSFUL",
        "signal: later started RUNNING",
        "signal: refuses finished FAILED",
        "signal: refuses started RUNNING",
        "signal: rows finished SUCCESSFUL",
        "signal: rows started RUNNING",
        "dead: [('fails', []), ('refuses', [])]",
        "replayed: 1",
    ]
