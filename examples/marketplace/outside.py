"""The world outside the marketplace: a bank and a post office.

Both are stand-ins with a delay, and both keep records in Redis, where the demo reads afterwards what happened.
These records are the check on the marketplace, so nothing here uses a lock: every call is let in, and counted.
"""

import asyncio
import json
import os
import random
import time
from dataclasses import asdict, dataclass

from redis.asyncio import Redis


async def charge(redis: Redis, item_id: str) -> None:
    """Take the money for an item; the bank records how many calls are inside at once."""
    inside = await redis.incr("bank:inside")
    try:
        await redis.zadd("bank:most", {"inside": inside}, gt=True)  # raised only if greater
        await asyncio.sleep(random.uniform(0.08, 0.12))
        await redis.hincrby("bank:charges", item_id, 1)
    finally:
        await redis.decr("bank:inside")


async def refund(redis: Redis, item_id: str) -> None:
    """Refund the money for an item."""
    await redis.hincrby("bank:refunds", item_id, 1)


@dataclass(frozen=True, slots=True)
class Mail:
    to: str
    subject: str
    sent_at: float  # seconds since 1970
    due_at: float | None  # the same, if it was delayed
    sent_by: int  # process


async def send_mail(redis: Redis, to: str, subject: str, *, key: str, due_at: float | None = None) -> None:
    """Send an e-mail, unless one with the same idempotency key was sent before."""
    await redis.hset("post:counter", key, os.getpid())
    await asyncio.sleep(0.004)
    mail = Mail(to, subject, time.time(), due_at, os.getpid())
    if not await redis.hsetnx("post:sent", key, json.dumps(asdict(mail))):
        await redis.incr("post:refused")
    await redis.hdel("post:counter", key)


async def mail_at_the_counter(redis: Redis, process: int) -> set[str]:
    """The keys of the e-mails that a process has begun to send, and that are not sent."""
    begun = {_text(key) for key, pid in (await redis.hgetall("post:counter")).items() if int(pid) == process}
    return {key for key in begun if not await redis.hexists("post:sent", key)}


async def are_sent(redis: Redis, keys: set[str]) -> bool:
    """Whether the e-mails with these keys were all sent."""
    return all(await redis.hmget("post:sent", *keys))


async def sent_mail(redis: Redis) -> dict[str, Mail]:
    """All e-mails ever sent, by their idempotency keys."""
    return {_text(key): Mail(**json.loads(mail)) for key, mail in (await redis.hgetall("post:sent")).items()}


async def account(redis: Redis) -> tuple[dict[str, int], int]:
    """How often each item was paid for, and the largest number of payments inside the bank at once."""
    charges = {_text(item): int(count) for item, count in (await redis.hgetall("bank:charges")).items()}
    return charges, int(await redis.zscore("bank:most", "inside") or 0)


def _text(reply: bytes | str) -> str:
    return reply if isinstance(reply, str) else reply.decode()
