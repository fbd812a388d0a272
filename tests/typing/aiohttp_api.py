"""User code for aiohttp that is never run: it only has to pass the type checkers."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import assert_type

from aiohttp import web

from inconcert import Coordinator, Lease, RateDecision
from inconcert.integrations.aiohttp import COORDINATOR, Idempotency, held, install, limited

concert = Coordinator()
app = web.Application()
install(app, concert)
app.middlewares.append(Idempotency(concert, user=lambda request: request.headers["X-User"]))

assert_type(app[COORDINATOR], Coordinator)
assert_type(
    held(concert.lock, "order:{order_id}", timeout=2.0), Callable[[web.Request], AbstractAsyncContextManager[Lease]]
)
assert_type(
    limited(concert.rate_limiter, "api", limit=100, period=60.0), Callable[[web.Request], Awaitable[RateDecision]]
)

held(concert.semaphore, "order")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
limited(concert.lock, "order")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
