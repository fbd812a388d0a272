"""Functions that users give: what they are called in all processes that import them, and whether they are functions."""

import sys
from collections.abc import Callable
from pathlib import Path


def check_function(what: str, function: object, example: str) -> None:
    """Raise TypeError unless this can be called."""
    if not callable(function):
        raise TypeError(
            f"{what} is to run {function!r}, which is not a function; give a name, a function and its "
            f"arguments: {example}"
        )


def name_of(function: Callable[..., object]) -> str:
    """Its module and qualified name; for a script run directly, the module name under which others import it."""
    return f"{_module_of(function)}.{function.__qualname__}"


def _module_of(function: Callable[..., object]) -> str:
    name = function.__module__
    if name not in {"__main__", "__mp_main__"}:  # the second in a child of multiprocessing
        return name
    script = sys.modules[name]
    if script.__spec__ is not None:  # python -m
        return script.__spec__.name
    path: str | None = getattr(script, "__file__", None)
    return name if path is None else Path(path).stem  # a shell and a notebook have no file
