"""A worker beside a web service, on the same event loop and coordinator."""

import asyncio
import logging
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from inconcert._core.cancellation import cancel_all
from inconcert._rules.durations import Seconds
from inconcert.coordinator import Coordinator

_log = logging.getLogger("inconcert.integrations")

_workers: "weakref.WeakKeyDictionary[Coordinator, asyncio.Task[None]]" = weakref.WeakKeyDictionary()


@asynccontextmanager
async def run_worker(
    concert: Coordinator,
    *queues: str,
    concurrency: int = 100,
    grace: Seconds = 30.0,
    weights: Mapping[str, int] | None = None,
) -> AsyncGenerator[None]:
    """Run a worker while the body runs, such as the life of a web service.

    At the end it stops claiming, and running jobs have `grace` to end.  If it ends with an error before, that is
    logged at once, the checks of `install` answer 503 from then on, and the error is raised at the end of the body.

    A job that blocks the event loop blocks the service, too.  A worker of its own process is better for heavy jobs.

    Args:
        concert: The coordinator, open.
        queues: Names of queues, the most urgent first.
        concurrency: How many jobs may run at once.
        grace: How long running jobs have to end, in seconds.
        weights: See `Coordinator.run_worker`.

    Raises:
        ValueError: There is no queue, or a weight is wrong.
        RuntimeError: This process runs a worker of this coordinator in this way already.
    """
    running = _workers.get(concert)
    if running is not None:
        raise RuntimeError(f"{concert!r} has a worker beside it already; start one, with all its queues")
    concert.consume(*queues, weights=weights)  # refuses now what the worker would refuse
    stop = asyncio.Event()
    worker = asyncio.create_task(
        concert.run_worker(*queues, concurrency=concurrency, grace=grace, weights=weights, stop=stop)
    )
    worker.add_done_callback(partial(_report, concert))
    _workers[concert] = worker
    try:
        yield
        stop.set()
        await asyncio.wait([worker])
        worker.result()
    finally:
        del _workers[concert]
        await cancel_all([worker])


def dead_worker(concert: Coordinator) -> BaseException | None:
    """The error with which the worker beside it has ended; None if it has not, or there is none."""
    worker = _workers.get(concert)
    return worker.exception() if worker is not None and worker.done() and not worker.cancelled() else None


def _report(concert: Coordinator, worker: "asyncio.Task[None]") -> None:
    if not worker.cancelled() and (error := worker.exception()) is not None:
        _log.error("the worker beside %r has ended with an error", concert, exc_info=error)
