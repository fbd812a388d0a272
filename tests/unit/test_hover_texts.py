"""What an editor shows for a factory of `Coordinator` stands alone: nobody has to open the class to call it."""

import inspect
import re
from collections.abc import Callable
from typing import get_type_hints

import pytest

import inconcert
from inconcert import Coordinator, Latch
from inconcert._core.makes import Makes
from tests.support.public import PUBLIC

MADE_BY = re.compile(r"^Made by `Coordinator\.(\w+)`", re.MULTILINE)
ELSEWHERE = {"chat", "consume", "group", "task"}  # a property, and three with docstrings of their own kind
FACTORIES = sorted(
    {name for public in PUBLIC for name in MADE_BY.findall(inspect.getdoc(getattr(inconcert, public)) or "")}
    - ELSEWHERE
)
SECONDS = {"ttl", "timeout", "period", "max_age"}


class Base:
    """Has a factory that nobody has called."""

    _ref = Coordinator()._ref
    part = Makes("inconcert.latch:Latch", lambda: Latch)


class Shop(Base):
    """Makes it in its own way."""

    def part(self, name: str, count: int = 1) -> Latch:  # type: ignore[override]
        """One of the shop."""
        return super().part(f"shop:{name}", count)


def sections(text: str) -> dict[str, str]:
    """A docstring by the names of its sections; the first has none."""
    parts = re.split(r"^(Args|Raises|Returns|Cost):", text, flags=re.MULTILINE)
    return {"": parts[0]} | dict(zip(parts[1::2], parts[2::2], strict=True))


def entries(section: str) -> dict[str, str]:
    """The entries of a section, each in one line."""
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text) for name, text in found}


def shown(name: str) -> tuple[Callable[..., object], dict[str, str]]:
    """A factory, and its docstring."""
    factory = getattr(Coordinator, name)
    return factory, sections(inspect.getdoc(factory) or "")


def class_of(name: str) -> type[object]:
    """What a factory makes."""
    concert = Coordinator()
    required = {"count": 1, "limit": 1, "parties": 1, "period": 1}
    asked = inspect.signature(getattr(concert, name)).parameters
    first = concert.rate_limiter("name", 1, 1) if "limiters" in asked else "name"
    made: object = getattr(concert, name)(first, **{key: value for key, value in required.items() if key in asked})
    return type(made)


def test_factories_are_found() -> None:
    """By what the classes say."""
    assert {"index", "lock", "queue", "signals"} < {*FACTORIES}


@pytest.mark.parametrize("name", FACTORIES)
def test_arguments_are_explained(name: str) -> None:
    """Each of them; times with their unit, waits with None and 0, and defaults as numbers, not as names."""
    factory, text = shown(name)
    explained = entries(text["Args"])
    parameters = inspect.signature(factory).parameters
    assert list(explained) == [parameter for parameter in parameters if parameter != "self"]
    for parameter, meaning in explained.items():
        default = parameters[parameter].default
        if parameter in SECONDS:
            assert "seconds" in meaning
        if default is None:
            assert "None" in meaning or "by default" in meaning, parameter
        elif isinstance(default, int | float):
            assert f"by default {default:,.0f}" in meaning, parameter


@pytest.mark.parametrize("name", FACTORIES)
def test_errors_are_those_of_the_class(name: str) -> None:
    """None is left to the class's page."""
    _, text = shown(name)
    of_class = entries(sections(inspect.getdoc(class_of(name)) or "").get("Raises", ""))
    assert entries(text.get("Raises", "")).keys() == of_class.keys()


@pytest.mark.parametrize("name", FACTORIES)
def test_arguments_are_those_of_the_class(name: str) -> None:
    """One that joins the class joins the factory, too."""
    _, text = shown(name)
    of_class = entries(sections(inspect.getdoc(class_of(name)) or "")["Args"])
    assert entries(text["Args"]).keys() == of_class.keys()


@pytest.mark.parametrize("name", FACTORIES)
def test_signature_is_that_of_the_class(name: str) -> None:
    """Of what the coordinator passes on, nothing is left out; the return type is the class."""
    factory, _ = shown(name)
    shown_signature, of_class = inspect.signature(factory), inspect.signature(class_of(name))
    given = [each for each in of_class.parameters.values() if each.name not in {"ref", "getters", "rosters"}]
    assert [(each.name, each.kind, each.default) for each in list(shown_signature.parameters.values())[1:]] == [
        (each.name, each.kind, each.default) for each in given
    ]
    assert class_of(name).__name__ in str(shown_signature.return_annotation)


@pytest.mark.parametrize("name", sorted(name for name, made in vars(Coordinator).items() if isinstance(made, Makes)))
def test_factory_made_of_a_class_is_a_method(name: str) -> None:
    """With a name, the class's docstring, and hints that can be resolved."""
    factory = getattr(Coordinator, name)
    assert factory.__qualname__ == f"Coordinator.{name}"
    assert inspect.getdoc(factory) == inspect.getdoc(class_of(name))
    assert get_type_hints(factory)["return"] is class_of(name)
    assert getattr(Coordinator, name) is factory


def test_factory_made_of_a_class_can_be_overridden() -> None:
    """The subclass calls it by `super()`, also if nobody has called it before."""
    concert = Shop()
    assert isinstance(concert.part("a"), Latch)
    assert repr(concert.part("a")) == "<Latch 'shop:a'>"


def test_wrong_argument_of_a_factory_is_refused() -> None:
    """As the class refuses it."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'tll'"):
        Coordinator().lock("a", tll=3.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["lock", "locks", "semaphore", "rwlock"])
def test_what_entering_raises_is_said(name: str) -> None:
    """It was busy for too long, or the lease was lost."""
    _, text = shown(name)
    assert "`AcquireTimeout`" in text[""]
    assert "`LeaseLost`" in text[""]
