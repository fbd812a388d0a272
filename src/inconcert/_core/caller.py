"""From which line of the user's code something was asked for, noted as cheaply as it can be.

It is noted with every acquisition, and read only when somebody asks: so it is an offset in the code, not a line.
"""

import asyncio
import contextlib
from pathlib import Path
from sys import _getframe  # pyright: ignore[reportPrivateUsage] - one frame object, not one for each caller
from types import CodeType, FrameType
from typing import TypeAlias

import anyio

# Whose code is passed over, because the line that called it says more; and where the event loop begins.
_OURS = (f"{Path(__file__).parents[1]}/", f"{Path(anyio.__file__).parent}/", contextlib.__file__)
_LOOPS = f"{Path(asyncio.__file__).parent}/"

Noted: TypeAlias = tuple[str | None, CodeType | None, int]  # label, code, offset; the cheapest thing to make


class _IsOurs(dict[str, bool]):
    """True if the code of a file is passed over."""

    def __missing__(self, file: str) -> bool:
        is_ours = self[file] = file.startswith(_OURS)
        return is_ours


_is_ours = _IsOurs()  # grows with the files of a program that call us


def note(label: str | None = None, ours: int = 2) -> Noted:
    """Note the code that calls us now.

    Args:
        label: What its user calls this acquisition; None for nothing.
        ours: How many callers are our own for certain, this one included.
    """
    frame: FrameType | None = _getframe(ours)
    while frame is not None:
        code = frame.f_code
        if not _is_ours[code.co_filename]:
            return label, code, frame.f_lasti
        frame = frame.f_back
    return label, None, 0


def is_user_code(code: CodeType) -> bool:
    """True if this is neither our own code nor an event loop's."""
    return not _is_ours[code.co_filename] and not code.co_filename.startswith(_LOOPS)


def line_of(noted: Noted) -> str | None:
    """`file:line` of the user's code; None if an event loop called us directly."""
    _, code, offset = noted
    if code is None or not is_user_code(code):
        return None
    lines = (line for start, end, line in code.co_lines() if start <= offset < end)
    return f"{code.co_filename}:{next(lines, None) or code.co_firstlineno}"
