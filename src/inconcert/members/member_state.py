"""The engine of a membership: a lease that is renewed with all others of the process."""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import WeakSet

from inconcert._core.caller import Noted
from inconcert._core.lease_state import LeaseState
from inconcert._core.permit_state import RenewCall
from inconcert._core.renewal import local_deadline, next_try
from inconcert._core.unconfirmed import Withdrawal
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules.durations import milliseconds
from inconcert.errors import InconcertError, NotHeld
from inconcert.members.group import MemberKeys
from inconcert.members.roster import Feed, Roster

_JOIN = load("members/join").bind(MemberKeys)
_LEAVE = load("members/leave").bind(MemberKeys)
_RENEW = load("members/renew").bind(MemberKeys)
_RENEW_LEASE = load("permits/renew").bind()
_UPDATE = load("members/update").bind(MemberKeys)

KIND = "members"


class Joining(NamedTuple):
    """The arguments with which a member joins."""

    value: bytes  # JSON
    ttl: float
    noted: Noted


class MemberState(LeaseState):
    """A membership, from its joining until it is released or lost."""

    __slots__ = (
        "_has_joined",
        "_reconnects",
        "_user",
        "asked_for",
        "feeds",
        "has_let_go",
        "is_sharing",
        "let_go",
        "noted",
        "roster",
        "since",
        "ttl_ms",
        "turn",
    )

    metrics_name = ""  # none: metrics count a membership under the name of its group, if they were given that

    def __init__(self, roster: Roster, user: object, holder: str, joining: Joining, asked_at: float) -> None:
        self.roster = roster  # that of the group
        self._user = user
        self.noted = joining.noted  # from where it joined
        self.since = time.monotonic()  # when that was, by the local monotonic clock
        self.ttl_ms = milliseconds(joining.ttl)  # life between renewals
        self.feeds: WeakSet[Feed] = WeakSet()  # those of its readers, which end with it
        self.turn = 0  # the last turn of its claims
        self.is_sharing = False  # whether keys are being handed out to it
        self.asked_for: frozenset[str] = frozenset()  # all keys that it has ever asked to share
        # lets go of all these; does nothing until it has asked for some
        self.let_go: Callable[[MemberState], None] = _nothing
        self.has_let_go = True  # False once the server has not confirmed that, until it is asked again
        self._reconnects = roster.session.reconnects
        self._has_joined = False  # and its user has it
        deadline = local_deadline(asked_at, joining.ttl)
        renewal = roster.session.renewal
        super().__init__(KIND, roster.group.name, holder=holder, ttl=joining.ttl, deadline=deadline, renewal=renewal)

    @classmethod
    async def join(cls, roster: Roster, holder: str, joining: Joining) -> "MemberState":
        """Become a member, whose process knows the group when this returns."""
        session, group = roster.session, roster.group
        user = _User()
        await roster.open(user)
        ttl_ms = milliseconds(joining.ttl)
        call = Call(_JOIN(group.keys, member=holder, value=joining.value, ttl_ms=ttl_ms, changes=group.changes))
        try:
            await session.channel.has_room(call.key, call)
            asked_at = time.monotonic()
            session.channel.submit(call)
            told: bytes = await call
            state = cls(roster, user, holder, joining, asked_at)
        except BaseException:
            if call.sends and not session.channel.is_closed:
                life = 0.0 if call.was_refused else joining.ttl
                Withdrawal(session, group.keys.members, holder, partial(_Leave, roster, holder), life=life)
            roster.leave(user)
            raise
        try:
            await roster.known()
            roster.on_message(group.changes, told)
            if holder not in roster.values:  # changes came before ours, which this process has not heard of yet
                await roster.read()
        except BaseException:
            state.release_nowait()
            raise
        state._has_joined = True
        return state

    async def update(self, value: bytes) -> None:
        """Change its value."""
        self.check_held()
        session, group = self.roster.session, self.roster.group
        request = session.new_address()
        told = await session.run(
            _UPDATE(group.keys, member=self.holder, value=value, request=request, changes=group.changes)
        )
        if not told:
            self.renewed(is_held=False, asked_at=0.0)
            raise self.loss()
        self.roster.on_message(group.changes, told)

    def add_feed(self, feed: Feed) -> None:
        """Close this one when the membership ends."""
        self.feeds.add(feed)

    def next_turn(self) -> int:
        """The number of the next turn of its claims."""
        self.turn += 1
        return self.turn

    def lose(self) -> None:
        """Note that it is lost, and stop its body and its readers."""
        super().lose()
        self._tell_end()
        self._ended(self.loss())

    def let_go_failed(self) -> None:
        """Renew soon, and let go of the keys then: the server has refused that, or did not answer."""
        self.has_let_go = False
        if not self.is_over:
            self.renew_at = min(self.renew_at, next_try(self.deadline, self._ttl))
            self._renewal.add(self)

    # Called with the replies of renewals.

    def told(self, version: int, look_ms: int) -> None:
        """The group has this version now; renew again after so many milliseconds, unless these are 0."""
        if self.is_over:
            return
        self.roster.is_at(version)
        reconnects = self.roster.session.reconnects
        if reconnects != self._reconnects:  # the server may be another one, and have what was let go of last
            self._reconnects = reconnects
            self.has_let_go = self.has_let_go and self.is_sharing
        if not (self.has_let_go or self.is_sharing):
            self.let_go(self)
        look_at = time.monotonic() + look_ms / 1000
        if look_ms and look_at < self.renew_at:
            self.renew_at = look_at
            self._renewal.add(self)

    # Private.

    def _send_renewal(self) -> Call:
        group = self.roster.group
        command = _RENEW(group.keys, member=self.holder, ttl_ms=self.ttl_ms, changes=group.changes)
        call = _RenewMember(self, command)
        self.roster.session.channel.submit(call)
        return call

    def _start_release(self) -> Call:
        was_released, self.is_released = self.is_released, True
        self._renewal.remove(self)
        call = _Leave(self.roster, self.holder, self)
        self.roster.session.channel.submit(call)
        if not was_released:
            if not self._is_lost:
                self._tell_end()
            self._ended(NotHeld(self.kind, self.name))
        return call

    def _tell_end(self) -> None:
        """Tell observers that it was released or lost."""
        if self._has_joined:
            self.roster.session.observers.lease_ended(self, time.monotonic() - self.since, is_lost=self._is_lost)

    def _ended(self, error: InconcertError) -> None:
        for feed in list(self.feeds):
            feed.closed(error)
        self.roster.leave(self._user)


def _nothing(_: MemberState) -> None:
    """Let go of no keys, for a member that has asked for none."""


class _User:
    """A mark by which a member keeps a roster up to date."""

    __slots__ = ("__weakref__",)


class _RenewMember(RenewCall):
    """The call of a renewal, which also says which version the group has."""

    __slots__ = ("_member",)

    def __init__(self, member: MemberState, command: Command) -> None:
        super().__init__(member, command)
        self._member = member

    def answered(self, reply: Reply) -> None:
        is_held, *told = reply
        super().answered(is_held)
        if told:
            version, look_ms = told
            self._member.told(int(version), look_ms)

    def with_one_key(self) -> Call | None:
        """The lease alone, while nothing of the group can be read because its slot moves key by key."""
        member = self._member
        keys = member.roster.group.keys
        return RenewCall(member, _RENEW_LEASE(holders=keys.members, holder=member.holder, ttl_ms=member.ttl_ms))


class _Leave(Call):
    """The call that ends a membership; its result is whether it was still one."""

    __slots__ = ("_member",)

    def __init__(self, roster: Roster, holder: str, member: MemberState | None = None) -> None:
        super().__init__(_LEAVE(roster.group.keys, member=holder, changes=roster.group.changes), must_run=True)
        self._member = member

    def answered(self, reply: Reply) -> None:
        # What was sent twice finds nothing the second time; in time, the first was a success.
        in_time = self._member is not None and time.monotonic() < self._member.deadline
        super().answered(reply == 1 or (self.sends > 1 and in_time))

    def failed(self, error: InconcertError) -> None:
        if self._member is not None:
            self._member.release_failed(error)
        super().failed(error)
