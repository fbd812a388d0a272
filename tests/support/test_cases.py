"""The choice of cases: fewer of them, and none left out without a reason."""

from types import SimpleNamespace

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
    given = {"one_each": None, "one_fake_each": None, "each_value": False}

    assert {item.name for item in chosen(items, SimpleNamespace(**given))} == {item.name for item in items}
    assert {item.name for item in chosen(items, SimpleNamespace(**given | options))} == set(names)
