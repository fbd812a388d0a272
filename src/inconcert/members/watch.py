"""Watching a group, by a member or by anyone else."""

import logging
from collections.abc import AsyncGenerator

import anyio

from inconcert._core.channel_subscription import Gap
from inconcert._core.retry import retry_until_answered
from inconcert.members.changes import Freed, Joined, MemberChange, News, Reconnected, StartOver
from inconcert.members.member_state import MemberState
from inconcert.members.roster import Feed, Roster

_log = logging.getLogger("inconcert.members")

# Of a watcher that has not joined: perhaps nobody else is there to see a lapse.
_LOOK_AFTER = 1.0  # seconds without a change, after which it looks when the next lease ends
_LOOK_EVERY = 30.0  # seconds between two looks while there is none


async def watch(roster: Roster, member: MemberState | None) -> AsyncGenerator[MemberChange | Gap, None]:
    """Yield all members, and then each change.

    Args:
        roster: That of the group.
        member: Whose renewals see whether a change was missed; None for nobody's, so that this looks itself.
    """
    async with Feed(roster) as feed:
        if member is not None:
            member.check_held()
            member.add_feed(feed)
        for joined in _all(roster):
            yield joined
        while True:
            change = await (feed.next() if member else _next_seen(roster, feed))
            if isinstance(change, StartOver):
                everyone = _all(roster)  # now: later changes are in the feed
                yield Gap(None)
                for joined in everyone:
                    yield joined
            elif not isinstance(change, Freed | Reconnected):
                yield change


async def _next_seen(roster: Roster, feed: Feed) -> News:
    """The next change, also if nobody is left to see a lapse."""
    pause = _LOOK_AFTER
    while True:
        with anyio.move_on_after(pause):
            return await feed.next()
        left = await retry_until_answered(_log, f"watching members {roster.group.name!r}", roster.look)
        pause = _LOOK_EVERY if left is None else left


def _all(roster: Roster) -> list[Joined]:
    return [Joined(member, value) for member, value in roster.values.items()]
