"""What a group of members promises: who is there, what changes, and which keys are whose."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from inconcert import (
    Changed,
    Coordinator,
    Gap,
    InvalidName,
    InvalidPayload,
    Joined,
    LeaseLost,
    Left,
    Lost,
    Member,
    MemberChange,
    Members,
    NotConnected,
    NotHeld,
)
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert.members import watch as watch_module
from inconcert.members.roster import Feed
from tests.support.cancelling import MOMENTS, Moment, cancel_at
from tests.support.eventually import eventually
from tests.support.raw import listeners, raw
from tests.support.scripts import command_of

SITES = [f"site:{number}" for number in range(40)]


@pytest.fixture
def group(any_concert: Coordinator) -> Members:
    """Nobody is in it."""
    return any_concert.members("crawlers", value={"host": "a"})


@pytest.fixture
def group_elsewhere(elsewhere: Coordinator) -> Members:
    """The same group, as another process sees it."""
    return elsewhere.members("crawlers", value={"host": "b"})


async def lapse(concert: Coordinator, member: Member) -> None:
    """Let the server's side of a membership end now; nobody is told."""
    await raw(concert).zadd(member._state.roster.group.keys.members, {member.id: 1}, xx=True)


async def nobody_listens(concert: Coordinator, channel: str) -> None:
    """Return when no process listens to a channel."""

    async def nobody() -> bool:
        return await listeners(concert, channel) == 0

    await eventually(nobody)


class Watching:
    """What a watcher has seen so far."""

    def __init__(self, changes: AsyncGenerator[MemberChange | Gap, None]) -> None:
        self.seen: list[MemberChange | Gap] = []
        self._changes = changes
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        async for change in self._changes:
            self.seen.append(change)

    async def saw(self, *changes: MemberChange | Gap) -> None:
        """Return when it has seen these, and nothing else since the last time."""
        await eventually(lambda: len(self.seen) >= len(changes))
        assert self.seen == [*changes]
        self.seen.clear()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


class Sharing:
    """A member that works on its keys: the sets that it was given, and when it asks for the next."""

    def __init__(self, member: Member, keys: list[str]) -> None:
        self.sets: list[dict[str, int]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self._shares = member.shares(keys)
        self.task = asyncio.create_task(self._share())

    async def _share(self) -> None:
        async for keys in self._shares:
            self.sets.append(keys)
            await self.may_go_on.wait()

    @property
    def keys(self) -> set[str]:
        """Its keys now."""
        return set(self.sets[-1]) if self.sets else set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self._shares.aclose()


async def divided(keys: list[str], *sharings: Sharing) -> None:
    """Return when all keys are handed out, each to one of these."""
    await eventually(lambda: sum(len(each.keys) for each in sharings) == len(keys))
    assert set().union(*(each.keys for each in sharings)) == set(keys)


# Who is there.


async def test_members_are_listed_with_their_values(
    any_concert: Coordinator, group: Members, group_elsewhere: Members
) -> None:
    """By members and by others; nobody before and after."""
    assert await group_elsewhere.list() == {}
    async with group as me, group_elsewhere as you:
        everyone = {me.id: {"host": "a"}, you.id: {"host": "b"}}
        assert await me.list() == await you.list() == await group.list() == everyone
        assert me.id == me.holder
        assert (me.kind, me.name) == ("members", "crawlers")
    assert await any_concert.members("crawlers").list() == {}


async def test_one_process_may_join_more_than_once(group: Members) -> None:
    """Each is a member of its own."""
    async with group as one, group as two:
        assert one.id != two.id
        assert set(await two.list()) == {one.id, two.id}


async def test_member_is_known_to_itself_at_once(group: Members, group_elsewhere: Members) -> None:
    """When `async with` begins, so that `owns` can be asked."""
    async with group as me:
        assert me.owns("anything")
        async with group_elsewhere as you:
            assert set(you._state.roster.values) == {me.id, you.id}


async def test_join_lasts_until_release(group: Members) -> None:
    """Without a body; released twice is an error."""
    me = await group.join()
    assert list(await group.list()) == [me.id]
    await me.release()
    assert await group.list() == {}
    with pytest.raises(NotHeld):
        await me.release()
    with pytest.raises(NotHeld):
        await me.update(1)
    assert not me.owns("k")


async def test_value_is_updated(group: Members, group_elsewhere: Members) -> None:
    """For all that list, at once."""
    async with group as me:
        await me.update([1, None])
        assert await group_elsewhere.list() == {me.id: [1, None]}


async def test_more_members_than_one_reply_lists_are_all_listed(any_concert: Coordinator, group: Members) -> None:
    """About 1,000 at a time."""
    keys = group._group.keys
    async with group as me:
        await raw(any_concert).zadd(keys.members, {f"m{number}": 10**14 for number in range(2500)})
        await raw(any_concert).hset(keys.values, mapping={f"m{number}": number for number in range(2500)})
        everyone = await group.list()
        assert len(everyone) == 2501
        assert everyone["m2499"] == 2499
        assert everyone[me.id] == {"host": "a"}


async def test_lapsed_members_are_not_listed_however_many(
    any_concert: Coordinator, group: Members, group_elsewhere: Members
) -> None:
    """Nor does a watcher see them when it begins; one script drops 100."""
    keys = group._group.keys
    me = await group.join()
    for number in range(2):
        dead = [f"m{number}.{each}" for each in range(250)]
        await raw(any_concert).zadd(keys.members, dict.fromkeys(dead, 1))
        await raw(any_concert).hset(keys.values, mapping=dict.fromkeys(dead, 1))
        if number == 0:
            assert await group.list() == {me.id: {"host": "a"}}
    watching = Watching(group_elsewhere.watch())
    await watching.saw(Joined(me.id, {"host": "a"}))
    await watching.stop()
    await me.release()


# What changes.


async def test_watcher_sees_who_is_there_and_what_changes(group: Members, group_elsewhere: Members) -> None:
    """Joined, changed and left, in order; by a member and by one that has not joined."""
    async with group as me:
        inside, outside = Watching(me.watch()), Watching(group_elsewhere.watch())
        for watching in inside, outside:
            await watching.saw(Joined(me.id, {"host": "a"}))
        async with group_elsewhere as you:
            await you.update(7)
            changes = Joined(you.id, {"host": "b"}), Changed(you.id, 7)
            for watching in inside, outside:
                await watching.saw(*changes)
        for watching in inside, outside:
            await watching.saw(Left(you.id))
            await watching.stop()


async def test_renewal_of_another_notices_a_lapsed_lease(
    any_concert: Coordinator, group: Members, group_elsewhere: Members
) -> None:
    """And tells all; the one that has lapsed learns it by its own renewal, and its body is cancelled."""
    async with group as me:
        watching = Watching(me.watch())
        with pytest.raises(LeaseLost):  # noqa: PT012
            async with group_elsewhere as you:
                await watching.saw(Joined(me.id, {"host": "a"}), Joined(you.id, {"host": "b"}))
                await lapse(any_concert, you)
                await me.renew()
                await watching.saw(Lost(you.id))
                assert me.owns("anything")
                with pytest.raises(LeaseLost):
                    await you.renew()
                await anyio.sleep_forever()
        await watching.stop()


async def test_one_member_looks_when_the_next_lease_should_end(any_concert: Coordinator, group: Members) -> None:
    """One only: it renews again at that moment, and the others as ever."""
    async with group as me, group as you, group as dead:
        keys = me._state.roster.group.keys
        seconds, microseconds = await raw(any_concert).time()
        await raw(any_concert).zadd(keys.members, {dead.id: seconds * 1000 + microseconds // 1000 + 300}, xx=True)
        dead._state._renewal.remove(dead._state)
        watching = Watching(me.watch())
        await me.renew()
        await you.renew()
        near, far = sorted(state.renew_at for state in (me._state, you._state))
        assert far - near > 2
        await eventually(lambda: Lost(dead.id) in watching.seen, timeout=3)
        await watching.stop()
        dead._state.is_released = True


async def test_stranger_sees_that_all_have_died(
    any_concert: Coordinator, group: Members, group_elsewhere: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a look of its own from time to time, because nobody renews any more."""
    monkeypatch.setattr(watch_module, "_LOOK_AFTER", 0.05)
    monkeypatch.setattr(watch_module, "_LOOK_EVERY", 0.05)
    me = await group.join()
    watching = Watching(group_elsewhere.watch())
    await watching.saw(Joined(me.id, {"host": "a"}))
    await lapse(any_concert, me)
    await watching.saw(Lost(me.id))
    await watching.stop()
    with pytest.raises(LeaseLost):
        await me.renew()


async def test_stranger_looks_when_the_next_lease_ends(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Whatever its own ttl; and not before a live member has renewed."""
    dead = await any_concert.members("brief", ttl=1.5).join()
    watching = Watching(elsewhere.members("brief").watch())
    await watching.saw(Joined(dead.id, None))
    dead._state._renewal.remove(dead._state)
    await eventually(lambda: Lost(dead.id) in watching.seen, timeout=4)
    await watching.stop()
    dead._state.is_released = True


@pytest.mark.twice("members/look")
async def test_look_answers_a_second_run_as_its_header_says(any_concert: Coordinator) -> None:
    """When the next lease ends; what has lapsed is dropped once."""
    me, you = [await any_concert.members("g", ttl=ttl).join() for ttl in (20, 30)]
    group = me._state.roster.group
    command = command_of("members/look", group.keys, changes=group.changes)
    for _ in range(2):
        [left_ms] = await any_concert._ref.session.run(command)
        assert 15_000 < left_ms <= 20_000
    await raw(any_concert).zadd(group.keys.members, {me.id: 1})
    left_ms, _ = await any_concert._ref.session.run(command)
    assert 25_000 < left_ms <= 30_000
    assert len(await any_concert._ref.session.run(command)) == 1
    await you.release()
    assert await any_concert._ref.session.run(command) == [-1]
    me._state.is_released = True


async def test_missed_change_is_a_gap_and_then_the_whole_group(group: Members, group_elsewhere: Members) -> None:
    """The next change shows that one was missed; so does a renewal."""
    async with group as me:
        watching = Watching(me.watch())
        await watching.saw(Joined(me.id, {"host": "a"}))
        roster = me._state.roster
        message, roster.on_message = roster.on_message, lambda *_: None  # type: ignore[method-assign]
        you = await group_elsewhere.join()
        await eventually(lambda: len(you._state.roster.values) == 2)
        roster.on_message = message  # type: ignore[method-assign]
        await me.renew()
        await eventually(lambda: len(watching.seen) == 3)
        assert watching.seen.pop(0) == Gap(None)
        assert {change.member for change in watching.seen if isinstance(change, Joined)} == {me.id, you.id}
        watching.seen.clear()
        await you.release()
        await watching.saw(Left(you.id))
        await watching.stop()


async def test_change_that_comes_while_the_group_is_read_does_not_hide_a_missed_one(
    group: Members, group_elsewhere: Members
) -> None:
    """It is of the version that was read, and cannot be taken without the one before."""
    async with group as me:
        watching = Watching(me.watch())
        await watching.saw(Joined(me.id, {"host": "a"}))
        roster = me._state.roster
        message, roster.on_message = roster.on_message, lambda *_: None  # type: ignore[method-assign]
        async with group_elsewhere as you:
            await you.update(1)
            await me.list()
            submit = roster.session.channel.submit
            roster.session.channel.submit = lambda *_: None  # type: ignore[method-assign]
            roster.missed()  # the connection is back, and the request is on its way
            roster.session.channel.submit = submit  # type: ignore[method-assign]
            roster.on_message = message  # type: ignore[method-assign]
            await you.update(2)
            reading = roster._reading
            assert reading is not None
            await eventually(lambda: reading.later)
            submit(reading)
            await reading
            assert roster.values == {me.id: {"host": "a"}, you.id: 2}
            await eventually(lambda: len(watching.seen) == 3)
            assert watching.seen[0] == Gap(None)
        await watching.stop()


async def test_cut_without_a_change_is_no_gap(group: Members) -> None:
    """The version of the group says that nothing was missed."""
    async with group as me:
        watching = Watching(me.watch())
        await watching.saw(Joined(me.id, {"host": "a"}))
        me._state.roster.missed()
        await me._state.roster.read()
        await me.update(1)
        await watching.saw(Changed(me.id, 1))
        await watching.stop()


async def test_what_was_read_before_listening_is_not_taken_for_the_group(
    any_concert: Coordinator, group_elsewhere: Members
) -> None:
    """Whoever asked for it has gone before the reply came, and others listen anew."""
    group = group_elsewhere._group
    roster = any_concert._rosters.of(group)
    gone = Feed(roster)
    await roster.open(gone)
    reading = asyncio.create_task(roster.known())
    await asyncio.sleep(0)  # it is asked for
    roster.leave(gone)
    await reading

    async with group_elsewhere as other, Feed(roster):
        assert set(roster.values) == {other.id}


async def test_slow_watcher_gets_a_gap(group: Members) -> None:
    """In place of more than 1,000 changes, and then the group as it is."""
    async with group as me:
        watch = me.watch()
        assert await anext(watch) == Joined(me.id, {"host": "a"})
        waiting = asyncio.create_task(anext(watch))
        await me.update(-1)
        assert await waiting == Changed(me.id, -1)
        (feed,) = me._state.feeds
        for number in range(1001):
            feed.add(Changed(me.id, number))
        assert await anext(watch) == Gap(None)
        assert await anext(watch) == Joined(me.id, -1)
        await watch.aclose()


async def test_foreign_messages_change_nothing(
    group: Members, group_elsewhere: Members, caplog: pytest.LogCaptureFixture
) -> None:
    """Anyone may publish on a channel; what claims to be a later version is looked up."""
    async with group as me:
        watching = Watching(me.watch())
        await watching.saw(Joined(me.id, {"host": "a"}))
        roster = me._state.roster
        for text in b"", b"x", b"1 2", b"1 2 joined", b"\xff", b"1 2 wrong x y":
            roster_takes(roster, text)
        roster.on_message("", b"98 99999999999999999 joined somebody 1")
        await roster.read()
        assert set(roster.values) == {me.id}
        async with group_elsewhere as you:
            await watching.saw(Joined(you.id, {"host": "b"}))
        await watching.stop()


def roster_takes(roster: Any, text: bytes) -> None:
    """As the connection hands it over, which logs what is foreign."""
    try:
        roster.on_message("", text)
    except ValueError:
        return


async def test_watchers_of_a_process_share_one_subscription(any_concert: Coordinator, group: Members) -> None:
    """One roster; it is dropped with the last of its users."""
    channel = group._group.changes
    me, you = await group.join(), await group.join()
    assert me._state.roster is you._state.roster
    watching = Watching(group.watch())
    await eventually(lambda: len(watching.seen) == 2)
    assert len(me._state.roster.feeds) == 1
    await me.release()
    await you.release()
    assert await listeners(any_concert, channel) == 1
    await watching.stop()
    await nobody_listens(any_concert, channel)


# Keys, without asking.


async def test_each_key_has_one_owner_that_all_agree_on(group: Members, group_elsewhere: Members) -> None:
    """Whichever process is asked."""
    async with group as one, group as two, group_elsewhere as three:
        await eventually(lambda: len(one._state.roster.values) == 3)
        for site in SITES:
            assert sum(member.owns(site) for member in (one, two, three)) == 1


@pytest.mark.parametrize("key", ["", "a" * 513, "\ud800", b"k", 7])
async def test_key_is_a_string_of_1_to_512_bytes(group: Members, key: Any) -> None:
    """Anything else is `InvalidName`."""
    async with group as me:
        with pytest.raises(InvalidName, match="key"):
            me.owns(key)
        with pytest.raises(InvalidName, match="key"):
            me.shares(["k", key])


@pytest.mark.parametrize("keys", [[], "keys"])
async def test_keys_are_a_list_with_at_least_one(group: Members, keys: Any) -> None:
    """A string is refused, too: its characters would be the keys."""
    async with group as me:
        with pytest.raises(ValueError, match="keys of members 'crawlers'"):
            me.shares(keys)


# Keys, one owner at a time.


async def test_single_member_gets_all_keys(group: Members) -> None:
    """At once, with a fencing token each."""
    async with group as me:
        shares = me.shares(SITES)
        keys = await anext(shares)
        assert set(keys) == set(SITES)
        assert all(token > 0 for token in keys.values())
        await shares.aclose()


async def test_key_is_handed_over_when_its_owner_asks_for_the_next_set(
    group: Members, group_elsewhere: Members
) -> None:
    """And not before; with a larger fencing token. Only the keys of the newcomer move."""
    async with group as me:
        mine = Sharing(me, SITES)
        await eventually(lambda: mine.keys == set(SITES))
        mine.may_go_on.clear()
        async with group_elsewhere as you:
            theirs = Sharing(you, SITES)
            await eventually(lambda: theirs.sets)
            moved = {site for site in SITES if you.owns(site)}
            assert theirs.keys == set()
            mine.may_go_on.set()
            await divided(SITES, mine, theirs)
            assert theirs.keys == moved
            before = mine.sets[0]
            assert all(token > before[key] for key, token in theirs.sets[-1].items())
            assert all(mine.sets[-1][key] == before[key] for key in mine.keys)
            await theirs.stop()
        await divided(SITES, mine)
        await mine.stop()


async def test_smaller_set_must_be_taken_before_keys_go(group: Members, group_elsewhere: Members) -> None:
    """The set that lacks a key tells its owner; asking for the one after it lets go."""
    async with group as me:
        mine = Sharing(me, SITES)
        await eventually(lambda: mine.sets)
        mine.may_go_on.clear()
        async with group_elsewhere as you:
            theirs = Sharing(you, SITES)
            await eventually(lambda: len(mine.sets) == 2 and theirs.sets)
            assert mine.keys == {site for site in SITES if me.owns(site)}
            assert theirs.keys == set()
            mine.may_go_on.set()
            await divided(SITES, mine, theirs)
            await theirs.stop()
        await mine.stop()


async def test_keys_of_a_lapsed_member_go_to_others(
    any_concert: Coordinator, group: Members, group_elsewhere: Members
) -> None:
    """Although it never let go; it gets `LeaseLost`."""
    async with group as me:
        mine = Sharing(me, SITES)
        you = await group_elsewhere.join()
        theirs = Sharing(you, SITES)
        await divided(SITES, mine, theirs)
        theirs.may_go_on.clear()
        await lapse(any_concert, you)
        await me.renew()
        await divided(SITES, mine)
        theirs.may_go_on.set()
        with pytest.raises(LeaseLost):
            await you.renew()
        await eventually(theirs.task.done)
        assert isinstance(theirs.task.exception(), LeaseLost)
        await mine.stop()


async def test_what_a_failover_has_undone_is_claimed_and_let_go_of_anew(
    any_concert: Coordinator, group: Members, group_elsewhere: Members
) -> None:
    """When the connection is back: so no key stays with a member that does not know of it."""
    claims = group._group.keys.claims
    async with group as me:
        mine = Sharing(me, SITES)
        await eventually(lambda: mine.keys == set(SITES))
        before = await raw(any_concert).hgetall(claims)
        async with group_elsewhere as you:
            theirs = Sharing(you, SITES)
            await divided(SITES, mine, theirs)
            await raw(any_concert).hset(claims, mapping=before)
            for member in me, you:
                member._state.roster.missed()

            async def both_are_known() -> bool:
                found = await raw(any_concert).hgetall(claims)
                return {key.decode() for key, claim in found.items() if claim.endswith(you.id.encode())} == theirs.keys

            await eventually(both_are_known)
            async with group as other:
                others = Sharing(other, SITES)
                await divided(SITES, mine, theirs, others)
                await others.stop()
            await theirs.stop()
        await mine.stop()


async def test_ended_loop_lets_go_and_a_new_one_gets_the_keys_again(group: Members) -> None:
    """A member that goes on without keys; the tokens have risen."""
    async with group as me:
        shares = me.shares(SITES)
        first = await anext(shares)
        await shares.aclose()
        again = me.shares(SITES)
        second = await anext(again)
        assert second.keys() == first.keys()
        assert all(second[key] > first[key] for key in first)
        await again.aclose()


async def test_one_loop_at_a_time_shares_the_keys_of_a_member(group: Members) -> None:
    """A second one would have the same keys."""
    async with group as me:
        shares = me.shares(SITES)
        await anext(shares)
        with pytest.raises(RuntimeError, match="another loop"):
            await anext(me.shares(SITES))
        await shares.aclose()


async def test_key_that_its_owner_does_not_list_is_handed_to_nobody(group: Members, group_elsewhere: Members) -> None:
    """Members that give different lists: never two owners, perhaps none."""
    async with group as me, group_elsewhere as you:
        await eventually(lambda: len(me._state.roster.values) == 2)
        theirs = next(site for site in SITES if you.owns(site))
        mine, others = Sharing(me, SITES), Sharing(you, [site for site in SITES if site != theirs])
        await divided([site for site in SITES if site != theirs], mine, others)
        await mine.stop()
        await others.stop()


async def test_many_keys_are_claimed_in_portions(group: Members, group_elsewhere: Members) -> None:
    """More than one script takes."""
    keys = [f"ключ {number}" for number in range(1300)]
    async with group as me:
        mine = Sharing(me, keys)
        async with group_elsewhere as you:
            theirs = Sharing(you, keys)
            await divided(keys, mine, theirs)
            assert min(len(mine.keys), len(theirs.keys)) > 300
            await theirs.stop()
        await divided(keys, mine)
        await mine.stop()


async def test_claims_of_the_dead_are_swept(any_concert: Coordinator, group: Members) -> None:
    """Those of keys that nobody asks for any more, too."""
    claims = group._group.keys.claims
    me = await group.join()
    mine = Sharing(me, SITES)
    await eventually(lambda: mine.sets)
    await lapse(any_concert, me)
    async with group as you:
        shares = you.shares(["other"])
        assert set(await anext(shares)) == {"other"}
        assert await raw(any_concert).hkeys(claims) == [b"other"]
        await shares.aclose()
    with pytest.raises(LeaseLost):
        await me.renew()
    await eventually(mine.task.done)
    assert isinstance(mine.task.exception(), LeaseLost)


async def test_nothing_is_sent_while_nothing_changes(any_concert: Coordinator, group: Members) -> None:
    """By a member that watches and shares; renewals come every third of a ttl."""
    async with group as me:
        watching, mine = Watching(me.watch()), Sharing(me, SITES)
        await eventually(lambda: mine.sets and watching.seen)
        sent: list[str] = []
        channel = any_concert._ref.session.channel
        submit = channel.submit
        channel.submit = lambda call: (sent.append(call.command.script.name), submit(call))[1]  # type: ignore[method-assign,func-returns-value]
        await anyio.sleep(0.3)
        channel.submit = submit  # type: ignore[method-assign]
        assert sent == []
        await watching.stop()
        await mine.stop()


# Ends.


async def test_readers_end_with_the_membership(group: Members) -> None:
    """With `NotHeld`, in other tasks."""
    me = await group.join()
    watching, mine = Watching(me.watch()), Sharing(me, SITES)
    await eventually(lambda: mine.sets and watching.seen)
    await me.release()
    for task in watching.task, mine.task:
        await eventually(task.done)
        assert isinstance(task.exception(), NotHeld)
    with pytest.raises(NotHeld):
        await anext(me.watch())
    with pytest.raises(NotHeld):
        await anext(me.shares(SITES))


async def test_closing_the_coordinator_ends_members_and_watchers(here: Coordinator, elsewhere: Coordinator) -> None:
    """With `NotConnected`; the members have left at once."""
    watching = Watching(here.members("crawlers").watch())
    me = await elsewhere.members("crawlers").join()
    mine = Sharing(me, SITES)
    outside = Watching(elsewhere.members("crawlers").watch())
    await eventually(lambda: mine.sets and outside.seen)
    await elsewhere.__aexit__(None, None, None)
    for task in mine.task, outside.task:
        await eventually(task.done)
        assert isinstance(task.exception(), NotConnected)
    await watching.saw(Joined(me.id, None), Left(me.id))
    await watching.stop()
    await elsewhere.__aenter__()


async def test_nothing_works_before_the_coordinator_is_open() -> None:
    """Each verb says so."""
    group = Coordinator().members("crawlers")
    for verb in group.list, group.join, group.__aenter__:
        with pytest.raises(NotConnected):
            await verb()
    with pytest.raises(NotConnected):
        await anext(group.watch())


@pytest.mark.parametrize("value", [b"x", {1: 2}, float("nan"), object(), "x" * 4095])
def test_value_is_json_of_limited_size(value: Any) -> None:
    """Anything else is `InvalidPayload`, before anything is sent."""
    with pytest.raises(InvalidPayload, match="value of a member of 'crawlers'"):
        Coordinator().members("crawlers", value=value)


async def test_updated_value_is_checked_and_changes_nothing(group: Members) -> None:
    """As that of joining."""
    async with group as me:
        with pytest.raises(InvalidPayload):
            await me.update("x" * 4095)
        await me.update("x" * 4094)
        assert await me.list() == {me.id: "x" * 4094}


@pytest.mark.parametrize("name", ["", "a" * 513, "\ud800", b"g", 7])
def test_name_is_a_string_of_1_to_512_bytes(name: Any) -> None:
    """Anything else is `InvalidName`."""
    with pytest.raises(InvalidName, match="members"):
        Coordinator().members(name)


@pytest.mark.parametrize("name", ["{a}", "a b", "ä:*", "members"])
async def test_name_may_be_any_string(any_concert: Coordinator, name: str) -> None:
    """Groups do not meet."""
    async with any_concert.members(name, value=name) as me, any_concert.members(name + "x"):
        assert await me.list() == {me.id: name}


async def test_dropped_member_listens_no_more_after_the_next_change(
    any_concert: Coordinator, group: Members, group_elsewhere: Members, caplog: pytest.LogCaptureFixture
) -> None:
    """And the connection on which changes come is kept."""
    member = await group.join()
    del member
    gc.collect()
    async with group_elsewhere:
        pass
    await nobody_listens(any_concert, group._group.changes)
    assert not [record for record in caplog.records if record.name != "inconcert.leases"]


@pytest.mark.parametrize("moment", MOMENTS)
async def test_cancelled_member_leaves_nothing(any_concert: Coordinator, moment: Moment) -> None:
    """At each await of joining, changing, watching, sharing and leaving."""
    group = any_concert.members("crawlers", value=1)
    session = any_concert._ref.session

    async def take_part() -> None:
        async with group as me:
            await me.update(2)
            async for _ in me.watch():
                break
            async for _ in me.shares(SITES):
                break
            await me.list()

    number = 1
    while await cancel_at(number, moment, take_part()):
        number += 1

        async def nobody() -> bool:
            return await group.list() == {} and not session.renewal.is_needed

        await eventually(nobody)
        await nobody_listens(any_concert, group._group.changes)
    assert number > 5


# Scripts, twice.


class Bench:
    """The scripts of one group."""

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self.group = concert.members("it")._group

    async def run(self, name: str, **named: Argument | list[str]) -> Reply:
        """Run a script of the group once."""
        more = {} if name == "count" else {"changes": self.group.changes}
        command = command_of(f"members/{name}", self.group.keys, **named, **more)
        return await self.concert._ref.session.run(command)

    async def join(self, member: str, value: str = "1") -> Reply:
        """Run the script that joins."""
        return await self.run("join", member=member, value=value, ttl_ms=10_000)

    async def share(self, member: str, turn: int, *, let_go: list[str] = [], claim: list[str] = []) -> Reply:  # noqa: B006
        """Run the script that claims."""
        keys = [*let_go, *claim]
        return await self.run("share", member=member, turn=turn, ttl_ms=10_000, let_go=len(let_go), keys=keys)

    async def list(self) -> dict[bytes, bytes]:
        """Run the script that lists."""
        _, _, flat, _ = await self.run("list", cursor=0)
        return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture
def bench(any_concert: Coordinator) -> Bench:
    """A group with nobody in it."""
    return Bench(any_concert)


@pytest.mark.twice("members/join", "members/leave", "members/list", "members/count")
async def test_second_join_and_leave_change_nothing(bench: Bench) -> None:
    """Nor does a join that comes after its leave."""
    first = await bench.join("a")
    assert await bench.join("a") == first
    assert await bench.list() == {b"a": b"1"}
    assert [await bench.run("count") for _ in range(2)] == [1, 1]
    assert await bench.run("leave", member="a") == 1
    assert await bench.run("leave", member="a") == 0
    await bench.join("a")
    assert await bench.list() == {}


@pytest.mark.twice("members/renew")
async def test_second_renewal_answers_the_same(bench: Bench) -> None:
    """Also to the one that is to look."""
    await bench.join("a")
    await bench.run("join", member="b", value="1", ttl_ms=1_000)
    first = await bench.run("renew", member="a", ttl_ms=10_000)
    second = await bench.run("renew", member="a", ttl_ms=10_000)
    assert first[:2] == second[:2]
    assert 0 < second[2] <= first[2] <= 1000
    assert await bench.run("renew", member="c", ttl_ms=10_000) == [0]


@pytest.mark.twice("members/update")
async def test_second_update_does_not_undo_a_later_one(bench: Bench) -> None:
    """The request is remembered."""
    await bench.join("a")
    first = await bench.run("update", member="a", value="2", request="r1")
    await bench.run("update", member="a", value="3", request="r2")
    assert await bench.run("update", member="a", value="2", request="r1") == first
    assert await bench.list() == {b"a": b"3"}
    assert await bench.run("update", member="b", value="2", request="r3") == b""


@pytest.mark.twice("members/share")
async def test_second_claim_answers_the_same_and_a_late_one_claims_nothing(bench: Bench) -> None:
    """What was let go of by a later turn stays so."""
    await bench.join("a")
    first = await bench.share("a", 1, claim=["k", "l"])
    assert first[0] == 1
    assert first[1] > 0
    assert await bench.share("a", 1, claim=["k", "l"]) == first
    await bench.share("a", 2, let_go=["k"])
    assert await bench.share("a", 1, claim=["k", "l"]) == [1]
    await bench.join("b")
    granted = await bench.share("b", 1, claim=["k", "l"])
    assert granted[1] > first[1]
    assert granted[2] == 0
    assert await bench.share("c", 1, claim=["k"]) == [0]
