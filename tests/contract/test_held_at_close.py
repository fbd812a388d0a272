"""Leases that are still held when the coordinator closes in order; and arguments of the wrong type."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from inconcert import Coordinator, InvalidName

ACQUIRE: dict[str, Callable[[Coordinator], Awaitable[Any]]] = {
    "lock": lambda concert: concert.lock("a").acquire(),
    "semaphore": lambda concert: concert.semaphore("a", limit=1).acquire(),
    "election": lambda concert: concert.election("a").acquire(),
    "members": lambda concert: concert.members("a").join(),
}


@pytest.mark.parametrize("kind", ACQUIRE)
async def test_lease_that_is_held_at_close_is_released_and_not_lost(
    any_concert: Coordinator, elsewhere: Coordinator, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """It is said at INFO; the next has it at once."""
    lease = await ACQUIRE[kind](elsewhere)
    with caplog.at_level(logging.INFO, "inconcert"):
        await elsewhere.__aexit__(None, None, None)
    assert not lease.is_lost
    assert [
        (record.levelname, "still held at close: released" in record.getMessage())
        for record in caplog.records
        if record.name == "inconcert.leases"
    ] == [("INFO", True)]
    await (await ACQUIRE[kind](any_concert)).release()


async def test_next_holder_hears_that_the_one_before_was_closed_with_it(
    any_concert: Coordinator, elsewhere: Coordinator
) -> None:
    """What it began may be half done."""
    lease = await elsewhere.lock("a").acquire()
    await elsewhere.__aexit__(None, None, None)
    async with any_concert.lock("a") as following:
        assert following.previous_lost
    assert not lease.is_lost


def test_coordinator_of_no_url_says_so() -> None:
    """As from a variable of the environment that is not set."""
    url: Any = None
    with pytest.raises(TypeError, match="this is NoneType; is the environment variable set"):
        Coordinator(url)
    namespace: Any = 5
    with pytest.raises(InvalidName, match="the namespace 5 must have"):
        Coordinator(namespace=namespace)


async def test_what_is_no_string_is_refused_before_anything_is_sent() -> None:
    """Though the coordinator is not open."""
    concert: Any = Coordinator("redis://127.0.0.1:1")
    for thing in (5, None, b"lock:a"):
        with pytest.raises(TypeError, match="a query must be a string"):
            await concert.index("i").search(thing)
        with pytest.raises(TypeError, match="give a string"):
            await concert.index("i").suggest(thing)
        with pytest.raises(TypeError, match="is not a string KIND:NAME"):
            await concert.explain(thing)
