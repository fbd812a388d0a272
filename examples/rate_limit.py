"""A rate limiter: 30 letters are to be sent, and the mail service takes 100 a second, 5 of them at once.

All processes share the limit. The server tells a waiting caller once how long to wait, and a caller that does not wait
when to come back.

    python -m examples.rate_limit
"""

import asyncio
import time

from inconcert import Coordinator

LIMIT, BURST = 100, 5


async def send(concert: Coordinator, sent_at: list[float]) -> None:
    """Send one letter as soon as it may go."""
    await concert.rate_limiter("mail", LIMIT, period=1.0, burst=BURST).acquire(timeout=10.0)
    sent_at.append(time.monotonic())


async def log_in(concert: Coordinator, user: str) -> str:
    """Let a user try three passwords a minute."""
    decision = await concert.rate_limiter(f"login:{user}", 3, period=60.0).try_acquire()
    return "tried" if decision else f"told to come back in {decision.retry_after:.0f} s"


async def main() -> None:
    sent_at: list[float] = []
    async with Coordinator.embedded() as concert:
        began = time.monotonic()
        await asyncio.gather(*(send(concert, sent_at) for _ in range(30)))
        early = sum(at - began < (number - BURST) / LIMIT for number, at in enumerate(sent_at, 1))
        print(f"letters sent:  {len(sent_at)}, too early: {early}")
        for _ in range(4):
            print("ann:          ", await log_in(concert, "ann"))


if __name__ == "__main__":
    asyncio.run(main())
