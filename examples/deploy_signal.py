"""A signal: services apply new settings as soon as they are deployed, and a slow service notices that it missed some.

Each service subscribes first and loads the settings afterwards, so that no change falls between the two.  A `Gap` says
that changes were missed; then the service reloads all settings from where they are kept.

    python -m examples.deploy_signal
"""

import asyncio

from inconcert import Coordinator, Gap

VERSIONS = 5


async def load(concert: Coordinator) -> int:
    """Read the settings from where they are kept."""
    return int(await concert.redis.get("settings") or 0)


async def deploy(concert: Coordinator, version: int) -> int:
    """Store new settings, and notify every process of every service."""
    await concert.redis.set("settings", version)
    return await concert.signal("deploy").broadcast(version)


async def serve(concert: Coordinator, buffer: int, is_ready: asyncio.Event, is_idle: asyncio.Event) -> list[str]:
    """Run one service, which always has the newest settings."""
    log: list[str] = []
    async with concert.signal("deploy").subscribe(buffer=buffer) as changes:
        settings = await load(concert)
        is_ready.set()
        await is_idle.wait()
        while settings != VERSIONS:
            change = await changes.next()
            if isinstance(change, Gap):
                settings = await load(concert)
                log.append(f"missed {change.missed}, loaded {settings}")
            else:
                settings = int(str(change))
                log.append(f"took {settings}")
    return log


async def main() -> None:
    async with Coordinator.embedded() as concert, Coordinator(str(concert.url)) as office:
        idle, busy = asyncio.Event(), asyncio.Event()
        idle.set()
        ready = [asyncio.Event(), asyncio.Event()]
        web = asyncio.create_task(serve(concert, 1000, ready[0], idle))
        mail = asyncio.create_task(serve(concert, 2, ready[1], busy))
        for event in ready:
            await event.wait()

        reached = [await deploy(office, version) for version in range(1, VERSIONS + 1)]
        print(f"processes told:  {reached}")
        print(f"web:             {', '.join(await web)}")
        busy.set()
        print(f"mail, was busy:  {', '.join(await mail)}")


if __name__ == "__main__":
    asyncio.run(main())
