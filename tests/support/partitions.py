"""Jobs of a coordinator with three partitions, one by one in the partition that a test wants."""

import itertools
import secrets
import zlib
from typing import Any

from inconcert import Coordinator, Job
from tests.support.raw import raw

__all__ = ["COUNT", "in_partition", "nothing_is_kept", "one_in_each"]

COUNT = 3


async def one_in_each(concert: Coordinator, **options: Any) -> list[Job[Any]]:
    """A job in each partition, in their order."""
    return [await in_partition(concert, number, **options) for number in range(COUNT)]


async def in_partition(concert: Coordinator, number: int, name: str = "t", **options: Any) -> Job[Any]:
    """A job in this partition, for it has a unique name that draws it."""
    drawn = (secrets.token_hex(4) for _ in itertools.count())
    unique = next(text for text in drawn if zlib.crc32(text.encode()) % COUNT == number)
    options.setdefault("queue", "q")
    return await concert.enqueue(name, unique=unique, **options)


async def nothing_is_kept(concert: Coordinator) -> None:
    """It is forgotten who ran after whom; what a consumer that was closed had in hand, too, after 5 s."""
    await raw(concert).delete(*(keys.passing for keys in concert._jobs.partitions))
    await concert.run_worker("nothing", burst=True)
    for keys in concert._jobs.partitions:
        kept = (keys.parents, keys.children, keys.followers, keys.outcomes, keys.news, keys.waiting)
        assert not await raw(concert).exists(*kept, keys.pending, keys.unfollowed, keys.passing)
