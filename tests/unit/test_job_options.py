"""The options of jobs: written once, and checked by name."""

import dataclasses
import typing
from datetime import UTC, datetime
from typing import Any

import pytest

from inconcert import InvalidName, JobOptions
from inconcert.tasks.sending.options import Options


def test_each_option_has_a_value_of_its_own_when_none_is_given() -> None:
    """What users may give and what a job is run by have the same names in order, but a deadline, and four more."""
    names = [field.name for field in dataclasses.fields(Options)]
    kept = ["stops" if name == "deadline" else name for name in typing.get_type_hints(JobOptions)]
    assert [*kept, "history", "history_arguments", "on_dead", "given"] == names


def test_option_that_says_nothing_new_is_not_stored() -> None:
    """Each job would have it: also a delay of 0 that was worked out, which is another object than the default."""
    assert Options().terms == b"}"
    assert Options().changed(queue="q", delay=0, unique=None, unique_for=0.0, at=None, headers={}).terms == b"}"
    assert Options().changed(delay=1.5, even_if="ended").terms == b',"even_if":"ended","delay":1.5}'


def test_unknown_option_is_refused_by_name() -> None:
    """A misspelt option names those that there are."""
    options: dict[str, Any] = {"dealy": 5}

    with pytest.raises(
        TypeError, match=r"no option 'dealy'; its options are queue, delay, .*, after, even_if, id, headers$"
    ):
        Options().changed(**options)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("queue", "", InvalidName),
        ("delay", -1, ValueError),
        ("at", datetime(2026, 12, 24), ValueError),  # noqa: DTZ001 - naive
        ("at", 60.0, ValueError),
        ("at", "2026-12-24T00:00:00Z", ValueError),
        ("max_attempts", 0, ValueError),
        ("max_attempts", True, ValueError),
        ("result_ttl", None, ValueError),
        ("expires", "soon", ValueError),
        ("time_limit", 0, ValueError),
        ("unique", "x" * 513, InvalidName),
        ("unique_until", "ended", ValueError),
        ("unique_until", ["done"], ValueError),
        ("unique_for", float("nan"), ValueError),
        ("id", "a.b", InvalidName),
        ("priority", 10, ValueError),
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


AT = datetime(2026, 12, 24, tzinfo=UTC)


@pytest.mark.parametrize("options", [{"at": AT, "delay": 5}, {"at": AT, "delay": 0}, {"at": AT, "after": ["id"]}])
def test_instant_comes_alone(options: dict[str, Any]) -> None:
    """It is in place of a delay, and nobody knows when others will have ended."""
    with pytest.raises(ValueError, match="both at= and"):
        Options().changed(**options)
    with pytest.raises(ValueError, match="both at= and after="):
        Options().changed(at=AT).changed(after=["id"])


def test_later_one_of_delay_and_instant_is_in_force() -> None:
    """The options of a call replace those of the task; None takes an instant back."""
    instant = Options().changed(at=AT)
    assert Options(delay=5).changed(at=AT) == instant
    assert instant.changed(delay=5) == Options(delay=5)
    assert instant.changed(at=None) == Options()
    assert Options(delay=5).changed(at=None) == Options(delay=5)


def test_options_that_are_not_given_stay() -> None:
    """Each option that is given replaces one, and nothing else."""
    assert Options(queue="high", delay=5).changed(delay=0, unique=None) == Options(queue="high")
