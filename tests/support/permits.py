"""Every kind of permit that one holder, or so many, can have: what the contract of the family runs for."""

from dataclasses import dataclass
from typing import Protocol

from inconcert import Coordinator, Lease
from inconcert._core.permits import Permits
from inconcert._rules.durations import Seconds
from tests.support.raw import raw

__all__ = ["FAMILY", "Member", "fill", "lapse"]


class Make(Protocol):
    """Makes one, as users do."""

    def __call__(
        self, concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None
    ) -> Permits[Lease]: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One kind of thing that is acquired, and how many may have it at once."""

    title: str
    limit: int
    make: Make


def make_lock(
    concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None
) -> Permits[Lease]:
    """Make a lock."""
    return concert.lock(name, ttl=ttl, timeout=timeout)


def make_semaphore(limit: int) -> Make:
    """Make semaphores with this limit."""

    def make(concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None) -> Permits[Lease]:
        return concert.semaphore(name, limit=limit, ttl=ttl, timeout=timeout)

    return make


def make_wide_semaphore(
    concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None
) -> Permits[Lease]:
    """Make semaphores of which each holder takes two permits."""
    return concert.semaphore(name, limit=5, permits=2, ttl=ttl, timeout=timeout)


def make_write_lock(
    concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None
) -> Permits[Lease]:
    """Make the writers' side of a reader-writer lock."""
    return concert.rwlock(name, ttl=ttl, timeout=timeout).write()


def make_election(
    concert: Coordinator, name: str, *, ttl: Seconds = 30.0, timeout: Seconds | None = None
) -> Permits[Lease]:
    """Make an election."""
    return concert.election(name, ttl=ttl, timeout=timeout)


async def fill(permits: Permits[Lease], member: Member) -> list[Lease]:
    """Take all of them."""
    return [await permits.acquire(timeout=0) for _ in range(member.limit)]


async def lapse(concert: Coordinator, permits: Permits[Lease], lease: Lease) -> None:
    """Let the server's side of a lease end now; nobody is told."""
    entries = await raw(concert).zrange(permits._keys.holders, 0, -1)
    all_of_it = [entry for entry in entries if entry.decode().partition("+")[0] == lease.holder]
    if all_of_it:
        await raw(concert).zadd(permits._keys.holders, dict.fromkeys(all_of_it, 1), xx=True)


FAMILY = [
    Member("lock", 1, make_lock),
    Member("semaphore of 1", 1, make_semaphore(1)),
    Member("semaphore of 3", 3, make_semaphore(3)),
    Member("semaphore of 5, two at a time", 2, make_wide_semaphore),
    Member("write lock", 1, make_write_lock),
    Member("election", 1, make_election),
]
