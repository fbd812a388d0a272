"""Annotations that strictly typed code writes: each is an argument, a result, an item of a stream and a payload."""

import sys
import typing
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Generic,
    LiteralString,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import msgspec
import pydantic
import pytest
import typing_extensions

from inconcert import Coordinator
from inconcert._rules.codec import codec_of
from inconcert.tasks.records.arguments import Arguments, decode_result, encode_result

T = TypeVar("T")
U = TypeVar("U")


class Row(TypedDict):
    value: object
    more: NotRequired[Mapping[str, object]]


class Pair(NamedTuple):
    first: str
    second: object


@dataclass
class Event:
    name: str
    fields: dict[str, object]


class Entry(msgspec.Struct):
    value: object
    before: "Entry | None" = None


class Model(pydantic.BaseModel):
    value: object
    fields: dict[str, object] = {}


@dataclass
class Page(Generic[T]):
    items: list[T]


class Batch(msgspec.Struct, Generic[T]):
    items: Sequence[T]


class Answer(TypedDict, Generic[T]):
    data: T


Fields: TypeAlias = dict[str, object]
Branded = NewType("Branded", dict[str, object])
Lazy = typing_extensions.TypeAliasType("Lazy", Mapping[str, object])  # `type Lazy = ...` of Python 3.12
Listed = typing_extensions.TypeAliasType("Listed", list[T], type_params=(T,))
Pairs = typing_extensions.TypeAliasType("Pairs", dict[U, T], type_params=(T, U))

FORMS: list[tuple[Any, Any]] = [
    (object, {"a": [1, None]}),
    (Any, {"a": [1, None]}),
    (list[object], [1, "a", None, {"b": [2.5]}]),
    (typing.List[object], [1]),  # noqa: UP006 - as older code has it
    (dict[str, object], {"a": [1, {"b": None}]}),
    (dict[int, object], {1: [2]}),
    (Mapping[str, object], {"a": 1}),
    (MutableMapping[str, object], {"a": 1}),
    (typing.Mapping[str, object], {"a": 1}),
    (Sequence[object], [1, "a"]),
    (MutableSequence[object], [1, "a"]),
    (Collection[object], [1, "a"]),
    (Iterable[object], [1, "a"]),
    (Iterable[int], [1, 2]),
    (Iterable[Mapping[str, object]], [{"a": 1}]),
    (tuple[object, ...], (1, "a")),
    (tuple[int, object], (1, {"a": 2})),
    (set[object], {1, "a"}),
    (frozenset[object], frozenset({1, "a"})),
    (object | None, [1]),
    (Optional[object], None),  # noqa: UP045 - as older code has it
    (str | object, 5),
    (list[object] | None, [1]),
    (dict[str, object] | list[object], {"a": 1}),
    (list[dict[str, object]], [{"a": 1}]),
    (Mapping[str, Sequence[Mapping[str, object]]], {"a": [{"b": 1}]}),
    (Annotated[object, "any"], [1]),
    (Annotated[list[object], msgspec.Meta(max_length=3), []], [1]),
    (LiteralString, "a"),
    (Row, {"value": [1], "more": {"a": None}}),
    (list[Row], [{"value": None}]),
    (Pair, Pair("a", [1])),
    (Event, Event("a", {"b": [1]})),
    (Entry, Entry([1], Entry({"a": None}))),
    (Model, Model(value=[1], fields={"a": None})),
    (Page[object], Page[object]([1, "a"])),
    (Page[dict[str, object]], Page[dict[str, object]]([{"a": 1}])),
    (Batch[object], Batch[object]([1])),
    (Answer[object], {"data": [1]}),
    (Fields, {"a": 1}),
    (Branded, {"a": 1}),
    (Lazy, {"a": 1}),
    (Listed[object], [1]),
    (Pairs[object, str], {"a": [1]}),
    (list[Listed[object]], [[1]]),
]
IDS = [f"{number} {form}" for number, (form, _) in enumerate(FORMS)]

JsonText: TypeAlias = "dict[str, JsonText] | list[JsonText] | str | int | None"
JsonUnion = None | str | int | Sequence["JsonUnion"] | Mapping[str, "JsonUnion"]


@pytest.mark.parametrize(("form", "value"), FORMS, ids=IDS)
def test_value_of_each_form_arrives_as_an_argument(form: Any, value: Any) -> None:
    """By its position and by its name."""

    def task(value: Any, *, named: Any) -> None: ...

    task.__annotations__ |= {"value": form, "named": form}
    arguments = Arguments("t", task)
    args, kwargs = arguments.to_json([value], {"named": value})
    assert arguments.from_json(args, kwargs) == ([value], {"named": value})


@pytest.mark.parametrize(("form", "value"), FORMS, ids=IDS)
def test_value_of_each_form_arrives_as_a_result_and_as_an_item_of_a_stream(form: Any, value: Any) -> None:
    """Read as the type that is annotated, if there is one."""

    def task() -> Any: ...

    async def stream() -> AsyncIterator[Any]:
        yield

    task.__annotations__["return"] = form
    stream.__annotations__["return"] = AsyncIterator[form]
    for known in (Arguments("t", task).returns, Arguments("t", stream).yields):
        read = decode_result("the result", encode_result("the result", value), known or Any)
        assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("form", "value"), FORMS, ids=IDS)
def test_value_of_each_form_arrives_as_an_item_a_payload_and_a_message(form: Any, value: Any) -> None:
    """They have one codec."""
    codec = codec_of("item for queue 'q'", form)
    assert codec.decode(codec.encode(value)) == value


def test_alias_that_contains_itself_is_any_json_inside() -> None:
    """As one text, and as a union that has texts in it."""

    def task(text: "JsonText", union: "JsonUnion") -> None: ...

    arguments = Arguments("t", task)
    given = [{"a": [1, {"b": None}]}, [1, {"a": ["b"]}]]
    assert arguments.from_json(*arguments.to_json(given, {})) == (given, {})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no such statement")
def test_type_statement_that_contains_itself_is_any_json_inside() -> None:
    """Nobody need have resolved it."""
    names: dict[str, Any] = {}
    exec("type Tree = dict[str, Tree] | list[Tree] | int", names)
    codec = codec_of("item for queue 'q'", names["Tree"])
    assert codec.decode(codec.encode({"a": [1, {"b": 2}]})) == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize("place", ["queue", "signal", "mailbox"])
@pytest.mark.parametrize(
    "form",
    [complex, list[complex], dict[str, complex], Page[complex], complex | None, tuple[int, type[int]], Answer[range]],
    ids=str,
)
def test_type_that_holds_what_json_has_not_is_refused_where_the_object_is_made(place: str, form: Any) -> None:
    """Before anything is sent: nobody could send a value of it."""
    with pytest.raises(TypeError, match=r"(complex|type|range); send values that it can be built from"):
        getattr(Coordinator("redis://127.0.0.1:1"), place)("q", form)


def test_field_with_a_default_may_have_any_type() -> None:
    """It can be left at the default, as an argument can."""

    class Kept(msgspec.Struct, omit_defaults=True):
        number: int
        opaque: complex | None = None

    codec = codec_of("item for queue 'q'", Kept)
    assert codec.decode(codec.encode(Kept(1))) == Kept(1)
