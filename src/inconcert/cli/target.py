"""Finds the coordinator, or the outbox, that a user means by `module:attr`."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from inconcert.cli.ends import refuse

Target = Annotated[
    str, typer.Argument(metavar="MODULE:ATTR", help="Location of the Coordinator, for example shop.app:concert.")
]


T = TypeVar("T")


class _BadTarget(Exception):
    """A target is not what the command needs; the message says what was found instead."""


def load_or_refuse(target: str, kind: type[T], example: str = "shop.app:concert") -> T:
    """The object of this type at `module:attr`; if there is none, the command ends and says why."""
    try:
        return _load(target, kind, example)
    except _BadTarget as error:
        refuse(str(error))


def names_in(queues: str) -> list[str]:
    """The names in "mail, default"."""
    return [name.strip() for name in queues.split(",")]


def _load(target: str, kind: type[T], example: str) -> T:
    """Import it; modules in the current directory are found first.

    Raises:
        _BadTarget: `target` does not name an object of this type, or its module cannot be imported.
    """
    module, colon, path = target.partition(":")
    if not (module and colon and path):
        raise _BadTarget(f"{target!r} does not name an object of a module; give module:attr, for example {example}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found: object = _import(module)
    for name in path.split("."):
        if not hasattr(found, name):
            raise _BadTarget(f"module {module!r} has no {path!r}; give the name of its {kind.__name__}")
        found = getattr(found, name)
    if not isinstance(found, kind):
        raise _BadTarget(
            f"{target!r} is an object of type {type(found).__name__!r}; give the name of the module's {kind.__name__}"
        )
    return found


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):  # a module that it imports is missing
            raise _broken(module, error) from error
        raise _BadTarget(f"module {error.name!r} was found neither here nor among the installed ones") from error
    except Exception as error:
        raise _broken(module, error) from error


def _broken(module: str, error: Exception) -> _BadTarget:
    """An error with the traceback of the user's code, without ours."""
    frames = traceback.TracebackException.from_exception(error)
    ours = 0
    while ours < len(frames.stack) and (
        frames.stack[ours].filename == __file__ or "importlib" in frames.stack[ours].filename
    ):
        ours += 1
    del frames.stack[:ours]
    return _BadTarget(f"module {module!r} cannot be imported\n{''.join(frames.format())}".rstrip())


def address_in(option: str, text: str, *, lowest_port: int = 1) -> tuple[str, int]:
    """The host and port in `127.0.0.1:8081`, `[::1]:8081`, or `:8081`, which is any address of the machine.

    Where port 0 is allowed, it stands for any that is free.

    Raises:
        ValueError: It is neither of these.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not port.isdecimal() or not lowest_port <= int(port) < 2**16:
        raise ValueError(f"the address of {option} is {text!r}; give HOST:PORT, for example 127.0.0.1:8081")
    return host or "0.0.0.0", int(port)  # noqa: S104 - asked for
