"""Values on their way to and from Redis: JSON, exactly, and not too large."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from inconcert.errors import InvalidPayload

__all__ = ["JSON", "decode", "encode"]

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]

_SCALARS = (str, int, type(None))  # bool is an int
_LARGEST = 2**20  # bytes; a larger thing belongs into a store of its own, with its address as the payload


def encode(what: str, value: JSON, *, inside: msgspec.Struct | None = None) -> bytes:
    """The value as JSON.

    Args:
        what: What the value is for, as the error names it, such as `message to chat 'c1'`.
        value: None, booleans, numbers, strings, and lists and dictionaries of these; a tuple arrives as a list.
        inside: A record of ours that holds the value, to be encoded with it.

    Raises:
        InvalidPayload: It holds something else, or is larger than 1 MiB.
    """
    try:
        _check(value)
        text = msgspec.json.encode(value if inside is None else inside)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidPayload(f"{what} cannot be sent as JSON: {error}") from error
    if len(text) > _LARGEST:
        raise InvalidPayload(
            f"{what} has {len(text)} bytes as JSON; send at most {_LARGEST}, or its address in a store"
        )
    return text


def decode(text: bytes | str) -> JSON:
    """The value that was encoded."""
    value: JSON = msgspec.json.decode(text)
    return value


def _check(value: object) -> None:
    """Refuse what the encoder would change: it writes NaN as null, bytes as base64 text, and keys as strings."""
    if isinstance(value, _SCALARS):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no {value!r}")
    elif isinstance(value, list | tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            _check(item)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, dict):
        for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is no string")
            _check(item)  # pyright: ignore[reportUnknownArgumentType]
    else:
        raise TypeError(f"JSON has no {type(value).__name__}")
