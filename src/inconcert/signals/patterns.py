"""All signals whose names match a pattern, received through one subscription."""

from dataclasses import dataclass

from inconcert._core.session import SessionRef
from inconcert._rules.payloads import JSON
from inconcert.signals.subscription import Subscription

__all__ = ["Signalled", "Signals"]


@dataclass(frozen=True, slots=True)
class Signalled:
    """One broadcast.

    Attributes:
        name: Which signal.
        payload: The JSON value.
    """

    name: str
    payload: JSON


class Signals:
    """All signals whose names match a glob, including those used for the first time later.

    Made by `Coordinator.signals`:

    ```python
    async with concert.signals("deploy.*").subscribe() as subscription:
        async for item in subscription:
            ...
    ```

    Args:
        pattern: A glob as in Redis: `*` for any characters, `?` for one byte, `[ab]` for one of these, and a backslash
            before a character that stands for itself.

    Raises:
        InvalidName: `pattern` is empty or longer than 512 bytes.
    """

    def __init__(self, ref: SessionRef, pattern: str) -> None:
        self._ref = ref
        self._pattern = pattern
        self._channels = ref.keys.channels("signal", pattern)

    def __repr__(self) -> str:
        return f"<Signals {self._pattern!r}>"

    def subscribe(self, *, buffer: int = 1000) -> Subscription[Signalled]:
        """Receive every broadcast of these signals, as `Signalled`, from `async with` on.

        Args:
            buffer: How many may wait to be read; one more drops the oldest, and a `Gap` says how many were dropped.

        Raises:
            ValueError: `buffer` is below 1.
        """
        title = f"a signal like {self._pattern!r}"
        return Subscription(self._ref, title, self._channels, self._read, is_pattern=True, buffer=buffer)

    def _read(self, channel: str, payload: JSON) -> Signalled:
        return Signalled(self._ref.keys.name_in("signal", channel), payload)
