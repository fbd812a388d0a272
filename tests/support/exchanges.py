"""One request and its answer, as it comes: of an ASGI application in this process, or of a server at a socket."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Exchange", "InProcess", "OverSocket", "opened"]

_WITHIN = 5.0  # seconds


class Exchange(ABC):
    """A request that was sent, and what has come back so far.

    Attributes:
        status: The status of the answer; 0 while there is none.
        headers: Names in lower case.
        body: What has come of it.
        is_complete: Whether all of it has come.
        heads: How many answers were begun.
        errors: What the application has raised, if it runs in this process.
        sent: Set when the request was sent, but for a body that never comes.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        self.heads = 0
        self.errors: list[BaseException] = []
        self.sent = asyncio.Event()
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def is_replayed(self) -> bool:
        """Whether it is a stored answer."""
        return "idempotency-replayed" in self.headers

    async def answered(self, *, at_least: int | None = None) -> None:
        """Wait for the whole answer, or for so many bytes of its body; at most until there will be no more."""
        async with asyncio.timeout(_WITHIN):
            while not (self.is_complete or self._task.done() or len(self.body) >= (at_least or 2**30)):
                self._news.clear()
                await self._news.wait()

    async def ended(self) -> None:
        """Wait until the application has ended, too."""
        async with asyncio.timeout(_WITHIN):
            await asyncio.wait([self._task])

    @abstractmethod
    def hang_up(self) -> None:
        """Go away, as a client does that waits no longer."""

    @abstractmethod
    async def _run(self) -> None:
        """Send the request, and note the answer."""

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.heads += 1
        self.status, self.headers = status, dict(headers)
        self._news.set()

    def _add(self, body: bytes, *, is_last: bool) -> None:
        self.body += body
        self.is_complete = is_last
        self._news.set()


class InProcess(Exchange):
    """A POST to an ASGI application.

    Args:
        app: The application.
        headers: Of the request.
        body: Its body; None for one that never comes.
    """

    def __init__(self, app: Any, headers: Mapping[str, str], body: bytes | None) -> None:
        self._app = app
        self._gone = asyncio.Event()
        self._coming = [] if body is None else [{"type": "http.request", "body": body, "more_body": False}]
        self._headers = {"content-length": str(len(body or b"12345")), "content-type": "text/plain", **headers}
        super().__init__()

    def hang_up(self) -> None:
        self._gone.set()

    async def _run(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in self._headers.items()],
            "client": ("10.0.0.1", 1),
            "server": ("shop", 80),
        }
        self.sent.set()
        try:
            await self._app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - as a server does, which logs it
            self.errors.append(error)
        self._news.set()

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._coming:
            return self._coming.pop()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await asyncio.sleep(0)  # as a server may do, so that a cancellation is noticed
        if message["type"] == "http.response.start":
            self._begin(message["status"], {n.decode().lower(): v.decode() for n, v in message["headers"]})
        elif message["type"] == "http.response.body":
            assert self.status, "a body without a head"
            assert not self.is_complete, "a body behind its end"
            is_last = not message.get("more_body", False)
            self._add(message.get("body", b""), is_last=is_last)
            if is_last:
                self._gone.set()  # as servers tell applications that listen until then


class OverSocket(Exchange):
    """A POST to the server at a unix socket, which closes the connection afterwards."""

    def __init__(self, socket: Path, headers: Mapping[str, str], body: bytes | None) -> None:
        self._socket = socket
        length = {"Host": "shop", "Connection": "close", "Content-Length": str(len(body or b"12345"))}
        lines = ["POST / HTTP/1.1", *(f"{name}: {value}" for name, value in {**length, **headers}.items()), "", ""]
        self._request = "\r\n".join(lines).encode() + (body or b"")
        self._writer: asyncio.StreamWriter | None = None
        super().__init__()

    def hang_up(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def _run(self) -> None:
        reader, self._writer = await asyncio.open_unix_connection(str(self._socket))
        self._writer.write(self._request)
        self.sent.set()
        got = b""
        with suppress(ConnectionError):
            while part := await reader.read(2**16):
                got += part
                self._read(got)
        self._writer.close()
        self.heads = got.count(b"HTTP/1.1 ")
        self._news.set()

    def _read(self, got: bytes) -> None:
        """Understand what has come so far."""
        head, end, rest = got.partition(b"\r\n\r\n")
        if not end:
            return
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self._begin(int(status.split()[1]), headers)
        self.body = b""
        if headers.get("transfer-encoding") == "chunked":
            body, is_last = _chunks(rest)
            self._add(body, is_last=is_last)
        else:
            self._add(rest, is_last=len(rest) >= int(headers.get("content-length", 0)))


def _chunks(text: bytes) -> tuple[bytes, bool]:
    """The chunks of a body, and whether that is all of it."""
    body = b""
    while True:
        size, end, text = text.partition(b"\r\n")
        length = int(size, 16) if end else 0
        if not length or len(text) < length + 2:
            return body, bool(end and not length)
        body, text = body + text[:length], text[length + 2 :]


async def opened(app: Any, path: str, *, can_answer: bool = True) -> list[MutableMapping[str, Any]]:
    """What an ASGI application sends to a WebSocket whose client says nothing, and goes when it has heard something.

    Args:
        app: The application.
        path: Of the route.
        can_answer: Whether the server can answer with a status instead of accepting it.
    """
    sent: list[MutableMapping[str, Any]] = []
    coming: list[dict[str, Any]] = [{"type": "websocket.disconnect", "code": 1001}, {"type": "websocket.connect"}]
    scope: dict[str, Any] = {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": ("10.0.0.1", 1),
        "server": ("shop", 80),
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}} if can_answer else {},
    }

    async def receive() -> MutableMapping[str, Any]:
        return coming.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent
