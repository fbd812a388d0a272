"""Printed answers: a table for people, or JSON for programs."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Literal

from rich.table import Table

from inconcert._rules.durations import in_words
from inconcert.cli.output import console, json_text, printable, say

_LONGEST_CALL = 60  # characters
_COPIED = {"id", "job", "schedule"}  # columns of ids, which are copied from the terminal, so they are never broken


def print_json(answer: object) -> None:
    """Print it as one JSON document; a dataclass becomes an object."""
    say(json_text(json.dumps(answer, default=_plain, indent=2, ensure_ascii=False)))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print rows under the names of their columns: numbers to the right, None as an empty cell."""
    rows = list(rows)
    if not rows:
        say(empty)
        return
    console().print(table_of(columns, rows))


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """The rows under the names of their columns, as `print_table` prints them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, name in enumerate(columns):
        is_number = all(row[column] is None or isinstance(row[column], int | float) for row in rows)
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(printable(name), justify=justify, overflow="fold", no_wrap=name in _COPIED)
    for row in rows:
        table.add_row(*("" if value is None else _cell(value) for value in row))
    return table


def seconds(duration: float | None) -> str | None:
    """A duration for people, such as `12 s`."""
    return None if duration is None else in_words(duration)


def ago(moment: float | None) -> str | None:
    """Say how long ago a Unix time is, by this machine's clock."""
    return None if moment is None else seconds(max(0.0, time.time() - moment))


def call(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """The arguments of a job, as JSON that may be cut off."""
    return json.dumps([*args, *([kwargs] if kwargs else [])], ensure_ascii=False)[:_LONGEST_CALL]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
