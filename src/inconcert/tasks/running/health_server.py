"""An HTTP server for probes, in a thread of its own: it answers also while the event loop stands still."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler
from socket import socket
from types import TracebackType
from typing import Self

from inconcert.tasks.running.threaded_server import Address, ThreadedServer

_log = logging.getLogger("inconcert.tasks")

Answer = tuple[bool, Mapping[str, object]]
"""Whether a probe succeeds, and what it is told."""

_LONGEST_REQUEST = 5.0  # seconds; a client that is slower is disconnected


class HealthServer:
    """Answers probes over HTTP while the body of `with` runs: 200 or 503, and a line of JSON that says why.

    Args:
        host: The address to listen on.
        port: The port; 0 for any that is free.
        probes: Path -> what answers it, called in a thread.

    Raises:
        OSError: On entering: it cannot listen there.
    """

    def __init__(self, host: str, port: int, probes: Mapping[str, Callable[[], Answer]]) -> None:
        self._address = host, port
        self._probes = probes
        self._server: ThreadedServer | None = None

    def __enter__(self) -> Self:
        self._server = ThreadedServer(*self._address, partial(_Handler, self._probes), name="inconcert health")
        _log.info("probes are answered at %s, /livez and /readyz", self.url)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def url(self) -> str:
        """The URL at which it listens, such as `http://127.0.0.1:8081`."""
        host, port = self._server.server_address[:2] if self._server is not None else self._address
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"


class _Handler(BaseHTTPRequestHandler):
    timeout = _LONGEST_REQUEST

    def __init__(
        self, probes: Mapping[str, Callable[[], Answer]], request: socket, address: Address, server: ThreadedServer
    ) -> None:
        self._probes = probes
        super().__init__(request, address, server)  # which answers

    def do_GET(self) -> None:
        probe = self._probes.get(self.path.partition("?")[0])
        is_ok, told = probe() if probe is not None else (False, {"paths": list(self._probes)})
        body = json.dumps(told).encode() + b"\n"
        self.send_response(404 if probe is None else 200 if is_ok else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def version_string(self) -> str:
        return "inconcert"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class names it
        _log.debug("probe: %s", format % args)
