"""The agent, with a model that notes each call in a file, and holds its second answer until there is a file `go`."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from examples.agent_service import model
from examples.agent_service.agent import concert
from tests.support.eventually import eventually

__all__ = ["concert"]

_FOLDER = Path(os.environ["AGENT_FOLDER"])
_model = model.ask


async def ask(conversation: Sequence[model.Message], on_word: Callable[[str], object]) -> model.Message:
    """Ask the model of the example, and have its words without a pause."""
    with (_FOLDER / "calls").open("a") as calls:
        calls.write(f"{len(conversation)}\n")
    message = await _model(conversation, on_word)
    if len(conversation) > 1:
        await eventually((_FOLDER / "go").exists, timeout=60.0)
    return message


model.PACE = 0.0
model.ask = ask
