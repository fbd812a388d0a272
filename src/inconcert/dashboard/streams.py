"""The streams of viewers: each is an open connection, so there are not more than so many."""

from collections.abc import AsyncGenerator, Mapping

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

_MOST = 100  # in a process
_COME_BACK = "20"  # seconds: as long as a stream lasts


class Streams:
    """Lets so many viewers have a stream at the same time."""

    def __init__(self) -> None:
        self.open = 0

    def answer(self, changes: AsyncGenerator[bytes], headers: Mapping[str, str]) -> StreamingResponse:
        """A response that streams these.

        Raises:
            HTTPException: 503: too many viewers have one.
        """
        if self.open >= _MOST:
            detail = f"{_MOST} viewers are shown changes already; this page does not change by itself."
            raise HTTPException(503, detail, {"retry-after": _COME_BACK})
        self.open += 1
        return _Stream(self, changes, headers=headers)

    def closed(self) -> None:
        """One has ended."""
        self.open -= 1


class _Stream(StreamingResponse):
    def __init__(self, streams: Streams, content: AsyncGenerator[bytes], *, headers: Mapping[str, str]) -> None:
        super().__init__(content, headers=headers)
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.closed()
