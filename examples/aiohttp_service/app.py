"""A small shop on aiohttp: locks, limits, requests that may be repeated, chats, and a worker beside it.

    python -m aiohttp.web -P 8080 examples.aiohttp_service.app:make_app

INCONCERT_URL names the server. A real service would ask for a password; here the header X-User says who asks.
"""

from collections.abc import AsyncIterator

from aiohttp import web

from inconcert import Coordinator
from inconcert.integrations.aiohttp import (
    Idempotency,
    chat_socket,
    chat_stream,
    held,
    install,
    limited,
    run_worker,
    while_connected,
)

concert = Coordinator.from_env()
routes = web.RouteTableDef()

order_lock = held(concert.lock, "order:{order_id}", timeout=2.0)
limit = limited(concert.rate_limiter, "api:{client}", limit=100, period=60.0)


@concert.task
async def send_receipt(order_id: str) -> str:
    """What takes longer than a customer wants to wait."""
    return f"the receipt of {order_id} is sent"


def user_of(request: web.Request) -> str:
    """Who asks."""
    return request.headers.get("X-User", "")


@routes.post("/orders/{order_id}/pay")
async def pay(request: web.Request) -> web.Response:
    """Pay an order, once, however often the client repeats a request with the same `Idempotency-Key`."""
    order_id = request.match_info["order_id"]
    async with order_lock(request) as order:
        number = await concert.redis.incr(f"shop:charges:{order_id}")
        job = await send_receipt.enqueue(order_id)
    paid = {"charge": f"{order_id}-{number}", "fencing_token": str(order.fencing_token), "job": job.id}
    return web.json_response(paid, status=201)


@routes.get("/jobs/{job_id}")
async def result(request: web.Request) -> web.Response:
    """Wait for the end of a job, as long as the client does."""
    await limit(request)
    async with while_connected(request):
        found = await concert.tasks.job(request.match_info["job_id"]).result(timeout=30.0)
    return web.json_response({"result": str(found)})


@routes.post("/chats")
async def begin(request: web.Request) -> web.Response:
    """Begin a chat; its id."""
    asked = await request.json()
    return web.json_response(await concert.chat.create(user_of(request), [asked["to"]], asked["text"]), status=201)


@routes.get("/messages")
async def messages(request: web.Request) -> web.StreamResponse:
    """What is new in the chats of a user, as it comes: `new EventSource("/messages")` in a browser."""
    return await chat_stream(request, concert, user_of(request))


@routes.get("/socket")
async def socket(request: web.Request) -> web.StreamResponse:
    """The same over a WebSocket, by which the client also says what the user has seen."""
    return await chat_socket(request, concert, user_of(request))


@routes.put(r"/chats/{chat_id}/read/{message_id:\d+}")
async def read(request: web.Request) -> web.Response:
    """The user has seen the chat up to this message."""
    chat_id, message_id = request.match_info["chat_id"], int(request.match_info["message_id"])
    await concert.chat.ack(user_of(request), chat_id, message_id)
    return web.Response(status=204)


async def with_worker(_: web.Application) -> AsyncIterator[None]:
    async with run_worker(concert, "default", concurrency=10):
        yield


def make_app(argv: list[str]) -> web.Application:  # noqa: ARG001
    """Make the application that `python -m aiohttp.web` runs."""
    app = web.Application()
    install(app, concert)
    app.middlewares.append(Idempotency(concert, user=user_of))
    app.cleanup_ctx.append(with_worker)
    app.add_routes(routes)
    return app
