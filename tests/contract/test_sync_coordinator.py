"""Locks, semaphores and rate limiters without an event loop: what the promises of the family do not say of threads.

Those run from threads in `test_permits.py`.
"""

import inspect
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection

import pytest

from inconcert import (
    AcquireTimeout,
    LeaseLost,
    NotConnected,
    RateLimited,
    SyncCoordinator,
    SyncLease,
    SyncPermits,
    SyncProducer,
)
from inconcert.sync_coordinator import Acquisition
from tests.support.servers import RealServer

Make = Callable[[SyncCoordinator, str], SyncPermits]
SOON = 10.0  # seconds


def _lock(sync: SyncCoordinator, name: str) -> SyncPermits:
    return sync.lock(name)


def _semaphore(sync: SyncCoordinator, name: str) -> SyncPermits:
    return sync.semaphore(name, limit=1)


@pytest.fixture
def sync(server: RealServer, namespace: str) -> Iterator[SyncCoordinator]:
    """One of this process."""
    with SyncCoordinator(server.url, namespace=namespace) as opened:
        yield opened


@pytest.fixture
def other(server: RealServer, namespace: str) -> Iterator[SyncCoordinator]:
    """As another process has it."""
    with SyncCoordinator(server.url, namespace=namespace) as opened:
        yield opened


@pytest.fixture(params=[_lock, _semaphore])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a member of the family, for one holder."""
    made: Make = request.param
    return made


def _are_in_line(permits: SyncPermits, count: int) -> bool:
    return permits.waiters() == count


def until(fact: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + SOON
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_lost_lease_is_known_and_raised_at_the_end(sync: SyncCoordinator) -> None:
    """An error of the body comes first."""
    for error in (None, LookupError("mine")):
        with pytest.raises(LeaseLost if error is None else LookupError):
            _lose(sync, error)


def _lose(sync: SyncCoordinator, error: Exception | None) -> None:
    with sync.lock("x") as lease:
        _evict(sync, "x")
        until(lambda: lease.is_lost)
        if error is not None:
            raise error


def _evict(sync: SyncCoordinator, name: str) -> None:
    sync._opened_thread().call(partial(sync._concert.release_by_force, "lock", name))


def test_interrupt_leaves_nothing_in_line_and_nothing_held(
    sync: SyncCoordinator, other: SyncCoordinator, make: Make
) -> None:
    """Ctrl-C while it waits."""
    lease = make(other, "x").acquire()

    def press() -> None:
        until(partial(_are_in_line, make(other, "x"), 1))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupt = threading.Thread(target=press)
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        make(sync, "x").acquire()
    interrupt.join()
    until(lambda: make(other, "x").waiters() == 0)
    lease.release()
    assert make(other, "x").holders() == []


def test_what_is_granted_to_an_interrupted_caller_is_released(sync: SyncCoordinator, make: Make) -> None:
    """Between the grant and the return."""
    thread, permits = sync._opened_thread(), make(sync, "x")
    acquisition = Acquisition(permits._permits.acquire)
    assert thread._portal.call(acquisition.run) is not None
    thread._portal.call(acquisition.abandon)
    until(lambda: not permits.locked())


def test_fork_has_a_connection_of_its_own(sync: SyncCoordinator) -> None:
    """It waits for what its parent holds, cannot release it, and takes others."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with sync.lock("x") as lease:
        child = context.Process(target=_in_a_fork, args=(sync, lease, there))
        child.start()
        there.close()
        assert here.poll(SOON * 2)
        assert here.recv() == (None, "NotConnected", True)
        child.join(SOON)
        assert child.exitcode == 0
        lease.renew()
    assert not sync.lock("x").locked()


def _in_a_fork(sync: SyncCoordinator, lease: SyncLease, told: Connection) -> None:
    tried = sync.lock("x").try_acquire()
    try:
        lease.release()
        error = ""
    except NotConnected as raised:
        error = type(raised).__name__
    with sync.lock("y") as own:
        told.send((tried, error, own.remaining > 0))
    sync.close()
    os._exit(0)


def test_closing_releases_and_wakes_who_waits(
    server: RealServer, namespace: str, other: SyncCoordinator, make: Make
) -> None:
    """It may be closed again, and used again in a `with`."""
    sync = SyncCoordinator(server.url, namespace=namespace)
    kept = make(sync, "free").acquire()
    lease = make(other, "x").acquire()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(make(sync, "x").acquire)
        until(lambda: make(other, "x").waiters() == 1)
        sync.close()
        assert isinstance(waiting.exception(SOON), NotConnected)
    sync.close()
    lease.release()
    with pytest.raises(NotConnected, match="is closed"):
        make(sync, "x").acquire()
    with sync:
        assert not make(sync, "free").locked()
    assert kept.remaining == 0


def test_server_that_is_away_is_an_error_and_leaves_no_thread(namespace: str) -> None:
    """And the next call tries again."""
    sync = SyncCoordinator("redis://127.0.0.1:1", namespace=namespace, timeout=0.2)
    before = threading.active_count()
    for _ in range(2):
        with pytest.raises(Exception, match="127"):
            sync.lock("x").acquire()
    assert threading.active_count() == before
    sync.close()


def test_rate_limiter_counts_for_all(sync: SyncCoordinator, other: SyncCoordinator) -> None:
    """As one of a coordinator."""
    mine, theirs = sync.rate_limiter("api", 2, 3600), other.rate_limiter("api", 2, 3600)
    assert mine.try_acquire()
    theirs.acquire(timeout=0)
    assert not mine.try_acquire()
    with pytest.raises(RateLimited):
        theirs.acquire(timeout=0)
    mine.reset()
    assert theirs.try_acquire(cost=2)


def test_held_fills_the_name_from_the_arguments(sync: SyncCoordinator, other: SyncCoordinator) -> None:
    """By position, by keyword, and by default."""

    @sync.held("item:{item_id}", timeout=0)
    def view(item_id: int = 7) -> bool:
        return other.lock(f"item:{item_id}").locked()

    assert (view(3), view(item_id=4), view()) == (True, True, True)
    with other.lock("item:7"), pytest.raises(AcquireTimeout):
        view()

    async def wrong() -> None: ...

    with pytest.raises(TypeError, match="is a coroutine function"):
        sync.held("x")(wrong)


def test_it_produces_too(sync: SyncCoordinator) -> None:
    """What a `SyncProducer` does."""
    assert sync.enqueue("t", [7]).created


def test_arguments_are_those_of_a_producer_and_a_label() -> None:
    """Each by its name, with the same default and type, as `help()` shows them."""
    mine, theirs = (dict(inspect.signature(each).parameters) for each in (SyncCoordinator, SyncProducer))
    assert mine == theirs | {"label": mine["label"]}


@pytest.mark.parametrize("number", ["ttl", "timeout"])
def test_bad_input_is_refused_before_anything_is_sent(number: str) -> None:
    """No thread is started."""
    sync = SyncCoordinator("redis://127.0.0.1:1")
    with pytest.raises(ValueError, match=number):
        sync.lock("x", **{number: -1})
    assert sync._thread is None
