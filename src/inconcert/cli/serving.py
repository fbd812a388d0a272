"""One worker process: the signals or orders that it obeys, and its orderly end."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from types import FrameType

from inconcert.cli.forks import SIGNALS, leave_forks_alone
from inconcert.coordinator import Coordinator

STOP, NOW = b"s", b"n"  # what a parent writes: drain; requeue everything at once


async def serve(
    concert: Coordinator, run_worker: Callable[[asyncio.Event], Awaitable[None]], *, parent: int | None
) -> None:
    """Open the coordinator and run a worker until it is ordered to end, which ends opening, too.

    Args:
        concert: The coordinator, closed.
        run_worker: Runs its worker until the event that it is given is set.
        parent: A pipe that carries the parent process's orders and ends with it; None to obey signals.
    """
    stop, is_open = asyncio.Event(), False

    async def work() -> None:
        nonlocal is_open
        async with concert:
            is_open = True
            await run_worker(stop)

    def drain() -> None:
        if not (is_open or stop.is_set()):
            worker.cancel()  # it has nothing to drain, and the server may not answer for long
        stop.set()

    worker = asyncio.create_task(work())
    leave_forks_alone(parent)
    if parent is None:
        _obey_signals(stop, drain, worker)
    else:
        _obey_parent(parent, drain, worker)
    await asyncio.wait([worker])
    if not worker.cancelled():
        worker.result()


def obey_hangup(drain: Callable[[], object]) -> None:
    """Drain when the terminal is closed; not under `nohup`, which has the signal ignored.

    It never counts as a second signal: the kernel and a shell may both send it.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, drain)


def _obey_signals(stop: asyncio.Event, drain: Callable[[], None], worker: "asyncio.Task[None]") -> None:
    """The first signal drains, the second cancels, and a third ends the process unconditionally."""
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if not stop.is_set():
            drain()
            return
        worker.cancel()
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            # By default no signal ends PID 1, which a container's command is.
            signal.signal(number, _exit if os.getpid() == 1 else signal.SIG_DFL)

    for number in SIGNALS:
        loop.add_signal_handler(number, signalled)
    obey_hangup(drain)


def _exit(number: int, frame: FrameType | None) -> None:
    del frame
    os._exit(128 + number)  # as a shell reports a process killed by this signal


def _obey_parent(pipe: int, drain: Callable[[], None], worker: "asyncio.Task[None]") -> None:
    """Obey the parent's orders, and drain when it is dead.

    A signal drains, however often it comes: Ctrl-C and some supervisors signal the parent and its children alike, and
    the parent's order follows.
    """
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, drain)
    obey_hangup(drain)

    def told() -> None:
        orders = os.read(pipe, 64)
        if NOW in orders:
            worker.cancel()
        else:
            drain()
        if not orders:
            loop.remove_reader(pipe)

    loop.add_reader(pipe, told)
