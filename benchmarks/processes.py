"""The processes that a measurement starts: modules of this folder, which print what they have seen."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

__all__ = ["ROOT", "all_numbers", "next_line", "start"]

ROOT = Path(__file__).parents[1]


async def start(module: str, *arguments: object, python: Path | str = sys.executable) -> Process:
    """Start `python -m benchmarks.MODULE ARGUMENTS`."""
    return await asyncio.create_subprocess_exec(
        python, "-m", f"benchmarks.{module}", *map(str, arguments), cwd=ROOT, stdin=PIPE, stdout=PIPE
    )


async def next_line(child: Process) -> str:
    """The next line that a process prints.

    Raises:
        RuntimeError: It has ended.
    """
    assert child.stdout is not None
    line = (await child.stdout.readline()).decode()
    if not line:
        raise RuntimeError("a process of the benchmark has ended early; what it wrote is above")
    return line


async def all_numbers(child: Process) -> list[float]:
    """What a process has printed when it has ended, one number a line."""
    output, _ = await child.communicate()
    return [float(line) for line in output.split()]
