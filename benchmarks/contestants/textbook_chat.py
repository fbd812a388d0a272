"""Group chat as textbooks teach it: sorted sets, a lock around each new message, and a pipeline for each look.

Faithful to the recipe, step by step, its faults included: the lock has no end, so a sender that dies under it stops
the chat for ever; what a reader had fetched when it died is lost; two who fetch for one user get everything twice.
`tests/mutants/` shows them.  Bodies are JSON, as ours are.
"""

import asyncio
import json
import time
import uuid
from typing import Any

import redis.asyncio
from redis.exceptions import WatchError

__all__ = ["TextbookChat"]

LOCK_TIMEOUT = 10  # seconds
SPIN = 0.001  # seconds between two tries


class TextbookChat:
    """The chats on one server.

    chat:ID  zset     user -> id of the last message seen
    seen:U   zset     chat -> the same, for one user
    msgs:ID  zset     message -> its id
    ids:ID   integer  the last id
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.client: Any = client  # redis-py's type hints of replies are too wide

    async def create(self, sender: str, recipients: list[str], text: str) -> str:
        """Make a chat with a first message."""
        chat = str(await self.client.incr("ids:chat:"))
        users = [sender, *recipients]
        async with self.client.pipeline(transaction=True) as pipeline:
            pipeline.zadd(f"chat:{chat}", dict.fromkeys(users, 0))
            for user in users:
                pipeline.zadd(f"seen:{user}", {chat: 0})
            await pipeline.execute()
        await self.send(chat, sender, text)
        return chat

    async def send(self, chat: str, sender: str, text: str) -> None:
        """Draw an id and store the message, under a lock."""
        token = await self._acquire(f"lock:chat:{chat}")
        try:
            number = await self.client.incr(f"ids:{chat}")
            message = json.dumps({"id": number, "ts": time.time(), "sender": sender, "message": text})
            await self.client.zadd(f"msgs:{chat}", {message: number})
        finally:
            await self._release(f"lock:chat:{chat}", token)

    async def fetch(self, user: str) -> int:
        """How many messages were new; they count as seen."""
        seen = await self.client.zrange(f"seen:{user}", 0, -1, withscores=True)
        chats = [(chat.decode(), position) for chat, position in seen]
        async with self.client.pipeline(transaction=True) as pipeline:
            for chat, position in chats:
                pipeline.zrangebyscore(f"msgs:{chat}", position + 1, "inf")
            found = await pipeline.execute()
            count = 0
            for (chat, _), texts in zip(chats, found, strict=True):
                if not texts:
                    continue
                messages = [json.loads(text) for text in texts]
                count += len(messages)
                last = messages[-1]["id"]
                await self.client.zadd(f"chat:{chat}", {user: last})
                [(_, seen_by_all)] = await self.client.zrange(f"chat:{chat}", 0, 0, withscores=True)
                pipeline.zadd(f"seen:{user}", {chat: last})
                pipeline.zremrangebyscore(f"msgs:{chat}", 0, seen_by_all)
            await pipeline.execute()
        return count

    async def _acquire(self, name: str) -> str:
        token = str(uuid.uuid4())
        give_up_at = time.monotonic() + LOCK_TIMEOUT
        while time.monotonic() < give_up_at:
            if await self.client.setnx(name, token):
                return token
            await asyncio.sleep(SPIN)
        raise TimeoutError(name)

    async def _release(self, name: str, token: str) -> None:
        async with self.client.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    await pipeline.watch(name)
                    if await pipeline.get(name) == token.encode():
                        pipeline.multi()
                        pipeline.delete(name)
                        await pipeline.execute()
                    return
                except WatchError:
                    continue
