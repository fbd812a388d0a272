"""Parts for aiohttp's server.  Needs the extra `inconcert[aiohttp]`.

```python
from aiohttp import web
from inconcert.integrations.aiohttp import held, install

concert = Coordinator("redis://localhost:6379/0", namespace="shop")
order_lock = held(concert.lock, "order:{order_id}", timeout=2.0)


async def pay(request: web.Request) -> web.Response:
    async with order_lock(request) as lease:
        return web.json_response({"fencing_token": lease.fencing_token})


app = web.Application()
install(app, concert)
app.router.add_post("/orders/{order_id}/pay", pay)
```
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, cast

import anyio
import msgspec

from inconcert._rules.extras import needs_extra

with needs_extra("aiohttp"):
    from aiohttp import WSCloseCode, WSMsgType, web
    from multidict import CIMultiDict

from inconcert._core.cancellation import cancel_all
from inconcert._core.shield import run_shielded
from inconcert._rules.durations import Seconds
from inconcert.coordinator import Coordinator
from inconcert.errors import ChatNotFound, InconcertError, InvalidName, NotAMember
from inconcert.integrations._answers import Answer, answer_request, problem
from inconcert.integrations._chat import batch_fields, chat_batches
from inconcert.integrations._health import live, ready
from inconcert.integrations._holding import RATE_FIELDS, hold, take
from inconcert.integrations._idempotency import (
    ANSWER_TTL,
    LARGEST_ANSWER,
    LARGEST_BODY,
    METHODS,
    IdempotentRequest,
    StoredAnswers,
    Turn,
)
from inconcert.integrations._job_events import job_events
from inconcert.integrations._names import NameTemplate, RequestValues
from inconcert.integrations._sse import HEADERS, chat_events
from inconcert.integrations._worker import run_worker
from inconcert.rate_limiter import RateDecision, RateLimiter

__all__ = [
    "COORDINATOR",
    "Idempotency",
    "chat_socket",
    "chat_stream",
    "held",
    "install",
    "job_stream",
    "limited",
    "run_worker",
    "while_connected",
]

_log = logging.getLogger("inconcert.integrations")

P = ParamSpec("P")
T = TypeVar("T")

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

COORDINATOR = web.AppKey("COORDINATOR", Coordinator)
"""Where `install` puts the coordinator: `request.config_dict[COORDINATOR]`."""

_STOPPING = web.AppKey("_STOPPING", asyncio.Event)  # set when the service is told to stop
_RATE_FIELDS = cast("Any", getattr(web, "RequestKey", web.AppKey))(RATE_FIELDS, list)  # older releases take any key

_BEGUN = Answer(200, (), b"")  # an answer that was begun, of which nothing else is known
_HEARTBEAT = 20.0  # seconds; a client that does not answer for half of it has gone
_LARGEST_FRAME = 4096  # bytes of what a client says over a WebSocket


def install(
    app: web.Application, concert: Coordinator, *, health: str = "/health", rate_limit_headers: bool = True
) -> None:
    """Open the coordinator with the application, answer errors with their status, and add two health checks.

    The coordinator is open in the `cleanup_ctx` and `on_startup` of the application that are added afterwards.  Each
    error is answered with a problem in JSON, without names and addresses; an answer with 5xx is logged.  Event
    streams and WebSockets of chats end when the application is shut down.  What `limited` lets pass is answered with
    the headers `RateLimit-Policy` and `RateLimit`.

    Args:
        app: The application, before it is started.
        concert: The coordinator, closed.
        health: Where `live` and `ready` are.
        rate_limit_headers: Whether clients are told how much of a limit is left.
    """
    stopped = asyncio.Event()

    async def opened(_: web.Application) -> AsyncIterator[None]:
        async with concert:
            yield

    async def stop(_: web.Application) -> None:
        stopped.set()

    async def is_live(_: web.Request) -> web.Response:
        return _response(live(concert))

    async def is_ready(_: web.Request) -> web.Response:
        return _response(await ready(concert))

    app[COORDINATOR] = concert
    app[_STOPPING] = stopped
    app.cleanup_ctx.append(opened)
    app.on_shutdown.append(stop)
    app.middlewares.append(_answer_errors)
    if rate_limit_headers:
        app.on_response_prepare.append(_add_rate_fields)
    app.router.add_get(f"{health}/live", is_live)
    app.router.add_get(f"{health}/ready", is_ready)


def held(
    make: Callable[Concatenate[str, P], AbstractAsyncContextManager[T]],
    name: str,
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Callable[[web.Request], AbstractAsyncContextManager[T]]:
    """Holds a lock or another primitive for a request: `async with order_lock(request) as lease`.

    While it waits, a client that hangs up leaves the line at once, as with `while_connected`.  The body is not
    cancelled then.

    Args:
        make: Makes the primitive, such as `concert.lock` or `concert.semaphore`.
        name: Its name, with fields: `{order_id}` is a part of the path, `{query.page}`, `{header.x-tenant}`, `{client}`
            the address of the client.
        args: Further arguments of `make`.
        kwargs: Its keyword arguments; give a `timeout`.

    Raises:
        ValueError: A field of the name is not understood.
    """
    template = NameTemplate(name)

    def enter(request: web.Request) -> AbstractAsyncContextManager[T]:
        return hold(make(template.fill(_values(request)), *args, **kwargs), while_connected(request))

    return enter


def limited(
    make: Callable[Concatenate[str, P], RateLimiter], name: str, /, *args: P.args, **kwargs: P.kwargs
) -> Callable[[web.Request], Awaitable[RateDecision]]:
    """Takes a permit of a rate limiter, `await limit(request)`, or answers 429 with `Retry-After`.

    Args:
        make: `concert.rate_limiter`.
        name: Its name, with fields as in `held`; `api:{client}` limits each client.
        args: Further arguments of `make`.
        kwargs: Its keyword arguments: `limit=100, period=60.0`.

    Raises:
        ValueError: A field of the name is not understood.
    """
    template = NameTemplate(name)

    async def permit(request: web.Request) -> RateDecision:
        filled = template.fill(_values(request))
        return await take(make(filled, *args, **kwargs), filled, request.setdefault(_RATE_FIELDS, []))

    return permit


@asynccontextmanager
async def while_connected(request: web.Request) -> AsyncGenerator[None]:
    """Cancel the body of `async with` when the client hangs up.

    A connection is read only as far as the handler reads the body of its request.  So where a body may be larger than
    64 KiB, read it before: `await request.read()`.
    """
    connection = _connection_of(request)
    with anyio.CancelScope() as scope:
        connection.on_lost.add(scope.cancel)
        try:
            yield
        finally:
            connection.on_lost.discard(scope.cancel)
    if scope.cancel_called:
        raise _HungUp


async def chat_stream(request: web.Request, concert: Coordinator, user: str) -> web.StreamResponse:
    """Send news in the chats of a user, as server-sent events: return it from a handler.

    Each event is a batch, as `Chats.listen` gives it, and a comment comes every 15 s.  A browser that loses its
    connection comes back with the id of the last event: the messages up to it count as read, and the rest follows.
    Otherwise nothing is marked as read; use `Chats.ack` where your page tells you what was seen.  With `install` the
    stream ends when the application is shut down.

    Args:
        request: The request, whose `Last-Event-ID` is used.
        concert: The coordinator.
        user: Whose chats; the handler decides who may ask for them.
    """
    last_event_id = request.headers.get("Last-Event-ID", "")
    events = chat_events(concert.chat, user, last_event_id=last_event_id, closing=_stopping(request))
    return await _send_events(request, events)


async def job_stream(request: web.Request, concert: Coordinator, job_id: str) -> web.StreamResponse:
    """Send what a job yields, as server-sent events: return it from a handler.

    Each item is an event `{"value": ..., "attempt": ...}`, and a comment comes every 15 s. Other events are `restarted`
    with `attempt`, `gap` with `missed`, and as the last one `end` with the `status` of the job, upon which the page
    closes its `EventSource`. A browser that loses its connection comes back with the id of the last item, and gets what
    is behind it. With `install` the stream ends when the application is shut down.

    Args:
        request: The request, whose `Last-Event-ID` is used.
        concert: The coordinator.
        job_id: Which job; the handler decides who may follow it.
    """
    last_event_id = request.headers.get("Last-Event-ID", "")
    events = job_events(concert.tasks.job(job_id), last_event_id=last_event_id, closing=_stopping(request))
    return await _send_events(request, events)


async def _send_events(request: web.Request, events: AsyncGenerator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers=CIMultiDict(HEADERS))
    with suppress(ConnectionError, _HungUp):
        async with while_connected(request), aclosing(events):
            await response.prepare(request)
            async for event in events:
                await response.write(event)
            await response.write_eof()
    return response


async def chat_socket(request: web.Request, concert: Coordinator, user: str) -> web.WebSocketResponse:
    """Send news in the chats of a user over a WebSocket: return it from a handler.

    Each message to the client is a batch in JSON, as `Chats.listen` gives it.  The client says what was seen, and so
    counts as read, as `{"chat_id": "...", "last_id": 5}`; anything else closes the connection with 1007.  A client that
    comes back gets everything after that again.  With `install` the connection is closed with 1001 when the
    application is shut down; with 1013 when the server cannot be asked.

    Args:
        request: The request.
        concert: The coordinator.
        user: Whose chats; the handler decides who may ask for them.
    """
    socket = web.WebSocketResponse(heartbeat=_HEARTBEAT, max_msg_size=_LARGEST_FRAME)
    try:
        await socket.prepare(request)
    except ConnectionError:
        raise _HungUp from None
    tasks = [
        asyncio.create_task(_send_batches(socket, concert, user, _stopping(request))),
        asyncio.create_task(_mark_seen(socket, concert, user)),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await run_shielded(cancel_all(tasks))
    await socket.close(code=done.pop().result())
    return socket


class Idempotency:
    """A middleware that handles a request with an `Idempotency-Key` once, and repeats its answer.

    A key is bound to the method, the path with its query, and the user.  The handler runs once; a repetition gets the
    stored answer, with the header `Idempotency-Replayed`.  With another body it gets 422; while the first still runs,
    409 with `Retry-After`.  Answers that mean "try again" are not stored: 408, 409, 423, 425, 429,
    499, 5xx, and other refusals with `Retry-After`.  A body may have 1 MiB, must have a length, and is not multipart.
    An answer of more than 512 KiB, a file or a stream, is sent once; its repetition gets 409.

    If the process dies while the handler runs, a repetition runs it again 30 s later.

    Add it as `app.middlewares.append(Idempotency(concert, user=user_of))`, after `install`.

    Args:
        concert: The coordinator.
        user: Who asks, such as an id or a token: no other user gets the answer.
        ttl: How long answers are kept, in seconds.
    """

    def __init__(self, concert: Coordinator, *, user: Callable[[web.Request], str], ttl: Seconds = ANSWER_TTL) -> None:
        self._user = user
        self._answers = StoredAnswers(concert, ttl=ttl)
        web.middleware(self)  # which marks it as one

    async def __call__(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Handle one request, or pass it on."""
        key = request.headers.get("Idempotency-Key")
        if key is None or request.method not in METHODS:
            return await handler(request)
        refusal = _refusal(request)
        if refusal is not None:
            return _response(refusal)
        asked = IdempotentRequest(
            key.encode("utf-8", "surrogateescape").decode("latin-1"),
            request.method,
            request.path_qs,
            self._user(request),
            await request.read(),
        )
        handled: list[web.StreamResponse] = []

        async def handle(turn: Turn) -> None:
            try:
                response = await _response_of(handler, request)
            except BaseException:
                if _has_begun(request):  # the handler has done its work, and its client got a part of the answer
                    await turn.keep(_BEGUN, is_whole=False)
                raise
            answer = _whole_answer(response)
            await turn.keep(answer or Answer(response.status, (), b""), is_whole=answer is not None)
            await turn.end()
            handled.append(response if answer is None else _response(answer))

        try:
            answer = await self._answers.answer(asked, handle)
        except InconcertError as error:
            answer = _answer_to(error, request)
        return handled[0] if answer is None else _response(answer)


# Private.


class _HungUp(web.HTTPClientError):
    """The client has closed its connection, so nobody reads this."""

    status_code = 499


class _Connection(asyncio.Protocol):
    """The protocol of a connection, which also tells that the connection is lost.

    aiohttp itself tells a handler only by cancelling it, if at all.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self.on_lost: set[Callable[[], None]] = set()

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)
        for tell in tuple(self.on_lost):
            tell()


class _Seen(msgspec.Struct):
    """A client's message over its WebSocket: the user has seen a chat up to a message."""

    chat_id: str
    last_id: Annotated[int, msgspec.Meta(ge=1)]


_SEEN = msgspec.json.Decoder(_Seen)


def _connection_of(request: web.Request) -> _Connection:
    transport = request.transport
    if transport is None or transport.is_closing():
        raise _HungUp
    protocol = transport.get_protocol()
    if not isinstance(protocol, _Connection):
        protocol = _Connection(cast("asyncio.Protocol", protocol))
        transport.set_protocol(protocol)
    return protocol


@web.middleware
async def _answer_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except InconcertError as error:
        return _response(_answer_to(error, request))


async def _add_rate_fields(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in request.get(_RATE_FIELDS, ()):
        response.headers.add(name, value)


def _answer_to(error: InconcertError, request: web.Request) -> Answer:
    """The answer to a request whose handler has raised this error; a fault of the program is raised again.

    So is each error after an answer was begun: aiohttp closes the connection then.
    """
    answer = None if _has_begun(request) else answer_request(error, request.method, request.path)
    if answer is None:
        raise error
    return answer


async def _response_of(handler: _Handler, request: web.Request) -> web.StreamResponse:
    """The answer of a handler, also if it is raised."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if _has_begun(request):
            raise
        return error
    except InconcertError as error:
        return _response(_answer_to(error, request))


def _has_begun(request: web.Request) -> bool:
    """True if an answer to this request was begun, so that no other can follow."""
    return request.writer.output_size > 0


async def _send_batches(
    socket: web.WebSocketResponse, concert: Coordinator, user: str, stopping: asyncio.Event | None
) -> WSCloseCode:
    """Send news, until the client has gone or the service closes; with what to close the connection then."""
    async with aclosing(chat_batches(concert.chat, user, closing=stopping)) as batches:
        with suppress(ConnectionError):
            async for batch in batches:
                if batch is not None:
                    await socket.send_str(msgspec.json.encode(batch_fields(batch)).decode())
    is_stopping = stopping is not None and stopping.is_set()
    return WSCloseCode.GOING_AWAY if is_stopping else WSCloseCode.TRY_AGAIN_LATER


async def _mark_seen(socket: web.WebSocketResponse, concert: Coordinator, user: str) -> WSCloseCode:
    """Mark as read what the client says was seen, until it has gone; with what to close the connection then."""
    try:
        async for frame in socket:
            seen = _SEEN.decode(frame.data if frame.type is WSMsgType.TEXT else b"")
            with suppress(NotAMember, ChatNotFound):  # the user has left it
                await concert.chat.ack(user, seen.chat_id, seen.last_id)
    except (msgspec.DecodeError, InvalidName):
        return WSCloseCode.INVALID_TEXT
    except InconcertError as error:
        _log.info("the stream of the chats of user %r ends, and its client comes back: %s", user, error)
        return WSCloseCode.TRY_AGAIN_LATER
    return WSCloseCode.OK


def _refusal(request: web.Request) -> Answer | None:
    """The answer to a request whose body could not be compared with that of a repetition."""
    if request.content_length is None and request.body_exists:
        return problem(411, "a request with an idempotency key must say its content-length")
    if (request.content_length or 0) > LARGEST_BODY:
        return problem(413, f"a request with an idempotency key may have {LARGEST_BODY} bytes")
    if request.content_type.startswith("multipart/"):  # of which aiohttp lets nobody read the body before the handler
        return problem(415, "a request with an idempotency key must not be multipart")
    return None


def _whole_answer(response: web.StreamResponse) -> Answer | None:
    """The stored form of a response; None if it was sent already, or is too large or endless."""
    if response.prepared or not isinstance(response, web.Response):
        return None
    body = response.body or b""
    if not isinstance(body, bytes | bytearray) or len(body) > LARGEST_ANSWER:
        return None
    headers = [(name.lower(), value) for name, value in response.headers.items()]
    headers += [("set-cookie", cookie.OutputString()) for cookie in response.cookies.values()]
    return Answer(response.status, tuple(headers), bytes(body))


def _response(answer: Answer) -> web.Response:
    return web.Response(body=answer.body, status=answer.status, headers=CIMultiDict(answer.headers))


def _stopping(request: web.Request) -> asyncio.Event | None:
    return request.config_dict.get(_STOPPING)


def _values(request: web.Request) -> RequestValues:
    return RequestValues(request.match_info, request.query, request.headers, request.remote)
