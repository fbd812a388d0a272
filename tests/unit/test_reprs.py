"""An object whose constructor has refused its arguments has a `repr()`: tracebacks are shown with their locals."""

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from enum import Enum
from types import TracebackType
from typing import Any, is_typeddict

import pytest
from fakeredis.aioredis import FakeRedis

import inconcert
from inconcert import Coordinator, QuorumLock, Retry, Snooze, SyncCoordinator, SyncProducer
from inconcert.errors import InconcertError
from tests.support.public import PUBLIC

concert = Coordinator()


def refused_task() -> object:
    """One whose parameter has two types that JSON cannot tell apart."""

    @concert.task(name="refused")
    async def task(argument: str | bytes) -> None: ...

    return task


@concert.task(name="t")
async def task(argument: int) -> None:
    """One to call."""


# Everything that users make, in each way that is refused.
REFUSED: dict[str, list[Callable[[], object]]] = {
    "Barrier": [
        lambda: concert.barrier("b", 0),
        lambda: concert.barrier("", 1),
        lambda: concert.barrier("b", 1, ttl=0),
        lambda: concert.barrier("b", 1, timeout=-1),
    ],
    "Consumer": [
        concert.consume,
        lambda: concert.consume("q", "q"),
        lambda: concert.consume(""),
        lambda: concert.consume("q", prefetch=0),
        lambda: concert.consume("q", weights={"q": 0}),
        lambda: concert.consume("q", delivery="never"),  # type: ignore[arg-type]
    ],
    "Coordinator": [
        lambda: Coordinator("http://localhost"),
        lambda: Coordinator(namespace=""),
        lambda: Coordinator(timeout=0),
        lambda: Coordinator(signing_keys={"a": "short"}),
        lambda: Coordinator.from_client(FakeRedis(), namespace=""),
        lambda: Coordinator.from_client(FakeRedis(), timeout=-1),
        lambda: Coordinator.embedded(timeout=0),
        lambda: Coordinator.embedded(cluster=3, timeout=0),
        lambda: Coordinator.embedded(namespace=":"),
        lambda: Coordinator.embedded(signing_keys={}),
    ],
    "Draft": [lambda: task.call("no number"), lambda: task.options(delay=-1).call(1)],  # type: ignore[call-overload]
    "Election": [
        lambda: concert.election("", ttl=1),
        lambda: concert.election("e", ttl=0),
        lambda: concert.election("e", timeout=-1),
        lambda: concert.election("e", candidate=""),
    ],
    "Event": [lambda: concert.event(""), lambda: concert.event("e", ttl=0)],
    "Index": [lambda: concert.index(""), lambda: concert.index("i", stop_words="the")],
    "Group": [lambda: concert.tasks.group("")],
    "Job": [lambda: concert.tasks.job("")],
    "Latch": [lambda: concert.latch("", 1), lambda: concert.latch("l", -1), lambda: concert.latch("l", 1, ttl=0)],
    "Lock": [lambda: concert.lock(""), lambda: concert.lock("l", ttl=0), lambda: concert.lock("l", timeout=-1)],
    "Locks": [
        concert.locks,
        lambda: concert.locks("a", "a"),
        lambda: concert.locks(""),
        lambda: concert.locks("a", 1),  # type: ignore[arg-type]
        lambda: concert.locks("a", ttl=0),
        lambda: concert.locks("a", timeout=-1),
    ],
    "Mailbox": [
        lambda: concert.mailbox(""),
        lambda: concert.mailbox("m", ttl=0),
        lambda: concert.mailbox("m", max_messages=0),
        lambda: concert.mailbox("m", max_age=0),
    ],
    "Members": [
        lambda: concert.members(""),
        lambda: concert.members("m", ttl=0),
        lambda: concert.members("m", value="x" * 5000),
    ],
    "Queue": [
        lambda: concert.queue(""),
        lambda: concert.queue("q", order="any"),  # type: ignore[call-overload]
        lambda: concert.queue("q", ttl=0),
        lambda: concert.queue("q", max_attempts=0),
        lambda: concert.queue("q", maxsize=0),
        lambda: concert.queue("q", delivery="never"),  # type: ignore[call-overload]
    ],
    "QuorumLock": [
        lambda: QuorumLock([], "q"),
        lambda: QuorumLock([FakeRedis()] * 3, "q", ttl=0),
        lambda: QuorumLock([FakeRedis()] * 3, "q", timeout=-1),
        lambda: QuorumLock([FakeRedis()] * 3, ""),
        lambda: QuorumLock([FakeRedis()] * 3, "q", namespace=""),
        lambda: QuorumLock([FakeRedis()] * 3, "q", server_timeout=0),
        lambda: QuorumLock([1, 2, 3], "q"),  # type: ignore[list-item]
    ],
    "RateLimiter": [
        lambda: concert.rate_limiter("", 1, 1),
        lambda: concert.rate_limiter("r", 0, 1),
        lambda: concert.rate_limiter("r", 1, 0),
        lambda: concert.rate_limiter("r", 1, 1, burst=0),
    ],
    "RateLimiters": [
        concert.rate_limiters,
        lambda: concert.rate_limiters(1),  # type: ignore[arg-type]
    ],
    "RWLock": [lambda: concert.rwlock(""), lambda: concert.rwlock("r", ttl=0), lambda: concert.rwlock("r", timeout=-1)],
    "Retry": [lambda: Retry(after=-1)],
    "Semaphore": [
        lambda: concert.semaphore("", limit=1),
        lambda: concert.semaphore("s", limit=0),
        lambda: concert.semaphore("s", limit=1, ttl=0),
        lambda: concert.semaphore("s", limit=1, timeout=-1),
    ],
    "Signal": [lambda: concert.signal("")],
    "Signals": [lambda: concert.signals("")],
    "Snooze": [lambda: Snooze(-1)],
    "Subscription": [
        lambda: concert.signal("s").subscribe(buffer=0),
        lambda: concert.signals("*").subscribe(buffer=0),
    ],
    "SyncCoordinator": [
        lambda: SyncCoordinator("http://localhost"),
        lambda: SyncCoordinator(namespace=""),
        lambda: SyncCoordinator(timeout=0),
    ],
    "SyncProducer": [
        lambda: SyncProducer("http://localhost"),
        lambda: SyncProducer(namespace=""),
        lambda: SyncProducer(timeout=0),
        lambda: SyncProducer(partitions=0),
        lambda: SyncProducer(signing_keys={"a": "short"}),
    ],
    "Task": [
        refused_task,
        lambda: concert.task(queue="")(print),
        lambda: concert.task(name="\0" * 513)(print),
        lambda: concert.task(max_attempts=0)(print),
    ],
}
# What the package alone makes, of what has been looked at before.
MADE_BY_US = {
    "Chats",
    "ClaimedJob",
    "Delivery",
    "HealthServer",
    "Lease",
    "Leases",
    "Member",
    "PreparedJob",
    "QuorumLease",
    "ReadLock",
    "Reservation",
    "Schedules",
    "SyncLease",
    "SyncPermits",
    "SyncRateLimiter",
    "Tasks",
    "Term",
    "WorkerHealth",
    "WriteLease",
    "WriteLock",
    "Undo",
}


def frames_of(traceback: TracebackType | None) -> Iterator[dict[str, Any]]:
    """The local names of each frame that an error has passed."""
    while traceback is not None:
        yield traceback.tb_frame.f_locals
        traceback = traceback.tb_next


@pytest.mark.parametrize("name", REFUSED)
def test_refused_object_has_a_repr(name: str) -> None:
    """Whichever argument is refused, in whichever frame it is seen."""
    for make in REFUSED[name]:
        with pytest.raises((ValueError, TypeError, InconcertError)) as refused:
            make()
        for names in frames_of(refused.value.__traceback__):
            assert repr(names.get("self"))


def test_every_exported_class_is_looked_at() -> None:
    """A new one adds itself."""
    classes = {name: value for name in PUBLIC if isinstance(value := getattr(inconcert, name), type)}
    plain = {
        name
        for name, value in classes.items()
        if is_typeddict(value) or is_dataclass(value) or issubclass(value, InconcertError | Enum | tuple)
    }
    assert set(REFUSED) | MADE_BY_US == classes.keys() - plain
