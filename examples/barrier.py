"""A barrier: three workers go through a job in step, and nobody begins a step before all have ended the one before.

Here the workers are coroutines of one process; they could just as well run on three machines.  If one of them dies, the
others get `BarrierBroken` instead of waiting forever.

    python -m examples.barrier
"""

import asyncio

from inconcert import Coordinator

STEPS = ["load", "train", "store"]


async def work(concert: Coordinator, number: int, log: list[str], tidied: list[str]) -> None:
    """Run one worker: it ends each step together with the others."""
    barrier = concert.barrier("epoch", parties=3, timeout=5.0)
    for step in STEPS:
        await asyncio.sleep(0.02 * number)  # the work, which takes each a different time
        log.append(step)
        async with barrier as position:
            if position == 0:  # exactly one of them
                tidied.append(step)


async def main() -> None:
    log: list[str] = []
    tidied: list[str] = []
    async with Coordinator.embedded() as concert:
        await asyncio.gather(*(work(concert, number, log, tidied) for number in range(3)))

    print("ended:      ", *log)
    print("tidied up:  ", *tidied)


if __name__ == "__main__":
    asyncio.run(main())
