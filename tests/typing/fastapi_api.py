"""User code for FastAPI that is never run: it only has to pass the type checkers."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, assert_type

from starlette.requests import HTTPConnection

from inconcert import Coordinator, Lease, RateDecision
from inconcert.integrations.fastapi import held, limited

concert = Coordinator()

assert_type(held(concert.lock, "order:{order_id}", timeout=2.0), Callable[[HTTPConnection], AsyncGenerator[Lease]])
assert_type(held(concert.semaphore, "render", limit=2), Callable[[HTTPConnection], AsyncGenerator[Lease]])
assert_type(
    limited(concert.rate_limiter, "api", limit=100, period=60.0),
    Callable[[HTTPConnection], Coroutine[Any, Any, RateDecision]],
)

held(concert.lock, "order", limit=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
held(concert.semaphore, "order")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
limited(concert.lock, "order")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
