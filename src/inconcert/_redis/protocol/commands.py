"""Commands as the bytes that the server reads."""

from collections.abc import Callable
from typing import cast

import hiredis

Argument = str | bytes | int | float

# The type hint of `hiredis` allows for one argument only.
pack_parts = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)
"""One command from its parts, its name first."""


def pack(*parts: Argument) -> bytes:
    """One command, its name first."""
    return pack_parts(parts)
