"""A server behind TLS, with certificates made for the test."""

import asyncio
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import trustme
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from tests.support.servers import RealServer, free_port

__all__ = ["Encrypted", "encrypted"]


class Encrypted:
    """Where the server is, and the files that prove it.

    Args:
        port: Where it listens.
        folder: Where the files are put.
        issuer: What signed the server's certificate, and signs those of clients.

    Attributes:
        ca: The file with the issuer's certificate.
        client: The file with a client's certificate and key.
    """

    def __init__(self, port: int, folder: Path, issuer: trustme.CA) -> None:
        self._port = port
        self.ca, self.client = folder / "ca.pem", folder / "client.pem"
        issuer.cert_pem.write_to_path(str(self.ca))
        issuer.issue_cert("shop.example").private_key_and_cert_chain_pem.write_to_path(str(self.client))

    def url(self, scheme: str = "rediss", **options: object) -> str:
        """A URL with these options besides the issuer's certificate; None leaves that out."""
        options = {"ssl_ca_certs": self.ca} | options
        given = {name: value for name, value in options.items() if value is not None}
        return f"{scheme}://localhost:{self._port}/0" + (f"?{urlencode(given)}" if given else "")


@contextmanager
def encrypted(
    server: RealServer, folder: Path, *, host: str = "localhost", asks_for_client: bool = False
) -> Generator[Encrypted]:
    """Put the server behind TLS, by a loop in another thread, which turns when the test's does not.

    Args:
        server: What connections lead to.
        folder: Where the files are put.
        host: The name in its certificate. It listens at `localhost`.
        asks_for_client: Whether a client must have a certificate of the same issuer.
    """
    issuer: Any = trustme.CA()  # its types have holes
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    issuer.issue_cert(host).configure_cert(context)
    if asks_for_client:
        issuer.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        their_reader, their_writer = await asyncio.open_unix_connection(str(server.socket))
        await asyncio.gather(pump(reader, their_writer), pump(their_reader, writer), return_exceptions=True)
        their_writer.close()

    async def listen(stop: anyio.Event, *, task_status: TaskStatus[int]) -> None:
        async with await asyncio.start_server(pass_on, "localhost", free_port(), ssl=context) as listener:
            task_status.started(listener.sockets[0].getsockname()[1])
            await stop.wait()

    with start_blocking_portal() as portal:
        stop: Any = portal.call(anyio.Event)
        listening, port = portal.start_task(listen, stop)
        yield Encrypted(port, folder, issuer)
        portal.call(stop.set)
        listening.result()
