"""Scripts whose name a test has as text."""

from typing import Any

from inconcert._redis.scripts import Command, load

__all__ = ["command_of"]


def command_of(name: str, /, *bundles: object, **named: Any) -> Command:
    """This script, bound to these bundles of keys, with its other keys and arguments."""
    return load(name).bind(*map(type, bundles))(*bundles, **named)
