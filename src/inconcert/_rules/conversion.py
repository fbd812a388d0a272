"""Converts values of one type to JSON and back; dataclasses, dates and other types as msgspec encodes them.

What arrives equals what was given, or it is refused before anything is sent: each value is passed through its decoder
first, and the result is compared.
"""

import reprlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast, get_origin

import msgspec

from inconcert._rules.json_types import json_type, unreadable_class
from inconcert._rules.payloads import JSON, PLAIN_TYPES, decode
from inconcert.errors import InvalidPayload, UnreadablePayload

_REFUSALS = (
    msgspec.MsgspecError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)  # also by a model's own methods


class Converter:
    """The conversion of one value to JSON and back.

    Args:
        what: What the value is, as errors name it, such as `argument 'at' of task 'sell'`.
        value_type: Its type; `Any` and `object` stand for JSON values, which stay as they are, also inside a type.

    Raises:
        TypeError: JSON cannot represent this type.
    """

    __slots__ = ("_decoder", "_type", "_what")

    def __init__(self, what: str, value_type: Any) -> None:  # noqa: ANN401 - also unions and the like
        self._what = what
        self._type = value_type
        self._decoder: msgspec.json.Decoder[Any] | None = None
        try:
            read_as = json_type(value_type)
            if read_as is not Any:
                self._decoder = msgspec.json.Decoder(read_as, dec_hook=_load)
        except (TypeError, ValueError, NameError) as error:
            raise TypeError(f"{what} cannot be converted to JSON and back: {error}") from error

    def check(self) -> None:
        """Raise TypeError unless values of the type can be sent."""
        unreadable = None if self._decoder is None else unreadable_class(self._decoder.type)
        if unreadable is not None:
            name = _name(unreadable)
            is_all = name == getattr(get_origin(self._type) or self._type, "__name__", None)
            holds = f"its type is {name}" if is_all else f"{self._type_name} holds {name}"
            raise TypeError(
                f"{self._what} cannot be converted to JSON and back: {holds}; send values that it can be built from"
            )

    def to_json(self, value: object) -> JSON:
        """The value as JSON; one that may be any JSON is not checked.

        Raises:
            InvalidPayload: It cannot be sent, or would arrive changed.
        """
        if self._decoder is None:
            return cast("JSON", value)  # unchanged: the encoder would turn bytes, dates and dataclasses into JSON
        try:
            text = msgspec.json.encode(value, enc_hook=json_form)
        except _REFUSALS as error:
            raise InvalidPayload(f"{self._what} cannot be sent as JSON: {error}") from error
        try:
            arrives = self._decoder.decode(text)
            nothing_is_lost = _is_same(value, arrives)
        except _REFUSALS as error:
            raise InvalidPayload(self._misfit(error)) from error
        if not nothing_is_lost:
            raise InvalidPayload(
                f"{self._what} would arrive as {reprlib.repr(arrives)}, but is {reprlib.repr(value)}; "
                f"give exactly {self._type_name}, or change that type"
            )
        return cast("JSON", value if type(value) in PLAIN_TYPES else msgspec.json.decode(text))

    def from_json(self, value: JSON) -> Any:  # noqa: ANN401 - of the type, which only the caller knows
        """A value that was sent, as its type; raises `UnreadablePayload` if it does not fit the type."""
        if self._decoder is None or (type(value) is self._type and self._type in PLAIN_TYPES):
            return value
        try:
            text = msgspec.json.encode(value)
        except _REFUSALS as error:
            raise UnreadablePayload(self._misfit(error)) from error
        return self.read(text)

    def read(self, text: bytes) -> Any:  # noqa: ANN401 - likewise
        """A value that was sent, from its text.

        Raises:
            UnreadablePayload: It does not fit the type.
            ValueError: It is not JSON, or nested too deeply.
        """
        if self._decoder is None:
            return decode(text)
        try:
            return self._decoder.decode(text)
        except Exception as error:  # a model's own methods may raise anything
            decode(text)
            raise UnreadablePayload(self._misfit(error)) from error

    def _misfit(self, error: Exception) -> str:
        return f"{self._what} does not fit {self._type_name}: {error}"

    @property
    def _type_name(self) -> str:
        return self._type.__qualname__ if isinstance(self._type, type) else str(self._type)


# A pydantic model is recognised by its methods, so that pydantic need not be installed.


def json_form(value: object) -> object:
    """Convert a value that the encoder does not know to one that it knows."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"JSON has no {_name(type(value))}")
    return dump(mode="json", by_alias=True, round_trip=True)


def _name(of: type) -> str:
    """The name of a class in errors; a part that users do not know says as what they know it."""
    return str(getattr(of, "__known_as__", of.__name__))


def _load(value_type: type, value: object) -> object:
    """Build a value that the decoder does not know from one that it knows."""
    if value_type is object:  # in a field of a class; elsewhere `json_type` has replaced it
        return value
    validate = getattr(value_type, "model_validate_json", None)
    if validate is None:
        raise TypeError(f"JSON has no {value_type}")
    return validate(
        msgspec.json.encode(value)
    )  # not model_validate: a strict model would want a datetime, not its text


def _is_same(given: object, arrives: object) -> bool:
    """True if nothing was lost.

    Not `==` alone: in the hour that a time zone repeats, a datetime does not equal one of another zone, and objects of
    a class without `__eq__` are never equal.
    """
    if given == arrives:
        return True
    if type(given) is not type(arrives):
        return False
    if isinstance(given, datetime) and isinstance(arrives, datetime):
        both_have_zones = given.tzinfo is not None and arrives.tzinfo is not None
        return both_have_zones and given - arrives == timedelta()
    if isinstance(given, list | tuple):
        pair = cast("Sequence[object]", given), cast("Sequence[object]", arrives)
        return len(pair[0]) == len(pair[1]) and all(map(_is_same, *pair))
    if isinstance(given, dict):
        one, other = cast("dict[object, object]", given), cast("dict[object, object]", arrives)
        return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
    state = _state(given)
    return bool(state) and _is_same(state, _state(arrives))


def _state(thing: object) -> object:
    return vars(thing) if hasattr(thing, "__dict__") else thing.__getstate__()
