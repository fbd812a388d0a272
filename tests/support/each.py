"""One case for many files: a case of its own for each costs ten times what such a test does."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar

import pytest

__all__ = ["each"]

Value = TypeVar("Value")


def each(
    name: str, values: Collection[Value], *, ids: Callable[[Value], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `parametrize`, but as one case, which looks at all values and fails with all that fail.

    Args:
        name: The argument of the test that gets the value; its other arguments are fixtures.
        values: At least one.
        ids: The text by which a value is named.
    """
    assert values, f"there is no {name} to look at"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def whole(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for value in values:
                try:
                    test(**{name: value}, **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below, with the others
                    error.add_note(f"{name}: {ids(value)}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(values)}", failed)

        fixtures = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        whole.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined] # pytest reads it
        return whole

    return decorate
