"""Parts for FastAPI, and for Starlette, which is inside it.  Needs the extra `inconcert[fastapi]`.

```python
from typing import Annotated
from fastapi import Depends, FastAPI
from inconcert.integrations.fastapi import held, install, lifespan

concert = Coordinator("redis://localhost:6379/0", namespace="shop")
app = FastAPI(lifespan=lifespan(concert))
install(app, concert)

order_lock = Depends(held(concert.lock, "order:{order_id}", timeout=2.0), scope="function")


@app.post("/orders/{order_id}/pay")
async def pay(order_id: str, order: Annotated[Lease, order_lock]) -> None: ...
```
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from inconcert._rules.extras import needs_extra

with needs_extra("fastapi"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, HTTPConnection, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.websockets import WebSocket, WebSocketState

from inconcert._rules.durations import Seconds
from inconcert.coordinator import Coordinator, session_ref_of
from inconcert.errors import InconcertError
from inconcert.integrations._answers import ANSWERED, Answer, answer_request, close_code
from inconcert.integrations._asgi import HungUp, IdempotencyMiddleware, RateLimitHeaders, send_events, stopping, watch
from inconcert.integrations._health import live, ready
from inconcert.integrations._holding import RATE_FIELDS, hold, take
from inconcert.integrations._idempotency import ANSWER_TTL
from inconcert.integrations._job_events import job_events
from inconcert.integrations._names import NameTemplate, RequestValues
from inconcert.integrations._sse import HEADERS, chat_events
from inconcert.integrations._worker import run_worker
from inconcert.rate_limiter import RateDecision, RateLimiter

__all__ = [
    "Idempotency",
    "cancel_on_disconnect",
    "chat_stream",
    "held",
    "install",
    "job_stream",
    "lifespan",
    "limited",
    "run_worker",
    "while_connected",
]

P = ParamSpec("P")
T = TypeVar("T")
AppT = TypeVar("AppT", bound=Starlette)

_State: TypeAlias = Mapping[str, Any]
_Lifespan: TypeAlias = Callable[[AppT], AbstractAsyncContextManager[_State | None]]
_STOPPING = "inconcert_stopping"  # in the state of each request: an event that is set when the service is told to stop


def lifespan(
    concert: Coordinator, inner: _Lifespan[AppT] | None = None
) -> Callable[[AppT], AbstractAsyncContextManager[_State]]:
    """A lifespan that opens the coordinator with the application: `FastAPI(lifespan=lifespan(concert))`.

    Event streams end when the process is told to stop, which a server otherwise waits for.

    Args:
        concert: The coordinator, closed.
        inner: The application's own lifespan, which runs while the coordinator is open.
    """

    @asynccontextmanager
    async def run(app: AppT) -> AsyncGenerator[_State]:
        async with concert:
            with stopping() as stopped:
                async with nullcontext() if inner is None else inner(app) as state:
                    yield {**(state or {}), _STOPPING: stopped}

    return run


def install(app: Starlette, concert: Coordinator, *, health: str = "/health", rate_limit_headers: bool = True) -> None:
    """Answer errors of primitives with their status, and add `/health/live` and `/health/ready`.

    Each error is answered with a problem in JSON, without names and addresses; an answer with 5xx is logged.  A
    WebSocket that is not accepted yet is refused with the same answer, and otherwise closed.  What `limited` lets pass
    is answered with the headers `RateLimit-Policy` and `RateLimit`.

    Args:
        app: A FastAPI or Starlette application.
        concert: Whose server `ready` asks.
        health: Where the two checks are.
        rate_limit_headers: Whether clients are told how much of a limit is left.

    Raises:
        RuntimeError: When the application starts: its lifespan does not open the coordinator.
    """
    inner: _Lifespan[Any] = app.router.lifespan_context

    @asynccontextmanager
    async def checked(app: Starlette) -> AsyncGenerator[Any]:
        async with inner(app) as state:
            if session_ref_of(concert).opened is None:
                raise RuntimeError(
                    f"{concert!r} is not open, so no request could use it; make the application with "
                    "`lifespan=lifespan(concert)`, or open the coordinator in a lifespan of your own"
                )
            yield state

    app.router.lifespan_context = checked
    for error in ANSWERED:
        app.add_exception_handler(error, cast("Any", _answer))  # of requests and of WebSockets

    async def is_live(request: Request) -> Response:
        del request
        return _response(live(concert))

    async def is_ready(request: Request) -> Response:
        del request
        return _response(await ready(concert))

    checks = [
        Route(f"{health}/{name}", check, include_in_schema=False)
        for name, check in [("live", is_live), ("ready", is_ready)]
    ]
    app.router.routes[:0] = checks  # before one that takes any path
    if rate_limit_headers:
        app.add_middleware(RateLimitHeaders)


def held(
    make: Callable[Concatenate[str, P], AbstractAsyncContextManager[T]],
    name: str,
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Callable[[HTTPConnection], AsyncGenerator[T]]:
    """A dependency that holds a lock or another primitive while the handler runs; its value is the lease.

    While it waits, a client that hangs up leaves the line at once.  The handler itself is not cancelled then.  Use
    `scope="function"`, so that it is released before the answer is sent.  On the route of a WebSocket it is held until
    the handler ends, and nobody sees a client that hangs up in line: give a short `timeout`.

    Args:
        make: Makes the primitive, such as `concert.lock` or `concert.semaphore`.
        name: Its name, with fields: `{order_id}` is a path parameter, `{query.page}`, `{header.x-tenant}`, `{client}`
            the address of the client.
        args: Further arguments of `make`.
        kwargs: Its keyword arguments; give a `timeout`.

    Raises:
        ValueError: A field of the name is not understood.
    """
    template = NameTemplate(name)

    async def dependency(connection: HTTPConnection) -> AsyncGenerator[T]:
        primitive = make(template.fill(_values(connection)), *args, **kwargs)
        connected = while_connected(connection) if isinstance(connection, Request) else nullcontext()
        async with hold(primitive, connected) as lease:
            yield lease

    return dependency


def limited(
    make: Callable[Concatenate[str, P], RateLimiter], name: str, /, *args: P.args, **kwargs: P.kwargs
) -> Callable[[HTTPConnection], Coroutine[Any, Any, RateDecision]]:
    """A dependency that takes a permit of a rate limiter, or answers 429 with `Retry-After`; of WebSockets, too.

    Args:
        make: `concert.rate_limiter`.
        name: Its name, with fields as in `held`; `api:{client}` limits each client.
        args: Further arguments of `make`.
        kwargs: Its keyword arguments: `limit=100, period=60.0`.

    Raises:
        ValueError: A field of the name is not understood.
    """
    template = NameTemplate(name)

    async def dependency(connection: HTTPConnection) -> RateDecision:
        filled = template.fill(_values(connection))
        return await take(make(filled, *args, **kwargs), filled, connection.scope.get(RATE_FIELDS, []))

    return dependency


@asynccontextmanager
async def while_connected(request: Request) -> AsyncGenerator[None]:
    """Cancel the body of `async with` when the client hangs up.

    It reads the body of the request first, so the handler may read it before, inside or afterwards.
    """
    try:
        with suppress(RuntimeError):  # a form, or a handler, has read it as a stream
            await request.body()
        async with watch(request.receive):
            yield
    except (HungUp, ClientDisconnect):
        raise HTTPException(499, "the client has closed its connection") from None  # which nobody reads


async def cancel_on_disconnect(connection: HTTPConnection) -> AsyncGenerator[None]:
    """A dependency that cancels the handler when the client hangs up: for work that only the client waits for.

    Use it as `Depends(cancel_on_disconnect, scope="function")`.

    Raises:
        TypeError: It is on the route of a WebSocket, whose `receive` tells the handler itself.
    """
    if not isinstance(connection, Request):
        raise TypeError("cancel_on_disconnect is for HTTP requests; a WebSocket tells its handler itself, by receive()")
    async with while_connected(connection):
        yield


def chat_stream(request: Request, concert: Coordinator, user: str) -> Response:
    """Stream the news in a user's chats as server-sent events: return it from a handler.

    Each event is a batch, as `Chats.listen` gives it, and a comment comes every 15 s.  A browser that loses its
    connection comes back with the id of the last event: the messages up to it count as read, and the rest follows.
    Otherwise nothing is marked as read; use `Chats.ack` where your page tells you what was seen.  With `lifespan` the
    stream ends when the service is told to stop.

    Args:
        request: The request, whose `Last-Event-ID` is used.
        concert: The coordinator.
        user: Whose chats; the handler decides who may ask for them.
    """
    stopped: asyncio.Event | None = getattr(request.state, _STOPPING, None)
    last_event_id = request.headers.get("last-event-id", "")
    return _EventStream(chat_events(concert.chat, user, last_event_id=last_event_id, closing=stopped))


def job_stream(request: Request, concert: Coordinator, job_id: str) -> Response:
    """Stream the items that a job yields as server-sent events: return it from a handler.

    Each item is an event `{"value": ..., "attempt": ...}`, and a comment comes every 15 s. Other events are `restarted`
    with `attempt`, `gap` with `missed`, and as the last one `end` with the `status` of the job, upon which the page
    closes its `EventSource`. A browser that loses its connection comes back with the id of the last item, and gets what
    is behind it. With `lifespan` the stream ends when the service is told to stop.

    Args:
        request: The request, whose `Last-Event-ID` is used.
        concert: The coordinator.
        job_id: Which job; the handler decides who may follow it.
    """
    stopped: asyncio.Event | None = getattr(request.state, _STOPPING, None)
    last_event_id = request.headers.get("last-event-id", "")
    return _EventStream(job_events(concert.tasks.job(job_id), last_event_id=last_event_id, closing=stopped))


class Idempotency(IdempotencyMiddleware):
    """A middleware that handles a request with an `Idempotency-Key` once, and repeats its answer.

    A key is bound to the method, the path with its query, and the user.  The handler runs once; a repetition gets the
    stored answer, with the header `Idempotency-Replayed`.  With another body it gets 422; while the first still runs,
    409 with `Retry-After`.  Answers that mean "try again" are not stored: 408, 409, 423, 425, 429,
    499, 5xx, and other refusals with `Retry-After`.  A body may have 1 MiB and must have a length.  An answer of more
    than 512 KiB, or a stream, is sent once; its repetition gets 409.  Background tasks delay no answer, and their
    failure changes none.

    If the process dies while the handler runs, a repetition runs it again 30 s later.

    Add it as `app.add_middleware(Idempotency, concert, user=user_of)`.

    Args:
        app: The application.
        concert: The coordinator.
        user: Who asks, such as an id or a token: no other user gets the answer.
        ttl: How long answers are kept, in seconds.
    """

    def __init__(
        self, app: ASGIApp, concert: Coordinator, *, user: Callable[[Request], str], ttl: Seconds = ANSWER_TTL
    ) -> None:
        super().__init__(app, concert, user=lambda scope: user(Request(scope)), ttl=ttl)


class _EventStream(Response):
    """Events, until they end or the client hangs up."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__(headers=dict(HEADERS))
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await send_events(self._events, receive, send)


async def _answer(connection: HTTPConnection, error: Exception) -> Response | None:
    answer: Answer | None = None
    if isinstance(error, InconcertError):
        answer = answer_request(error, connection.scope.get("method", "WebSocket"), connection.url.path)
    if answer is None:
        raise error
    if not isinstance(connection, WebSocket):
        return _response(answer)
    is_accepted = connection.application_state is not WebSocketState.CONNECTING
    if not is_accepted and "websocket.http.response" in connection.scope.get("extensions", {}):
        return _response(answer)
    with suppress(RuntimeError):  # it is closed by now
        await connection.close(close_code(answer))
    return None


def _response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers))


def _values(connection: HTTPConnection) -> RequestValues:
    client = None if connection.client is None else connection.client.host
    return RequestValues(connection.path_params, connection.query_params, connection.headers, client)
