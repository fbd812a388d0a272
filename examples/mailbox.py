"""A mailbox: messages sent while the reader is away are there when they return.

A reader that acknowledges what it has handled loses nothing if it dies: the other messages are delivered again.  If it
stays away for too long, it learns how many messages were dropped.

    python -m examples.mailbox
"""

import asyncio

from inconcert import Coordinator


async def main() -> None:
    async with Coordinator.embedded() as concert:
        mailbox = concert.mailbox("jack451", ttl=1.0, max_messages=3)
        for number in range(1, 6):
            await mailbox.send({"parcel": number})
        print("unread:  ", await mailbox.unread())

        first, second = await mailbox.fetch(limit=2, ack=False)
        print("missed:  ", first.missed)
        print("handled: ", first.body)
        await mailbox.ack([first])
        print("crashed: ", second.body)

        print("handled: ", [message.body for message in await mailbox.fetch()])
        for message in await mailbox.fetch(timeout=5):  # waits until the claim has lapsed
            print("handled: ", message.body, "at attempt", message.attempt)

        waiting = asyncio.create_task(mailbox.fetch(timeout=5))
        await mailbox.send({"parcel": 6})
        print("woken by:", (await waiting)[0].body)


if __name__ == "__main__":
    asyncio.run(main())
