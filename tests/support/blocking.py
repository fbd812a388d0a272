"""Commands of a thread to the server of a pool, as while an event loop is blocked."""

from collections.abc import Generator
from contextlib import closing, contextmanager

from inconcert._redis.blocking.blocking_channel import BlockingChannel
from inconcert._redis.blocking.blocking_pools import twin_of
from inconcert._redis.blocking.blocking_server import BlockingServer
from inconcert._redis.wire.wire import Pool

__all__ = ["blocking_channel"]


@contextmanager
def blocking_channel(pool: Pool) -> Generator[BlockingChannel]:
    """A channel to the server of this pool."""
    twin = twin_of(pool, timeout=5)
    assert twin is not None
    with closing(BlockingChannel(BlockingServer(twin, timeout=5), timeout=5)) as channel:
        yield channel
