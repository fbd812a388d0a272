"""What a run has measured, in a file: with its date, machine, versions and command, so that a page can say all that."""

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.figures import Table
from benchmarks.processes import ROOT

__all__ = ["FOLDER", "Results", "add_option", "load", "save"]

FOLDER = ROOT / "benchmarks" / "results"
"""Where the files are of which docs/explanation/performance.md is made."""


class Results(msgspec.Struct, kw_only=True):
    """One run.

    Attributes:
        command: As it was called.
        measured_on: The date, in UTC.
        machine: Its system, kind of processor and number of cores.
        versions: Of what was measured, and of what it ran on.
        columns: The titles of the columns.
        rows: Title -> figures; None for what cannot be measured.
    """

    command: str
    measured_on: str
    machine: str
    versions: dict[str, str]
    columns: list[str]
    rows: dict[str, list[float | None]]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json FILE`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def save(path: Path | None, name: str, table: Table) -> None:
    """Write what a run has measured, unless there is no path.

    Args:
        path: The value of `--json`.
        name: The module of the benchmark.
        table: What it has printed.
    """
    if path is None:
        return
    packages = {"inconcert": "inconcert", "redis-py": "redis", "hiredis": "hiredis"}
    versions = {"python": platform.python_version()} | {name: version(of) for name, of in packages.items()}
    results = Results(
        command=" ".join(["python -m", f"benchmarks.{name}", *sys.argv[1:]]),
        measured_on=datetime.now(UTC).date().isoformat(),
        machine=f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores",
        versions=versions | table.versions,
        columns=list(table.columns),
        rows={title: list(figures) for title, figures in table.rows.items()},
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2) + b"\n")


def load(path: Path) -> Results:
    """Read what `save` has written."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
