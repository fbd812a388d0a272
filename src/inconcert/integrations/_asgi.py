"""Common parts of ASGI frameworks: clients that hang up, a service that is told to stop, requests with a key.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from types import FrameType
from typing import Any

import anyio

from inconcert._rules.durations import Seconds
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.integrations._answers import Answer, answer_request, problem
from inconcert.integrations._holding import RATE_FIELDS, Fields
from inconcert.integrations._idempotency import (
    ANSWER_TTL,
    LARGEST_ANSWER,
    LARGEST_BODY,
    METHODS,
    IdempotentRequest,
    StoredAnswers,
    Turn,
)
from inconcert.integrations._sse import HEADERS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_TOO_LARGE = f"a request with an idempotency key may have {LARGEST_BODY} bytes"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WITHOUT_BODY = {204, 304}  # so their answers have no length, and are whole nevertheless


class HungUp(Exception):
    """The client has closed its connection, so nobody reads an answer."""


@asynccontextmanager
async def watch(receive: Receive) -> AsyncGenerator[None]:
    """Cancel the body when the client hangs up.

    The body of the request must have been read before: messages that come meanwhile are dropped.

    Raises:
        HungUp: The client has hung up.
    """

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    with anyio.CancelScope() as scope:
        waiting = asyncio.create_task(wait())
        try:
            yield
        finally:
            waiting.cancel()
    if scope.cancel_called:
        raise HungUp("the client has closed its connection")


class RateLimitHeaders:
    """Adds to each answer what its limiters have said in the scope, however the answer is made."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        fields: Fields = []
        scope[RATE_FIELDS] = fields  # a list, which copies of the scope share

        async def send_with_fields(message: Message) -> None:
            add_rate_fields(message, fields)
            await send(message)

        await self._app(scope, receive, send_with_fields)


def add_rate_fields(message: Message, fields: Fields) -> None:
    """Add these to the beginning of an answer, if that is what the message is."""
    if fields and message["type"] == "http.response.start":
        added = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
        message["headers"] = [*message.get("headers", ()), *added]


@contextmanager
def stopping() -> Generator[asyncio.Event]:
    """Set when this process is told to stop by SIGTERM or SIGINT, before the server waits for open connections.

    A server such as uvicorn ends the application only when the last connection is closed, and so never while a stream
    is open.  Its own handling of the signal goes on as before.  Outside of the main thread nothing is noticed.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stopped.set)
        before[signal.Signals(number)](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if callable(signal.getsignal(number)):  # otherwise the process ends at once, or ignores the signal
                before[number] = signal.signal(number, handle)
    try:
        yield stopped
    finally:
        stopped.set()
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler)


async def send_events(events: AsyncGenerator[bytes], receive: Receive, send: Send) -> None:
    """Send an event stream until it ends or the client hangs up."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in HEADERS]
    with suppress(HungUp, OSError):
        async with watch(receive), aclosing(events):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


async def send_answer(answer: Answer, send: Send) -> None:
    """Send a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class IdempotencyMiddleware:
    """Handles a request with an `Idempotency-Key` once, and answers its repetitions from what was stored."""

    def __init__(
        self, app: ASGIApp, concert: Coordinator, *, user: Callable[[Scope], str], ttl: Seconds = ANSWER_TTL
    ) -> None:
        self._app = app
        self._user = user  # who asks, of a request's scope: an answer is given to nobody else
        self._answers = StoredAnswers(concert, ttl=ttl)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or pass it on."""
        if scope["type"] != "http" or scope["method"] not in METHODS or _header(scope, b"idempotency-key") is None:
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            answer = await self._handle(scope, receive, send_on)
        except HungUp:
            return
        except InconcertError as error:
            answer = None if has_begun else answer_request(error, scope["method"], scope["path"])
            if answer is None:
                raise
        if answer is not None:
            await send_answer(answer, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        length = _header(scope, b"content-length")
        if length is None and _header(scope, b"transfer-encoding") is not None:
            return problem(411, "a request with an idempotency key must say its content-length")
        if length is not None and int(length) > LARGEST_BODY:
            return problem(413, _TOO_LARGE)
        body = await _body(receive)
        if body is None:
            return problem(413, _TOO_LARGE)
        path = scope["path"]
        if scope.get("query_string"):
            path += "?" + scope["query_string"].decode("latin-1")
        key = (_header(scope, b"idempotency-key") or b"").decode("latin-1")
        request = IdempotentRequest(key, scope["method"], path, self._user(scope), body)
        inner: Scope = {**scope, "extensions": {}}  # such as sending a file by its path, which cannot be held back

        async def handle(turn: Turn) -> None:
            answering = _Answering(turn, send)
            await self._app(inner, _Replay(body, receive), answering)
            await answering.close()

        return await self._answers.answer(request, handle)


class _Replay:
    """A `receive` that gives a body that was read before, and then what comes."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Answering:
    """The `send` of a handler: holds its answer back until it is whole, keeps it, and sends it.

    An answer that is too large or endless is passed on as it comes, and kept only as having been sent: the handler has
    done its work by then, and a client that gets half of it must not make it run again.
    """

    def __init__(self, turn: Turn, send: Send) -> None:
        self._turn = turn
        self._send = send
        self._start: Message = {}
        self._parts: list[bytes] = []
        self._is_passed_on = False
        self._is_complete = False

    async def __call__(self, message: Message) -> None:
        """Take the next message of the handler."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body" and not self._is_complete:
            await self._go_on(message)
        elif self._is_passed_on or self._is_complete:
            await self._send(message)

    async def close(self) -> None:
        """The handler has returned."""
        if not self._start:
            raise HungUp("the application has not answered")
        if not self._is_complete and not self._is_passed_on:  # it stopped half-way, because its client has gone
            await self._turn.keep(self._answer(), is_whole=False)

    # Private.

    async def _begin(self, start: Message) -> None:
        self._start = start
        length = _header(start, b"content-length")
        is_endless = length is None and start["status"] not in _WITHOUT_BODY
        self._is_passed_on = is_endless or int(length or 0) > LARGEST_ANSWER
        if self._is_passed_on:
            await self._turn.keep(self._answer(), is_whole=False)
            await self._send(start)

    async def _go_on(self, part: Message) -> None:
        self._is_complete = not part.get("more_body", False)
        if not self._is_passed_on:
            self._parts.append(part.get("body", b""))
        if self._is_complete and not self._is_passed_on:
            await self._turn.keep(self._answer())
        if self._is_complete:
            await self._turn.end()
        if self._is_passed_on:
            await self._send(part)
        elif self._is_complete:
            await self._send(self._start)
            await self._send({"type": "http.response.body", "body": b"".join(self._parts)})

    def _answer(self) -> Answer:
        """As far as it is known."""
        headers = self._start.get("headers", ())
        texts = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers)
        return Answer(self._start["status"], tuple(texts), b"".join(self._parts))


async def _body(receive: Receive) -> bytes | None:
    """All of the body; None if it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HungUp("the client has closed its connection")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _header(headed: Scope | Message, name: bytes) -> bytes | None:
    found: bytes | None = next((value for header, value in headed.get("headers", ()) if header.lower() == name), None)
    return found
