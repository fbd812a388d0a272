"""Queues of items, mailboxes, chats, rate limiters and signals, as the pages show them.

Nobody keeps a list of them: those that processes hold or wait for are shown, and any that is looked up by its name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from inconcert.coordinator import Coordinator
from inconcert.dashboard.formats import as_json, count, duration, shortened
from inconcert.dashboard.redaction import Redact

_AT_ONCE = 10  # items on a page
_MEMBERS = 20
_LONGEST = 2_000  # characters of one item


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member of a chat, redacted."""

    user: str
    last_read: int
    unread: int


@dataclass(frozen=True, slots=True)
class DeadItemView:
    """A dead-lettered item, redacted."""

    id: str
    item: str
    reason: str
    attempts: int
    died_at: float


@dataclass(frozen=True, slots=True)
class OtherView:
    """One of them."""

    facts: Mapping[str, str]  # the facts about it, as they are shown
    items: Sequence[str] = ()  # the next items of a queue, redacted
    dead: Sequence[DeadItemView] = ()  # its latest dead-lettered items
    members: Sequence[MemberView] = ()  # the members of a chat that are furthest behind, the slowest reader first
    can_be_purged: bool = False  # whether there is anything to drop
    is_shut_down: bool = False  # whether a queue takes no more


_Look: TypeAlias = Callable[[Coordinator, Redact, str], Awaitable[OtherView]]


async def other_view(concert: Coordinator, redact: Redact, kind: str, name: str) -> OtherView:
    """One of them, by its kind in `OTHERS` and its name.

    Cost: 1 to 4 round trips; of a chat 1 for each 1,000 members, and the cost of `Chats.unread` for 20 of them.

    Raises:
        ChatNotFound: There is no such chat.
    """
    return await _LOOKS[kind](concert, redact, name)


async def _items(concert: Coordinator, redact: Redact, name: str) -> OtherView:
    queue = concert.queue(name)
    counts, oldest, items, dead = await asyncio.gather(
        queue.counts(), queue.oldest_age(), queue.peek(limit=_AT_ONCE), queue.dead(limit=_AT_ONCE)
    )
    facts = {
        "Ready": count(counts.ready),
        "Oldest ready": duration(oldest),
        "Delayed": count(counts.delayed),
        "Claimed": count(counts.claimed),
        "Dead": count(counts.dead),
    }
    return OtherView(
        facts,
        items=[redact("item", as_json(item, longest=_LONGEST, in_one_line=True)) for item in items],
        dead=[
            DeadItemView(
                id=redact("lock", letter.id),
                item=redact("item", as_json(letter.item, longest=_LONGEST)),
                reason=shortened(redact("error", letter.reason), _LONGEST),
                attempts=letter.attempts,
                died_at=letter.died_at,
            )
            for letter in dead
        ],
        can_be_purged=bool(counts.ready or counts.delayed),
        is_shut_down=counts.is_shut_down,
    )


async def _mailbox(concert: Coordinator, redact: Redact, name: str) -> OtherView:
    del redact  # nothing of its messages is shown
    unread = await concert.mailbox(name).unread()
    return OtherView({"Unread": count(unread)}, can_be_purged=unread > 0)


async def _chat(concert: Coordinator, redact: Redact, name: str) -> OtherView:
    members = await concert.chat.members(name)
    slowest = sorted(members, key=lambda user: (members[user], user))[:_MEMBERS]
    unread = await asyncio.gather(*(concert.chat.unread(user) for user in slowest))
    found = [
        MemberView(redact("user", user), members[user], chats.get(name, 0))
        for user, chats in zip(slowest, unread, strict=True)
    ]
    shown = sorted(found, key=lambda member: -member.unread)  # who writes much has read less than was written
    return OtherView({"Members": count(len(members))}, members=shown)


async def _rate_limiter(concert: Coordinator, redact: Redact, name: str) -> OtherView:
    del redact
    status = await concert.rate_limiter(name, 1, period=1.0).inspect()  # of which the numbers are those of callers
    full_in = duration(status.full_in) if status.full_in else "now"
    return OtherView({"All permits are back in": full_in, "Waiting": count(status.waiting)})


async def _signal(concert: Coordinator, redact: Redact, name: str) -> OtherView:
    del redact
    concert.signal(name)  # keeps nothing but the line of its waiters
    return OtherView({})


_LOOKS: Mapping[str, _Look] = {
    "items": _items,
    "mailbox": _mailbox,
    "chat": _chat,
    "rate limiter": _rate_limiter,
    "signal": _signal,
}
OTHERS: Sequence[str] = tuple(_LOOKS)
"""Their kinds."""
