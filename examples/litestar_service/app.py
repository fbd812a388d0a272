"""A small shop on Litestar: locks, limits, requests that may be repeated, chats, and a worker beside it.

    uvicorn examples.litestar_service.app:app --timeout-graceful-shutdown 10

INCONCERT_URL names the server. A real service would ask for a password; here the header X-User says who asks.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from litestar import Litestar, MediaType, Request, Response, get, post, put
from litestar.di import NamedDependency, Provide
from litestar.middleware import DefineMiddleware
from litestar.params import FromPath, HeaderParameter, JSONBody

from inconcert import Coordinator, Lease, RateDecision
from inconcert.integrations.litestar import (
    Idempotency,
    InconcertPlugin,
    chat_stream,
    held,
    limited,
    run_worker,
    while_connected,
)

concert = Coordinator.from_env()

User = Annotated[str, HeaderParameter(name="X-User")]
order_lock = Provide(held(concert.lock, "order:{order_id}", timeout=2.0))
limit = Provide(limited(concert.rate_limiter, "api:{client}", limit=100, period=60.0))


@concert.task
async def send_receipt(order_id: str) -> str:
    """What takes longer than a customer wants to wait."""
    return f"the receipt of {order_id} is sent"


@asynccontextmanager
async def with_worker(_: Litestar) -> AsyncGenerator[None]:
    async with run_worker(concert, "default", concurrency=10):
        yield


def user_of(request: Request[Any, Any, Any]) -> str:
    """Who asks."""
    return request.headers.get("x-user", "")


@post("/orders/{order_id:str}/pay", dependencies={"order_lock": order_lock})
async def pay(
    order_id: FromPath[str], order_lock: NamedDependency[AbstractAsyncContextManager[Lease]]
) -> dict[str, str]:
    """Pay an order, once, however often the client repeats a request with the same `Idempotency-Key`."""
    async with order_lock as order:
        number = await concert.redis.incr(f"shop:charges:{order_id}")
        job = await send_receipt.enqueue(order_id)
    return {"charge": f"{order_id}-{number}", "fencing_token": str(order.fencing_token), "job": job.id}


@get("/jobs/{job_id:str}", dependencies={"limit": limit})
async def result(
    request: Request[Any, Any, Any],
    job_id: FromPath[str],
    limit: NamedDependency[RateDecision],  # noqa: ARG001
) -> dict[str, str]:
    """Wait for the end of a job, as long as the client does."""
    async with while_connected(request):
        return {"result": str(await concert.tasks.job(job_id).result(timeout=30.0))}


@post("/chats")
async def begin(data: JSONBody[dict[str, str]], user: User) -> Response[str]:
    """Begin a chat; its id."""
    chat_id = await concert.chat.create(user, [data["to"]], data["text"])
    return Response(json.dumps(chat_id), media_type=MediaType.JSON)


@get("/messages")
async def messages(request: Request[Any, Any, Any], user: User) -> Response[bytes]:
    """What is new in the chats of a user, as it comes: `new EventSource("/messages")` in a browser."""
    return chat_stream(request, concert, user)


@put("/chats/{chat_id:str}/read/{message_id:int}", status_code=204)
async def read(chat_id: FromPath[str], message_id: FromPath[int], user: User) -> None:
    """The user has seen the chat up to this message."""
    await concert.chat.ack(user, chat_id, message_id)


app = Litestar(
    [pay, result, begin, messages, read],
    plugins=[InconcertPlugin(concert)],
    lifespan=[with_worker],
    middleware=[DefineMiddleware(Idempotency, concert=concert, user=user_of)],
)
