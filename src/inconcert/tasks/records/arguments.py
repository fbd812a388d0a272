"""Converts the arguments and results of tasks to JSON and back, by the annotations of their functions.

What arrives equals what was given, or it is refused before anything is sent: each value is passed through its decoder
first, and the result is compared.
"""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from math import isfinite
from typing import Any, TypeVar, cast

import msgspec

from inconcert._rules.conversion import Converter, json_form
from inconcert._rules.json_types import json_type
from inconcert._rules.payloads import JSON, PLAIN_TYPES, encode
from inconcert.errors import InvalidPayload

T = TypeVar("T")

_SHORT = 4_096  # bytes; in so many no integer has too many digits for a decoder, as one of 4,300 with its sign has
_encode = msgspec.json.Encoder().encode
_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
_NAMED = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


_Check = Callable[[Sequence[Any]], bool]


class Arguments:
    """The conversion of one task's arguments.

    A parameter without an annotation, or annotated `Any` or `object`, takes JSON values unchanged.

    Args:
        task: Name of the task, for errors.
        function: The task's function.

    Attributes:
        returns: The type that its results are read as; None for JSON values.
        yields: The type that the items of its streams are read as, if it is an async generator; None for JSON values.

    Raises:
        TypeError: An annotation cannot be resolved, two types in it look the same in JSON, or a parameter without a
            default has a type that JSON cannot represent.
    """

    def __init__(self, task: str, function: Callable[..., object]) -> None:
        self._task = task
        self._signature = inspect.signature(function)
        hints = annotations(f"of task {task!r}", function)
        returns = hints.get("return", Any)
        streams = inspect.isasyncgenfunction(function)
        self.returns = None if streams else _result_type(returns)
        self.yields = _result_type(_item_type(returns)) if streams else None
        self._positional: list[Converter] = []
        self._named: dict[str, Converter] = {}
        # Not used until they are replaced: bind() refuses arguments that do not fit.
        self._other_positional = self._other_named = Converter("", Any)
        for name, parameter in self._signature.parameters.items():
            converter = Converter(f"argument {name!r} of task {task!r}", hints.get(name, Any))
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
        kinds = [hints.get(name, Any) for name in self._signature.parameters]
        needed = [each for each in self._signature.parameters.values() if each.default is inspect.Parameter.empty]
        self._fewest = sum(each.kind in _POSITIONAL for each in needed)
        self._can_be_positional = all(each.kind in _POSITIONAL for each in needed)
        are_plain = len(self._positional) == len(kinds) and all(
            isinstance(kind, type) and kind in PLAIN_TYPES for kind in kinds
        )
        # The types of arguments that are sent and received as they are, for each number of them.
        self._plain = [kinds[:number] for number in range(self._fewest, len(kinds) + 1)] if are_plain else []
        self._floats = [index for index, kind in enumerate(kinds) if kind is float]
        self._checks: dict[int, _Check] = {}  # of arguments that are received as they are, by their number
        self._start = b'{"name":%s,"args":' % msgspec.json.encode(task)

    def to_json(self, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[list[JSON], dict[str, JSON]]:
        """The arguments as JSON values; those that may be any JSON are not checked yet.

        Raises:
            TypeError: They do not fit the function.
            InvalidPayload: An argument cannot be sent, or would arrive changed.
        """
        return self._each(Converter.to_json, args, kwargs)

    def seal(self, args: Sequence[Any], kwargs: Mapping[str, object]) -> bytes | None:
        """The stored form of a call without its terms, as `envelope.seal` writes it.

        Returns:
            The form; None for arguments that `to_json` must look at one by one, because they differ from plain types.
        """
        if kwargs or [*map(type, args)] not in self._plain:
            return None
        for index in self._floats:
            if index < len(args) and not isfinite(args[index]):
                return None
        try:
            text = self._start + _encode(args)
        except ValueError:  # a lone surrogate, or an integer of too many digits
            return None
        return text if len(text) <= _SHORT else None

    def from_json(self, args: Sequence[JSON], kwargs: Mapping[str, JSON]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments as the function expects them.

        Raises:
            TypeError: They do not fit the function.
            UnreadablePayload: An argument does not have the type of its parameter.
        """
        if not kwargs and (self._checks.get(len(args)) or self._check_of(len(args)))(args):
            return args, kwargs
        return self._each(Converter.from_json, args, kwargs)

    def _each(
        self, convert: Callable[[Converter, Any], Any], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[list[Any], dict[str, Any]]:
        is_plain = not kwargs and self._can_be_positional and self._fewest <= len(args) <= len(self._positional)
        if is_plain:  # such arguments fit, and binding takes as long as all the rest
            return [convert(*pair) for pair in zip(self._positional, args, strict=False)], {}
        self._bind(args, kwargs)
        return (
            list(map(convert, chain(self._positional, repeat(self._other_positional)), args)),
            {name: convert(self._named.get(name, self._other_named), value) for name, value in kwargs.items()},
        )

    def _check_of(self, number: int) -> "_Check":
        """The function that says whether so many arguments have exactly the types of their parameters, all plain ones.

        Compiled, as a named tuple is: it runs for each job, and `tuple(map(type, args))` takes four times longer.
        """
        kinds = next((kinds for kinds in self._plain if len(kinds) == number), None)
        if kinds is None:
            return _never
        tests = " and ".join(f"type(args[{index}]) is kinds[{index}]" for index in range(number)) or "True"
        check: _Check = eval(f"lambda args: {tests}", {"kinds": kinds})  # noqa: S307 - made of numbers
        self._checks[number] = check
        return check

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"the arguments do not fit task {self._task!r}{self._signature}: {error}") from None


def _never(args: Sequence[Any]) -> bool:
    del args
    return False


def encode_result(what: str, value: object) -> bytes:
    """A function's result as JSON: dataclasses, dates and other types as msgspec encodes them.

    Raises:
        InvalidPayload: JSON cannot hold it, or it is larger than 1 MiB.
    """
    if value is None:  # what most functions return
        return b"null"
    try:
        plain: JSON = msgspec.to_builtins(value, str_keys=True, enc_hook=json_form)
        written = len(msgspec.json.encode(value, enc_hook=json_form))
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
        UnreadablePayload: The result is not of this type.
    """
    return cast("T", Converter(what, result_type).read(text))


def annotations(whose: str, function: Callable[..., object]) -> dict[str, Any]:
    """The types in a function's signature, by the names of its parameters, and `return`.

    Args:
        whose: Which function, as the error names it, such as `of task 'sell'`.
        function: The function.

    Raises:
        TypeError: One cannot be resolved.
    """
    if not hasattr(function, "__annotations__"):
        return {}  # a partial, or a callable object
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"an annotation {whose} cannot be resolved: {error}; define or import it above the task, "
            "at module level and not under TYPE_CHECKING"
        ) from error
    # A name is left unresolved only where an alias contains itself: there it is any JSON value.
    return {name: json_type(hint, unresolved=Any) for name, hint in hints.items()}


def _item_type(hint: Any) -> Any:  # noqa: ANN401 - whatever was annotated
    """The type that an async generator with this return type yields."""
    return next(iter(typing.get_args(hint)), Any)


def _result_type(hint: Any) -> Any:  # noqa: ANN401 - whatever was annotated
    """The type, if results can be read as it; otherwise None."""
    try:
        converter = Converter("the result", hint)
        converter.check()
    except Exception:  # noqa: BLE001 - resolving the fields of a class may raise anything; it then counts as no type
        return None
    return None if hint is Any or hint is object else hint
