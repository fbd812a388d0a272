"""A scheduler that runs in one of three processes: kill that one, and watch the next take over.

Each process stands for election, and the leader does the work.  The others wait, and send nothing meanwhile.

    python -m examples.scheduler
"""

import asyncio
import os
import signal
import sys

from examples.marketplace.processes import Processes
from inconcert import Coordinator


async def schedule(url: str, name: str) -> None:
    """Run one process: lead again and again, until killed."""
    async with Coordinator(url) as concert:
        async for term in concert.election("scheduler", ttl=1.0, candidate=name).terms():
            async with term:  # cancelled if the term is lost
                while True:
                    await concert.redis.set("last-tick", name)  # here the work is done
                    await asyncio.sleep(0.05)


async def main() -> None:
    async with Coordinator.embedded() as concert:
        with Processes() as processes:
            ids = {
                name: processes.start("examples.scheduler", concert.url or "", name, env={})
                for name in ("ann", "bob", "cy")
            }
            async for record in concert.election("scheduler").watch():
                if record is not None:
                    print(f"processes: {len(ids)}, and one leads")
                    os.kill(ids.pop(record.candidate), signal.SIGKILL)
                elif not ids:
                    print("processes: 0")
                    break


if __name__ == "__main__":
    asyncio.run(schedule(*sys.argv[1:]) if len(sys.argv) > 1 else main())
