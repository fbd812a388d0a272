"""A waiter for a signal: a place in a line that the server keeps, and a listener for broadcasts.

    waiters  zset    address -> ticket: the line, the longest waiting first
    handed   hash    address -> the payload of its notification, until it confirms it
    last     string  the last broadcast, for waiters that were disconnected

A waiter that has gone but is still in line may be notified: its process then passes the notification on.

Source: docs/explanation/signals.md
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from inconcert._core.place import JOIN, Place
from inconcert._core.session import Session
from inconcert._core.unconfirmed import REMEMBERED, Withdrawal
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules.codec import Codec
from inconcert._rules.payloads import decode
from inconcert.errors import InconcertError, InvalidPayload
from inconcert.signals.broadcast import read

_IN_LINE, _NOTIFIED = 0, 1  # what the joining script returns; otherwise it was a broadcast
_CALL_AGAIN = -1
_RECHECK_EVERY = 1_800_000  # milliseconds; keeps the line alive, which lives twice as long


class SignalKeys(NamedTuple):
    """The keys of a signal."""

    waiters: str
    handed: str
    earlier: str
    recent: str
    older: str
    last: str


_JOIN = load("signals/join").bind(SignalKeys)
_LEAVE = load("signals/leave").bind(SignalKeys)
_NOTIFY = load("signals/notify").bind(SignalKeys)


class Waiter(Place):
    """A waiter: the call for a place in line, which is done when there is a payload for it.

    Args:
        session: The open session.
        keys: The keys of the signal.
        channel: The channel of the broadcasts.
        codec: How its payload is read.
    """

    __slots__ = ("_channel", "_codec", "_hands_on", "_keys", "_listener", "_value")

    kind = "signal"

    def __init__(self, session: Session, keys: SignalKeys, channel: str, codec: Codec[Any]) -> None:
        self._keys = keys
        self._codec = codec
        self._value: list[Any] = []  # once it is read
        self._channel = channel
        self._listener = _BroadcastListener(self)
        self._hands_on = True
        super().__init__(session, session.new_address(), JOIN)

    async def listen(self) -> None:
        """Listen for broadcasts and notifications from now on. Call it before `join`."""
        await self._session.inbox.listen(self.key)
        await self._session.broadcasts.listen(self._channel, self._listener)

    async def join(self) -> None:
        """Join the line."""
        await self._session.channel.has_room(self._keys.waiters)
        self.ask()

    def value(self) -> Any:  # noqa: ANN401 - of the signal's type, which only the caller knows
        """The value that came.

        Raises:
            UnreadablePayload: It does not fit the signal's type. It counts as received: passed on, it might go round
                forever.
        """
        text = self.result()
        if not self._value:
            try:
                self._value.append(self._codec.decode(text))
            except InvalidPayload:
                self.keep()
                raise
        return self._value[0]

    def keep(self) -> None:
        """Keep the payload: it is not passed on to the next in line."""
        self._hands_on = False

    def leave(self) -> None:
        """Stop waiting, as far as this process knows."""
        self._session.broadcasts.forget(self._channel, self._listener)
        super().leave()

    @staticmethod
    def leave_for(session: Session, address: str, rest: str) -> None:
        """Leave the line, and pass on a notification: the server knows it."""
        if not session.channel.is_closed and not session.renewal.keeps(address):
            _leave(session, Keyspace.beside(SignalKeys, rest.partition("\n")[2]), address, hands_on=True)

    def on_message(self, rest: str) -> None:
        """A notification came: the payload, and on the next line the key of the line."""
        if not self.done():
            self.set_result(rest.partition("\n")[0])

    def on_broadcast(self, text: bytes) -> None:
        """A broadcast came: it is for this waiter if its ticket is older."""
        if self.done():
            return
        said = read(text, decode)
        if said is None or (self.ticket and said.at < self.ticket):
            return
        if self.ticket and said.is_all:
            self._may_be_in = False
            self.set_result(said.payload)
        else:
            self.recheck()  # whether it was in line already; whether it was notified and has not heard of it yet

    def closed(self, error: InconcertError) -> None:
        """Leave, with this error; a payload that has come is still used."""
        if not self.done():
            super().closed(error)

    # Private.

    def _request(self) -> Command:
        return _JOIN(self._keys, address=self.address, ticket=self.ticket, look_ms=_RECHECK_EVERY)

    def _take(self, reply: Reply) -> None:
        if self.done():
            return
        outcome, *rest = reply
        if outcome == _IN_LINE:
            self._stand(*rest)
        else:
            self._may_be_in = outcome == _NOTIFIED
            self.set_result(rest[0])

    def _give_back(self) -> None:
        session, keys = self._session, self._keys
        knows = self.done() and self.exception() is None
        life = 0.0 if self.was_refused else REMEMBERED
        _leave(session, keys, self.address, hands_on=self._hands_on and not knows, life=life)
        if self._hands_on and knows:  # the server may have forgotten the notification: `wait_all` may take long
            _hand_on(session, keys, session.new_address(), self.result())


async def wait_for(waiters: Sequence[Waiter], number: int) -> list[Waiter]:
    """Wait until this many have a payload, and return them; all leave, and pass unused notifications on.

    Raises:
        UnreadablePayload: A payload does not fit its signal's type.
    """
    try:
        for waiter in waiters:
            await waiter.listen()
        for waiter in waiters:
            await waiter.join()
        while True:
            done = [waiter for waiter in waiters if waiter.done()]
            for waiter in done:
                waiter.value()  # raises its error
            if len(done) >= number:
                for waiter in done[:number]:
                    waiter.keep()
                return done[:number]
            await asyncio.wait({*waiters}.difference(done), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.withdraw()


class _BroadcastListener:
    """Listens for broadcasts for a waiter."""

    __slots__ = ("_waiter",)

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    def on_message(self, channel: str, text: bytes) -> None:
        del channel  # there is only one
        self._waiter.on_broadcast(text)

    def missed(self) -> None:
        self._waiter.recheck()

    def closed(self, error: InconcertError) -> None:
        self._waiter.closed(error)


def _leave(session: Session, keys: SignalKeys, address: str, *, hands_on: bool, life: float = REMEMBERED) -> None:
    command = _LEAVE(keys, address=address, hands_on=int(hands_on), inboxes=session.inboxes(keys.waiters))
    _send(session, address, command, life)


def _hand_on(session: Session, keys: SignalKeys, request: str, payload: Argument) -> None:
    """Pass an unused notification on to the next in line."""
    command = _NOTIFY(keys, request=request, payload=payload, inboxes=session.inboxes(keys.waiters))
    _send(session, request, command, REMEMBERED)


def _send(session: Session, request: str, command: Command, life: float) -> None:
    Withdrawal(session, command.keys[0], request, partial(_Withdrawing, session, request, command), life=life)


class _Withdrawing(Call):
    """A call that is sent even if nobody waits for it, and again while the server has more to drop."""

    __slots__ = ("_request", "_session")

    def __init__(self, session: Session, request: str, command: Command) -> None:
        super().__init__(command, must_run=True)
        self._session = session
        self._request = request

    def answered(self, reply: Reply) -> None:
        if reply == _CALL_AGAIN and not self._session.channel.is_closed:
            _send(self._session, self._request, self.command, REMEMBERED)
        super().answered(reply)
