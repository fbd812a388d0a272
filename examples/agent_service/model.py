"""The model of the agent: pretended, so that the example runs by itself. Put yours in the place of `ask`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

PACE = 0.3  # seconds for a word

Tool = Literal["look_up", "refund"]

_REPLIES: tuple[tuple[str, Tool | None], ...] = (
    ("I look at your order first.", "look_up"),
    ("It broke on its way to you. I would like to pay you back.", "refund"),
    ("Thank you for telling us. Is there anything else?", None),
)


@dataclass
class Message:
    """A part of the conversation; `tool` is what the model wants to use next."""

    role: Literal["user", "model", "tool"]
    text: str
    tool: Tool | None = None


async def ask(conversation: Sequence[Message], on_word: Callable[[str], object]) -> Message:
    """Ask for the next message, and get its words as they come."""
    text, tool = _REPLIES[sum(message.role == "model" for message in conversation)]
    for word in text.split(" "):
        await asyncio.sleep(PACE)
        on_word(word + " ")
    return Message("model", text, tool)
