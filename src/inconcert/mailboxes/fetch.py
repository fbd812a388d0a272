"""One fetch of a mailbox: a claim of its messages, and a place in line until there are some.

    waiters  zset  address -> ticket: the line, the longest waiting first

Whoever sends tells the first in line to look, which is to ask again.  One that stands still does not hold up the
others: they look a moment later, and when the next claim may have lapsed.  One that waits no more, and is in line all
the same, is taken out by its process when it is told.
"""

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from inconcert._core.place import Place
from inconcert._core.session import Session
from inconcert._redis.call import Call
from inconcert._redis.keys import Keyspace
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Command, load
from inconcert._rules.payloads import JSON, decode
from inconcert.errors import InconcertError

__all__ = ["Fetch", "MailboxKeys", "MailboxMessage"]


_log = logging.getLogger("inconcert.mailboxes")

_NO_WAIT, _JOIN = -1, 0  # in place of a ticket
_NO_ANSWER = 5.0  # seconds after which to look again when a look was not answered


class MailboxKeys(NamedTuple):
    """Where a mailbox is kept."""

    messages: str
    unread: str
    claims: str
    claimed: str
    dropped: str
    waiters: str
    recent: str
    older: str
    last: str


_FETCH = load("mailboxes/fetch").bind(MailboxKeys)
_WITHDRAW = load("mailboxes/withdraw").bind(MailboxKeys)


@dataclass(frozen=True, slots=True)
class MailboxMessage:
    """One message of a mailbox.

    Attributes:
        id: Rises from each message of the mailbox to the next: the server's time in microseconds.
        time: When the server took it, in seconds since 1970.
        body: The JSON value that was sent.
        attempt: 1 when it is fetched for the first time, and one more each time that it comes back.
        missed: How many messages were dropped unread before this one; told with the first message of a fetch.
        claim: Which fetch has it; what `Mailbox.ack` shows.
    """

    id: int
    time: float
    body: JSON
    attempt: int
    missed: int
    claim: str = field(repr=False)


class Fetch(Place):
    """The call of one fetch, which is done when it has messages, or at once if it does not wait and there are none.

    Args:
        session: The open session.
        keys: Of the mailbox.
        terms: The most messages, the life of the claim and the longest age in milliseconds.
        waits: Whether to stand in line when there are none.
    """

    __slots__ = (
        "_address",
        "_is_over",
        "_is_rechecking",
        "_keys",
        "_must_recheck",
        "_terms",
        "_ticket",
    )

    def __init__(self, session: Session, keys: MailboxKeys, terms: tuple[int, int, int], *, waits: bool) -> None:
        self._address = session.new_address()
        self._keys = keys
        self._terms = terms
        super().__init__(session, _ask(session, keys, self._address, terms, _JOIN if waits else _NO_WAIT))
        self._ticket = 0
        self._is_rechecking = True  # a question is under way
        self._must_recheck = False  # something was said since it was asked
        self._is_over = False

    def ask(self) -> None:
        """Ask for messages."""
        self._session.inbox.register(self._address, self)
        self._session.inbox.on_unclaimed("mailbox", partial(_leave, self._session))
        self._submit()

    def take(self) -> tuple[list[MailboxMessage], list[int]]:
        """The messages, which are now the caller's; none if there is no reply yet. It waits no more.

        And the ids of those that cannot be read, which nobody has sent by `Mailbox.send`: to be acknowledged, so that
        they do not come again and again. They count as missed.

        Raises:
            Unavailable: The server could not be asked.
            OutcomeUnknown: The server did not answer.
            NotConnected: The coordinator was closed.
        """
        if not self.done():
            return [], []
        dropped, *flat = self.result()
        self.raise_if_closed()  # just when they had come; they are back in the mailbox
        self._end()
        found: list[MailboxMessage] = []
        unreadable: list[int] = []
        for id_, message in zip(flat[::2], flat[1::2], strict=True):
            lapses, _, body = message.partition(b" ")
            number = int(id_)
            try:
                value = decode(body)
            except ValueError as error:
                _log.error("message %d on %r is dropped, because it cannot be read: %s", number, self.key, error)
                unreadable.append(number)
            else:
                found.append(MailboxMessage(number, number / 1e6, value, int(lapses) + 1, 0, self._address))
        if found:
            found[0] = replace(found[0], missed=dropped + len(unreadable))
        return found, unreadable

    @property
    def claim(self) -> str:
        """What its messages are acknowledged by."""
        return self._address

    def withdraw(self) -> None:
        """Wait no more, and give back what was claimed, unless it was taken."""
        if not self._is_over:
            self._end()
            if self.sends and not self._session.channel.is_closed:
                _withdraw(self._session, self._keys, self._address, puts_back=True)
        self.cancel()

    # What it is told.

    def on_reply(self, reply: Reply, asked_at: float) -> None:
        """Take a reply of the script, to our call or to a later look."""
        self._is_rechecking = False
        if self.done():
            return
        if reply[0]:
            self.set_result(reply[1:])
        elif reply[2] == _NO_WAIT:
            self.set_result([0])
        else:
            self._wait(reply, asked_at)

    def on_message(self, rest: str) -> None:
        """Look in so many milliseconds, or at once: 'MS WAITERS'."""
        ms = int(rest.partition(" ")[0])
        if not ms or not self._ticket:
            self.recheck()
        else:
            self._session.lines.recheck_in(self.key, ms / 1000)

    def recheck(self) -> bool:
        """Ask again; False if we wait no more."""
        if self.done():
            return False
        if self._is_rechecking:
            self._must_recheck = True  # the answer may be from before
        else:
            self._is_rechecking = True
            self._submit_recheck(_ask(self._session, self._keys, self._address, self._terms, self._ticket))
        return True

    def recheck_failed(self) -> None:
        """Look again later."""
        self._is_rechecking = False
        self._session.lines.recheck_in(self.key, _NO_ANSWER)

    def closed(self, error: InconcertError) -> None:
        """Leave, with this error."""
        super().closed(error)
        self.failed(error)
        self.withdraw()

    # Below.

    def _wait(self, reply: Reply, asked_at: float) -> None:
        lines = self._session.lines
        _, _, ticket, joined = reply
        lines.join(self.key, self)
        lines.on_reply(self.key, reply)
        if joined and self._ticket:  # the server had forgotten it, and maybe others
            lines.recheck_all(self.key, asked_at)
        self._ticket = ticket
        if self._must_recheck:
            self._must_recheck = False
            self.recheck()

    def _end(self) -> None:
        self._is_over = True
        self._session.inbox.unregister(self._address)
        self._session.lines.leave(self.key, self)


def _ask(session: Session, keys: MailboxKeys, address: str, terms: tuple[int, int, int], ticket: int) -> Command:
    limit, ttl_ms, max_age_ms = terms
    return _FETCH(
        keys,
        address=address,
        ticket=ticket,
        limit=limit,
        ttl_ms=ttl_ms,
        max_age_ms=max_age_ms,
        inboxes=session.inboxes(keys.waiters),
    )


def _leave(session: Session, address: str, rest: str) -> None:
    """Take one out of a line who waits no more. What it claimed stays: whoever fetched that may have it in hand."""
    if not session.channel.is_closed:
        _withdraw(session, Keyspace.beside(MailboxKeys, rest.partition(" ")[2]), address, puts_back=False)


def _withdraw(session: Session, keys: MailboxKeys, address: str, *, puts_back: bool) -> None:
    command = _WITHDRAW(keys, address=address, inboxes=session.inboxes(keys.waiters), puts_back=int(puts_back))
    session.channel.submit(Call(command, must_run=True))
