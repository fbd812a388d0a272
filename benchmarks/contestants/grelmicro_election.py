"""grelmicro's election; a lease of another length keeps the proportions of its defaults."""
# grelmicro is not installed where types are checked.
# pyright: basic, reportMissingImports=false

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from grelmicro.sync.leaderelection import LeaderElection
from grelmicro.sync.redis import RedisSyncBackend

__all__ = ["leading"]


@asynccontextmanager
async def leading(url: str, ttl: float) -> AsyncGenerator[None]:
    """Stand for election, and lead while the body runs."""
    backend = RedisSyncBackend(url)
    election = LeaderElection(
        "bench",
        backend=backend,
        lease_duration=ttl,
        renew_deadline=ttl * 10 / 15,
        retry_interval=ttl * 2 / 15,
        backend_timeout=ttl * 5 / 15,
    )
    async with backend, anyio.create_task_group() as tasks:
        await tasks.start(election)
        async with election:
            yield
        tasks.cancel_scope.cancel()
