"""A mailbox: messages for one recipient, kept until they have been handled.

    messages  hash    id -> how often a claim of it has lapsed, and its body
    unread    zset    id -> id, which is the server's time when it was sent
    claims    zset    claim -> lease end: one for each fetch whose messages are not all acknowledged
    claimed   hash    claim -> the ids of its messages, and how many were missed before them
    dropped   string  how many were dropped unread and not yet reported

Source: docs/explanation/mailboxes.md
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Generic

from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._rules import durations
from inconcert._rules.codec import T
from inconcert._rules.defaults import MAILBOX_TTL, MAX_MESSAGES
from inconcert._rules.durations import Seconds, milliseconds
from inconcert._rules.limits import whole
from inconcert.mailboxes.fetch import Fetch, MailboxKeys, MailboxMessage
from inconcert.mailboxes.post import Post

_ACK = load("mailboxes/ack").bind(MailboxKeys)
_UNREAD = load("mailboxes/unread").bind(MailboxKeys)
_PURGE = load("mailboxes/purge").bind(MailboxKeys)

_MOST_AT_ONCE = 1_000  # in one script: some milliseconds of the server's time


class Mailbox(Generic[T]):
    """Messages for one recipient, kept while they are away: each until it is acknowledged, or a cap drops it.

    Any process that knows the name can send.  The recipient can fetch in any number of processes at once; each message
    is claimed by one fetch at a time.  Messages dropped unread are reported: see `MailboxMessage.missed`.

    Use it for messages that one reader gets whenever they come.  For groups use `Coordinator.chat`, for work that
    workers share `Coordinator.task`, and for news that need not be kept `Coordinator.signal`.

    Made by `Coordinator.mailbox`:

    ```python
    mailbox = concert.mailbox("jack451")
    await mailbox.send({"text": "your parcel is here"})
    for message in await mailbox.fetch(timeout=20.0):
        print(message.body)
    ```

    Args:
        name: Whose mailbox. The same name in the same namespace is the same mailbox, on any machine.
        message_type: The type of its messages, as in `Queue`; None for any JSON value.
        ttl: How long a fetch may hold messages without acknowledging them, in seconds; then they come back.
        max_messages: How many may be unread, 1 to 1,000,000; one more drops the oldest.
        max_age: How long messages are kept unread, in seconds; None sets no limit.

    Raises:
        ValueError: `ttl` or `max_age` is not above 0, or `max_messages` is out of range.
        TypeError: JSON cannot represent `message_type`.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        message_type: Any = None,  # noqa: ANN401 - also unions and the like
        *,
        ttl: Seconds = MAILBOX_TTL,
        max_messages: int = MAX_MESSAGES,
        max_age: Seconds | None = None,
    ) -> None:
        self._ref = ref
        self._name = name
        self._ttl_ms = milliseconds(durations.ttl(ttl))
        self._post: Post[T] = Post(ref.keys, name, message_type, max_messages=max_messages, max_age=max_age)
        self._keys = self._post.keys
        self._codec = self._post.codec
        self._max_age_ms = self._post.max_age_ms

    def __repr__(self) -> str:
        return f"<Mailbox {self._name!r}>"

    async def send(self, message: T) -> None:
        """Add a message, and wake the fetch that has waited longest.

        Messages that one process sends one after the other keep their order.

        Args:
            message: A value of the mailbox's type; without one any JSON value. At most 1 MiB as JSON.

        Raises:
            InvalidPayload: The message is not JSON, not of the mailbox's type, or too large.
            Unavailable: The server could not be asked, or has no memory; nothing was added.

        Cost: 1 round trip, and 1 message to each process that waits for this mailbox.
        """
        await self._send(self._post.encode([message]))

    async def send_many(self, messages: Iterable[T]) -> None:
        """Add messages in this order, nothing between them: all, or none.

        Args:
            messages: See `send`; at most 1,000, and 8 MiB together.

        Raises:
            ValueError: There are more than 1,000.
            InvalidPayload: A message is not JSON, not of the mailbox's type, or they are too large.
            Unavailable: The server could not be asked, or has no memory; nothing was added.

        Cost: As `send`, for all together.
        """
        bodies = self._post.encode(messages)
        if bodies:
            await self._send(bodies)

    async def fetch(self, *, limit: int = 10, timeout: Seconds | None = 0, ack: bool = True) -> list[MailboxMessage[T]]:
        """The oldest messages that no other fetch has claimed, oldest first.

        With `ack=True` they are acknowledged at the moment in which this returns, never before: a fetch that fails or
        is cancelled loses none.  Its result is gone if the process then dies, unless it dies before that is
        sent; where that matters use `ack=False`, and `ack` what was handled.  The claim of a fetch is not renewed:
        a message that is not acknowledged within the mailbox's `ttl` comes back, in its place.  So does a message that
        does not fit the mailbox's type: it is not returned and not acknowledged, and an error in the log names it.

        Args:
            limit: The most messages, 1 to 1,000; fewer come if they have more than 1 MiB together.
            timeout: Longest wait in seconds when there are none; None waits forever, 0 checks once.
            ack: Whether they count as handled.

        Returns:
            The messages; empty if nothing came in time.

        Raises:
            OutcomeUnknown: The server did not answer; what was claimed comes back.

        Cost: 1 round trip, and a script that nobody waits for to acknowledge. 0 while waiting, 1 when woken.
        """
        terms = (whole("limit", limit, most=_MOST_AT_ONCE), self._ttl_ms, self._max_age_ms)
        seconds = durations.timeout(timeout)
        session = self._ref.session
        until = None if seconds is None else session.loop.time() + seconds
        messages: list[MailboxMessage[T]] = []
        must_recheck = True
        while must_recheck:
            messages, passed_over = await self._fetch(session, terms, seconds)
            must_recheck = not messages and passed_over > 0
            seconds = None if until is None else max(0.0, until - session.loop.time())
        if ack:  # without an await, so that no cancellation can come between the acknowledgement and the caller
            self._ack(messages)
        return messages

    async def ack(self, messages: Iterable[MailboxMessage[Any]]) -> None:
        """Mark messages as handled, so that they do not come back.

        This works at any time, even if the claim has lapsed and another fetch has claimed them.

        Raises:
            OutcomeUnknown: The server did not answer; acknowledge them again.

        Cost: 1 round trip, and 1 script for each fetch that they are from.
        """
        for call in self._ack(messages):
            await call

    async def unread(self) -> int:
        """The number of messages that a fetch would find. Those claimed by other fetches do not count."""
        count: int = await self._ref.session.run(_UNREAD(self._keys, max_age_ms=self._max_age_ms))
        return count

    async def purge(self) -> int:
        """Drop all messages, the claimed ones too: for a recipient that is gone for good.

        Returns:
            How many there were.
        """
        session = self._ref.session
        count: int = await session.run(_PURGE(self._keys, request=session.new_address()))
        return count

    # Private.

    async def _fetch(
        self, session: Session, terms: tuple[int, int, int], seconds: float | None
    ) -> tuple[list[MailboxMessage[T]], int]:
        """Fetch once; and how many messages there were that cannot be read or do not fit."""
        await session.channel.has_room(self._keys.messages)
        fetching = Fetch(session, self._keys, self._codec, terms, waits=seconds != 0)
        try:
            fetching.ask()
            await asyncio.wait([fetching], timeout=seconds or None)
            messages, unreadable, unfit = fetching.take()
        finally:
            fetching.withdraw()
        if unreadable:
            self._submit_ack(session, fetching.address, unreadable)
        return messages, len(unreadable) + len(unfit)

    async def _send(self, bodies: list[bytes]) -> None:
        session = self._ref.session
        command = self._post.send(session, bodies)
        while await session.run(command):
            pass  # the first thousand in line were dead

    def _ack(self, messages: Iterable[MailboxMessage[Any]]) -> list[Call]:
        claims: dict[str, dict[int, None]] = {}
        for message in messages:
            claims.setdefault(message.claim, {})[message.id] = None
        session = self._ref.session
        return [self._submit_ack(session, claim, ids) for claim, ids in claims.items()]

    def _submit_ack(self, session: Session, claim: str, ids: Iterable[int]) -> Call:
        call = Call(_ACK(self._keys, claim=claim, ids=ids))
        session.channel.submit(call)
        return call


def post_of(mailbox: Mailbox[T]) -> Post[T]:
    """The sender to a mailbox, also while its coordinator is not open."""
    return mailbox._post  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
