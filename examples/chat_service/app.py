"""Chat in the browser: one WebSocket for each user, on any number of processes.

    python -m aiohttp.web -P 8080 examples.chat_service.app:make_app

INCONCERT_URL names the server. A user connects to /users/NAME; a real service would ask for a password. All is in JSON:

    we send  {"unread": {chat: number}}                               once, at the beginning
             {"chat": chat, "messages": [...], "missed": number}      whenever there is something new
             {"chat": chat, "history": [...]}                         when asked to open a chat
             {"error": text}                                          when asked for something impossible
    we get   {"do": "create", "users": [user, ...], "text": text}
             {"do": "send", "chat": chat, "text": text}
             {"do": "open", "chat": chat}                             and "before": id, for older ones
             {"do": "add", "chat": chat, "user": user}                and likewise "remove"
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from weakref import WeakSet

from aiohttp import WSCloseCode, web

from inconcert import Coordinator, InconcertError

concert = Coordinator.from_env()
routes = web.RouteTableDef()
sockets = WeakSet[web.WebSocketResponse]()


@routes.get("/users/{user}")
async def connect(request: web.Request) -> web.WebSocketResponse:
    """Talk with a user until they leave; in any number of windows."""
    user = request.match_info["user"]
    socket = web.WebSocketResponse(heartbeat=20)
    await socket.prepare(request)
    sockets.add(socket)
    try:
        await socket.send_json({"unread": await concert.chat.unread(user)})
        async with asyncio.TaskGroup() as tasks:
            news = tasks.create_task(tell_news(socket, user))
            async for frame in socket:
                try:
                    answer = await do(user, **frame.json())
                except (InconcertError, TypeError, ValueError) as error:
                    answer = {"error": str(error)}
                if answer:
                    await socket.send_json(answer)
            news.cancel()
    except* ConnectionResetError:
        pass  # they left while we were sending
    return socket


async def tell_news(socket: web.WebSocketResponse, user: str) -> None:
    """Send what came while they were away, and then what comes. It counts as read when it was sent without an error."""
    async with aclosing(concert.chat.listen(user)) as news:
        async for batch in news:
            messages = [asdict(message) for message in batch.messages]
            await socket.send_json({"chat": batch.chat_id, "messages": messages, "missed": batch.missed})


async def do(
    by: str,
    *,
    do: str,
    chat: str = "",
    text: str = "",
    user: str = "",
    users: Sequence[str] = (),
    before: int | None = None,
) -> dict[str, object]:
    """Answer what a user asks for. A sender gets their own message as news, like the other members."""
    match do:
        case "create":
            await concert.chat.create(by, users, text, history=1_000)
        case "send":
            await concert.chat.send(chat, by, text)
        case "add":
            await concert.chat.add(chat, by, user)
        case "remove":
            await concert.chat.remove(chat, by, user)
        case "open":
            history = await concert.chat.history(chat, by, before=before)
            return {"chat": chat, "history": [asdict(message) for message in history]}
        case _:
            raise ValueError(f"nobody can {do!r} here")
    return {}


async def connected(app: web.Application) -> AsyncIterator[None]:  # noqa: ARG001 - aiohttp passes it
    async with concert:
        yield


async def say_goodbye(app: web.Application) -> None:  # noqa: ARG001
    await asyncio.gather(*(socket.close(code=WSCloseCode.GOING_AWAY) for socket in set(sockets)))


def make_app(argv: list[str]) -> web.Application:  # noqa: ARG001
    """Make the application that `python -m aiohttp.web` runs."""
    app = web.Application()
    app.add_routes(routes)
    app.cleanup_ctx.append(connected)
    app.on_shutdown.append(say_goodbye)
    return app
