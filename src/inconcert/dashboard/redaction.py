"""What a dashboard shows of what may be secret."""

from collections.abc import Callable
from typing import Literal, TypeAlias

__all__ = ["Part", "Redact", "show_all"]

Part: TypeAlias = Literal[
    "queue", "task", "host", "lock", "label", "line", "arguments", "result", "progress", "error", "traceback"
]
"""What a text is, for `Redact`; a `lock` is the name of whatever is held or waited for."""

Redact: TypeAlias = Callable[[Part, str], str]
"""Gives the text to show instead of another: `arguments` and `result` are JSON."""


def show_all(part: Part, text: str) -> str:
    """Redacts nothing."""
    del part
    return text
