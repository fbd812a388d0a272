"""Group chats as textbooks have them, each with its defect; and ours, by the same verbs."""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from inconcert import ChatNotFound, NotAMember
from inconcert.testing import Process
from tests.mutants.locks import EndlessLock

__all__ = ["CAP", "ChatRecipe", "Handler", "LockedChat", "OurChat"]

CAP = 20  # messages that a chat keeps for those who do not read

Handler = Callable[[int], Awaitable[None]]


class ChatRecipe(ABC):
    """A way to keep group chats.

    Args:
        process: Which process uses it.
    """

    def __init__(self, process: Process) -> None:
        self.redis = process.client
        self.process = process

    @abstractmethod
    async def create(self, users: Sequence[str]) -> Any:
        """Make a chat of these, with a message of the first."""

    @abstractmethod
    async def send(self, chat: Any, user: str) -> int | None:
        """Send a message; its id, or None if it was refused."""

    @abstractmethod
    async def read(self, user: str, handle: Handler) -> None:
        """Handle all that is new to a user, one after the other."""

    @abstractmethod
    async def join(self, chat: Any, user: str) -> None:
        """Become a member."""

    @abstractmethod
    async def leave(self, chat: Any, user: str) -> None:
        """Be a member no more."""

    @abstractmethod
    async def position(self, chat: Any, user: str) -> int:
        """How far a user has read."""


class LockedChat(ChatRecipe):
    """One lock for all who send, an id and its message in two steps, and a position that moves before the work."""

    async def create(self, users: Sequence[str]) -> int:
        chat: int = await self.redis.incr("chats")
        async with self.redis.pipeline() as pipe:
            pipe.zadd(f"members:{chat}", dict.fromkeys(users, 0))
            for user in users:
                pipe.zadd(f"seen:{user}", {str(chat): 0})
            await pipe.execute()
        await self.send(chat, users[0])
        return chat

    async def send(self, chat: int, user: str) -> int | None:
        lock = EndlessLock(self.process, key=f"lock:{chat}")
        locked = await lock.acquire(timeout=10)
        if locked is None:
            return None
        id_: int = await self.redis.incr(f"ids:{chat}")
        await self.redis.zadd(f"messages:{chat}", {json.dumps([id_, user]): id_})
        await lock.release(locked)
        return id_

    async def read(self, user: str, handle: Handler) -> None:
        for chat, seen in await self.redis.zrange(f"seen:{user}", 0, -1, withscores=True):
            messages = await self.redis.zrangebyscore(f"messages:{chat}", seen + 1, "inf")
            ids = [json.loads(message)[0] for message in messages]
            if ids:
                await self._move(chat, user, ids[-1])
            for id_ in ids:
                await handle(id_)

    async def _move(self, chat: Any, user: str, id_: int) -> None:
        await self.redis.zadd(f"members:{chat}", {user: id_})
        slowest = await self.redis.zrange(f"members:{chat}", 0, 0, withscores=True)
        async with self.redis.pipeline() as pipe:
            pipe.zadd(f"seen:{user}", {str(chat): id_})
            pipe.zremrangebyscore(f"messages:{chat}", 0, slowest[0][1])
            await pipe.execute()

    async def join(self, chat: int, user: str) -> None:
        latest = int(await self.redis.get(f"ids:{chat}"))
        async with self.redis.pipeline() as pipe:
            pipe.zadd(f"members:{chat}", {user: latest})
            pipe.zadd(f"seen:{user}", {str(chat): latest})
            await pipe.execute()

    async def leave(self, chat: int, user: str) -> None:
        async with self.redis.pipeline() as pipe:
            pipe.zrem(f"members:{chat}", user)
            pipe.zrem(f"seen:{user}", chat)
            pipe.zcard(f"members:{chat}")
            left = (await pipe.execute())[-1]
        if left == 0:
            await self.redis.delete(f"messages:{chat}", f"ids:{chat}")

    async def position(self, chat: int, user: str) -> int:
        return int(await self.redis.zscore(f"members:{chat}", user))


class OurChat(ChatRecipe):
    """`concert.chat`."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._chat = process.concert.chat

    async def create(self, users: Sequence[str]) -> str:
        return await self._chat.create(users[0], users[1:], "hello", max_messages=CAP)

    async def send(self, chat: Any, user: str) -> int | None:
        try:
            return (await self._chat.send(str(chat), user, "hello")).id
        except (ChatNotFound, NotAMember):
            return None

    async def read(self, user: str, handle: Handler) -> None:
        for batch in await self._chat.fetch(user, ack=False):
            for message in batch.messages:
                await handle(message.id)
                await self._chat.ack(user, batch.chat_id, message.id)

    async def join(self, chat: str, user: str) -> None:
        await self._chat.join(chat, user)

    async def leave(self, chat: str, user: str) -> None:
        await self._chat.leave(chat, user)

    async def position(self, chat: str, user: str) -> int:
        return (await self._chat.members(chat))[user]
