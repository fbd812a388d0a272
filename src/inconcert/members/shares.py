"""Keys on their way from one member to another: claimed on the server, and let go of before the next may have them.

A member claims the keys that are its own by `Division`, and gets those that nobody has.  When another becomes their
owner, its user is given a smaller set; asking for the next one says that it has let go of the rest, which then is
freed, and the change tells the next owner.

Source: docs/explanation/members.md
"""

import logging
from asyncio import sleep
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator
from functools import partial
from itertools import islice

from inconcert._core.own_loop import check_loop
from inconcert._core.retry import retry_until_answered
from inconcert._redis.protocol.scripts import Command, load
from inconcert._redis.wire.call import Call
from inconcert._rules.rendezvous import Division
from inconcert.errors import InconcertError
from inconcert.members.changes import Changed, Freed, Joined, Left, Lost, News, Reconnected, StartOver
from inconcert.members.group import MemberKeys
from inconcert.members.member_state import MemberState
from inconcert.members.roster import Feed

_log = logging.getLogger("inconcert.members")

_SHARE = load("members/share").bind(MemberKeys)

_PORTION = 500  # keys in one script


class Shares:
    """The keys of one member, while its user asks for them."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._held: dict[str, int] = {}  # claimed; key -> fencing token
        self._given: dict[str, int] | None = None  # what the user was given last
        self._refused: set[str] = set()  # another had them, or the answer is not here yet
        self._again: set[str] = set()  # of these, which may have become free since
        self._reconnects = state.roster.reconnects  # as of the last turn

    async def sets(self, keys: frozenset[str]) -> AsyncGenerator[dict[str, int], None]:
        """Yield the member's keys, and again whenever they change; these are all keys of the group."""
        state = self._state
        if state.is_sharing:
            raise RuntimeError(f"another loop shares out the keys of this member of {state.name!r}; end that first")
        state.is_sharing = True
        try:
            async with Feed(state.roster) as feed:
                state.add_feed(feed)
                division = state.roster.division(keys)
                state.asked_for |= keys
                state.let_go = _let_go
                del keys  # which are in the division, once for all members of this process
                while True:
                    state.check_held()
                    await self._take_turn(await self._owned(division))
                    owned = await self._owned(division)
                    given = {key: token for key, token in self._held.items() if key in owned}
                    if given != self._given:
                        self._given = given
                        yield dict(given)
                    else:
                        self._note(await feed.next())
                    for change in feed.drain():
                        self._note(change)
        finally:
            state.is_sharing = False
            self._let_go_of_all()

    # Private.

    async def _owned(self, division: Division) -> set[str]:
        """The keys that are this member's own by now."""
        for _ in division.steps():
            await sleep(0)  # so that many keys and members do not hold up the event loop
        return division.of(self._state.holder)

    def _note(self, change: News) -> None:
        """Keep in mind which keys may be free now."""
        match change:
            case Freed():
                self._again |= change.keys & self._refused
            case Left() | Lost() | StartOver():
                self._again = set(self._refused)
            case Joined() | Changed() | Reconnected():
                pass

    async def _take_turn(self, owned: set[str]) -> None:
        """Let go of what the user has let go of, and claim the keys that are ours and may be free."""
        check_loop(self._state.loop, self._state.roster)
        given = self._given or {}
        reconnects, self._reconnects = self._reconnects, self._state.roster.reconnects
        is_sure = reconnects == self._reconnects and self._state.has_let_go
        if is_sure:
            let_go = [key for key in self._held if key not in owned and key not in given]
            let_go += self._refused - owned  # their claims may come once more, late
            wanted = [key for key in owned - self._held.keys() if key not in self._refused or key in self._again]
        else:  # the server may be another one, and lack what was claimed or let go of last, or has refused that
            let_go = [key for key in self._state.asked_for if key not in owned and key not in given]
            wanted = [*(owned | given.keys())]
        self._again.clear()
        if not let_go and not wanted:
            return
        self._refused |= {*wanted}
        turn = self._state.next_turn()
        what = f"sharing the keys of members {self._state.name!r}"
        tokens = await retry_until_answered(_log, what, partial(self._ask, turn, let_go, wanted))
        self._state.has_let_go |= not is_sure
        for key in let_go:
            self._held.pop(key, None)
            self._refused.discard(key)
        for key, token in zip(wanted, tokens, strict=True):
            if token:
                self._held[key] = token
                self._refused.discard(key)
            else:
                self._held.pop(key, None)

    async def _ask(self, turn: int, let_go: Collection[str], wanted: Collection[str]) -> list[int]:
        """Send a turn; returns the token of each key that is wanted, 0 if another has it."""
        state = self._state
        state.check_held()
        commands = [*_commands(state, turn, let_go, is_claim=False), *_commands(state, turn, wanted, is_claim=True)]
        tokens: list[int] = []
        for is_member, *granted in await state.roster.session.gather([Call(command) for command in commands]):
            if not is_member:
                state.renewed(is_held=False, asked_at=0.0)
                raise state.loss()
            tokens += granted
        return tokens

    def _let_go_of_all(self) -> None:
        """The user asks no more: others may have its keys."""
        _let_go(self._state, [*self._held, *self._refused] if self._state.has_let_go else None)


def _let_go(state: MemberState, keys: Iterable[str] | None = None) -> None:
    """Let go of these keys, or of all that the member has ever asked for, without waiting for the reply."""
    channel = state.roster.session.channel
    state.has_let_go |= keys is None
    if not state.is_over and not channel.is_closed:
        for command in _commands(state, state.next_turn(), state.asked_for if keys is None else keys, is_claim=False):
            channel.submit(_LetGo(state, command))


class _LetGo(Call):
    """The call that lets go of keys; it is repeated with a renewal if the server refuses it."""

    __slots__ = ("_member",)

    def __init__(self, member: MemberState, command: Command) -> None:
        super().__init__(command, must_run=True)
        self._member = member

    def failed(self, error: InconcertError) -> None:
        self._member.let_go_failed()
        super().failed(error)


def _commands(state: MemberState, turn: int, keys: Iterable[str], *, is_claim: bool) -> list[Command]:
    group = state.roster.group
    return [
        _SHARE(
            group.keys,
            member=state.holder,
            turn=turn,
            ttl_ms=state.ttl_ms,
            changes=group.changes,
            let_go=0 if is_claim else len(portion),
            keys=portion,
        )
        for portion in _portions(keys)
    ]


def _portions(keys: Iterable[str]) -> Iterator[list[str]]:
    left = iter(keys)
    while portion := list(islice(left, _PORTION)):
        yield portion
