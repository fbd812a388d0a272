"""User code that is never run: it only has to pass the type checkers, with the types that users rely on."""

import os
from datetime import timedelta
from pathlib import Path
from typing import assert_type

import redis.asyncio

from inconcert import (
    AcquireTimeout,
    Coordinator,
    InconcertError,
    InvalidName,
    Lease,
    LeaseLost,
    Lock,
    NotConnected,
    NotHeld,
    OutcomeUnknown,
    Semaphore,
    Unavailable,
    WrongState,
)

concert = Coordinator("redis://localhost:6379/0", namespace="shop", timeout=timedelta(seconds=5))
lock = concert.lock("item:42", ttl=30.0, timeout=timedelta(minutes=1))
semaphore = concert.semaphore("payment", limit=5, ttl=timedelta(seconds=10), timeout=None)
assert_type(concert, Coordinator)
assert_type(lock, Lock)
assert_type(semaphore, Semaphore)


class Shop(Coordinator):
    """What a subclass makes is its own kind."""


assert_type(Coordinator.from_client(redis.asyncio.Redis(), namespace="shop"), Coordinator)
assert_type(Coordinator.from_env(), Coordinator)
assert_type(Coordinator.embedded(), Coordinator)
assert_type(Coordinator.embedded(Path("data")), Coordinator)
assert_type(Coordinator.embedded(os.fspath("data"), timeout=1), Coordinator)
assert_type(Shop.embedded(), Shop)
assert_type(concert.url, str | None)


async def open_and_close() -> None:
    """A coordinator is itself in `async with`."""
    async with concert as opened:
        assert_type(opened, Coordinator)
    async with Shop() as shop:
        assert_type(shop, Shop)


async def use_the_client() -> None:
    """The shared client is redis-py's."""
    assert_type(concert.redis, redis.asyncio.Redis)


async def enter_bodies() -> None:
    """What `async with` gives is a lease, with its facts."""
    async with lock as lease, semaphore as permit:
        assert_type(lease, Lease)
        assert_type(permit, Lease)
        assert_type(lease.fencing_token, int)
        assert_type(lease.remaining, float)
        assert_type(lease.is_lost, bool)
        assert_type(lease.name, str)
        assert_type(lease.kind, str)
        assert_type(lease.holder, str)


async def body_that_returns() -> int:
    """`async with` lets nothing fall through: the checkers see that this always returns or raises."""
    async with lock:
        return 1


async def acquire_by_hand() -> None:
    """The verbs."""
    lease = await lock.acquire()
    assert_type(lease, Lease)
    assert_type(await lock.acquire(timeout=2.0), Lease)
    assert_type(await lock.acquire(timeout=0), Lease)
    assert_type(await semaphore.acquire(timeout=None), Lease)
    assert_type(await semaphore.acquire(timeout=timedelta(seconds=1)), Lease)
    maybe = await lock.try_acquire()
    assert_type(maybe, Lease | None)
    if maybe is not None:
        await maybe.renew()
        await maybe.release()
    await lease.lost()


async def inspect() -> None:
    """What can be asked."""
    assert_type(await lock.locked(), bool)
    assert_type(await lock.holders(), list[str])
    assert_type(await semaphore.waiters(), int)


async def catch() -> None:
    """Errors carry facts, and the general kinds catch them."""
    try:
        await body_that_returns()
    except AcquireTimeout as error:
        assert_type(error.timeout, float)
        assert_type(error.kind, str)
        as_timeout: TimeoutError = error
        raise as_timeout from None
    except LeaseLost as error:
        assert_type(error.fencing_token, int)
        assert_type(error.name, str)
    except NotHeld as error:
        assert_type(error.kind, str)
    except InvalidName as error:
        as_value_error: ValueError = error
        raise as_value_error from None
    except (NotConnected, Unavailable, OutcomeUnknown, WrongState) as error:
        as_ours: InconcertError = error
        raise as_ours from None


async def mistakes() -> None:
    """What the checkers must refuse: were it accepted, the remark that ignores it would be an error of its own."""
    concert.semaphore("payment")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    concert.lock("item:42", 30.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    concert.lock(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    concert.lock("item:42", ttl="30")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await lock.acquire(2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await lock.try_acquire(timeout=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    (await lock.try_acquire()).release()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess, reportUnusedCoroutine]
