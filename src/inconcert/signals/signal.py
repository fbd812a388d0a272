"""A signal by which processes wake each other: every waiter, or the one that has waited longest.

The server keeps a line of waiters, and nothing else for long: a signal without a waiter or subscriber is lost.
"""

import anyio

from inconcert._core.session import SessionRef
from inconcert._redis.scripts import load
from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON, decode, encode
from inconcert.signals.subscription import Subscription
from inconcert.signals.waiter import SignalKeys, Waiter, wait_for

__all__ = ["Signal", "wait_all", "wait_any"]

_BROADCAST = load("signals/broadcast").bind(SignalKeys)
_NOTIFY = load("signals/notify").bind(SignalKeys)

_CALL_AGAIN = -1


class Signal:
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

    Raises:
        InvalidName: `name` is empty or longer than 512 bytes.
    """

    def __init__(self, ref: SessionRef, name: str) -> None:
        self.name = name
        self._ref = ref
        self._keys = ref.keys.of(SignalKeys, "signal", name)
        self._channel = ref.keys.channel(self._keys.waiters, "signal", name)
        plain = ref.keys.plain_channel("signal", name)
        self._plain = plain if plain != self._channel else ""

    def __repr__(self) -> str:
        return f"<Signal {self.name!r}>"

    async def wait(self, *, timeout: Seconds | None = None) -> JSON:
        """Wait for a broadcast of this signal, or for a notification of this waiter.

        Waiters are notified in the order in which the server saw them, across all processes.  If the call is cancelled,
        a notification that it has just been given goes to the next in line.

        Args:
            timeout: Longest wait in seconds; None waits forever.

        Returns:
            The payload.

        Raises:
            TimeoutError: Nothing came in time; the line has been left.
            NotConnected: The coordinator is not open, or was closed meanwhile.
            Unavailable: The server could not be asked.
            OutcomeUnknown: The server did not answer.

        Cost: 2 round trips to begin with, or 1 if this process already listens to the signal; 0 while waiting.
        """
        [payload] = await wait_all(self, timeout=timeout)
        return payload

    def subscribe(self, *, buffer: int = 1000) -> Subscription[JSON]:
        """Receive every broadcast from `async with` on.

        Args:
            buffer: How many may wait to be read; one more drops the oldest, and a `Gap` says how many were dropped.

        Raises:
            ValueError: `buffer` is below 1.
        """
        title = f"signal {self.name!r}"
        return Subscription(self._ref, title, self._channel, _payload, is_pattern=False, buffer=buffer)

    async def broadcast(self, payload: JSON = None) -> int:
        """Wake every waiter, and reach every subscriber.

        Args:
            payload: A JSON value of at most 1 MiB.

        Returns:
            How many processes it reached. One that also subscribes to patterns counts once more for each that matches.
            On a cluster only listeners at the node of the signal count.

        Raises:
            InvalidPayload: The payload is not JSON, or too large.
            Unavailable: The server could not be asked; nothing was sent.
            OutcomeUnknown: The server did not answer; it was sent once, or not at all.

        Cost: 1 round trip, O(L) for L processes that listen, whatever the number of waiters in them.
        """
        text = encode(f"a broadcast of signal {self.name!r}", payload)
        session = self._ref.session
        request = session.new_address()
        command = _BROADCAST(self._keys, request=request, payload=text, channel=self._channel, plain=self._plain)
        reached: int = await session.run(command)
        return reached

    async def notify(self, payload: JSON = None) -> bool:
        """Wake exactly one waiter: the one that has waited longest. Subscribers get nothing.

        Args:
            payload: A JSON value of at most 1 MiB.

        Returns:
            Whether there was a waiter; if not, the payload is lost.

        Raises:
            InvalidPayload: The payload is not JSON, or too large.
            Unavailable: The server could not be asked; nobody was woken.
            OutcomeUnknown: The server did not answer; one waiter was woken, or none.

        Cost: 1 round trip, and 1 message. Waiters whose process is gone are dropped, 100 in a round trip.
        """
        text = encode(f"a notification of signal {self.name!r}", payload)
        session = self._ref.session
        inboxes = session.inboxes(self._keys.waiters)
        answer, request = _CALL_AGAIN, session.new_address()
        while answer == _CALL_AGAIN:
            answer = await session.run(_NOTIFY(self._keys, request=request, payload=text, inboxes=inboxes))
        return bool(answer)

    def _waiter(self) -> Waiter:
        return Waiter(self._ref.session, self._keys, self._channel)


async def wait_any(*signals: Signal, timeout: Seconds | None = None) -> tuple[Signal, JSON]:
    """Wait until one of these signals comes. A notification of another at the same moment goes to the next in its line.

    Args:
        signals: At least one; they may belong to several coordinators.
        timeout: Longest wait in seconds; None waits forever.

    Returns:
        The signal that came first, and its payload.

    Raises:
        ValueError: No signal is named.
        TimeoutError: None came in time; the lines have been left.
        NotConnected: A coordinator is not open, or was closed meanwhile.
        Unavailable: A server could not be asked.
        OutcomeUnknown: A server did not answer.

    Cost: As `Signal.wait`, for each of them.
    """
    [(signal, payload)] = await _wait(signals, 1, timeout)
    return signal, payload


async def wait_all(*signals: Signal, timeout: Seconds | None = None) -> list[JSON]:
    """Wait until each of these signals has come. If one does not, notifications of the others go to the next in line.

    Args:
        signals: At least one; they may belong to several coordinators.
        timeout: Longest wait for all of them in seconds; None waits forever.

    Returns:
        Their payloads, in the order of the arguments.

    Raises:
        ValueError: No signal is named.
        TimeoutError: Not all came in time; the lines have been left.
        NotConnected: A coordinator is not open, or was closed meanwhile.
        Unavailable: A server could not be asked.
        OutcomeUnknown: A server did not answer.

    Cost: As `Signal.wait`, for each of them.
    """
    return [payload for _, payload in await _wait(signals, len(signals), timeout)]


async def _wait(signals: tuple[Signal, ...], number: int, timeout: Seconds | None) -> list[tuple[Signal, JSON]]:
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
    return [(waiters[waiter], decode(waiter.result())) for waiter in came]


def _payload(channel: str, payload: JSON) -> JSON:
    del channel  # there is only one
    return payload
