"""Jobs that end while workers are killed and replies are lost, so that a test can count what is noted of their ends."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, TypeAlias

from inconcert import Coordinator, Task
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.jobs import LEASE
from tests.support.processes import spawn, tell
from tests.support.proxy import Proxy
from tests.support.short_lease import with_lease

__all__ = ["Register", "kill_three_workers", "losing_a_reply"]

_WITHIN = 30.0  # seconds

Register: TypeAlias = Callable[[Coordinator], Task[[int], Any]]
"""A module's function `register`, which declares the task; for the test, and for the processes that are killed."""


async def work(url: str, namespace: str, module: str) -> None:
    """In a child: run jobs until it is killed."""
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as concert:
        import_module(module).register(concert)
        tell("works")
        await concert.run_worker("default", concurrency=4)


async def kill_three_workers(
    url: str,
    namespace: str,
    register: Register,
    *,
    ended: Callable[[], Awaitable[int]],
    of: int,
    are_over: Callable[[], Awaitable[bool]],
) -> None:
    """Kill -9 a worker when a quarter of the jobs has `ended`, two quarters, three; another one runs the rest."""
    for killed in range(1, 4):
        async with spawn(f"{__name__}:work", url, namespace, register.__module__) as child:
            await child.wait_for("works")

            async def some_have_ended(count: int = killed * of // 4) -> bool:
                return await ended() >= count

            await eventually(some_have_ended, timeout=_WITHIN)
            child.kill()
    async with with_lease(Coordinator(url, namespace=namespace), LEASE) as last:
        register(last)
        async with in_background(last.run_worker("default")):
            await eventually(are_over, timeout=_WITHIN)


@asynccontextmanager
async def losing_a_reply(proxy: Proxy, namespace: str, register: Register, after: int) -> AsyncIterator[Coordinator]:
    """A coordinator that loses a reply after so many, in the body or in the worker that runs the jobs then."""
    async with Coordinator(proxy.url, namespace=namespace) as bad:
        register(bad)
        proxy.cut_after_replies(after, lose_next=True)
        yield bad
        await bad.run_worker("default", burst=True)
    await proxy.heal()
