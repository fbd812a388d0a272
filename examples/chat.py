"""Chat: each member gets everything once, at a time of their own.

A message stays until all members have read it; nobody needs to be connected, and a new member gets what comes after.

    python -m examples.chat
"""

import asyncio

from inconcert import Coordinator


async def show(concert: Coordinator, user: str) -> None:
    """Print what is new to a user, in all of their chats."""
    for batch in await concert.chat.fetch(user):
        news = "  ".join(f"{message.sender}: {message.body}" for message in batch.messages)
        print(f"{user:4} reads  {news}")


async def main() -> None:
    async with Coordinator.embedded() as concert:
        chat = concert.chat
        chat_id = await chat.create("ann", ["bob", "cy"], "Lunch at one?")
        await chat.send(chat_id, "bob", "Yes!")
        await show(concert, "cy")

        await chat.send(chat_id, "cy", "Make it two.")
        await chat.join(chat_id, "dee")
        await chat.send(chat_id, "ann", "Two it is.")
        for user in ("bob", "cy", "dee"):
            await show(concert, user)

        print(f"read up to   {await chat.members(chat_id)}")


if __name__ == "__main__":
    asyncio.run(main())
