"""A process that a job forks, such as the processes of a `multiprocessing.Pool`, is not the worker.

A fork inherits the handlers of signals, the descriptor through which they wake the event loop up, and all sockets. So a
signal to the child would reach the worker, and not end the child; and the server would take a worker that has died for
connected as long as the child lives.
"""

import os
import signal
import threading
from contextlib import suppress

from inconcert._redis.wire.own_sockets import own_sockets

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Mask(threading.local):
    """The signals that were blocked in this thread before it forked."""

    before: set[int | signal.Signals]


_mask = _Mask()
_orders: set[int] = set()


def leave_forks_alone(orders: int | None) -> None:
    """Have children that this process forks treat signals as a new process does, without its sockets and this pipe."""
    if not _orders:  # once: it cannot be undone
        os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_begin_anew)
    _orders.add(-1 if orders is None else orders)


def _block() -> None:
    """Let no signal come between the fork and what follows it in the child."""
    _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, (*SIGNALS, signal.SIGHUP))


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)


def _begin_anew() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in {*_orders, *(own.fileno() for own in list(own_sockets))} - {-1}:
        with suppress(OSError):
            os.dup2(nowhere, descriptor, inheritable=False)  # not closed: Python objects may close it again
    os.close(nowhere)
    _unblock()
