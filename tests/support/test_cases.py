"""The choice of cases: fewer of them, and none left out without a reason."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.cases import chosen

SOURCE = """
import pytest

@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("server", ["real", "fakeredis"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_much(left, right, server, moment): ...

def test_once(): ...
"""
ON_REAL = ["test_much[before-real-1-1]", "test_much[after-real-1-2]", "test_much[before-real-2-2]"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"one_each": 1}, ["test_much[before-real-1-1]", "test_once"]),
        ({"one_each": 10**9}, []),
        ({"one_fake_each": 10**9, "each_value": True}, [*ON_REAL, "test_once"]),
        ({"one_fake_each": 1, "each_value": True}, [*ON_REAL, "test_much[before-fakeredis-1-1]", "test_once"]),
    ],
)
def test_cases_are_chosen(options: dict[str, int], names: list[str], pytester: pytest.Pytester) -> None:
    """One, or so many that each value is in one; values that are listed together stay together."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    items = pytester.getitems(SOURCE)
    given = {"one_each": None, "one_fake_each": None, "each_value": False, "in_turn": None, "day": 0}

    assert {item.name for item in chosen(items, SimpleNamespace(**given))} == {item.name for item in items}
    assert {item.name for item in chosen(items, SimpleNamespace(**given | options))} == set(names)


IN_TURN = """
import pytest

@pytest.mark.parametrize("number", range(7))
def test_seven(number): ...

@pytest.mark.parametrize("number", range(2))
def test_two(number): ...

@pytest.mark.each_case
@pytest.mark.parametrize("number", range(2))
def test_whole(number): ...

@pytest.mark.parametrize("number", [pytest.param(number, marks=pytest.mark.twice("a/b")) for number in range(2)])
def test_twice(number): ...

@pytest.mark.in_turn("demo")
def test_demo(): ...

@pytest.mark.in_turn("demo")
@pytest.mark.parametrize("number", range(2))
def test_other_demo(number): ...
"""
WHOLE = {"test_whole[0]", "test_whole[1]", "test_twice[0]", "test_twice[1]"}


@pytest.mark.parametrize("folder", ["faults", "stateful"])
def test_cases_take_turns(folder: str, pytester: pytest.Pytester) -> None:
    """Each day some of each function, in three days all of them; all each day of what is whole."""
    pytester.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n  each_case\n  in_turn\n  twice"
    )
    pytester.mkdir(folder)
    pytester.path.joinpath(folder, "test_in_turn.py").write_text(IN_TURN)
    items, _ = cast("Any", pytester).inline_genitems(folder)
    every = {item.name for item in items}
    given = {"one_each": None, "one_fake_each": None, "each_value": False, "in_turn": 3}
    days = [{item.name for item in chosen(items, SimpleNamespace(**given, day=day))} for day in range(3)]

    assert {name for day in days for name in day} == every
    assert [sum("demo" in name for name in day) for day in days] == [1, 1, 1]
    assert all(day >= WHOLE for day in days)
    if folder == "stateful":
        assert all(len(day) == len(every) - 2 for day in days)
        return
    assert all(len(day & {"test_two[0]", "test_two[1]"}) == 1 for day in days)
    assert sorted(len(day) for day in days) == [8, 8, 9]
