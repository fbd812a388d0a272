"""The sleeps and waits of a body that are under way: it leaves its place until the first of them is over."""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from inconcert.tasks.durable.body_exits import Asleep

_TURNS = 10  # of the event loop: what a task does in them with its message may end the other tasks of its group


class Pause:
    """A sleep or a wait that is under way."""

    __slots__ = ("ends_at", "is_for_message", "name")

    def __init__(self, name: str, *, is_for_message: bool) -> None:
        self.name = name  # its name, as a step
        self.is_for_message = is_for_message  # whether a message of its name ends it
        # when it is over at the latest, by the monotonic clock; None until that is known
        self.ends_at: float | None = None


class Pauses:
    """Those of one attempt."""

    __slots__ = ("_are_several", "_changed", "_left", "_under_way")

    def __init__(self) -> None:
        self._are_several = False
        self._under_way: list[Pause] = []
        self._changed = asyncio.Event()  # set when more is known of one of them; then there is another event
        self._left: tuple[float, frozenset[str]] | None = None  # until when, and for which messages

    @property
    def asleep(self) -> Asleep | None:
        """The way in which the body leaves, once it does; None before."""
        if self._left is None:
            return None
        ends_at, awaited = self._left
        return Asleep(max(0.0, ends_at - time.monotonic()), awaited)

    @contextmanager
    def begin(self, name: str, *, is_for_message: bool = False) -> Generator[Pause]:
        """While it is open, a sleep or wait of this name is under way."""
        pause = Pause(name, is_for_message=is_for_message)
        self._are_several |= bool(self._under_way)
        self._under_way.append(pause)
        try:
            yield pause
        finally:
            self._under_way.remove(pause)
            self._tell()

    def ends_in(self, pause: Pause, rest: float) -> None:
        """Note how long it is, in seconds."""
        pause.ends_at = time.monotonic() + rest
        self._tell()

    async def leave(self) -> Asleep:
        """Return the way in which the body leaves, once the length of each sleep and wait is known.

        One whose message is there goes on first: its work may end the wait of the caller, and with it this call.
        """
        if self._are_several:
            while any(pause.ends_at is None for pause in self._under_way):
                await self._changed.wait()
            for _ in range(_TURNS):
                await anyio.lowlevel.checkpoint()
        if self._left is None:
            known = [(pause, pause.ends_at) for pause in self._under_way if pause.ends_at is not None]
            self._left = min(at for _, at in known), frozenset(pause.name for pause, _ in known if pause.is_for_message)
        asleep = self.asleep
        assert asleep is not None  # noqa: S101 - just noted
        return asleep

    # Private.

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
