"""Which cases of the tests run: all, or fewer, as the options of `tests/conftest.py` say.

--one-each 2        one case of every second function that is no unit test
--one-fake-each 8   of the cases that run on a real server, too: one on fakeredis, of every eighth function
--each-value        of a function with several parameters each value of each, and not all combinations
--in-turn 3         of a function with several cases a third: another each day, so that three days run all of them

Unit tests are cheap, and each of their cases is run. Scripts that run twice, models, pages, programs, wrong recipes and
what is marked `each_case` take no turns: of these, each case runs each day. Tests that are marked `in_turn` with the
same name take turns with one another.
"""

import zlib
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import Any

import pytest

__all__ = ["chosen", "is_chosen"]

Value = tuple[Any, ...]

_IN_TURN = {"contract", "faults", "integrations", "sql"}


def chosen(items: Sequence[pytest.Item], options: Any) -> list[pytest.Item]:
    """Those of these cases that run, in the same order."""
    first: dict[str, pytest.Item] = {}
    ids = {item.nodeid for item in items}
    for item in items:
        if case := _case(item, ids, options):
            first.setdefault(case, item)
    of_function: defaultdict[tuple[str, bool], list[pytest.Item]] = defaultdict(list)
    for item in first.values():
        is_cheap = "unit" in item.path.parts
        of_function[item.nodeid if is_cheap else _function(item), _is_fake(item)].append(item)
    in_turn: defaultdict[tuple[str, bool], list[pytest.Item]] = defaultdict(list)
    for (function, is_fake), cases in of_function.items():
        mark = cases[0].get_closest_marker("in_turn")
        in_turn[mark.args[0] if mark else function, is_fake] += _with_each_value(cases) if options.each_value else cases
    kept: set[pytest.Item] = set()
    for (name, _), cases in in_turn.items():
        kept.update(_of_the_day(cases, options.in_turn, options.day + zlib.crc32(name.encode())))
    return [item for item in first.values() if item in kept]


def is_chosen(function: str, each: int) -> bool:
    """Whether it is one of each so many: the same in each process, and whatever else is chosen."""
    return zlib.crc32(function.encode()) % each == 0


def _case(item: pytest.Item, ids: Container[str], options: Any) -> str:
    """The same for cases of which the first is enough; empty for those that are left out."""
    parts, function = item.path.parts, _function(item)
    if _is_fake(item) and "in threads" in item.nodeid:  # fakeredis cannot be asked by two event loops at once
        return ""
    if options.one_each and "unit" not in parts:  # there each case is a script or a page of its own
        return function if is_chosen(function, options.one_each) else ""
    is_twin = _is_fake(item) and item.nodeid.replace("fakeredis", "real") in ids
    if options.one_fake_each and is_twin and "stateful" not in parts:  # a model draws other steps on each server
        return f"{function} on fakeredis" if is_chosen(function, options.one_fake_each) else ""
    return item.nodeid


def _of_the_day(cases: Sequence[pytest.Item], days: int | None, day: int) -> Sequence[pytest.Item]:
    """Every third, if these are the days, or one of less than three; on the next day the next."""
    first = cases[0]
    is_whole = any(map(first.get_closest_marker, ("each_case", "twice"))) or _IN_TURN.isdisjoint(first.path.parts)
    if not days or (is_whole and not first.get_closest_marker("in_turn")):
        return cases
    days = min(days, len(cases))
    return cases[day % days :: days]


def _with_each_value(cases: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Cases in which each value of each parameter occurs; each time the one with the most that are new."""
    left: list[tuple[pytest.Item, set[Value]]] = [(case, _values(case)) for case in cases]
    while left:
        best, new = max(left, key=_how_many)
        yield best
        left = [(case, values - new) for case, values in left if values - new]


def _how_many(case: tuple[pytest.Item, set[Value]]) -> int:
    return len(case[1])


def _values(item: pytest.Item) -> set[Value]:
    """The parameters of a case, with their values; of those that are listed together, together."""
    callspec = getattr(item, "callspec", None)
    left: dict[str, Any] = {} if callspec is None else dict(callspec.params)
    together = [mark.args[0] for mark in item.iter_markers("parametrize")]
    listed = [names.split(",") if isinstance(names, str) else names for names in together]
    values: set[Value] = {()}  # also of a case without parameters
    for names in listed:
        values.add(tuple((name.strip(), id(left.pop(name.strip()))) for name in names))
    return values | {(name, id(value)) for name, value in left.items()}


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _is_fake(item: pytest.Item) -> bool:
    return "fakeredis" in item.nodeid
