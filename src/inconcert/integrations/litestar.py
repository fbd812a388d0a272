"""Parts for Litestar.  Needs the extra `inconcert[litestar]`.

```python
from contextlib import AbstractAsyncContextManager
from litestar import Litestar, post
from litestar.di import NamedDependency, Provide
from inconcert.integrations.litestar import InconcertPlugin, held

concert = Coordinator("redis://localhost:6379/0", namespace="shop")
order_lock = Provide(held(concert.lock, "order:{order_id}", timeout=2.0))


@post("/orders/{order_id:str}/pay", dependencies={"order_lock": order_lock})
async def pay(order_lock: NamedDependency[AbstractAsyncContextManager[Lease]]) -> dict[str, int]:
    async with order_lock as lease:
        return {"fencing_token": lease.fencing_token}


app = Litestar([pay], plugins=[InconcertPlugin(concert)])
```
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from inconcert._rules.extras import needs_extra

with needs_extra("litestar"):
    from litestar import Litestar, Request, Response, get
    from litestar.config.app import AppConfig
    from litestar.connection import ASGIConnection
    from litestar.exceptions import HTTPException, WebSocketException
    from litestar.plugins import InitPlugin
    from litestar.response.base import ASGIResponse
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

from inconcert._rules.durations import Seconds
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.integrations._answers import ANSWERED, Answer, answer_request, close_code
from inconcert.integrations._asgi import HungUp, IdempotencyMiddleware, add_rate_fields, send_events, stopping, watch
from inconcert.integrations._health import live, ready
from inconcert.integrations._holding import RATE_FIELDS, hold, take
from inconcert.integrations._idempotency import ANSWER_TTL
from inconcert.integrations._job_events import job_events
from inconcert.integrations._names import NameTemplate, RequestValues
from inconcert.integrations._sse import chat_events
from inconcert.integrations._worker import run_worker
from inconcert.rate_limiter import RateDecision, RateLimiter

__all__ = [
    "Idempotency",
    "InconcertPlugin",
    "chat_stream",
    "held",
    "job_stream",
    "limited",
    "run_worker",
    "while_connected",
]

P = ParamSpec("P")
T = TypeVar("T")

_Request: TypeAlias = Request[Any, Any, Any]
_Connection: TypeAlias = ASGIConnection[Any, Any, Any, Any]
_STOPPING = "inconcert_stopping"  # in the state of the application: an event, set when the service is told to stop


class InconcertPlugin(InitPlugin):
    """Opens the coordinator with the application, answers errors with their status, and adds two health checks.

    Lifespans of the application run while the coordinator is open.  Each error is answered with a problem in JSON,
    without names and addresses; an answer with 5xx is logged.  Event streams end when the process is told to
    stop, which a server otherwise waits for.  What `limited` lets pass is answered with the headers `RateLimit-Policy`
    and `RateLimit`.

    Args:
        concert: The coordinator, closed.
        health: Where `live` and `ready` are.
        rate_limit_headers: Whether clients are told how much of a limit is left.
    """

    def __init__(self, concert: Coordinator, *, health: str = "/health", rate_limit_headers: bool = True) -> None:
        self._concert = concert
        self._health = health
        self._rate_limit_headers = rate_limit_headers

    def on_app_init(self, app_config: AppConfig) -> AppConfig:
        """Add the parts; Litestar calls this."""
        concert = self._concert

        @asynccontextmanager
        async def lifespan(app: Litestar) -> AsyncGenerator[None]:
            async with concert:
                with stopping() as stopped:
                    app.state[_STOPPING] = stopped
                    yield

        @get(f"{self._health}/live", include_in_schema=False)
        async def is_live() -> Response[bytes]:
            return _response(live(concert))

        @get(f"{self._health}/ready", include_in_schema=False)
        async def is_ready() -> Response[bytes]:
            return _response(await ready(concert))

        config = cast("Any", app_config)  # the types of its fields are incomplete
        config.lifespan.insert(0, lifespan)
        config.route_handlers.extend([is_live, is_ready])
        if self._rate_limit_headers:
            config.before_send.append(_add_rate_fields)
        config.exception_handlers = {**dict.fromkeys(ANSWERED, _answer), **config.exception_handlers}
        return app_config


def held(
    make: Callable[Concatenate[str, P], AbstractAsyncContextManager[T]],
    name: str,
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Callable[[_Connection], Awaitable[object]]:
    """A dependency for `Provide`: a lock or another primitive for the request, used as `async with order_lock`.

    While it waits, a client that hangs up leaves the line at once, as with `while_connected`.  The body is not
    cancelled then.  Nobody sees that the client of a WebSocket hangs up in line: give a short `timeout`.  What is not
    granted closes it with 1013.

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

    async def dependency(request: _Connection) -> object:  # Litestar reads this, and knows no type variables
        with _closing(request):
            primitive = make(template.fill(_values(request)), *args, **kwargs)
        if isinstance(request, Request):
            return hold(primitive, while_connected(request))
        return _held_by_socket(primitive, request)

    return dependency


def limited(
    make: Callable[Concatenate[str, P], RateLimiter], name: str, /, *args: P.args, **kwargs: P.kwargs
) -> Callable[[_Connection], Awaitable[RateDecision]]:
    """A dependency for `Provide` that takes a permit of a rate limiter, or answers 429 with `Retry-After`.

    A WebSocket is closed with 1013 then.

    Args:
        make: `concert.rate_limiter`.
        name: Its name, with fields as in `held`; `api:{client}` limits each client.
        args: Further arguments of `make`.
        kwargs: Its keyword arguments: `limit=100, period=60.0`.

    Raises:
        ValueError: A field of the name is not understood.
    """
    template = NameTemplate(name)

    async def dependency(request: _Connection) -> RateDecision:
        with _closing(request):
            filled = template.fill(_values(request))
            return await take(make(filled, *args, **kwargs), filled, request.scope["state"].setdefault(RATE_FIELDS, []))

    return dependency


@asynccontextmanager
async def while_connected(request: _Request) -> AsyncGenerator[None]:
    """Cancel the body of `async with` when the client hangs up.

    It reads the body of the request first, and keeps it for the handler.
    """
    try:
        await request.body()
        async with watch(cast("Any", request.receive)):
            yield
    except HungUp:
        raise HTTPException("the client has closed its connection", status_code=499) from None  # which nobody reads


def chat_stream(request: _Request, concert: Coordinator, user: str) -> Response[bytes]:
    """Stream the news in a user's chats as server-sent events: return it from a handler.

    Each event is a batch, as `Chats.listen` gives it, and a comment comes every 15 s.  A browser that loses its
    connection comes back with the id of the last event: the messages up to it count as read, and the rest follows.
    Otherwise nothing is marked as read; use `Chats.ack` where your page tells you what was seen.  With the plugin the
    stream ends when the service is told to stop.

    Args:
        request: The request, whose `Last-Event-ID` is used.
        concert: The coordinator.
        user: Whose chats; the handler decides who may ask for them.
    """
    last_event_id = request.headers.get("last-event-id", "")
    stopped = request.app.state.get(_STOPPING)
    return _EventStream(chat_events(concert.chat, user, last_event_id=last_event_id, closing=stopped))


def job_stream(request: _Request, concert: Coordinator, job_id: str) -> Response[bytes]:
    """Stream the items that a job yields as server-sent events: return it from a handler.

    Each item is an event `{"value": ..., "attempt": ...}`, and a comment comes every 15 s. Other events are `restarted`
    with `attempt`, `gap` with `missed`, and as the last one `end` with the `status` of the job, upon which the page
    closes its `EventSource`. A browser that loses its connection comes back with the id of the last item, and gets what
    is behind it. With the plugin the stream ends when the service is told to stop.

    Args:
        request: The request, whose `Last-Event-ID` is used.
        concert: The coordinator.
        job_id: Which job; the handler decides who may follow it.
    """
    last_event_id = request.headers.get("last-event-id", "")
    stopped = request.app.state.get(_STOPPING)
    return _EventStream(job_events(concert.tasks.job(job_id), last_event_id=last_event_id, closing=stopped))


class Idempotency:
    """A middleware that handles a request with an `Idempotency-Key` once, and repeats its answer.

    A key is bound to the method, the path with its query, and the user.  The handler runs once; a repetition gets the
    stored answer, with the header `Idempotency-Replayed`.  With another body it gets 422; while the first still runs,
    409 with `Retry-After`.  Answers that mean "try again" are not stored: 408, 409, 423, 425, 429,
    499, 5xx, and other refusals with `Retry-After`.  A body may have 1 MiB and must have a length.  An answer of more
    than 512 KiB, or a stream, is sent once; its repetition gets 409.  Background tasks delay no answer, and their
    failure changes none.

    If the process dies while the handler runs, a repetition runs it again 30 s later.

    Add it as `DefineMiddleware(Idempotency, concert=concert, user=user_of)`.

    Args:
        app: The application.
        concert: The coordinator.
        user: Who asks, such as an id or a token: no other user gets the answer.
        ttl: How long answers are kept, in seconds.
    """

    def __init__(
        self, app: ASGIApp, concert: Coordinator, *, user: Callable[[_Request], str], ttl: Seconds = ANSWER_TTL
    ) -> None:
        self._middleware = IdempotencyMiddleware(
            cast("Any", app), concert, user=lambda scope: user(Request(cast("Any", scope))), ttl=ttl
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or pass it on."""
        await self._middleware(cast("Any", scope), cast("Any", receive), cast("Any", send))


class _EventStream(Response[bytes]):
    """Events, until they end or the client hangs up."""

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__(b"")
        self._events = events

    def to_asgi_response(self, *_: object, **__: object) -> ASGIResponse:
        """The ASGI response that sends the events."""
        return _SentEvents(self._events)


class _SentEvents(ASGIResponse):
    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__()
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        await send_events(self._events, cast("Any", receive), cast("Any", send))


@contextmanager
def _closing(connection: _Connection) -> Generator[None]:
    """Close a WebSocket with a code that says what has happened: Litestar does so only for errors of its own."""
    try:
        yield
    except InconcertError as error:
        answer = None if isinstance(connection, Request) else answer_request(error, "WebSocket", connection.url.path)
        if answer is None:
            raise
        raise WebSocketException(detail=type(error).__name__, code=close_code(answer)) from error


@asynccontextmanager
async def _held_by_socket(primitive: AbstractAsyncContextManager[T], socket: _Connection) -> AsyncGenerator[T]:
    with _closing(socket):
        async with primitive as lease:
            yield lease


async def _add_rate_fields(message: Message, scope: Scope) -> None:
    add_rate_fields(cast("Any", message), scope["state"].get(RATE_FIELDS, []))


def _answer(request: _Request, error: Exception) -> Response[bytes]:
    answer = None
    if isinstance(error, InconcertError):
        answer = answer_request(error, request.method, request.url.path)
    if answer is None:
        raise error
    return _response(answer)


def _response(answer: Answer) -> Response[bytes]:
    headers = dict(answer.headers)
    return Response(answer.body, status_code=answer.status, media_type=headers.pop("content-type"), headers=headers)


def _values(request: _Connection) -> RequestValues:
    client = None if request.client is None else request.client.host
    return RequestValues(request.path_params, request.query_params, request.headers, client)
