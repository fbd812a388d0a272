"""The address at which a worker answers with its metrics."""

import logging
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec

from inconcert.cli.ends import fail, refuse
from inconcert.cli.target import address_in
from inconcert.coordinator import Coordinator

_log = logging.getLogger("inconcert.cli")


@contextmanager
def measured(concert: Coordinator, address: str | None, queues: Sequence[str], number: int) -> Generator[None]:
    """Answer at `/metrics` of this address, if there is one, during the body; each process has the next port."""
    if address is None:
        yield
        return
    try:
        host, port = address_in("--metrics", address, lowest_port=0)
    except ValueError as error:
        refuse(str(error))
    if find_spec("prometheus_client") is None:
        refuse("--metrics needs prometheus-client; run  pip install 'inconcert[prometheus]'")
    from inconcert.integrations.prometheus import Metrics, serve  # noqa: PLC0415 - an extra

    with suppress(ValueError):  # the user's module has made one, which is in the registry
        Metrics(concert, queues=queues)
    with ExitStack() as stack:
        try:
            port = stack.enter_context(serve(host, port + number - 1 if port else 0))
        except OSError as error:
            fail(f"metrics cannot be served at {address}: {error.strerror or error}; give --metrics another port")
        _log.info("metrics are served at http://%s:%d/metrics", host, port)
        yield
