"""Reading replies by names."""

from typing import NamedTuple

import pytest

from inconcert._redis.protocol.replies import head, rows


class Pair(NamedTuple):
    """What one row has."""

    id: bytes
    place: int


def test_rows_are_read_by_the_fields_of_their_type() -> None:
    """A flat reply is cut into as many fields as the type has."""
    assert rows([b"a", 1, b"b", 2], Pair) == [Pair(b"a", 1), Pair(b"b", 2)]
    assert rows([], Pair) == []


def test_row_that_lacks_a_field_is_refused() -> None:
    """A script and its row type that disagree are seen at once."""
    with pytest.raises(ValueError, match="argument"):
        rows([b"a", 1, b"b"], Pair)


def test_head_is_what_comes_before_a_rest_of_any_length() -> None:
    """The fields of its type; the rest may be empty."""
    assert head([b"a", 1, b"x", b"y"], Pair) == (Pair(b"a", 1), [b"x", b"y"])
    assert head([b"a", 1], Pair) == (Pair(b"a", 1), [])


def test_head_that_lacks_a_field_is_refused() -> None:
    """A script and its type that disagree are seen at once."""
    with pytest.raises(TypeError):
        head([b"a"], Pair)
