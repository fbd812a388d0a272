"""A coordinator that is opened and closed by calls, as a REPL, a bot or a framework without a lifespan does."""

import asyncio
import gc
import subprocess
import sys
import warnings

import pytest

from inconcert import Coordinator, NotConnected, NotHeld
from inconcert.testing import override
from tests.support.background import in_background
from tests.support.servers import RealServer


async def test_it_is_open_between_the_two_calls(server: RealServer, namespace: str) -> None:
    """From one asyncio task to another, and again after that; what it holds is released."""
    concert = Coordinator(server.url, namespace=namespace)
    for _ in range(2):
        assert await asyncio.create_task(concert.open()) is concert
        lease = await concert.lock("l").acquire(timeout=0)
        await asyncio.create_task(concert.close())
        with pytest.raises(NotHeld):
            await lease.renew()
    async with concert:
        assert not await concert.lock("l").locked()


async def test_second_open_is_refused(server: RealServer, namespace: str) -> None:
    """Whichever of the two ways opened it; the first opening goes on."""
    concert = Coordinator(server.url, namespace=namespace)
    await concert.open()
    for again in (concert.open, concert.__aenter__):
        with pytest.raises(RuntimeError, match="cannot be opened twice"):
            await again()
    await concert.ping()
    await concert.close()


async def test_close_may_be_called_again(server: RealServer, namespace: str) -> None:
    """Before it was opened, at the same time, and after `async with`."""
    concert = Coordinator(server.url, namespace=namespace)
    await concert.close()
    await concert.open()
    await asyncio.gather(concert.close(), concert.close())
    assert repr(concert).endswith("closed>")
    async with concert:
        await concert.close()
    await concert.close()


async def test_close_that_waits_for_another_one_returns_when_it_is_closed(server: RealServer, namespace: str) -> None:
    """Not before: what comes next may stop the server."""
    concert = Coordinator(server.url, namespace=namespace)
    await concert.open()
    async with in_background(concert.close()):
        await asyncio.sleep(0)
        assert concert._state == "closing"
        await concert.close()
        assert repr(concert).endswith("closed>")


async def test_cancelled_close_has_closed(server: RealServer, namespace: str) -> None:
    """The cancellation comes after that."""
    concert = Coordinator(server.url, namespace=namespace)
    await concert.open()
    closing = asyncio.create_task(concert.close())
    await asyncio.sleep(0)
    assert concert._state == "closing"
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert repr(concert).endswith("closed>")


async def test_what_is_being_opened_cannot_be_closed(server: RealServer, namespace: str) -> None:
    """Its opener is to be cancelled instead, after which it is closed."""
    concert = Coordinator(server.url, namespace=namespace)
    opening = asyncio.create_task(concert.open())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="cancel the task that opens it"):
        await concert.close()
    opening.cancel()
    await asyncio.wait([opening])
    await concert.close()
    assert concert._state == "closed"


async def test_it_is_not_closed_from_another_event_loop(server: RealServer, namespace: str) -> None:
    """It stays open on its own."""
    concert = Coordinator(server.url, namespace=namespace)
    await concert.open()
    with pytest.raises(NotConnected, match="close it there"):
        await asyncio.to_thread(asyncio.run, concert.close())
    await concert.ping()
    await concert.close()


async def test_application_that_a_test_overrides_may_close_twice(namespace: str) -> None:
    """What the test has opened stays open, and nothing warns."""
    concert = Coordinator("redis://nowhere", namespace=namespace)
    async with override(concert):
        await concert.open()
        for _ in range(2):
            await concert.close()
            await concert.ping()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del concert
        gc.collect()


async def test_dropped_one_warns(server: RealServer, namespace: str) -> None:
    """Unless it was closed."""
    for is_closed in (True, False):
        concert = Coordinator(server.url, namespace=namespace)
        await concert.open()
        session = concert._ref.session
        if is_closed:
            await concert.close()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            del concert
            gc.collect()
        assert [str(one.message).partition("> ")[2] for one in found if "open()" in str(one.message)] == (
            [] if is_closed else ["was opened by open() and not closed; await close()"]
        )
        if not is_closed:
            await session.close()


@pytest.mark.parametrize("then", ["", "asyncio.run(concert.close())", "asyncio.run(concert.open())"])
def test_one_that_outlives_its_event_loop_warns(server: RealServer, namespace: str, then: str) -> None:
    """When it is closed or opened again, and at the end of the program; `asyncio.run(concert.open())` is a mistake."""
    program = (
        "import asyncio, inconcert\n"
        f"concert = inconcert.Coordinator({server.url!r}, namespace={namespace!r})\n"
        "asyncio.run(concert.open())\n"
        f"{then}\n"
        "print(concert)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.endswith("closed>\n" if "close" in then else "open>\n")
    assert ended.stderr.count("was opened by open() and not closed") == (2 if "open" in then else 1)
