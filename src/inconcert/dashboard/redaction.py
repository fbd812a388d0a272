"""Redaction: the part of a secret that a dashboard shows."""

from collections.abc import Callable
from typing import Literal, TypeAlias

Part: TypeAlias = Literal[
    "queue",
    "task",
    "host",
    "lock",
    "schedule",
    "label",
    "line",
    "arguments",
    "step",
    "item",
    "user",
    "result",
    "progress",
    "error",
    "traceback",
    "reason",
    "header",
]
"""What a text is, for `Redact`.

A `lock` is the name of whatever is held or waited for, also the id of an item, and of queues of items, mailboxes,
chats, rate limiters and signals, which are not looked up if it is not shown as it is; a `schedule` its id, which may
name a task; a `step` the name or the function of a step, whose value is a `result`; an `item` a value of a stream or of
a queue; a `user` one of a chat; a `header` one of a job, `NAME: VALUE`; a `reason` says why a job waits, or where it
runs, and may name any of these.
"""

Redact: TypeAlias = Callable[[Part, str], str]
"""Gives the text to show instead of another: `arguments`, `result` and `item` are JSON."""


def show_all(part: Part, text: str) -> str:
    """Redacts nothing."""
    del part
    return text
