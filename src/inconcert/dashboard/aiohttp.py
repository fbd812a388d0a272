"""The dashboard as a sub-application of aiohttp's server.  Needs the extras `inconcert[aiohttp,dashboard]`.

```python
from aiohttp import web
from inconcert.dashboard import Dashboard, read_only
from inconcert.dashboard.aiohttp import subapp

app = web.Application()
app.add_subapp("/inconcert", subapp(Dashboard(concert, allow=read_only)))
```

Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
from contextlib import suppress

from aiohttp import web
from starlette.types import Message, Scope
from yarl import URL

from inconcert.dashboard.app import Dashboard
from inconcert.integrations.aiohttp import while_connected

__all__ = ["subapp"]

_REST = "/{path:.*}"  # of a path behind the prefix


def subapp(dashboard: Dashboard) -> web.Application:
    """The dashboard for `app.add_subapp("/inconcert", ...)`, or to be served alone by `web.run_app`.

    The hook `allow` of the dashboard finds aiohttp's own request in `request.scope["aiohttp.request"]`, with what your
    middlewares have put there.  Streams of viewers end when the application is shut down.

    Args:
        dashboard: The dashboard, whose coordinator your application opens and closes.
    """
    stopping = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        exchange = _Exchange(request, stopping)
        await dashboard(_scope(request), exchange.receive, exchange.send)
        return exchange.response

    async def stop(_: web.Application) -> None:
        stopping.set()

    app = web.Application()
    app.router.add_route("*", "", handle)  # the prefix without a slash, which the dashboard redirects
    app.router.add_route("*", _REST, handle)
    app.on_shutdown.append(stop)
    return app


class _Exchange:
    """One request and its response, as ASGI has them."""

    def __init__(self, request: web.Request, stopping: asyncio.Event) -> None:
        self.response = web.StreamResponse()
        self._request = request
        self._stopping = stopping
        self._is_read = False

    async def receive(self) -> Message:
        """A part of the body; behind it, nothing until the client has gone or the application is shut down."""
        gone: Message = {"type": "http.disconnect"}
        if not self._is_read:
            try:
                body = await self._request.content.readany()
            except ConnectionError:
                return gone
            self._is_read = self._request.content.at_eof()
            return {"type": "http.request", "body": body, "more_body": not self._is_read}
        with suppress(web.HTTPClientError):  # it has hung up
            async with while_connected(self._request):
                await self._stopping.wait()
        return gone

    async def send(self, message: Message) -> None:
        """Send the head or a part of the body; to a client that has gone, nothing, as ASGI servers do."""
        with suppress(ConnectionError):
            if message["type"] == "http.response.start":
                self.response.set_status(message["status"])
                self.response.headers.extend(
                    (name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]
                )
                await self.response.prepare(self._request)
                return
            if self._request.method != "HEAD":
                await self.response.write(message.get("body", b""))
            if not message.get("more_body", False):
                await self.response.write_eof()


def _scope(request: web.Request) -> Scope:
    resource = request.match_info.route.resource
    prefix = "" if resource is None else resource.canonical.removesuffix("/{path}")
    url = request.rel_url
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": url.raw_path.encode("utf-8", "surrogateescape"),
        "query_string": url.raw_query_string.encode("utf-8", "surrogateescape"),
        "root_path": URL(prefix, encoded=True).path,
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": (request.remote, 0) if request.remote else None,
        "aiohttp.request": request,
    }
