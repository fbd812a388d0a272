"""The addresses that a session draws."""

import sys
from types import FrameType
from typing import Any
from unittest.mock import Mock

from inconcert._core.observer import Observers
from inconcert._core.origin import Origin
from inconcert._rules.signing import KeyRing


def test_addresses_are_drawn_in_one_step() -> None:
    """An interruption cannot end them, nor another thread change their order, as each could in a step in Python."""

    def interrupt(frame: FrameType, event: str, value: object) -> Any:
        raise InterruptedError

    keys = Mock()
    keys.parts.return_value = ["bell"]
    origin, drawn, before = Origin(keys, KeyRing("test", None), Observers()), list[str](), sys.gettrace()
    for _ in range(1_200):
        sys.settrace(interrupt)
        try:
            drawn.append(origin.new_address())
        finally:
            sys.settrace(before)
    assert drawn == sorted(set(drawn))
    assert [drawn[number - 1] for number in (9, 10, 1_200)] == [f"{origin.id}.{end}" for end in ("19", "210", "41200")]
