"""The roster of a group in one process: its members, their values, and the owner of each key.

There is one roster for all members and watchers of a group in a process.  Each change brings the group from one version
to the next, and is published with both numbers: so a roster that misses one sees it by the next, or by the version that
a renewal answers, and reads the whole group again.

Source: docs/explanation/members.md
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import Self
from weakref import WeakSet, WeakValueDictionary

from inconcert._core.own_loop import check_loop
from inconcert._core.session import Session, SessionRef
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.wire.call import Call
from inconcert._rules.payloads import JSON
from inconcert._rules.rendezvous import Division, Rendezvous
from inconcert.errors import InconcertError
from inconcert.members.changes import (
    Change,
    Changed,
    Freed,
    Joined,
    Left,
    Lost,
    News,
    Reconnected,
    StartOver,
    Update,
)
from inconcert.members.group import LIST, LOOK, Group, values_of

_log = logging.getLogger("inconcert.members")

_MOST_UNREAD = 1000  # changes that may wait for one watcher


class Rosters:
    """All rosters of a coordinator: one for each group that it takes part in or watches."""

    def __init__(self, ref: SessionRef) -> None:
        self._ref = ref
        self._found: WeakValueDictionary[tuple[str, str], Roster] = WeakValueDictionary()

    def of(self, group: Group) -> "Roster":
        """The one of this group, in the open session."""
        session = self._ref.session
        key = session.id, group.name
        roster = self._found.get(key)
        if roster is None:
            roster = self._found[key] = Roster(session, group)
        return roster


class Roster:
    """The members of a group, kept up to date as long as there is a user."""

    def __init__(self, session: Session, group: Group) -> None:
        self.session = session
        self.group = group
        self.values: dict[str, JSON] = {}  # member -> value
        self._version: int | None = None  # None: not read yet
        self._rendezvous = Rendezvous()
        self._divisions: WeakValueDictionary[frozenset[str], Division] = WeakValueDictionary()
        self._users: WeakSet[object] = WeakSet()
        self.feeds: WeakSet[Feed] = WeakSet()  # who is told of changes
        self.reconnects = 0  # how often the connection was lost, and is back: the server may be another one since
        self._subscribing = asyncio.Lock()
        self._is_subscribed = False
        self._reading: _Read | None = None

    def __repr__(self) -> str:
        return f"<Roster of {self.group.name!r}>"

    async def open(self, user: object) -> None:
        """Listen to the group, if that is not done yet, until this user leaves or is dropped."""
        self._users.add(user)
        try:
            async with self._subscribing:  # one at a time: a channel has each listener once
                if not self._is_subscribed:
                    await self.session.broadcasts.listen(self.group.changes, self)
                    self._is_subscribed = True
                    self._version = self._reading = None  # what was read before may lack changes since
        except BaseException:
            self.leave(user)
            raise

    def leave(self, user: object) -> None:
        """End `open`: this user needs the roster no more."""
        self._users.discard(user)
        self._leave_if_unused()

    async def known(self) -> None:
        """Return when the roster has been read; `open` it before; raises `OutcomeUnknown` if it did not answer."""
        while self._version is None:
            await self.read()

    async def read(self) -> None:
        """Read the whole group, together with all that want to."""
        await asyncio.shield(self._read())

    async def look(self) -> float | None:
        """Drop lapsed members; seconds until the next lease ends unless it is renewed, None if there is none."""
        left_ms, *lost = await self.session.run(LOOK(self.group.keys, changes=self.group.changes))
        for text in lost:
            self.on_message(self.group.changes, text)
        return None if left_ms < 0 else (left_ms + 1) / 1000

    def division(self, keys: frozenset[str]) -> Division:
        """These keys, to be divided among the members; one for all in this process that ask for the same."""
        division = self._divisions.get(keys)
        if division is None:
            division = self._divisions[keys] = Division(keys, self._rendezvous)
        return division

    def owner(self, key: str) -> str | None:
        """The member that this key belongs to."""
        return self._rendezvous.owner(key)

    def is_at(self, version: int) -> None:
        """The server says that the group has this version now: read it, if this roster has another."""
        if self._version is not None and version != self._version:
            self._read()

    # Called by the connection, and with what scripts have answered.

    def on_message(self, channel: str, text: bytes) -> None:
        """Take a change, unless it is known already."""
        del channel
        update = Update.read(text)
        if self._reading is not None:
            self._reading.later.append(update)
        self._take(update)
        self._leave_if_unused()

    def missed(self) -> None:
        """The connection was lost, and is back."""
        self.reconnects += 1
        if self._version is not None:
            self._read()
        for feed in list(self.feeds):
            feed.add(Reconnected())

    def closed(self, error: InconcertError) -> None:
        """No more messages: the coordinator closes, or the server refused the subscription."""
        self._is_subscribed = False
        for feed in list(self.feeds):
            feed.closed(error)

    def was_read(self, reading: "_Read") -> None:
        """Take the whole group, as it was when it was asked for, and what came since."""
        if reading is not self._reading:
            return  # it was asked for before the subscription
        self._reading = None
        if reading.version in reading.passed:
            return  # nothing was missed
        self._replace(reading.found)
        self._version = reading.version
        for feed in list(self.feeds):
            feed.start_over()
        for update in reading.later:
            self._take(update)

    def read_failed(self, reading: "_Read", error: InconcertError) -> None:
        """The group could not be read: a renewal, or the next change, lets it be tried again."""
        if reading is self._reading:
            self._reading = None
        _log.warning("members %r could not be read: %s", self.group.name, error, extra={"members": self.group.name})

    # Private.

    def _read(self) -> "_Read":
        if self._reading is None:
            self._reading = _Read(self, self._version)
            self.session.channel.submit(self._reading)
        return self._reading

    def _take(self, update: Update) -> None:
        if self._version is None or update.version <= self._version:
            return
        if update.last != self._version:
            if self._reading is None:
                self._read()
            return
        self._version = update.version
        if self._reading is not None:
            self._reading.passed.add(update.version)
        self._apply(update.change)
        for feed in list(self.feeds):
            feed.add(update.change)

    def _apply(self, change: Change) -> None:
        match change:
            case Joined() | Changed():
                is_new = change.member not in self.values
                self.values[change.member] = change.value
                if is_new:
                    self._add(change.member)
            case Left() | Lost():
                if self.values.pop(change.member, self) is not self:
                    self._remove(change.member)
            case Freed():
                pass

    def _replace(self, values: dict[str, JSON]) -> None:
        before, self.values = self.values, values
        for member in before.keys() - values.keys():
            self._remove(member)
        for member in values.keys() - before.keys():
            self._add(member)

    def _add(self, member: str) -> None:
        self._rendezvous.add(member)
        for division in self._divisions.values():
            division.note(member)

    def _remove(self, member: str) -> None:
        self._rendezvous.remove(member)
        for division in self._divisions.values():
            division.note(member)

    def _leave_if_unused(self) -> None:
        if not self._users and self._is_subscribed:
            self._is_subscribed = False
            self._version = None  # from now on it misses changes
            self.session.broadcasts.forget(self.group.changes, self)


class _Read(Call):
    """The request for the whole group; those for its other portions follow it."""

    __slots__ = ("_roster", "found", "later", "passed", "version")

    def __init__(self, roster: Roster, began_at: int | None) -> None:
        group = roster.group
        super().__init__(LIST(group.keys, cursor=0, changes=group.changes), must_run=True)
        self._roster = roster
        self.passed = {began_at}  # the versions that the roster has had since
        self.version = 0  # the version of the group, of its first portion
        self.found: dict[str, JSON] = {}  # what has come so far
        self.later: list[Update] = []  # what was published since

    def answered(self, reply: Reply) -> None:
        roster = self._roster
        version, cursor, flat, lost = reply
        for text in lost:  # before the messages come, so that it is not taken for a gap
            roster.on_message(roster.group.changes, text)
        if lost:  # perhaps more have lapsed than one script drops
            roster.session.channel.submit(_ReadMore(self, roster.group, 0))
            return
        self.version = self.version or int(version)
        self.found |= values_of(flat)
        if int(cursor):
            roster.session.channel.submit(_ReadMore(self, roster.group, cursor))
            return
        roster.was_read(self)
        super().answered(None)

    def failed(self, error: InconcertError) -> None:
        self._roster.read_failed(self, error)
        super().failed(error)


class _ReadMore(Call):
    """The request for a later portion."""

    __slots__ = ("_first",)

    def __init__(self, first: _Read, group: Group, cursor: bytes | int) -> None:
        super().__init__(LIST(group.keys, cursor=cursor, changes=group.changes), must_run=True)
        self._first = first

    def answered(self, reply: Reply) -> None:
        self._first.answered(reply)
        super().answered(None)

    def failed(self, error: InconcertError) -> None:
        self._first.fail(error)
        super().failed(error)


class Feed:
    """Changes of a group that one reader has not read yet.

    Args:
        roster: That of the group, opened with `async with`.
    """

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._items: deque[News] = deque()
        self._news = asyncio.Event()
        self._end: InconcertError | None = None

    async def __aenter__(self) -> Self:
        """Listen: when this returns, the roster is known, and each later change comes."""
        self._check_loop()
        await self._roster.open(self)
        try:
            await self._roster.known()
        except BaseException:
            self._roster.leave(self)
            raise
        self._roster.feeds.add(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._roster.feeds.discard(self)
        self._roster.leave(self)

    async def next(self) -> News:
        """Wait for the next change.

        Raises:
            InconcertError: What the feed was closed with; what came before is returned first.
        """
        self._check_loop()
        while not self._items:
            if self._end is not None:
                raise self._end.with_traceback(None)
            self._news.clear()
            await self._news.wait()
        return self._items.popleft()

    def drain(self) -> Iterable[News]:
        """Those that have come already."""
        while self._items:
            yield self._items.popleft()

    def _check_loop(self) -> None:
        check_loop(self._roster.session.loop, self._roster)

    # Called by the roster.

    def add(self, news: News) -> None:
        """Keep it for the reader."""
        if len(self._items) == _MOST_UNREAD:
            self.start_over()
        else:
            self._items.append(news)
            self._news.set()

    def start_over(self) -> None:
        """Changes were missed; the roster has the whole group."""
        self._items.clear()
        self._items.append(StartOver())
        self._news.set()

    def closed(self, error: InconcertError) -> None:
        """Nothing comes any more."""
        self._end = self._end or error
        self._news.set()
