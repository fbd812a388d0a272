"""Tenants take turns: one with a thousand exports does not delay one with three.

python -m examples.turns
"""

import asyncio

from inconcert import Coordinator

concert = Coordinator.embedded()
exported: list[str] = []


def tenant_of(tenant: str, _: int) -> str:
    return tenant


@concert.task(queue="exports", key=tenant_of, share=True)
async def export(tenant: str, _: int) -> None:
    exported.append(tenant)


async def main() -> None:
    async with concert:
        await concert.enqueue_many([export.call("acme", number) for number in range(1000)])
        await concert.enqueue_many([export.call("bits", number) for number in range(3)])
        await concert.run_worker("exports", concurrency=1, burst=True)
        print("first:", *exported[:8])
        print("exports:", len(exported))


if __name__ == "__main__":
    asyncio.run(main())
