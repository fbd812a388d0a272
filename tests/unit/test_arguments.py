"""Values on their way through JSON, by the annotations of a function: they arrive equal to what was given, or not."""

import asyncio
import enum
import inspect
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial, wraps
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inconcert import InvalidPayload
from inconcert.tasks.records.arguments import Arguments, decode_result, encode_result
from inconcert.tasks.records.envelope import Call, seal


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal
    tags: frozenset[str] = frozenset()
    sold_at: datetime | None = None
    parts: list["Item"] = field(default_factory=list["Item"])


class Slotted(msgspec.Struct, frozen=True):
    at: datetime
    size: Size


class Point(NamedTuple):
    x: int
    y: float


class Row(TypedDict):
    key: uuid.UUID
    value: bytes


class Order(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    id: uuid.UUID
    at: datetime
    total: Decimal = pydantic.Field(alias="sum")
    lines: list[tuple[str, int]] = []


@dataclass
class Animal:
    name: str


@dataclass
class Dog(Animal):
    pass


class Opaque:
    """Neither known to JSON nor equal to another."""


@dataclass(eq=False)
class WithoutEq:
    number: int


Seller = NewType("Seller", int)

BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)  # the hour that this zone has twice
SOME_TIME = datetime(2026, 11, 21, 12, 30, 0, 1, tzinfo=UTC)
NAIVE = SOME_TIME.replace(tzinfo=None)
SOME_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def one(annotation: Any) -> Arguments:
    """Of a function with one parameter of this type."""

    def task(value: Any) -> None: ...

    task.__annotations__["value"] = annotation
    return Arguments("t", task)


def sent(annotation: Any, value: object) -> Any:
    """What arrives, after the trip through the text of a JSON document."""
    args, kwargs = one(annotation).to_json([value], {})
    return one(annotation).from_json(json.loads(json.dumps(args)), kwargs)[0][0]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda delta: timezone(timedelta(minutes=delta // timedelta(minutes=1)))
)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, texts),
    (bytes, st.binary(max_size=50)),
    (Decimal, st.decimals(allow_nan=False)),
    (uuid.UUID, st.uuids()),
    (datetime, st.datetimes()),
    (datetime, st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=offsets)),  # noqa: DTZ001
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas(timedelta(days=-36_500), timedelta(days=36_500))),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (Item, st.builds(Item, name=texts, price=st.decimals(allow_nan=False), tags=st.frozensets(texts))),
    (Slotted, st.builds(Slotted, at=st.datetimes(timezones=st.just(UTC)), size=st.sampled_from(Size))),
    (Point, st.builds(Point, x=st.integers(), y=st.floats(allow_nan=False, allow_infinity=False))),
    (Row, st.fixed_dictionaries({"key": st.uuids(), "value": st.binary()})),
    (Order, st.builds(Order, id=st.uuids(), at=st.just(SOME_TIME), sum=st.decimals(-9, 9, places=2))),
]
typed = st.sampled_from(LEAVES).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1]))


def nest(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    """A value in a container of its type."""
    containers: list[Callable[[Any, Any], tuple[Any, Any]]] = [
        lambda kind, value: (GenericAlias(list, kind), [value, value]),
        lambda kind, value: (GenericAlias(tuple, (kind, ...)), (value,)),
        lambda kind, value: (GenericAlias(tuple, (int, kind)), (2**53 + 1, value)),
        lambda kind, value: (GenericAlias(dict, (str, kind)), {"a": value}),
        lambda kind, value: (kind | None, value),
        lambda kind, _: (kind | None, None),
    ]
    return st.tuples(st.sampled_from(containers), inner).map(lambda drawn: drawn[0](*drawn[1]))


@given(st.recursive(typed, nest, max_leaves=3))
def test_typed_values_arrive_equal(pair: tuple[Any, Any]) -> None:
    """Each supported type, nested in lists, tuples, dictionaries and unions with None."""
    annotation, value = pair
    arrived = sent(annotation, value)
    assert type(arrived) is type(value)
    assert arrived == value


@given(typed, typed)
def test_a_value_of_another_type_is_equal_or_refused(pair: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    """Never changed in silence: an int may be a float, but a str is no date."""
    try:
        arrived = sent(pair[0], other[1])
    except InvalidPayload:
        return
    assert arrived == other[1]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 2**200), (int, -(2**63) - 1), (float, 3), (float, -0.0), (Decimal, Decimal("1.10")),
        (Decimal, Decimal("1E+400")), (Decimal, 7), (bytes, b""), (bytearray, bytearray(b"\0\xff")),
        (set[int], {1, 2}), (frozenset[str], frozenset("ab")), (dict[int, str], {1: "a"}),
        (dict[date, int], {date.min: 1}),
        (dict[uuid.UUID, Item], {SOME_ID: Item("a", Decimal(1))}), (int | str | None, "7"), (int | float, 7.5),
        (Item, Item("a", Decimal("0.1"), frozenset("x"), NAIVE, [Item("b", Decimal(2))])),
        (Sequence[int], [1]), (Mapping[str, bytes], {"a": b"b"}), (list[Any], [1, {"a": None}]), (Seller, 17),
        (Annotated[int, msgspec.Meta(gt=0)], 1), (list[Order], []), (Order | None, None), (Any, {"a": [1]}),
        (object, None),
    ],
    ids=range(26),
)  # fmt: skip
def test_value_arrives(annotation: Any, value: object) -> None:
    """As what it was."""
    arrived = sent(annotation, value)
    assert arrived == value
    assert type(arrived) is annotation or type(arrived) is type(value)


def test_numbers_arrive_to_the_last_digit() -> None:
    """Zeros at the end and the sign of zero, too, which equality does not tell."""
    assert [str(sent(Decimal, Decimal(digits))) for digits in ("1.10", "-0", "1E+400")] == ["1.10", "-0", "1E+400"]
    assert [str(sent(float, number)) for number in (-0.0, 0.1 + 0.2, 5e-324)] == [
        "-0.0",
        "0.30000000000000004",
        "5e-324",
    ]


@given(st.datetimes(min_value=datetime(1950, 1, 1), timezones=st.just(BERLIN)))  # noqa: DTZ001
def test_datetime_of_a_named_zone_arrives_as_its_instant_with_its_offset(at: datetime) -> None:
    """The name of the zone is not in what is sent."""
    arrived = sent(datetime, at)
    assert (arrived - at, arrived.utcoffset()) == (timedelta(), at.utcoffset())


def test_object_that_has_no_equality_arrives() -> None:
    """Its fields are compared."""
    assert [thing.number for thing in sent(list[WithoutEq], [WithoutEq(3)])] == [3]


@pytest.mark.parametrize("at", [TWICE, TWICE.replace(fold=1)], ids=["first", "second"])
def test_datetime_arrives_in_the_hour_that_its_zone_has_twice(at: datetime) -> None:
    """However deep; Python says that it equals no datetime of another zone."""
    assert at != at.astimezone(UTC)
    [inner] = sent(list[dict[str, tuple[datetime, int]]], [{"a": (at, 1)}])
    item = sent(Item, Item("a", Decimal(1), sold_at=at))
    slotted = sent(Slotted, Slotted(at, Size.LARGE))
    for arrived in (sent(datetime, at), inner["a"][0], item.sold_at, slotted.at):
        assert (arrived - at, arrived.utcoffset()) == (timedelta(), at.utcoffset())


def test_pydantic_model_arrives() -> None:
    """A strict one too, by its aliases."""
    order = Order(id=SOME_ID, at=TWICE, sum=Decimal("9.50"), lines=[("sword", 1)])
    [arrived] = sent(list[Order], [order])
    assert type(arrived) is Order
    assert (arrived.id, arrived.total, arrived.lines) == (SOME_ID, Decimal("9.50"), [("sword", 1)])
    assert arrived.at - TWICE == timedelta()


class Parsed(pydantic.BaseModel):
    settings: pydantic.Json[dict[str, int]]


def test_pydantic_model_that_parses_text_arrives() -> None:
    """It takes text and holds what was in it, so it is sent as text again."""
    parsed = Parsed.model_validate({"settings": '{"a": 1}'})
    assert sent(Parsed, parsed) == parsed


class Hidden(pydantic.BaseModel):
    secret: pydantic.SecretStr = pydantic.SecretStr("s")
    left_out: int = pydantic.Field(default=0, exclude=True)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, 9.5), (int, 9.0), (int, "17"), (int, True), (int, None), (str, 17), (bool, 1), (float, 2**53 + 1),
        (float, math.nan), (float, math.inf), (float | None, math.nan), (list[float], [math.inf]),
        (Decimal, Decimal("NaN")), (Decimal, Decimal("sNaN")), (Decimal, 0.1), (bytes, "text"), (str, b"bytes"),
        (str, "\ud800"), (date, NAIVE), (datetime, "yesterday"), (Colour, "blue"), (list[int], (1, 2)),
        (tuple[int, int], [1, 2]), (Sequence[int], (1,)), (list[Any], [(1, 2)]), (list[Any], [SOME_ID]),
        (dict[str, object], {"a": date.min}),
        (dict[Any, Any], {1: 2}),
        (Animal, Dog("rex")), (list[Animal], [Dog("rex")]), (Order, {"id": 1}), (Annotated[int, msgspec.Meta(gt=0)], 0),
        (Hidden, Hidden(secret=pydantic.SecretStr("x"))), (Hidden, Hidden(left_out=1)),
        (dict[int | str, int], {1: 1, "1": 2}), (datetime, datetime(1890, 1, 1, tzinfo=BERLIN)),
    ],
    ids=range(36),
)  # fmt: skip
def test_value_that_would_arrive_as_something_else_is_refused(annotation: Any, value: object) -> None:
    """With the names of the argument and of the task."""
    with pytest.raises(InvalidPayload, match="argument 'value' of task 't'"):
        one(annotation).to_json([value], {})


def test_value_without_end_is_refused() -> None:
    """A list in itself."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPayload):
        one(list[Any]).to_json([endless], {})


@pytest.mark.parametrize(
    "annotation",
    [
        str | uuid.UUID,
        datetime | str,
        Item | Animal,
        Order | int,
        "Nowhere",
        "list[Nowhere]",
        Opaque,
        Path,
        complex,
        range,
        asyncio.Task,
        "asyncio.Task[int]",
    ],
    ids=range(12),
)
def test_type_without_a_way_through_json_is_refused_at_once(annotation: Any) -> None:
    """Two types that look the same in JSON, one that is not there, one that nothing sends: when the task is defined."""
    with pytest.raises(TypeError, match="task 't'"):
        one(annotation)


def test_parameter_with_a_default_may_have_any_type() -> None:
    """Nobody need send it."""

    def task(number: int, opaque: Opaque | None = None, path: Path = Path(), *rest: Opaque, **more: Opaque) -> None: ...

    assert Arguments("t", task).to_json([1], {}) == ([1], {})
    with pytest.raises(InvalidPayload, match="argument 'path' of task 't' cannot be sent as JSON"):
        Arguments("t", task).to_json([1], {"path": Path()})


def test_value_of_another_type_does_not_fit() -> None:
    """It could be sent, if that were what the function takes."""
    with pytest.raises(InvalidPayload, match="argument 'value' of task 't' does not fit int: Expected `int`"):
        one(int).to_json(["17"], {})


# Signatures.


def whole(first: int, /, second: date, *rest: Decimal, third: Colour = Colour.RED, **others: bytes) -> None:
    """Every kind of parameter."""


def test_every_parameter_has_its_own_type() -> None:
    """Positional only, either, those of `*` and of `**`; and the shape of the call stays."""
    arguments = Arguments("t", whole)
    given_args = [1, date.min, Decimal(2), Decimal(3)]
    given_kwargs: dict[str, Any] = {"third": Colour.GREEN, "first": b"a", "other": b"b"}
    args, kwargs = arguments.to_json(given_args, given_kwargs)
    assert args == [1, "0001-01-01", "2", "3"]
    assert kwargs == {"third": "green", "first": "YQ==", "other": "Yg=="}
    assert arguments.from_json(args, kwargs) == (given_args, given_kwargs)
    assert arguments.to_json([1], {"second": date.min}) == ([1], {"second": "0001-01-01"})


def test_arguments_that_do_not_fit_are_refused() -> None:
    """On both sides."""
    arguments = Arguments("t", whole)
    for turn in (arguments.to_json, arguments.from_json):
        with pytest.raises(TypeError, match=r"do not fit task 't'\(first"):
            turn([], {"second": "2026-11-21"})


def test_json_that_does_not_fit_an_annotation_is_refused() -> None:
    """As a job that was enqueued by name may bring it."""
    with pytest.raises(InvalidPayload, match="argument 'second' of task 't' does not fit"):
        Arguments("t", whole).from_json([1, "tomorrow"], {})


def test_plain_json_is_converted() -> None:
    """A job that was enqueued by name brings the text of a date."""
    assert sent(date, date(2026, 11, 21)) == one(date).from_json(["2026-11-21"], {})[0][0]
    assert one(Decimal).from_json([9.5], {})[0] == [Decimal("9.5")]


def test_without_annotation_values_stay() -> None:
    """They are JSON, or are refused when the whole is encoded."""
    value = object()

    def task(any_: Any, thing: object, *more: Any, **named: object) -> None: ...

    del task.__annotations__["more"]

    assert Arguments("t", task).to_json([value] * 4, {}) == ([value] * 4, {})


def postponed(at: "datetime", items: "list[Item]", *, key: "uuid.UUID | None" = None) -> "Item":
    """As under `from __future__ import annotations`."""
    raise NotImplementedError


def test_postponed_annotations_are_resolved() -> None:
    """Also within others, and behind a decorator."""

    @wraps(postponed)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return postponed(*args, **kwargs)

    for function in (postponed, wrapper):
        arguments = Arguments("t", function)
        assert arguments.to_json([NAIVE, []], {"key": SOME_ID}) == (
            ["2026-11-21T12:30:00.000001", []],
            {"key": str(SOME_ID)},
        )


def test_partial_is_taken_without_its_annotations() -> None:
    """It has none of its own."""
    assert Arguments("t", partial(postponed, NAIVE)).to_json([[1]], {}) == ([[1]], {})


# Results.


@pytest.mark.parametrize(
    ("result_type", "value"),
    [
        (Item, Item("a", Decimal("1.10"))),
        (list[Item], []),
        (uuid.UUID, SOME_ID),
        (bytes, b"1"),
        (dict[int, int], {1: 2}),
    ],
)
def test_result_arrives_as_the_type_that_its_reader_asks_for(result_type: Any, value: object) -> None:
    """Whatever msgspec writes."""
    assert decode_result("it", encode_result("it", value), result_type) == value


def test_result_arrives_as_json_otherwise() -> None:
    """As it is, if it is JSON."""
    assert encode_result("it", [1, {"a": None}]) == b'[1,{"a":null}]'
    assert b'"price":"1.10"' in encode_result("it", Item("a", Decimal("1.10")))


@pytest.mark.parametrize("value", [math.nan, object(), "x" * 2**20, lambda: None], ids=range(4))
def test_result_that_json_cannot_hold_is_refused(value: object) -> None:
    """Or that is too large."""
    with pytest.raises(InvalidPayload, match="the result"):
        encode_result("the result", value)


@pytest.mark.parametrize(
    "value", [{1: "a", "1": "b"}, [{"deep": {2.5: 0, "2.5": 0}}], {Size.LARGE: 1, "2": 2}], ids=str
)
def test_result_that_would_lose_an_entry_is_refused(value: object) -> None:
    """Two keys that are different, and the same as text."""
    with pytest.raises(InvalidPayload, match=r"the result.*two keys"):
        encode_result("the result", value)


def test_result_of_another_type_is_refused_where_it_is_read() -> None:
    """A release of the worker may return something else."""
    with pytest.raises(InvalidPayload, match="the result"):
        decode_result("the result", b'"text"', int)


PLAIN: dict[type, st.SearchStrategy[Any]] = {
    int: st.integers() | st.sampled_from([10**4299, -(10**4299), 10**5000]),
    str: st.text() | st.sampled_from(["\ud800", "x" * 5_000, "x" * 2**20]),
    float: st.floats(),
    bool: st.booleans(),
    type(None): st.none(),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[type], list[object]]:
    """The types of some parameters, and arguments that may be of others."""
    kinds = draw(st.lists(st.sampled_from(list(PLAIN)), max_size=3))
    return kinds, [draw(st.one_of(PLAIN[kind], PLAIN[kind], *PLAIN.values())) for kind in kinds]


@given(calls())
def test_plain_arguments_are_stored_as_all_are(call: tuple[list[type], list[object]]) -> None:
    """Or they are looked at one by one."""
    kinds, args = call

    def task(a: Any, b: Any, c: Any) -> None: ...

    task.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in "abc"[: len(kinds)]]
    )
    task.__annotations__ = dict(zip("abc", kinds, strict=False))
    arguments = Arguments("t", task)
    sealed = arguments.seal(tuple(args), {})
    try:
        values, named = arguments.to_json(args, {})
        expected = seal(Call("t", values, named))
    except InvalidPayload:
        assert sealed is None
        return

    assert sealed is None or sealed + b"}" == expected
    if list(map(type, args)) == kinds and len(expected) <= 4_096:
        assert sealed is not None
    received = msgspec.json.decode(expected)["args"]
    assert list(arguments.from_json(received, {})[0]) == args


def test_plain_arguments_may_be_left_out_that_have_defaults() -> None:
    """Too few and too many are refused elsewhere."""

    def task(a: int, b: str = "x") -> None: ...

    arguments = Arguments("t", task)

    assert arguments.seal((1,), {}) == b'{"name":"t","args":[1]'
    assert arguments.seal((1, "y"), {}) == b'{"name":"t","args":[1,"y"]'
    assert arguments.seal((), {}) is None
    assert arguments.seal((1, "y", 2), {}) is None
