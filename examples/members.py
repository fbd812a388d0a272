"""Members: two crawlers share out forty sites, and each site has one crawler at a time.

Here the crawlers are coroutines of one process; they could just as well run on two machines.  When one leaves, or dies,
the other gets its sites.

    python -m examples.members
"""

import asyncio

from inconcert import Coordinator

SITES = [f"site:{number}" for number in range(40)]


async def crawl(concert: Coordinator, running: dict[str, list[str]], name: str) -> None:
    """Run one crawler until it is cancelled."""
    async with concert.members("crawlers", value=name) as me:
        async for sites in me.shares(SITES):
            running[name] = sorted(sites)  # start and stop work here, in other tasks


async def shared_out(running: dict[str, list[str]], *names: str) -> None:
    """Wait until these have all the sites, and each of them some."""
    while not all(map(running.get, names)) or sum(len(running[name]) for name in names) < len(SITES):
        await asyncio.sleep(0.01)


async def main() -> None:
    running: dict[str, list[str]] = {}
    async with Coordinator.embedded() as concert:
        ann = asyncio.create_task(crawl(concert, running, "ann"))
        await shared_out(running, "ann")
        print("alone, ann has:", len(running["ann"]))

        bob = asyncio.create_task(crawl(concert, running, "bob"))
        await shared_out(running, "ann", "bob")
        print("members:       ", sorted(map(str, (await concert.members("crawlers").list()).values())))
        print("both at once:  ", len(set(running["ann"]) & set(running["bob"])))

        bob.cancel()
        await shared_out(running, "ann")
        print("again alone:   ", len(running["ann"]))
        ann.cancel()
        await asyncio.gather(ann, bob, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
