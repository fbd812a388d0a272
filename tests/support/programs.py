"""Programs of a page, as forks of a process that has imported what they need: SQLAlchemy alone takes a second."""

import os
import runpy
import sys
from pathlib import Path
from typing import IO

import aiosqlite  # noqa: F401  # pyright: ignore[reportUnusedImport] - for the programs
import sqlalchemy.ext.asyncio  # noqa: F401  # pyright: ignore[reportUnusedImport] - for the programs

import inconcert.sql  # noqa: F401  # pyright: ignore[reportUnusedImport] - for the programs
from tests.support.forks import Fork

__all__ = ["run_program", "start_program"]


def start_program(folder: Path, name: str, *arguments: str, output: IO[bytes]) -> Fork:
    """Start `python NAME ARGUMENTS` in this folder."""
    target = f"{__name__}:{run_program.__name__}"
    return Fork(target, (str(folder), name, *arguments), stdout=output, stderr=output)


def run_program(folder: str, *command: str) -> None:
    """In the fork: be the program."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")
