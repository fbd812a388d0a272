"""A small HTTP server in a thread of its own, which answers also while the event loop stands still.

It is for probes and scrapes: few clients, small answers.  Other connections must not keep them from their answer.  So
the number of connections has a bound, and one more ends the oldest: a probe sends its request at once and is answered
within milliseconds, while a connection that is held open says nothing.
"""

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from inconcert._redis.wire.own_sockets import own_sockets

_log = logging.getLogger("inconcert.tasks")

MOST = 64  # connections at once, each with a thread
_PAUSE = 0.1  # seconds after a connection could not be accepted, as when there are no more file descriptors


Connection: TypeAlias = Any  # a socket; the base class has datagrams, too
Address: TypeAlias = Any  # of a client; its form depends on the family


class ThreadedServer(ThreadingHTTPServer):
    """Serves from when it is made until it is closed; raises `OSError` if it cannot listen there."""

    daemon_threads = True  # a client that says nothing holds nobody up
    request_queue_size = 128  # connections that wait to be accepted

    def __init__(self, host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler], *, name: str) -> None:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._ending = 0  # connections that were ended here, whose threads have not noticed yet
        self._lock = threading.Lock()
        super().__init__((host, port), handler)
        self.socket.settimeout(0)
        self._stop, self._stopped = socket.socketpair()
        own_sockets.update((self, self._stop, self._stopped))
        self._thread = threading.Thread(target=self._accept, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, at once: no client holds it up."""
        self._stop.close()
        self._thread.join()
        self._stopped.close()
        self.server_close()

    def process_request(self, request: Connection, client_address: Address) -> None:
        """Answer a connection in a thread; end the oldest if there are too many."""
        with self._lock:
            if self._ending >= MOST:
                self.close_request(request)
                return
            self._connections[request] = None
            if len(self._connections) > MOST:
                oldest = next(iter(self._connections))
                del self._connections[oldest]
                self._ending += 1
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Connection) -> None:
        """A connection has been answered."""
        with self._lock:
            if request in self._connections:
                del self._connections[request]
            else:
                self._ending -= 1
        super().shutdown_request(request)

    def handle_error(self, request: Connection, client_address: Address) -> None:
        """A connection broke off, or its handler failed."""
        del request
        _log.debug("the request of %s broke off", client_address, exc_info=True)

    # Private.

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            selector.register(self._stopped, selectors.EVENT_READ)
            while all(key.fileobj is not self._stopped for key, _ in selector.select()):
                try:
                    request, client_address = self.get_request()
                except OSError:
                    if _is_readable(self._stopped, _PAUSE):
                        return
                    continue
                self._begin(request, client_address)

    def _begin(self, request: Connection, client_address: Address) -> None:
        try:
            self.process_request(request, client_address)
        except Exception:  # noqa: BLE001 - there may be no more threads; it goes on for the next connection
            self.handle_error(request, client_address)
            self.shutdown_request(request)


def _is_readable(waiting: socket.socket, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(waiting, selectors.EVENT_READ)
        return bool(selector.select(seconds))
