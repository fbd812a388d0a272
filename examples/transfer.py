"""Several locks as one: clerks move money between accounts in all directions, and none is created or lost.

Each transfer has both accounts to itself.  Two clerks that move money in opposite directions would wait for each other
forever if each locked its first account and then the second; `locks` always takes them in the same order.

    python -m examples.transfer
"""

import asyncio
import random

from inconcert import Coordinator

ACCOUNTS = ["ann", "bob", "cy"]
EACH = 100  # coins at the start


async def transfer(concert: Coordinator, giver: str, taker: str, coins: int) -> bool:
    """Move coins if there are enough, with nobody else at either account."""
    async with concert.locks(giver, taker, timeout=10.0):
        has, gets = [int(await concert.redis.get(account) or 0) for account in (giver, taker)]
        if has < coins:
            return False
        await asyncio.sleep(0.002)  # counts them; without the locks, another would now see the same coins
        await concert.redis.mset({giver: has - coins, taker: gets + coins})
        return True


async def clerk(concert: Coordinator, number: int) -> int:
    """Make ten transfers, and return how many there were coins for."""
    chance = random.Random(number)
    made = 0
    for _ in range(10):
        giver, taker = chance.sample(ACCOUNTS, 2)
        made += await transfer(concert, giver, taker, chance.randint(1, 40))
    return made


async def main() -> None:
    async with Coordinator.embedded() as concert:
        await concert.redis.mset(dict.fromkeys(ACCOUNTS, EACH))
        made = await asyncio.gather(*(clerk(concert, number) for number in range(10)))
        coins = [int(await concert.redis.get(account) or 0) for account in ACCOUNTS]

    print(f"transfers made:    {sum(made) > 50}")
    print(f"coins at the end:  {sum(coins)} of {EACH * len(ACCOUNTS)}")
    print(f"accounts in debt:  {sum(each < 0 for each in coins)}")


if __name__ == "__main__":
    asyncio.run(main())
