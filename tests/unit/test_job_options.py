"""The options of jobs: written once, and checked by name."""

import dataclasses
import typing
from typing import Any

import pytest

from inconcert import InvalidName, JobOptions
from inconcert.tasks.options import Options


def test_each_option_has_a_value_of_its_own_when_none_is_given() -> None:
    """What users may give, and what a job is run by, have the same names in the same order."""
    assert list(typing.get_type_hints(JobOptions)) == [field.name for field in dataclasses.fields(Options)]


def test_unknown_option_is_refused_by_name() -> None:
    """A misspelt option names those that there are."""
    options: dict[str, Any] = {"dealy": 5}

    with pytest.raises(
        TypeError, match=r"no option 'dealy'; its options are queue, delay, .*, after, even_if, headers$"
    ):
        Options().changed(**options)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("queue", "", InvalidName),
        ("delay", -1, ValueError),
        ("max_attempts", 0, ValueError),
        ("max_attempts", True, ValueError),
        ("result_ttl", None, ValueError),
        ("expires", "soon", ValueError),
        ("time_limit", 0, ValueError),
        ("unique", "x" * 513, InvalidName),
        ("unique_until", "ended", ValueError),
        ("unique_until", ["done"], ValueError),
        ("unique_for", float("nan"), ValueError),
        ("after", "id", TypeError),
        ("after", [7], InvalidName),
        ("after", ["an id"], InvalidName),
        ("after", ["id"] * 101, ValueError),
    ],
)
def test_bad_option_is_refused_by_name(option: str, value: object, error: type[Exception]) -> None:
    """The error says which option it is."""
    options: dict[str, Any] = {option: value}

    with pytest.raises(error, match=rf"\b{option}\b"):
        Options().changed(**options)


def test_options_that_are_not_given_stay() -> None:
    """Each option that is given replaces one, and nothing else."""
    assert Options(queue="high", delay=5).changed(delay=0, unique=None) == Options(queue="high")
