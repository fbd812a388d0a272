"""Waiting until so many stand in a line."""

from typing import Protocol

from inconcert import Coordinator
from tests.support.eventually import eventually
from tests.support.raw import raw

__all__ = ["in_line", "in_line_at"]


class Line(Protocol):
    """A primitive that counts who waits for it."""

    async def waiters(self) -> int:
        """How many wait."""
        ...


async def in_line(line: Line, number: int) -> None:
    """Return when so many wait for a primitive."""

    async def so_many() -> bool:
        return await line.waiters() == number

    await eventually(so_many)


async def in_line_at(concert: Coordinator, key: str, number: int) -> None:
    """Return when so many wait, where users cannot count them: by the key of the line."""

    async def so_many() -> bool:
        count: int = await raw(concert).zcard(key)
        return count == number

    await eventually(so_many)
