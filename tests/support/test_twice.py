"""What counts as run twice, and what a mark names."""

from types import ModuleType

import pytest

from inconcert import Coordinator
from tests.support.scripts import command_of
from tests.support.twice import commands, names_of_module, not_repeated


async def test_other_arguments_are_no_second_run(any_concert: Coordinator) -> None:
    """A lost reply is asked for with the same bytes."""
    session, keys = any_concert._ref.session, any_concert.event("it")._keys
    with commands() as counted:
        for request in ("a", "b", "b"):
            await session.run(command_of("events/clear", keys, request=request))
            assert not_repeated({"events/clear"}, counted) == ({"events/clear"} if counted.total() < 3 else set())
        assert not_repeated({"events/set"}, counted) == {"events/set"}


def test_marks_of_tests_and_of_their_parameters_name_scripts() -> None:
    """Other marks do not."""

    @pytest.mark.twice("a/one", "a/two")
    def marked() -> None: ...

    @pytest.mark.parametrize("case", ["b/none", pytest.param(1, marks=pytest.mark.twice("b/three"))])
    def parametrized() -> None: ...

    module = ModuleType("tests")
    module.__dict__.update(marked=marked, parametrized=parametrized, constant=1)
    assert names_of_module(module) == {"a/one", "a/two", "b/three"}
