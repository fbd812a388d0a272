"""Group chat: the textbook's recipe is flagged in every story, and ours in none."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
import pytest

from inconcert import NotAMember
from inconcert.testing import World
from tests.mutants.chats import CAP, ChatRecipe, LockedChat, OurChat
from tests.mutants.flagging import Mutant, Story, find, is_flagged, name_of
from tests.support.chat_history import (
    Event,
    Fetched,
    Joined,
    Seen,
    Sent,
    fallen_positions,
    gaps_in_ids,
    lost,
    strange,
)
from tests.support.histories import Attempt, Kind, Violation, misdeliveries, strandings

_LONG = 300  # seconds, after which whatever has a life is gone


class _History:
    """What happened in one chat, as its users saw it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    async def create(self, recipe: ChatRecipe, *users: str) -> object:
        chat = await recipe.create(users)
        self.events += [Joined(user, 0, 0) for user in users]
        self.events.append(Sent(users[0], 1))
        return chat

    async def send(self, recipe: ChatRecipe, chat: object, user: str) -> None:
        id_ = await recipe.send(chat, user)
        assert id_ is not None
        self.events.append(Sent(user, id_))

    async def look(self, recipe: ChatRecipe, chat: object, user: str) -> None:
        self.events.append(Seen(user, await recipe.position(chat, user)))

    async def read(self, recipe: ChatRecipe, user: str, *, work: float = 0) -> None:
        """What counts is what was handled, before its process died."""

        async def handle(id_: int) -> None:
            await anyio.sleep(work)
            if World.now() < recipe.process.died_at:
                self.events.append(Fetched(user, [id_], 0, id_))

        await recipe.read(user, handle)

    def read_by(self, user: str) -> list[int]:
        return [event.last_id for event in self.events if isinstance(event, Fetched) and event.user == user]

    def violations(self) -> list[Violation]:
        return [Violation(kind, what) for kind, check in _CHECKS.items() for what in check(self.events)]


_CHECKS: dict[Kind, Callable[[list[Event]], list[str]]] = {
    "never read": lost,
    "position fell": fallen_positions,
    "stranger": strange,
    "gap in ids": gaps_in_ids,
}


# Stories.


async def reads_and_dies(world: World, recipe: type[ChatRecipe]) -> list[Violation]:
    """A member is killed while they handle what they have fetched, and starts again elsewhere."""
    history, [ann, bob, again] = _History(), await _recipes(world, recipe, "ann", "bob", "again")
    chat = await history.create(ann, "ann", "bob")
    for _ in range(5):
        await history.send(ann, chat, "ann")
    bob.process.start(history.read(bob, "bob", work=1))
    await anyio.sleep(2.5)
    bob.process.kill()
    await history.read(again, "bob")
    await history.read(ann, "ann")
    return history.violations()


async def reads_in_two_places(world: World, recipe: type[ChatRecipe], *, after: int) -> list[Violation]:
    """One who reads is held up when it has sent so many commands, and another reads on for the same member."""
    history, [ann, slow, bob] = _History(), await _recipes(world, recipe, "ann", "slow", "bob")
    chat = await history.create(ann, "ann", "bob")
    slow.process.cut(after=after)
    reading = slow.process.start(history.read(slow, "bob"))
    await anyio.sleep(1)
    for _ in range(5):
        await history.send(ann, chat, "ann")
    await history.read(bob, "bob")
    await history.look(bob, chat, "bob")
    slow.process.heal()
    await reading
    await history.look(bob, chat, "bob")
    await history.read(ann, "ann")
    return history.violations()


async def joins_while_one_sends(world: World, recipe: type[ChatRecipe], *, after: int) -> list[Violation]:
    """A sender is held up when it has sent so many commands. What a member sees only then is for who has joined."""
    history, [ann, bob, cy] = _History(), await _recipes(world, recipe, "ann", "bob", "cy")
    chat = await history.create(ann, "ann", "bob")
    ann.process.cut(after=after)
    sending = ann.process.start(history.send(ann, chat, "ann"))
    await anyio.sleep(1)
    await cy.join(chat, "cy")
    await history.read(bob, "bob")
    history.events.append(Joined("cy", 1, max(history.read_by("bob"))))
    ann.process.heal()
    await sending
    for reader, user in ((ann, "ann"), (bob, "bob"), (cy, "cy")):
        await history.read(reader, user)
    return history.violations()


async def hears_no_reply_to_send(world: World, recipe: type[ChatRecipe]) -> list[Violation]:
    """The server has run the first command, and the connection breaks before the sender knows."""
    history, [ann, bob] = _History(), await _recipes(world, recipe, "ann", "bob")
    chat = await history.create(ann, "ann", "bob")
    attempt = Attempt("ann", world.now())
    ann.process.lose_reply()
    if await ann.send(chat, "ann") is not None:
        attempt.answered_at = world.now()
    await history.read(bob, "bob")
    found = strandings([attempt], within=5, until=world.now())
    return found or misdeliveries({"it": 0}, [("it", id_) for id_ in history.read_by("bob") if id_ > 1])


async def leaves_while_it_reads(world: World, recipe: type[ChatRecipe]) -> list[Violation]:
    """All leave, and one of them reads at that moment, in another process."""
    history, [ann, bob] = _History(), await _recipes(world, recipe, "ann", "bob")
    chat = await history.create(ann, "ann", "bob")

    async def read() -> None:
        with suppress(NotAMember):
            await history.read(bob, "bob")

    reading = bob.process.start(read())
    await anyio.sleep(world.random.uniform(0, 0.005))
    await ann.leave(chat, "bob")
    await ann.leave(chat, "ann")
    await reading
    return await _left_over(world, known={"chats"})


async def sends_to_nobody(world: World, recipe: type[ChatRecipe]) -> list[Violation]:
    """A stranger sends to a chat that does not exist."""
    [ann] = await _recipes(world, recipe, "ann")
    await ann.send(12345, "ann")
    return await _left_over(world, known=set())


async def sends_as_a_stranger(world: World, recipe: type[ChatRecipe]) -> list[Violation]:
    """One who is no member sends."""
    [ann] = await _recipes(world, recipe, "ann")
    chat = await ann.create(["ann", "bob"])
    was_sent = await ann.send(chat, "eve") is not None
    return [Violation("stranger", "eve was let in")] if was_sent else []


async def sends_and_dies(world: World, recipe: type[ChatRecipe], *, after: int) -> list[Violation]:
    """A sender is killed when it has sent so many commands; another wants to send."""
    [ann, bob] = await _recipes(world, recipe, "ann", "bob")
    chat = await bob.create(["ann", "bob"])
    ann.process.kill(after=after)
    ann.process.start(ann.send(chat, "ann"))
    await anyio.sleep(1)
    ann.process.kill()
    attempt = Attempt("bob", world.now())
    if await bob.send(chat, "bob") is not None:
        attempt.answered_at = world.now()
    return strandings([attempt], within=5, until=world.now())


async def never_reads(world: World, recipe: type[ChatRecipe]) -> list[Violation]:
    """One member does not, while the others do."""
    history, [ann, bob, cy] = _History(), await _recipes(world, recipe, "ann", "bob", "cy")
    chat = await history.create(ann, "ann", "bob", "cy")
    for _ in range(3 * CAP):
        await history.send(ann, chat, "ann")
    for reader, user in ((ann, "ann"), (bob, "bob"), (cy, "cy")):
        await history.read(reader, user)
    kept = len(history.read_by("cy"))
    assert kept >= CAP
    return [Violation("unbounded", f"{kept} were kept, and {CAP} were to be")] if kept > 2 * CAP else []


async def _recipes(world: World, recipe: type[ChatRecipe], *names: str) -> list[ChatRecipe]:
    return [recipe(await world.process(name)) for name in names]


async def _left_over(world: World, *, known: set[str]) -> list[Violation]:
    await anyio.sleep(_LONG)
    left = [key for key in await world.client.keys("*") if key not in known and not key.endswith(":layout")]
    return [Violation("left over", key) for key in left]


# What is found.

_MUTANTS = [
    Mutant(LockedChat, reads_and_dies, "never read"),
    Mutant(LockedChat, partial(reads_in_two_places, after=2), "position fell"),
    Mutant(LockedChat, partial(joins_while_one_sends, after=2), "never read"),
    Mutant(LockedChat, hears_no_reply_to_send, "stranded"),
    Mutant(LockedChat, leaves_while_it_reads, "left over", seeds=3),
    Mutant(LockedChat, sends_to_nobody, "left over"),
    Mutant(LockedChat, sends_as_a_stranger, "stranger"),
    Mutant(LockedChat, partial(sends_and_dies, after=1), "stranded"),
    Mutant(LockedChat, never_reads, "unbounded"),
]

_STORIES = [
    *(mutant.story for mutant in _MUTANTS),
    *(partial(reads_in_two_places, after=after) for after in (1, 3)),
    partial(joins_while_one_sends, after=1),
]


@pytest.mark.parametrize("mutant", _MUTANTS, ids=str)
def test_checkers_flag(mutant: Mutant) -> None:
    """The recipe's defect shows in the story, and is named."""
    assert is_flagged(mutant)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("story", _STORIES, ids=name_of)
def test_checkers_find_nothing_in_ours(story: Story, seed: int) -> None:
    """In the same story."""
    assert find(story, OurChat, seed=seed) == []
