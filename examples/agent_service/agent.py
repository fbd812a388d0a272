"""An agent that helps a customer: it asks a model what to do, uses tools, and asks a human before it pays.

    inconcert worker examples.agent_service.agent:concert --queues agent

Each call of the model or of a tool is a step. If the worker dies, the next one gets what is kept of them, and goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta

from examples.agent_service import model
from examples.agent_service.model import Message
from inconcert import Coordinator, durable

concert = Coordinator.from_env()


@dataclass
class Said:
    """What the page shows: words of the model, what a tool did, or a question to a human."""

    kind: str
    text: str


async def look_up(key: str) -> str:
    """Look for the order; the key is for refunds."""
    return f"order 17: a lamp, 40 euros (request {key})"


async def refund(key: str) -> str:
    """Pay back; a bank that gets the key a second time does nothing."""
    return f"40 euros paid back (request {key})"


TOOLS = {"look_up": look_up, "refund": refund}


@concert.task(queue="agent")
async def answer(question: str) -> AsyncIterator[Said]:
    """Talk with the model until it wants no more tools."""
    conversation = [Message("user", question)]
    while True:
        async with aclosing(reply(conversation)) as words:
            async for word in words:
                yield Said("model", word)
        tool = conversation[-1].tool
        if tool is None:
            return
        if tool == "refund":
            yield Said("asks", "May the agent pay 40 euros back?")
            if not await durable.wait_for("approval", bool, timeout=timedelta(days=3)):
                yield Said("tool", "the refund was refused")
                return
        call = f"{tool} {len(conversation)}"  # a tool may be used more than once
        result = await durable.step(call, TOOLS[tool], durable.key(call))
        yield Said("tool", result)
        conversation.append(Message("tool", result))


async def reply(conversation: list[Message]) -> AsyncGenerator[str]:
    """Add the next message of the model, with its words as they come; a message that is kept comes in one go."""
    words: asyncio.Queue[str] = asyncio.Queue()
    step = durable.step(f"message {len(conversation)}", model.ask, conversation, words.put_nowait)
    call = asyncio.create_task(step)
    call.add_done_callback(lambda _: words.put_nowait(""))
    is_kept = True
    try:
        while word := await words.get():
            is_kept = False
            yield word
        message = await call
    finally:
        call.cancel()
        await asyncio.wait([call])
    if is_kept:
        yield message.text + " "
    conversation.append(message)
