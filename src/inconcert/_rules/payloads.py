"""Values to and from Redis: JSON that decodes to the same value, of limited size."""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from inconcert.errors import InvalidPayload

JSON = None | bool | int | float | str | Sequence["JSON"] | Mapping[str, "JSON"]

PLAIN_TYPES = frozenset({str, int, bool, float, type(None)})
"""The types whose values arrive equal to what was sent, of the same type, but for NaN and the infinities."""

_SCALARS = PLAIN_TYPES - {float}
_LISTS = list, tuple
_DEEPEST = 100  # nested lists and dictionaries; a decoder needs a stack frame for each
_LARGEST = 2**20  # bytes; keep larger things in a store of their own, and send their address


def encode(what: str, value: JSON, *, inside: msgspec.Struct | None = None) -> bytes:
    """Encode the value as JSON.

    Args:
        what: What the value is for, as the error names it, such as `message to chat 'c1'`.
        value: None, booleans, numbers, strings, and lists and dictionaries of these; a tuple arrives as a list.
        inside: A record that contains the value, encoded in its place.

    Raises:
        InvalidPayload: The value holds something else, is nested more than 100 levels deep, or exceeds 1 MiB.
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
    """Decode a value that `encode` encoded.

    Raises:
        ValueError: `text` is not JSON, or is nested too deeply to be read here: `encode` did not write it.
    """
    try:
        value: JSON = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ValueError(f"this is not a JSON value, or nested too deeply: {error}") from error
    return value


def _check(value: object) -> None:
    """Refuse what the encoder would change: it writes NaN as null, bytes as base64 text, and keys as strings.

    Also refuse values nested so deeply that a reader already deep in its stack could not decode them.
    """
    level: list[object] = [value]
    for _ in range(_DEEPEST + 1):
        inside: list[object] = []
        for each in level:
            if type(each) not in _SCALARS:  # as most values are, so they are passed over first
                inside += _inside(each)
        if not inside:
            return
        if len(inside) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} values")
        level = inside
    raise ValueError(f"it is nested more than {_DEEPEST} levels deep")


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, _LISTS):
        return value  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        for key in value:  # pyright: ignore[reportUnknownVariableType]
            if not isinstance(key, str):
                raise TypeError(f"the key {key!r} is not a string")
        return value.values()  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"JSON has no {value!r}")
    elif not isinstance(value, str | int):  # as an enum may be
        raise TypeError(f"JSON has no {type(value).__name__}")
    return ()
