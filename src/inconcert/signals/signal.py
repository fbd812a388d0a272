"""A signal by which processes wake each other: every waiter, or the one that has waited longest.

The server keeps a line of waiters, and nothing else for long: a signal without a waiter or subscriber is lost.
"""

from typing import Any, Generic, TypeVar, overload

import anyio

from inconcert._core.session import SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._rules import durations
from inconcert._rules.codec import Codec, T, codec_of
from inconcert._rules.durations import Seconds
from inconcert.signals.subscription import Subscription
from inconcert.signals.waiter import SignalKeys, Waiter, wait_for

_BROADCAST = load("signals/broadcast").bind(SignalKeys)
_NOTIFY = load("signals/notify").bind(SignalKeys)

_CALL_AGAIN = -1

A = TypeVar("A")
B = TypeVar("B")


class Signal(Generic[T]):
    """A name on which processes wake each other, with any JSON value as payload.

    `broadcast` reaches every current waiter and every subscriber; `notify` reaches exactly one waiter.  Nothing is kept
    for later: for work that must not be lost use a task.

    Broadcasts between two calls to `wait` are missed; subscribe to receive them all.

    Made by `Coordinator.signal`:

    ```python
    payload = await concert.signal("deploy").wait(timeout=5.0)      # in one process
    await concert.signal("deploy").broadcast({"version": 7})        # in another
    ```

    Attributes:
        name: Which signal. The same name in the same namespace is the same signal, on any machine.

    Args:
        name: Which signal.
        payload_type: The type of its payloads, as in `Queue`; None for any JSON value.

    Raises:
        TypeError: JSON cannot represent `payload_type`.
    """

    def __init__(self, ref: SessionRef, name: str, payload_type: Any = None) -> None:  # noqa: ANN401 - also unions
        self.name = name
        self._ref = ref
        self._codec: Codec[Any] = codec_of(f"payload of signal {name!r}", payload_type)
        self._keys = ref.keys.of(SignalKeys, "signal", name)
        self._channel = ref.keys.channel(self._keys.waiters, "signal", name)
        plain = ref.keys.plain_channel("signal", name)
        self._plain = plain if plain != self._channel else ""

    def __repr__(self) -> str:
        return f"<Signal {self.name!r}>"

    async def wait(self, *, timeout: Seconds | None = None) -> T:
        """Wait for a broadcast of this signal, or for a notification of this waiter.

        Waiters are notified in the order in which the server saw them, across all processes.  If the call is cancelled,
        a notification that it has just been given goes to the next in line.

        Args:
            timeout: Longest wait in seconds; None waits forever.

        Returns:
            The payload.

        Raises:
            TimeoutError: Nothing came in time; the line has been left.
            UnreadablePayload: It came with a payload that is not of the signal's type.

        Cost: 2 round trips to begin with, or 1 if this process already listens to the signal; 0 while waiting.
        """
        [payload] = await wait_all(self, timeout=timeout)
        return payload

    def subscribe(self, *, buffer: int = 1000) -> Subscription[T]:
        """Receive every broadcast from `async with` on; a `Gap` for one that is not of the signal's type.

        Args:
            buffer: How many may wait to be read; one more drops the oldest, and a `Gap` says how many were dropped.

        Raises:
            ValueError: `buffer` is below 1.
        """
        return Subscription(self._ref, self.name, self._channel, self._codec, _payload, is_pattern=False, buffer=buffer)

    async def broadcast(self, payload: T | None = None) -> int:
        """Wake every waiter, and reach every subscriber.

        Args:
            payload: A value of the signal's type; without one any JSON value. At most 1 MiB as JSON.

        Returns:
            How many processes it reached. One that also subscribes to patterns counts once more for each that matches.
            On a cluster only listeners at the node of the signal count.

        Raises:
            InvalidPayload: The payload is not JSON, not of the signal's type, or too large.

        Cost: 1 round trip, O(L) for L processes that listen, whatever the number of waiters in them.
        """
        text = self._codec.encode(payload)
        session = self._ref.session
        request = session.new_address()
        command = _BROADCAST(self._keys, request=request, payload=text, channel=self._channel, plain=self._plain)
        reached: int = await session.run(command)
        return reached

    async def notify(self, payload: T | None = None) -> bool:
        """Wake exactly one waiter: the one that has waited longest. Subscribers get nothing.

        Args:
            payload: A value of the signal's type; without one any JSON value. At most 1 MiB as JSON.

        Returns:
            Whether there was a waiter; if not, the payload is lost.

        Raises:
            InvalidPayload: The payload is not JSON, not of the signal's type, or too large.
            OutcomeUnknown: The server did not answer; one waiter was woken, or none.

        Cost: 1 round trip, and 1 message. Waiters whose process is gone are dropped, 100 in a round trip.
        """
        text = self._codec.encode(payload)
        session = self._ref.session
        inboxes = session.inboxes(self._keys.waiters)
        answer, request = _CALL_AGAIN, session.new_address()
        while answer == _CALL_AGAIN:
            answer = await session.run(_NOTIFY(self._keys, request=request, payload=text, inboxes=inboxes))
        return bool(answer)

    def _waiter(self) -> Waiter:
        return Waiter(self._ref.session, self._keys, self._channel, self._codec)


@overload
async def wait_any(*signals: Signal[T], timeout: Seconds | None = ...) -> tuple[Signal[T], T]: ...
@overload
async def wait_any(
    first: Signal[A], second: Signal[B], /, *, timeout: Seconds | None = ...
) -> tuple[Signal[A], A] | tuple[Signal[B], B]: ...
@overload
async def wait_any(*signals: Signal[Any], timeout: Seconds | None = ...) -> tuple[Signal[Any], Any]: ...
async def wait_any(*signals: Signal[Any], timeout: Seconds | None = None) -> tuple[Signal[Any], Any]:
    """Wait until one of these signals comes. A notification of another at the same moment goes to the next in its line.

    Args:
        signals: At least one; they may belong to several coordinators.
        timeout: Longest wait in seconds; None waits forever.

    Returns:
        The signal that came first, and its payload.

    Raises:
        ValueError: No signal is named.
        TimeoutError: None came in time; the lines have been left.
        UnreadablePayload: One came with a payload that is not of its signal's type.
        NotConnected: A coordinator is not open, or was closed meanwhile.
        Unavailable: A server could not be asked.
        OutcomeUnknown: A server did not answer.

    Cost: As `Signal.wait`, for each of them.
    """
    [(signal, payload)] = await _wait(signals, 1, timeout)
    return signal, payload


@overload
async def wait_all(*signals: Signal[T], timeout: Seconds | None = ...) -> list[T]: ...
@overload
async def wait_all(first: Signal[A], second: Signal[B], /, *, timeout: Seconds | None = ...) -> list[A | B]: ...
@overload
async def wait_all(*signals: Signal[Any], timeout: Seconds | None = ...) -> list[Any]: ...
async def wait_all(*signals: Signal[Any], timeout: Seconds | None = None) -> list[Any]:
    """Wait until each of these signals has come. If one does not, notifications of the others go to the next in line.

    Args:
        signals: At least one; they may belong to several coordinators.
        timeout: Longest wait for all of them in seconds; None waits forever.

    Returns:
        Their payloads, in the order of the arguments.

    Raises:
        ValueError: No signal is named.
        TimeoutError: Not all came in time; the lines have been left.
        UnreadablePayload: One came with a payload that is not of its signal's type; notifications of the others go to
            the next in line.
        NotConnected: A coordinator is not open, or was closed meanwhile.
        Unavailable: A server could not be asked.
        OutcomeUnknown: A server did not answer.

    Cost: As `Signal.wait`, for each of them.
    """
    return [payload for _, payload in await _wait(signals, len(signals), timeout)]


async def _wait(
    signals: tuple[Signal[Any], ...], number: int, timeout: Seconds | None
) -> list[tuple[Signal[Any], Any]]:
    """Wait until `number` of them have come."""
    if not signals:
        raise ValueError("there is no signal to wait for; name at least one")
    seconds = durations.timeout(timeout)
    waiters = {signal._waiter(): signal for signal in signals}  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    came: list[Waiter] = []
    with anyio.move_on_after(seconds):
        came = await wait_for([*waiters], number)
    if not came:
        names = ", ".join(repr(signal.name) for signal in signals)
        raise TimeoutError(f"signal {names} did not come within {seconds:g} s; wait longer with timeout=")
    return [(waiters[waiter], waiter.value()) for waiter in came]


def _payload(channel: str, payload: T) -> T:
    del channel  # there is only one
    return payload
