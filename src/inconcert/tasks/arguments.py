"""Converts the arguments and results of tasks to JSON and back, by the annotations of their functions.

What arrives equals what was given, or it is refused before anything is sent: each value is passed through its decoder
first, and the result is compared.
"""

import inspect
import reprlib
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any, TypeVar, cast

import msgspec

from inconcert._rules.payloads import JSON, encode
from inconcert.errors import InvalidPayload

__all__ = ["Arguments", "decode_result", "encode_result"]

T = TypeVar("T")

_REFUSALS = (
    msgspec.MsgspecError,
    TypeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)  # also by a model's own methods
_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_NAMED = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


class Arguments:
    """The conversion of one task's arguments.

    A parameter without an annotation, or annotated `Any` or `object`, takes JSON values unchanged.

    Args:
        task: Name of the task, for errors.
        function: The task's function.

    Attributes:
        returns: The type that its results are read as; None for JSON values.


    Raises:
        TypeError: An annotation cannot be resolved, two types in it look the same in JSON, or a parameter without a
            default has a type that JSON cannot represent.
    """

    def __init__(self, task: str, function: Callable[..., object]) -> None:
        self._task = task
        self._signature = inspect.signature(function)
        hints = _annotations(task, function)
        self.returns = _result_type(hints.get("return", Any))
        self._positional: list[_Converter] = []
        self._named: dict[str, _Converter] = {}
        # Not used until they are replaced: bind() refuses arguments that do not fit.
        self._other_positional = self._other_named = _Converter("", Any)
        for name, parameter in self._signature.parameters.items():
            converter = _Converter(f"argument {name!r} of task {task!r}", hints.get(name, Any))
            if parameter.default is inspect.Parameter.empty and parameter.kind in _POSITIONAL | _NAMED:
                converter.check()
            if parameter.kind in _POSITIONAL:
                self._positional.append(converter)
            if parameter.kind in _NAMED:
                self._named[name] = converter
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                self._other_positional = converter
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._other_named = converter
        needed = [each for each in self._signature.parameters.values() if each.default is inspect.Parameter.empty]
        self._fewest = sum(each.kind in _POSITIONAL for each in needed)
        self._can_be_positional = all(each.kind in _POSITIONAL for each in needed)

    def to_json(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[list[JSON], dict[str, JSON]]:
        """The arguments as JSON values; those that may be any JSON are not checked yet.

        Raises:
            TypeError: They do not fit the function.
            InvalidPayload: An argument cannot be sent, or would arrive changed.
        """
        return self._each(_Converter.to_json, args, kwargs)

    def from_json(self, args: Sequence[JSON], kwargs: Mapping[str, JSON]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the function expects them.

        Raises:
            TypeError: They do not fit the function.
            InvalidPayload: An argument does not have the type of its parameter.
        """
        return self._each(_Converter.from_json, args, kwargs)

    def _each(
        self, convert: Callable[["_Converter", Any], Any], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[list[Any], dict[str, Any]]:
        is_plain = not kwargs and self._can_be_positional and self._fewest <= len(args) <= len(self._positional)
        if is_plain:  # such arguments fit, and binding takes as long as all the rest
            return [convert(*pair) for pair in zip(self._positional, args, strict=False)], {}
        self._bind(args, kwargs)
        return (
            list(map(convert, chain(self._positional, repeat(self._other_positional)), args)),
            {name: convert(self._named.get(name, self._other_named), value) for name, value in kwargs.items()},
        )

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"the arguments do not fit task {self._task!r}{self._signature}: {error}") from None


def encode_result(what: str, value: object) -> bytes:
    """A function's result as JSON: dataclasses, dates and the like as msgspec encodes them.

    Raises:
        InvalidPayload: JSON cannot hold it, or it is larger than 1 MiB.
    """
    if value is None:  # what most functions return
        return b"null"
    try:
        plain: JSON = msgspec.to_builtins(value, str_keys=True, enc_hook=_dump)
        written = len(msgspec.json.encode(value, enc_hook=_dump))
    except Exception as error:  # a model's own encoder may raise anything
        raise InvalidPayload(f"{what} cannot be stored as JSON: {error}") from error
    text = encode(what, plain)
    if len(text) < written:  # the encoder writes each entry of a dictionary, even if two keys are the same as text
        raise InvalidPayload(f"{what} cannot be stored as JSON: two keys of a dictionary are the same as text")
    return text


def decode_result(what: str, text: bytes, result_type: type[T]) -> T:
    """A result as a value of this type.

    Raises:
        TypeError: JSON cannot represent this type.
        InvalidPayload: The result is not of this type.
    """
    converter = _Converter(what, result_type)
    return cast("T", converter.from_json(msgspec.json.decode(text)))


class _Converter:
    """The conversion of one value to JSON and back.

    Raises:
        TypeError: JSON cannot represent this type.
    """

    __slots__ = ("_decoder", "_type", "_what")

    def __init__(self, what: str, value_type: Any) -> None:  # noqa: ANN401
        self._what = what
        self._type = value_type
        self._decoder: msgspec.json.Decoder[Any] | None = None
        if value_type is not Any and value_type is not object:
            try:
                self._decoder = msgspec.json.Decoder(value_type, dec_hook=_load)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{what} cannot be converted to JSON and back: {error}") from error

    def check(self) -> None:
        """Raise TypeError unless values of the type can be sent."""
        info = None if self._decoder is None else msgspec.inspect.type_info(self._type)
        if isinstance(info, msgspec.inspect.CustomType) and not hasattr(info.cls, "model_validate_json"):
            raise TypeError(
                f"{self._what} cannot be converted to JSON and back: its type is {info.cls.__name__}; "
                "send values that it can be built from"
            )

    def to_json(self, value: object) -> JSON:
        if self._decoder is None:
            return cast("JSON", value)  # unchanged: the encoder would turn bytes, dates and dataclasses into JSON
        try:
            text = msgspec.json.encode(value, enc_hook=_dump)
        except _REFUSALS as error:
            raise InvalidPayload(f"{self._what} cannot be sent as JSON: {error}") from error
        try:
            arrives = self._decoder.decode(text)
            nothing_is_lost = _is_same(value, arrives)
        except _REFUSALS as error:
            raise InvalidPayload(f"{self._what} does not fit its annotation: {error}") from error
        if not nothing_is_lost:
            raise InvalidPayload(
                f"{self._what} would arrive as {reprlib.repr(arrives)}, but is {reprlib.repr(value)}; "
                "pass the annotated type, or change the annotation"
            )
        return cast("JSON", msgspec.json.decode(text))

    def from_json(self, value: JSON) -> Any:  # noqa: ANN401 - of the annotated type, which only the function knows
        if self._decoder is None:
            return value
        try:
            return self._decoder.decode(msgspec.json.encode(value))
        except _REFUSALS as error:
            raise InvalidPayload(f"{self._what} does not fit its annotation: {error}") from error


def _result_type(hint: Any) -> Any:  # noqa: ANN401 - whatever was annotated
    """The type, if results can be read as it; otherwise None."""
    try:
        converter = _Converter("the result", hint)
        converter.check()
    except Exception:  # noqa: BLE001 - resolving the fields of a class may raise anything; it then counts as no type
        return None
    return None if hint is Any or hint is object else hint


def _annotations(task: str, function: Callable[..., object]) -> dict[str, Any]:
    if not hasattr(function, "__annotations__"):
        return {}  # a partial, or a callable object
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"an annotation of task {task!r} cannot be resolved: {error}; define or import it above the task, "
            "at module level and not under TYPE_CHECKING"
        ) from error


# A pydantic model is recognised by its methods, so that pydantic need not be installed.


def _dump(value: object) -> object:
    """Convert a value that the encoder does not know to one that it knows."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"JSON has no {type(value).__name__}")
    return dump(mode="json", by_alias=True, round_trip=True)


def _load(value_type: type, value: object) -> object:
    """Build a value that the decoder does not know from one that it knows."""
    validate = getattr(value_type, "model_validate_json", None)
    if validate is None:
        raise TypeError(f"JSON has no {value_type}")
    return validate(
        msgspec.json.encode(value)
    )  # not model_validate: a strict model would want a datetime, not its text


def _is_same(given: object, arrives: object) -> bool:
    """Whether nothing was lost.

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
