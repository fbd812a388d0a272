"""The life of a job is one table, and no script moves a job otherwise."""

import re
from pathlib import Path
from typing import get_args

import pytest

from inconcert._claims.claimed import Verdict
from inconcert._redis.protocol.scripts import load
from inconcert.tasks.records.life import LIFE
from tests.support.lua_files import FILES, FORMS, file_of, title
from tests.support.moves import declared

PAGE = Path(__file__).parents[2] / "docs/contributing/job-keys.md"

OF_JOBS = ("claims/", "queues/", "schedules/", "tasks/")
_MOVING = re.compile(  # a job enters or leaves one of its states
    r"redis\.call\((?:\w+(?: == '1')? and |push or )?'(?:[LR]PUSH|LPOP|LREM|LTRIM|ZADD|ZREM|HDEL|HSET|HSETNX)'.*?, "
    r"(?:(?:keys\.)?(?:queue|delayed|dead|claimed)|queues\[\w+\]|KEYS\[(?:\w+|\w+\[\w+\])(?: \+ 2)?\]),"
    r"|'waiting ' \.\. delay_ms"
)
NOT_A_MOVE = {
    "claims/heartbeat": "it opens and closes the claims of a worker, which are empty",
}


def moving_scripts() -> set[str]:
    """Those whose code, with all that it includes, writes where jobs are."""
    forms = [form for form in FORMS if form.startswith(OF_JOBS)]
    return {file_of(form) for form in forms if _MOVING.search(load(form).source)} - NOT_A_MOVE.keys()


def test_each_script_that_moves_jobs_says_so() -> None:
    """And no other does."""
    assert moving_scripts() == {title(path) for path in FILES if declared(title(path))}


@pytest.mark.parametrize("script", sorted(moving_scripts()))
def test_each_move_is_in_the_table(script: str) -> None:
    """By the state from which it takes the job, and its verdict."""
    rows = {(state, verdict) for state, row in LIFE.items() for verdict in row}
    assert set(declared(script)) <= rows


def test_each_row_is_done_by_some_script() -> None:
    """The table has none that is only thought of."""
    done = {move for path in FILES for move in declared(title(path))}
    assert {(state, verdict) for state, row in LIFE.items() for verdict in row} == done


def test_verdicts_of_workers_are_in_the_table() -> None:
    """Each that a worker may send."""
    assert set(get_args(Verdict)) <= LIFE["claimed"].keys()


def test_page_shows_the_table() -> None:
    """With the scripts that do each row."""
    by_scripts: dict[tuple[str, str], list[str]] = {}
    for path in FILES:
        for move in declared(title(path)):
            by_scripts.setdefault(move, []).append(f"`{title(path)}`")
    rows = [
        f"| {state} | `{verdict}` | {then} | {', '.join(sorted(by_scripts[state, verdict]))} |"
        for state, row in LIFE.items()
        for verdict, then in row.items()
    ]
    text = PAGE.read_text("utf-8")
    assert [row for row in rows if row not in text] == []
    assert len(re.findall(r"^\| (?:new|queue|delayed|waiting|claimed|dead|gone) \|", text, re.MULTILINE)) == len(rows)
