"""Finds the coordinator that a user means by `module:attr`."""

import importlib
import sys
import traceback
from pathlib import Path

from inconcert.coordinator import Coordinator

__all__ = ["BadTarget", "load"]


class BadTarget(Exception):
    """A target is not a coordinator; the message says what was found instead."""


def load(target: str) -> Coordinator:
    """Import a coordinator; modules in the current directory are found first.

    Args:
        target: "shop.app:concert", or "shop.app:services.concert".

    Raises:
        BadTarget: `target` does not name a coordinator, or its module cannot be imported.
    """
    module, colon, path = target.partition(":")
    if not (module and colon and path):
        raise BadTarget(f"{target!r} is not a coordinator; give module:attr, for example shop.app:concert")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _import(module)
    for name in path.split("."):
        if not hasattr(found, name):
            raise BadTarget(f"module {module!r} has no {path!r}; give the name of its Coordinator")
        found = getattr(found, name)
    if not isinstance(found, Coordinator):
        raise BadTarget(f"{target!r} is an object of type {type(found).__name__!r}; give the name of a Coordinator")
    return found


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):  # a module that it imports is missing
            raise _broken(module, error) from error
        raise BadTarget(f"module {error.name!r} was found neither here nor among the installed ones") from error
    except Exception as error:
        raise _broken(module, error) from error


def _broken(module: str, error: Exception) -> BadTarget:
    """An error with the traceback of the user's code, without ours."""
    frames = traceback.TracebackException.from_exception(error)
    ours = 0
    while ours < len(frames.stack) and (
        frames.stack[ours].filename == __file__ or "importlib" in frames.stack[ours].filename
    ):
        ours += 1
    del frames.stack[:ours]
    return BadTarget(f"module {module!r} cannot be imported\n{''.join(frames.format())}".rstrip())
