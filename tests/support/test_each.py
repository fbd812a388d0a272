"""One case of many values fails with all that fail."""

import pytest

from tests.support.each import each

LOOKED_AT: list[int] = []


@each("number", [1, 2, 3, 4])
def even(number: int, odd_ones: list[int]) -> None:
    """Fails on odd ones, by an assertion or by a call that raises nothing."""
    LOOKED_AT.append(number)
    if number == 3:
        with pytest.raises(ValueError, match="three"):
            odd_ones.append(number)
    assert number % 2 == 0, f"{number} is odd"


def test_all_values_are_looked_at_and_those_that_fail_are_named() -> None:
    """Also where one before has failed; fixtures are those of the test."""
    odd: list[int] = []
    LOOKED_AT.clear()

    with pytest.raises(BaseExceptionGroup, match="2 of 4") as raised:
        even(odd_ones=odd)

    assert [note for error in raised.value.exceptions for note in error.__notes__] == ["number: 1", "number: 3"]
    assert (LOOKED_AT, odd) == ([1, 2, 3, 4], [3])


def test_nothing_to_look_at_is_refused() -> None:
    """A test that is given no file would pass."""
    with pytest.raises(AssertionError, match="there is no file to look at"):
        each("file", [])
