"""What tests do to schedules beside their users: let time have passed, and look as a worker does."""

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from inconcert import Coordinator
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.schedules import schedule_follower
from inconcert.tasks.schedules.schedule_follower import PartitionFollower
from inconcert.tasks.schedules.stored_schedule import id_prefix
from tests.support.eventually import eventually
from tests.support.ledger import read_ledger
from tests.support.raw import raw

__all__ = [
    "followers",
    "following",
    "job_ids",
    "keys_of",
    "look_at_all",
    "next_look",
    "now_ms",
    "set_since",
    "tenth_of",
]


def keys_of(concert: Coordinator, id_: str) -> JobKeys:
    """Where a schedule lies."""
    return concert._jobs.of_id(id_prefix(id_))


def following(concert: Coordinator) -> AbstractAsyncContextManager[None]:
    """What a worker runs beside its jobs."""
    return schedule_follower.following(concert._ref, concert._jobs, concert._registry.schedules)


def followers(concert: Coordinator) -> list[PartitionFollower]:
    """Its part for each partition."""
    return schedule_follower.followers(concert._ref, concert._jobs, concert._registry.schedules)


async def look_at_all(concert: Coordinator) -> float:
    """Look once, as a worker does; how many seconds it would sleep then."""
    return min([await partition.look() for partition in followers(concert)])


async def next_look(concert: Coordinator, id_: str) -> str | None:
    """Look as a worker does when the next instant has come; the id of its job, if it has a new one."""
    before, keys, client = await job_ids(concert), keys_of(concert, id_), raw(concert)
    since = int((await client.hget(keys.schedules, id_)).split()[0])

    async def is_past() -> bool:
        await client.zadd(keys.looks, {id_: 0})
        await look_at_all(concert)
        return bool(int((await client.hget(keys.schedules, id_)).split()[0]) > since)

    await eventually(is_past)
    return next((job for job in await job_ids(concert) if job not in before), None)


async def set_since(concert: Coordinator, id_: str, since_ms: int) -> None:
    """Let the last instant that is done with be so, and the schedule be due to be looked at."""
    keys, client = keys_of(concert, id_), raw(concert)
    _, rest = (await client.hget(keys.schedules, id_)).decode().split(" ", 1)
    await client.hset(keys.schedules, id_, f"{since_ms} {rest}")
    await client.zadd(keys.looks, {id_: 0})


async def now_ms(concert: Coordinator) -> int:
    """The server's clock."""
    client: Any = raw(concert)
    seconds, microseconds = await client.time()
    return int(seconds * 1000 + microseconds // 1000)


async def job_ids(concert: Coordinator) -> list[str]:
    """The ids of all jobs, sorted."""
    return sorted((await read_ledger(raw(concert), concert._ref.keys.namespace)).bodies)


def tenth_of(job_id: str) -> int:
    """The number of the instant."""
    return round(datetime.fromisoformat(job_id.partition("@")[2]).timestamp() * 10)
