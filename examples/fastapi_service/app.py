"""A small shop on FastAPI: locks, limits, requests that may be repeated, chats, and a worker beside it.

    uvicorn examples.fastapi_service.app:app --timeout-graceful-shutdown 10

INCONCERT_URL names the server. A real service would ask for a password; here the header X-User says who asks.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, Depends, FastAPI, Header, Request, Response

from inconcert import Coordinator, Lease
from inconcert.integrations.fastapi import (
    Idempotency,
    cancel_on_disconnect,
    chat_stream,
    held,
    install,
    lifespan,
    limited,
    run_worker,
)

concert = Coordinator.from_env()


@concert.task
async def send_receipt(order_id: str) -> str:
    """What takes longer than a customer wants to wait."""
    return f"the receipt of {order_id} is sent"


@asynccontextmanager
async def with_worker(app: FastAPI) -> AsyncGenerator[None]:  # noqa: ARG001 - FastAPI passes it
    async with run_worker(concert, "default", concurrency=10):
        yield


def user_of(request: Request) -> str:
    """Who asks."""
    return request.headers.get("x-user", "")


app = FastAPI(lifespan=lifespan(concert, with_worker))
app.add_middleware(Idempotency, concert, user=user_of)
install(app, concert)

User = Annotated[str, Header(alias="X-User")]
order_lock = Depends(held(concert.lock, "order:{order_id}", timeout=2.0), scope="function")
limit = Depends(limited(concert.rate_limiter, "api:{client}", limit=100, period=60.0))


@app.post("/orders/{order_id}/pay", status_code=201)
async def pay(order_id: str, order: Annotated[Lease, order_lock]) -> dict[str, str]:
    """Pay an order, once, however often the client repeats a request with the same `Idempotency-Key`."""
    number = await concert.redis.incr(f"shop:charges:{order_id}")
    job = await send_receipt.enqueue(order_id)
    return {"charge": f"{order_id}-{number}", "fencing_token": str(order.fencing_token), "job": job.id}


@app.get("/jobs/{job_id}", dependencies=[limit, Depends(cancel_on_disconnect, scope="function")])
async def result(job_id: str) -> dict[str, str]:
    """Wait for the end of a job, as long as the client does."""
    return {"result": str(await concert.tasks.job(job_id).result(timeout=30.0))}


@app.post("/chats", status_code=201)
async def begin(user: User, to: Annotated[str, Body(embed=True)], text: Annotated[str, Body(embed=True)]) -> str:
    """Begin a chat; its id."""
    return await concert.chat.create(user, [to], text)


@app.get("/messages")
async def messages(request: Request, user: User) -> Response:
    """What is new in the chats of a user, as it comes: `new EventSource("/messages")` in a browser."""
    return chat_stream(request, concert, user)


@app.put("/chats/{chat_id}/read/{message_id}", status_code=204)
async def read(chat_id: str, message_id: int, user: User) -> None:
    """The user has seen the chat up to this message."""
    await concert.chat.ack(user, chat_id, message_id)
