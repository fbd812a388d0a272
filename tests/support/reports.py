"""Reports of what processes hold and wait for."""

import pytest

from inconcert import Coordinator, HeldEntry, Inspection, WaitEntry
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.servers import RealServer
from tests.support.world import USER, world

__all__ = ["held", "may_ask", "waiting", "waits_of"]


@pytest.fixture(autouse=True)
def may_ask(server: RealServer | RealCluster) -> None:
    """The user of least rights has the one that asking needs besides, as the docs say."""
    if world().least_rights:
        for node in server.nodes if isinstance(server, RealCluster) else [server]:
            node.command("ACL", "SETUSER", USER, "+pubsub|channels", "+pubsub|shardchannels")


def held(seen: Inspection) -> list[HeldEntry]:
    """What all processes hold."""
    return [entry for process in seen.processes for entry in process.holds]


def waiting(seen: Inspection) -> list[WaitEntry]:
    """What all processes wait for."""
    return [entry for process in seen.processes for entry in process.waits]


async def waits_of(concert: Coordinator, count: int) -> list[WaitEntry]:
    """The waits of all processes, once there are so many."""

    async def found() -> list[WaitEntry] | None:
        entries = waiting(await concert.inspect())
        return entries if len(entries) == count else None

    entries: list[WaitEntry] = await eventually(found)
    return entries
