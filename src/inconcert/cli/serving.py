"""One worker process: what it is asked to do, and its end in good order."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from types import FrameType

from inconcert.coordinator import Coordinator

__all__ = ["NOW", "SIGNALS", "STOP", "serve"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOP, NOW = b"s", b"n"  # what a parent writes: drain; give everything back at once


async def serve(
    concert: Coordinator, run_worker: Callable[[asyncio.Event], Awaitable[None]], *, parent: int | None
) -> None:
    """Open the coordinator and run a worker until it is asked to end.

    Args:
        concert: The coordinator, closed.
        run_worker: Its worker, given what stops it.
        parent: A pipe that the parent process writes its orders to, and that ends with it; None to obey signals.
    """
    stop = asyncio.Event()

    async def work() -> None:
        async with concert:
            await run_worker(stop)

    worker = asyncio.create_task(work())
    if parent is None:
        _obey_signals(stop, worker)
    else:
        _obey_parent(parent, stop, worker)
    await asyncio.wait([worker])
    if not worker.cancelled():
        worker.result()


def _obey_signals(stop: asyncio.Event, worker: "asyncio.Task[None]") -> None:
    """The first one drains, the second cancels, and a third ends the process whatever it does."""
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if not stop.is_set():
            stop.set()
            return
        worker.cancel()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            # By default no signal ends PID 1, as the command of a container is.
            signal.signal(number, _exit if os.getpid() == 1 else signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, signalled)


def _exit(number: int, frame: FrameType | None) -> None:
    del frame
    os._exit(128 + number)  # as a shell says it of who was killed by this signal


def _obey_parent(pipe: int, stop: asyncio.Event, worker: "asyncio.Task[None]") -> None:
    """Do as it says, and drain when it is dead.

    A signal drains, however often it comes: Ctrl-C and some supervisors signal the parent and its children alike, and
    then the parent's order follows.
    """
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)

    def told() -> None:
        orders = os.read(pipe, 64)
        if NOW in orders:
            worker.cancel()
        else:
            stop.set()
        if not orders:
            loop.remove_reader(pipe)

    loop.add_reader(pipe, told)
