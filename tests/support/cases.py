"""Which cases of the tests run: all, or fewer, as the options of `tests/conftest.py` say.

--one-each 2        one case of every second function that is no unit test
--one-fake-each 8   of the cases that run on a real server, too: one on fakeredis, of every eighth function
--each-value        of a function with several parameters each value of each, and not all combinations
"""

import zlib
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import Any

import pytest

__all__ = ["chosen", "is_chosen"]

Value = tuple[Any, ...]


def chosen(items: Sequence[pytest.Item], options: Any) -> list[pytest.Item]:
    """Those of these cases that run, in the same order."""
    first: dict[str, pytest.Item] = {}
    ids = {item.nodeid for item in items}
    for item in items:
        if case := _case(item, ids, options):
            first.setdefault(case, item)
    if not options.each_value:
        return list(first.values())
    of_function: defaultdict[tuple[str, bool], list[pytest.Item]] = defaultdict(list)
    for item in first.values():
        is_cheap = "unit" in item.path.parts
        of_function[item.nodeid if is_cheap else _function(item), _is_fake(item)].append(item)
    kept = {item for cases in of_function.values() for item in _with_each_value(cases)}
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
