"""A reader-writer lock: many read a page together, and a writer is alone.

A waiting writer keeps later readers out, so neither side starves.  Once it has written, it continues as a reader, to
check its work beside the others.

    python -m examples.rwlock
"""

import asyncio

from inconcert import Coordinator


class Page:
    """A page with the same text in two columns, except while it is being rewritten."""

    def __init__(self) -> None:
        self.left = self.right = "first edition"
        self.readers = self.most_readers = self.torn = 0

    async def read(self) -> None:
        self.readers += 1
        self.most_readers = max(self.most_readers, self.readers)
        left = self.left
        await asyncio.sleep(0.01)
        self.torn += left != self.right
        self.readers -= 1

    async def rewrite(self, text: str) -> None:
        self.left = text
        await asyncio.sleep(0.01)
        self.right = text


async def read(concert: Coordinator, page: Page) -> None:
    async with concert.rwlock("page", timeout=5.0).read():
        await page.read()


async def edit(concert: Coordinator, page: Page, text: str) -> None:
    async with concert.rwlock("page", timeout=5.0).write() as lease:
        await page.rewrite(text)
        await lease.downgrade()  # no other writer comes in between
        await page.read()


async def main() -> None:
    page = Page()
    async with Coordinator.embedded() as concert:
        visits = [read(concert, page) for _ in range(20)]
        visits[10:10] = [edit(concert, page, "second edition")]
        await asyncio.gather(*visits, edit(concert, page, "third edition"))

    print(f"the page says:     {page.left}")
    print(f"read together:     {page.most_readers > 1}")
    print(f"read half-written: {page.torn}")


if __name__ == "__main__":
    asyncio.run(main())
