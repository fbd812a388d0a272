"""All signals whose names match a pattern, received through one subscription."""

from dataclasses import dataclass
from typing import Any, Generic

from inconcert._core.session import SessionRef
from inconcert._rules.codec import Codec, T, codec_of
from inconcert.signals.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Signalled(Generic[T]):
    """One broadcast.

    Attributes:
        name: Which signal.
        payload: What was sent.
    """

    name: str
    payload: T


class Signals(Generic[T]):
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
        payload_type: The type of their payloads, as in `Queue`; None for any JSON value.

    Raises:
        TypeError: JSON cannot represent `payload_type`.
    """

    def __init__(self, ref: SessionRef, pattern: str, payload_type: Any = None) -> None:  # noqa: ANN401 - also unions
        self._ref = ref
        self._pattern = pattern
        self._codec: Codec[T] = codec_of(f"payload of signals {pattern!r}", payload_type)
        self._channels = ref.keys.channels("signal", pattern)

    def __repr__(self) -> str:
        return f"<Signals {self._pattern!r}>"

    def subscribe(self, *, buffer: int = 1000) -> Subscription[Signalled[T]]:
        """Receive every broadcast of these signals, as `Signalled`, from `async with` on.

        Args:
            buffer: How many may wait to be read; one more drops the oldest, and a `Gap` says how many were dropped.

        Raises:
            ValueError: `buffer` is below 1.
        """
        return Subscription(
            self._ref, self._pattern, self._channels, self._codec, self._read, is_pattern=True, buffer=buffer
        )

    def _read(self, channel: str, payload: T) -> Signalled[T]:
        return Signalled(self._ref.keys.name_in("signal", channel), payload)
