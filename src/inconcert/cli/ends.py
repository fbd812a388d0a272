"""Exits of a command that cannot do its work."""

import sys
from typing import NoReturn

from inconcert.cli.output import say

FAILED = 1  # exit code: the command failed, and may succeed another time
CANNOT_START = 2  # exit code: it would fail the same way each time


def refuse(why: str) -> NoReturn:
    """End with the fault in the arguments, or the part that is missing from the installation."""
    _end(why, CANNOT_START)


def fail(why: str) -> NoReturn:
    """End with what went wrong this time."""
    _end(why, FAILED)


def _end(why: str, code: int) -> NoReturn:
    say(f"inconcert: {why}", to_stderr=True)
    sys.exit(code)
