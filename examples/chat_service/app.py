"""Chat in the browser, on any number of processes: what is new over a WebSocket, everything else by plain requests.

    python -m aiohttp.web -P 8080 examples.chat_service.app:make_app

INCONCERT_URL names the server. A real service would ask for a password; here the path says who asks. All is in JSON:

    GET    /users/USER/news                                a WebSocket, of which a user may have any number
    GET    /users/USER/unread                              {chat: number}
    POST   /users/USER/chats                               {"users": [...], "text": ...}; answers the chat's id
    POST   /users/USER/chats/CHAT/messages                 {"text": ...}
    GET    /users/USER/chats/CHAT/messages?before=NUMBER   the latest before that one, or the latest of all
    PUT    /users/USER/chats/CHAT/members/OTHER            adds a member, and DELETE removes one

Over the WebSocket come {"chat_id": chat, "messages": [...], "missed": number, "last_id": number}, and what the user has
seen goes back: {"chat_id": chat, "last_id": number}. Strangers to a chat get 403.
"""

from dataclasses import asdict

from aiohttp import web

from inconcert import Coordinator
from inconcert.integrations.aiohttp import chat_socket, install

concert = Coordinator.from_env()
routes = web.RouteTableDef()


@routes.get("/users/{user}/news")
async def news(request: web.Request) -> web.StreamResponse:
    """What came while they were away, and then what comes."""
    return await chat_socket(request, concert, request.match_info["user"])


@routes.get("/users/{user}/unread")
async def unread(request: web.Request) -> web.Response:
    """How many messages of which chats the user has not seen."""
    return web.json_response(await concert.chat.unread(request.match_info["user"]))


@routes.post("/users/{user}/chats")
async def begin(request: web.Request) -> web.Response:
    """Begin a chat."""
    asked = await request.json()
    chat = await concert.chat.create(request.match_info["user"], asked["users"], asked["text"], history=1_000)
    return web.json_response(chat, status=201)


@routes.post("/users/{user}/chats/{chat}/messages")
async def send(request: web.Request) -> web.Response:
    """Say something. The sender gets it as news, like the other members."""
    asked = await request.json()
    message = await concert.chat.send(request.match_info["chat"], request.match_info["user"], asked["text"])
    return web.json_response(message.id, status=201)


@routes.get("/users/{user}/chats/{chat}/messages")
async def history(request: web.Request) -> web.Response:
    """What was said before."""
    before = int(request.query["before"]) if "before" in request.query else None
    found = await concert.chat.history(request.match_info["chat"], request.match_info["user"], before=before)
    return web.json_response([asdict(message) for message in found])


@routes.put("/users/{user}/chats/{chat}/members/{other}")
async def add(request: web.Request) -> web.Response:
    """Bring somebody in."""
    await concert.chat.add(request.match_info["chat"], request.match_info["user"], request.match_info["other"])
    return web.Response(status=204)


@routes.delete("/users/{user}/chats/{chat}/members/{other}")
async def remove(request: web.Request) -> web.Response:
    """Leave, or have somebody leave."""
    await concert.chat.remove(request.match_info["chat"], request.match_info["user"], request.match_info["other"])
    return web.Response(status=204)


def make_app(argv: list[str]) -> web.Application:  # noqa: ARG001
    """Make the application that `python -m aiohttp.web` runs."""
    app = web.Application()
    install(app, concert)
    app.add_routes(routes)
    return app
