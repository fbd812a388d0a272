"""Commands as the bytes that the server reads."""

from typing import Any, cast

import hiredis

__all__ = ["Argument", "pack"]

Argument = str | bytes | int | float

_pack = cast("Any", hiredis.pack_command)  # its type hint allows for one argument only


def pack(*parts: Argument) -> bytes:
    """One command, its name first."""
    packed: bytes = _pack(parts)
    return packed
