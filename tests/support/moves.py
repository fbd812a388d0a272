"""The moves of jobs that scripts declare: `-- MOVES  claimed: done cancelled; delayed: admitted`."""

import re

from inconcert.tasks.records.life import LIFE
from tests.support.ledger import Ledger
from tests.support.lua_files import file_of, text_of

__all__ = ["declared", "moves", "moves_between", "states"]


def declared(script: str) -> list[tuple[str, str]]:
    """The states from which a script moves jobs, each with a verdict."""
    lines = re.findall(r"^-- MOVES +(.*)", text_of(file_of(script)), re.MULTILINE)
    parts = [part.split(":") for line in lines for part in line.split(";")]
    return [(state.strip(), verdict) for state, verdicts in parts for verdict in verdicts.split()]


def moves(script: str) -> set[tuple[str, str]]:
    """From where to where it moves jobs."""
    table: dict[str, dict[str, str]] = {state: dict(row) for state, row in LIFE.items()}
    return {(state, table[state][verdict]) for state, verdict in declared(script)}


def states(ledger: Ledger) -> dict[str, str]:
    """Where each job is, in the words of the table."""
    found = dict.fromkeys(ledger.dead, "dead") | dict.fromkeys(ledger.waiting, "waiting")
    for name, part in (("queue", ledger.ready), ("delayed", ledger.delayed), ("claimed", ledger.claimed)):
        found |= {job: name for jobs in part.values() for job in jobs}
    return found


def moves_between(before: Ledger, after: Ledger) -> set[tuple[str, str]]:
    """From where to where jobs have gone; one that has come was new, or had been gone."""
    were, are = states(before), states(after)
    jobs = were.keys() | are.keys()
    return {(were.get(job, "new"), are.get(job, "gone")) for job in jobs if were.get(job) != are.get(job)}
