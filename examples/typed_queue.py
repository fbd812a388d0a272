"""A typed queue: what is put in is checked, and what an old release put in and nobody can read is dead-lettered.

It is seen as JSON through a queue without a type, mended, and put in again.

    python -m examples.typed_queue
"""

import asyncio
import logging

import msgspec

from inconcert import Coordinator, InvalidPayload


class Picture(msgspec.Struct):
    image: int
    tags: list[str] = []


async def main() -> None:
    logging.disable(logging.ERROR)  # what is dead-lettered is logged
    async with Coordinator.embedded() as concert:
        untyped = concert.queue("pictures")
        await untyped.put({"picture": 16})  # as a release of last year did
        pictures = concert.queue("pictures", Picture)
        await pictures.put(Picture(17, ["new"]))
        try:
            await pictures.put(Picture("18"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        except InvalidPayload as error:
            print(f"refused:   {error}")

        async with await pictures.get() as picture:
            print(f"received:  {picture}")
        [dead] = await untyped.dead()
        print(f"dead:      {dead.item}, for {dead.reason.partition('not fit ')[2]}")
        mended = msgspec.convert(dead.item, dict[str, int])
        await pictures.put(Picture(mended["picture"]))
        await pictures.purge_dead()
        async with await pictures.get() as picture:
            print(f"mended:    {picture}")


if __name__ == "__main__":
    asyncio.run(main())
