"""A loop over many items, whose position is kept as a step of its job: see `durable.each`."""

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Generic, Self, TypeVar

import anyio

from inconcert.errors import InvalidPayload, StepChanged
from inconcert.tasks.durable.body_parts import BodyPart
from inconcert.tasks.durable.cursor import Cursor
from inconcert.tasks.durable.steps import Steps
from inconcert.tasks.records.arguments import encode_result

_SAVE_EVERY = 1.0  # seconds
_LONGEST_TURN = 0.005  # seconds after which passing over what is done lets the event loop run

T = TypeVar("T")


class Loop(Generic[T]):
    """The items that a loop has not done yet."""

    __slots__ = (
        "__weakref__",
        "_cursor",
        "_has_begun",
        "_has_failed",
        "_items",
        "_key",
        "_name",
        "_part",
        "_steps",
        "_under_way",
    )

    def __init__(
        self, steps: Steps, name: str, items: Iterable[T] | AsyncIterable[T], key: Callable[[T], object]
    ) -> None:
        self._steps = steps
        self._name = name
        self._items: AsyncIterator[T] | Iterator[T] = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        self._key = key  # gives the identity of an item, as JSON
        self._cursor: Cursor | None = None  # until it begins
        self._has_begun = False  # and has passed over what is done
        self._has_failed = False  # its items have, and have given no other since
        self._part = BodyPart(steps)
        self._under_way: str | None = None  # the key of the item that was given out last

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self._part.end()
        if self._cursor is None:
            self._cursor = await self._steps.begin_loop(self._name, self)
        if self._steps.has_passed(self._cursor):
            raise StopAsyncIteration
        if not self._has_begun:
            await self._pass_over(self._cursor)
            self._has_begun = True
        cursor, done = self._cursor, self._under_way
        if done is not None:
            self._under_way = None
            cursor.move(done)
            if time.monotonic() - cursor.saved_at >= _SAVE_EVERY:
                await self._steps.journal.save_cursor(cursor)
        await self._steps.stop_if_leaving()
        try:
            item = await self._next()
        except StopAsyncIteration:
            cursor.end()
            await self._steps.journal.save_cursor(cursor)
            raise
        self._under_way = self._key_of(item)
        self._part.begin()
        return item

    async def _pass_over(self, cursor: Cursor) -> None:
        """Pass over the items that are done."""
        last = cursor.position.key
        if not last:
            return
        turn_began_at = time.monotonic()
        try:
            while self._key_of(await self._next()) != last:
                if time.monotonic() - turn_began_at > _LONGEST_TURN:
                    await anyio.lowlevel.checkpoint()
                    turn_began_at = time.monotonic()
        except StopAsyncIteration:
            changed = StepChanged(
                self._steps.job_id, self._name, f"had done the item with key {last}", "has no item with this key"
            )
            raise self._steps.doom(changed) from None

    async def _next(self) -> T:
        try:
            item = await self._next_item()
        except StopAsyncIteration:
            if self._has_failed:  # as a generator does that has: this is not known to be the end
                raise RuntimeError(
                    f"the items of {self._name!r} in job {self._steps.job_id} ended behind an error; begin it again "
                    "with durable.each()"
                ) from None
            raise
        except BaseException as error:
            self._has_failed = True
            if self._cursor is not None and isinstance(error, Exception):  # a cancelled one may go on
                self._cursor.loop = None
            raise
        self._has_failed = False
        return item

    async def _next_item(self) -> T:
        if isinstance(self._items, AsyncIterator):
            return await anext(self._items)
        for item in self._items:
            return item
        raise StopAsyncIteration

    def _key_of(self, item: T) -> str:
        what = f"the key of an item of {self._name!r} in job {self._steps.job_id}"
        try:
            return encode_result(what, self._key(item)).decode()
        except InvalidPayload as error:
            raise self._steps.doom(error) from error.__cause__
