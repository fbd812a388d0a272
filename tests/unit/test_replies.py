"""Reading replies that have rows."""

from typing import NamedTuple

import pytest

from inconcert._redis.replies import rows


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
