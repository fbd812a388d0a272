"""Annotations as the decoder of JSON knows them.

Strictly typed code says `object` for a value of which nothing is known, names types by aliases, and takes an `Iterable`
where a list would do.  The decoder knows `Any`, the types themselves, and lists.
"""

import types
import typing
from collections.abc import Collection, Iterable, Reversible
from functools import partial
from typing import Annotated, Any, Literal, LiteralString, Union, cast

import msgspec

_KNOWN_AS = (object, Any), (LiteralString, str)
_READ_AS_LISTS = frozenset({Iterable, Reversible})


def json_type(annotation: Any, *, unresolved: Any = None, within: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - any
    """The type that the decoder reads for the annotation.

    `object` is any JSON value.  An alias is its value; inside itself it is any JSON value.

    Args:
        annotation: A type, or any other form of an annotation, such as a union or an alias.
        unresolved: The type that stands for a name that is not resolved; None leaves the name.
        within: The aliases that the annotation is part of.
    """
    if isinstance(annotation, typing.ForwardRef):
        return annotation if unresolved is None else unresolved
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    alias = annotation if origin is None else origin
    if type(alias).__name__ == "TypeAliasType":  # of typing, or of typing_extensions before Python 3.12
        value = Any if alias in within else _value(alias, args)
        return json_type(value, unresolved=unresolved, within=(*within, alias))
    if origin is None or origin is Literal:
        return next((known for written, known in _KNOWN_AS if annotation is written), annotation)
    convert = partial(json_type, unresolved=unresolved, within=within)
    if origin is Annotated:
        return Annotated[(convert(args[0]), *args[1:])]
    converted = tuple(map(convert, args))
    if origin not in _READ_AS_LISTS and all(one is other for one, other in zip(args, converted, strict=True)):
        return annotation
    return _of(origin, converted)


def unreadable_class(json_type: Any) -> type | None:  # noqa: ANN401 - any
    """A class in the type whose values JSON cannot hold; None if each value can be read.

    Fields that have a default are passed over: they may be left at it.
    """
    return _unreadable(msgspec.inspect.type_info(json_type), set())


def _of(origin: Any, args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - any
    """The generic type or the union with these arguments."""
    if origin in (Union, types.UnionType):
        return Any if Any in args else Union[args]  # noqa: UP007 - it is made of parts
    if origin in _READ_AS_LISTS:
        origin = Collection
    return origin[args] if args else origin


def _value(alias: Any, args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - an alias has no common class
    """The value of the alias for these arguments."""
    value = alias.__value__
    given = dict(zip(alias.__type_params__, args, strict=False))
    parameters = getattr(value, "__parameters__", ())
    if not parameters:
        return given.get(value, value) if given else value
    return value[tuple(given.get(each, Any) for each in parameters)]


def _unreadable(info: msgspec.inspect.Type, seen: set[int]) -> type | None:
    if isinstance(info, msgspec.inspect.CustomType):
        # A pydantic model is recognised by its method, so that pydantic need not be installed.
        return None if info.cls is object or hasattr(info.cls, "model_validate_json") else info.cls
    if id(info) in seen:
        return None
    seen.add(id(info))
    found = (_unreadable(part, seen) for part in _parts(info))
    return next((each for each in found if each is not None), None)


def _parts(info: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    """The types that a value of this one needs."""
    parts: list[msgspec.inspect.Type] = []
    for name in info.__struct_fields__:
        held = getattr(info, name)
        for each in cast("tuple[object, ...]", held) if isinstance(held, tuple) else (held,):
            if isinstance(each, msgspec.inspect.Type):
                parts.append(each)
            elif isinstance(each, msgspec.inspect.Field) and each.required:
                parts.append(each.type)
    return parts
