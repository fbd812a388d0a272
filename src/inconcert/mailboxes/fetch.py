"""One fetch of a mailbox: a claim of its messages, and a place in line until there are some.

    waiters  zset  address -> ticket: the line, the longest waiting first

Sending notifies the first in line, which then asks again. A process that stands still does not hold up the others: they
ask a moment later, and when the next claim may have lapsed. A waiter that has gone but is still in line is removed by
its process when it is notified.
"""

import logging
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple

from inconcert._core.place import JOIN, NO_WAIT, Place
from inconcert._core.session import Session
from inconcert._core.unconfirmed import REMEMBERED, Withdrawal
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules.codec import Codec, T
from inconcert.errors import InvalidPayload

_log = logging.getLogger("inconcert.mailboxes")


class MailboxKeys(NamedTuple):
    """The keys of a mailbox."""

    messages: str  # hash: id -> 'LAPSES BODY'; permanent
    unread: str  # zset: id -> id, which is the server's time in us; permanent
    claims: str  # zset: claim -> lease end, server ms; permanent
    claimed: str  # hash: claim -> 'MISSED ID ID ...'; permanent
    dropped: str  # string: how many were dropped unread and not yet reported; permanent
    waiters: str
    recent: str
    older: str
    last: str  # string: the last id, 1 h; or until an hour after its time if the clock was set back


_FETCH = load("mailboxes/fetch").bind(MailboxKeys)
_WITHDRAW = load("mailboxes/withdraw").bind(MailboxKeys)


@dataclass(frozen=True, slots=True)
class MailboxMessage(Generic[T]):
    """One message of a mailbox.

    Attributes:
        id: The server's time in microseconds; it rises from each message of the mailbox to the next.
        time: When the server received it, in seconds since 1970.
        body: What was sent.
        attempt: 1 when it is fetched for the first time, and one more each time that it is fetched again.
        missed: How many messages were dropped unread before this one; reported with the first message of a fetch.
        claim: The fetch that holds it; `Mailbox.ack` presents it.
    """

    id: int
    time: float
    body: T
    attempt: int
    missed: int
    claim: str = field(repr=False)


class Fetch(Place):
    """The call of one fetch, which is done when it has messages, or at once if it does not wait and there are none."""

    __slots__ = ("_codec", "_keys", "_terms")

    kind = "mailbox"

    def __init__(
        self, session: Session, keys: MailboxKeys, codec: Codec[Any], terms: tuple[int, int, int], *, waits: bool
    ) -> None:
        self._keys = keys
        self._codec = codec
        self._terms = terms
        super().__init__(session, session.new_address(), JOIN if waits else NO_WAIT)

    def take(self) -> tuple[list[MailboxMessage[Any]], list[int], list[int]]:
        """The messages, which the caller now holds; none if there is no reply yet. It stops waiting.

        Also the ids of messages that cannot be read, which `Mailbox.send` never sends: acknowledge them, so that they
        are not fetched again and again. They count as missed.  And the ids of messages that do not fit the type: leave
        them in the claim, so that they come back when it lapses, perhaps to a reader that knows them.
        """
        if not self.done():
            return [], [], []
        dropped, *flat = self.result()
        self.raise_if_closed()  # just when they came; they are back in the mailbox
        self._may_be_in = False
        found: list[MailboxMessage[Any]] = []
        unreadable: list[int] = []
        unfit: list[int] = []
        for id_, message in zip(flat[::2], flat[1::2], strict=True):
            lapses, _, body = message.partition(b" ")
            number = int(id_)
            try:
                value = self._codec.decode(body)
            except InvalidPayload as error:
                _log.error("message %d on %r is left for a reader that knows it: %s", number, self.key, error)
                unfit.append(number)
            except ValueError as error:
                _log.error("message %d on %r is dropped, because it cannot be read: %s", number, self.key, error)
                unreadable.append(number)
            else:
                found.append(MailboxMessage(number, number / 1e6, value, int(lapses) + 1, 0, self.address))
        if found:
            found[0] = replace(found[0], missed=dropped + len(unreadable))
        return found, unreadable, unfit

    @staticmethod
    def leave_for(session: Session, address: str, rest: str) -> None:
        """Leave the line. Its claim stays: the caller may be handling it."""
        if not session.channel.is_closed and not session.renewal.keeps(address):
            keys = Keyspace.beside(MailboxKeys, rest.partition(" ")[2])
            _withdraw(session, keys, address, puts_back=False, life=REMEMBERED)

    def on_message(self, rest: str) -> None:
        """Ask again in so many milliseconds, or at once: 'MS WAITERS'."""
        ms = int(rest.partition(" ")[0])
        if not ms or not self.ticket:
            self.recheck()
        else:
            self._session.lines.recheck_in(self.key, ms / 1000)

    # Private.

    def _request(self) -> Command:
        limit, ttl_ms, max_age_ms = self._terms
        return _FETCH(
            self._keys,
            address=self.address,
            ticket=self.ticket,
            limit=limit,
            ttl_ms=ttl_ms,
            max_age_ms=max_age_ms,
            inboxes=self._session.inboxes(self._keys.waiters),
        )

    def _take(self, reply: Reply) -> None:
        has_messages, *rest = reply
        if self.done():
            return
        if has_messages:
            self.set_result(rest)
        elif rest[0] == NO_WAIT:
            self.set_result([0])
        else:
            self._stand(*rest)

    def _give_back(self) -> None:
        _, ttl_ms, _ = self._terms
        life = 0.0 if self.was_refused else ttl_ms / 1000
        _withdraw(self._session, self._keys, self.address, puts_back=True, life=life)


def _withdraw(session: Session, keys: MailboxKeys, address: str, *, puts_back: bool, life: float) -> None:
    def withdraw() -> Call:
        inboxes = session.inboxes(keys.waiters)
        return Call(_WITHDRAW(keys, address=address, inboxes=inboxes, puts_back=int(puts_back)), must_run=True)

    Withdrawal(session, keys.waiters, address, withdraw, life=life)
