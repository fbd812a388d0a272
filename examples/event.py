"""An event and a latch: a catalogue is imported in four parts, and nobody is served from half of it.

The latch opens when all parts are imported, in whichever process.  The event then lets every request pass, including
requests that come later.

    python -m examples.event
"""

import asyncio

from inconcert import Coordinator

PARTS = ["books", "films", "games", "music"]


async def import_part(concert: Coordinator, part: str, shelf: list[str]) -> None:
    """Run one of four jobs, on any machine."""
    await asyncio.sleep(0.02)
    shelf.append(part)
    await concert.latch("import", count=len(PARTS)).count_down()


async def publish(concert: Coordinator) -> None:
    """Wait for all parts, and open the shop."""
    await concert.latch("import", count=len(PARTS)).wait(timeout=10.0)
    await concert.event("catalogue-ready").set()


async def serve(concert: Coordinator, shelf: list[str]) -> str:
    """Answer one request, as soon as possible."""
    await concert.event("catalogue-ready").wait(timeout=10.0)
    return f"{len(shelf)} parts"


async def main() -> None:
    shelf: list[str] = []
    async with Coordinator.embedded() as concert, asyncio.TaskGroup() as tasks:
        early = [tasks.create_task(serve(concert, shelf)) for _ in range(3)]
        tasks.create_task(publish(concert))
        for part in PARTS:
            tasks.create_task(import_part(concert, part, shelf))
        print("early requests:", *[await request for request in early])
        print("a late request:", await serve(concert, shelf))


if __name__ == "__main__":
    asyncio.run(main())
