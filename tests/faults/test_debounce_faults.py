"""Jobs that run after a silence, while replies are lost: each call counts once."""

from typing import Any

import pytest

from inconcert import Coordinator, Task
from tests.support.background import in_background
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

SECRET = {"one": "0123456789abcdef"}
WITHIN = 10.0
HOUR = 3600.0


def register(concert: Coordinator, ran: list[int]) -> Task[[int], Any]:
    """A task that notes what it was called with."""

    @concert.task(name="reindex", history=1000)
    async def reindex(version: int) -> None:
        ran.append(version)

    return reindex


@pytest.mark.parametrize("keys", [None, SECRET], ids=["unsigned", "signed"])
async def test_reply_lost_at_each_step_neither_doubles_nor_loses_a_call(
    server: RealServer, proxy: Proxy, namespace: str, keys: dict[str, str] | None
) -> None:
    """A call that was not answered is sent again: one job, with the last arguments."""
    ran: list[int] = []
    async with Coordinator(server.url, namespace=namespace, signing_keys=keys) as good:
        here = register(good, ran)
        for steps in range(8):
            async with Coordinator(proxy.url, namespace=namespace, signing_keys=keys) as bad:
                there = register(bad, ran).options(unique="one", debounce=HOUR)
                proxy.cut_after_replies(steps, lose_next=True)
                jobs = [await there.enqueue(10 * steps + version) for version in range(3)]
                assert [job.created for job in jobs] == [True, False, False]
            await proxy.heal()
            last = await here.options(unique="one", debounce=0.001).enqueue(10 * steps + 9)
            assert {job.id for job in jobs} == {last.id}
            async with in_background(good.run_worker("default")):
                await last.result(timeout=WITHIN)
        assert ran == [10 * steps + 9 for steps in range(8)]
        assert len(await here.history()) == 8
