"""At most four imports run at once, and at most two of each tenant, over all workers.

python -m examples.limits
"""

import asyncio
from collections import Counter

from inconcert import Coordinator, Limit

concert = Coordinator.embedded()
running: Counter[str] = Counter()
most: Counter[str] = Counter()


def tenant_of(tenant: str, _: str) -> str:
    return tenant


@concert.task(queue="imports", limit=Limit(4), key=tenant_of, key_limit=2)
async def import_file(tenant: str, path: str) -> None:
    print("imports", path)
    for name in ("all", tenant):
        running[name] += 1
        most[name] = max(most[name], running[name])
    await asyncio.sleep(0.01)  # it imports
    running.subtract(["all", tenant])


async def main() -> None:
    async with concert:
        tenants = ["acme"] * 6 + ["bits"] * 6 + ["corp"] * 6
        jobs = await concert.enqueue_many([import_file.call(tenant, f"{n}.csv") for n, tenant in enumerate(tenants)])
        await concert.run_worker("imports", burst=True)
        for job in jobs:
            await job.result(timeout=5)
        print("at once, at most:", dict(sorted(most.items())))


if __name__ == "__main__":
    asyncio.run(main())
