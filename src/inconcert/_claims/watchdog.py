"""Keeps a worker alive while its event loop stands still.

A function that blocks the event loop also stops the heartbeat, and a silent worker is presumed dead, although its jobs
go on.  So a thread asks the loop for a sign of life; while there is none it sends the heartbeat itself, and logs what
blocks.  It does so for a bounded time: a loop that never turns again is as good as dead.

The thread stops with the process, and can run only while the blocking code releases the interpreter's lock.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import anyio

from inconcert._claims.worker_lease import WorkerLease
from inconcert._core.renewal import RENEW_AFTER, TRY_AGAIN
from inconcert._core.session import Session
from inconcert._redis.blocking.blocking_channel import BlockingChannel
from inconcert._redis.wire.background import attempt
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.claims")

# Of a heartbeat's lease.  A loop that stands still has renewed its heartbeat a third of the lease before, at worst; the
# thread notices within the first two of these, and then has at least a third left to reach the server in.
_ASK_EVERY = 1 / 10
_ANSWER_WITHIN = 1 / 5

_LONGEST = 60.0  # seconds for which the thread sends heartbeats
_CLOSE_TIMEOUT = 5.0  # seconds for which closing waits for a thread that waits for the server


class Watchdog:
    """The thread of one consumer.

    Its connections, opened when needed, are set up like those of the workers. Where that is not possible it only logs.
    """

    def __init__(self, session: Session) -> None:
        self._new_server = session.new_blocking_server
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._workers: list[WorkerLease[Any]] = []
        self._thread: threading.Thread | None = None
        self.turned_at = time.monotonic()  # when the loop last turned for the thread
        self._is_closing = threading.Event()
        self._has_ended = asyncio.Event()

    def start(self, lease: float) -> None:
        """Start the thread, unless it has started; the lease of the workers is in seconds."""
        if self._thread is None:
            self.turned_at = time.monotonic()
            thread = threading.Thread(target=self._run, args=(lease,), name="inconcert watchdog", daemon=True)
            thread.start()
            self._thread = thread

    def watch(self, worker: WorkerLease[Any]) -> None:
        """Watch this worker from now on; the thread starts with the first at the latest."""
        self._workers = [*(one for one in self._workers if not one.is_lost), worker]
        self.start(worker.lease)

    @property
    def is_alive(self) -> bool:
        """True if the thread lives, or has not started."""
        return self._thread is None or self._thread.is_alive()

    async def close(self) -> None:
        """End the thread."""
        self._is_closing.set()
        if self._thread is not None:
            with anyio.move_on_after(_CLOSE_TIMEOUT):
                await self._has_ended.wait()
                self._thread.join()

    def _turned(self, event: threading.Event) -> None:
        self.turned_at = time.monotonic()
        event.set()

    # In the thread.

    def _run(self, lease: float) -> None:
        try:
            while not self._is_closing.wait(lease * _ASK_EVERY):
                attempt("watching the event loop", self._look, lease)
        finally:
            self._when_it_turns(self._has_ended.set)

    def _look(self, lease: float) -> None:
        """See whether the loop turns; if it does not, say where it stands still, and stand in for it until it does."""
        patience = lease * _ANSWER_WITHIN
        turned = threading.Event()
        if not self._when_it_turns(partial(self._turned, turned)):
            self._is_closing.set()
        elif not turned.wait(patience):
            _log.warning(
                "the event loop has stood still for %g s in %s, and this is where:\n%s",
                patience,
                self._in_what(),
                self._where(),
            )
            self._stand_in(turned, lease)
            while not turned.wait(lease) and not self._loop.is_closed():
                pass  # each blockage is logged once

    def _when_it_turns(self, callback: Callable[[], None]) -> bool:
        """Have the loop call this; False if the loop was closed and the consumer was not."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            return False
        return True

    def _in_what(self) -> str:
        """The name of the asyncio task that blocks: workers name it after its job."""
        task = asyncio.current_task(self._loop)
        return task.get_name() if task is not None else "a callback"

    def _where(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return "".join(traceback.format_stack(frame)) if frame is not None else "its thread has ended"

    def _stand_in(self, turned: threading.Event, lease: float) -> None:
        """Renew the heartbeat until the loop turns, the worker is presumed dead, or it takes too long."""
        server = self._new_server(timeout=lease * _ANSWER_WITHIN)
        if server is None:
            return
        workers = list(self._workers)
        give_up_at = time.monotonic() + _LONGEST
        pause = 0.0
        with closing(BlockingChannel(server, timeout=lease * RENEW_AFTER)) as channel:
            while not turned.wait(pause) and (workers := [one for one in workers if _lives(one)]):
                if time.monotonic() >= give_up_at:
                    holders = ", ".join(worker.holder for worker in workers)
                    _log.error("the event loop stands still: worker %s will be presumed dead", holders)
                    return
                pause = lease * RENEW_AFTER
                for worker in list(workers):
                    if turned.is_set():  # a server that is away delays each of them
                        return
                    try:
                        if not worker.beat_aside(channel):
                            workers.remove(worker)
                    except InconcertError as error:
                        _log.warning("worker %s could not renew its heartbeat yet: %s", worker.holder, error)
                        pause = lease * TRY_AGAIN


def _lives(worker: WorkerLease[Any]) -> bool:
    return not worker.is_lost and time.monotonic() < worker.deadline
