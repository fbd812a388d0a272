"""Queues, workers and delayed work: each textbook recipe is flagged, and ours, in the same story, are not."""

from functools import partial

import anyio
import pytest

from inconcert.testing import Process, World
from tests.mutants.flagging import Mutant, Story, find, is_flagged, name_of
from tests.mutants.work import (
    BlpopWorker,
    CarelessPoller,
    Handler,
    LockingPoller,
    OurMailbox,
    OurQueue,
    OurTasks,
    WorkRecipe,
)
from tests.support.histories import Violation, misdeliveries

_LONG = 40  # seconds: a dead worker's heartbeat lapses four times in it


class _History:
    """What was put, and what was handled by those who lived to the end of it."""

    def __init__(self, recipe: type[WorkRecipe]) -> None:
        self._recipe = recipe
        self._due: dict[int, float] = {}
        self._handled: list[tuple[int, float]] = []

    async def put(self, process: Process, *items: int, delay: float = 0) -> None:
        recipe = self._recipe(process)
        for item in items:
            self._due[item] = World.now() + delay
            await recipe.put(item, delay=delay)

    def move(self, process: Process) -> None:
        process.start(self._recipe(process).move(self._handler(process)))

    def work(self, process: Process, *, seconds: float = 0) -> None:
        process.start(self._recipe(process).work(self._handler(process, seconds)))

    def _handler(self, process: Process, seconds: float = 0) -> Handler:
        async def handle(item: int) -> None:
            begun_at = World.now()
            await anyio.sleep(seconds)
            if World.now() < process.died_at:
                self._handled.append((item, begun_at))

        return handle

    def violations(self, *, after_a_death: bool = False) -> list[Violation]:
        """All; but after a death work may be done again."""
        found = misdeliveries(self._due, self._handled)
        return [violation for violation in found if not (after_a_death and violation.kind == "handled twice")]


# Stories.


async def works_and_dies(world: World, recipe: type[WorkRecipe]) -> list[Violation]:
    """A worker is killed in the middle of its work; another is there."""
    history, [ann, bob] = _History(recipe), [await world.process(name) for name in ("ann", "bob")]
    await history.put(bob, 1, 2, 3)
    history.work(ann, seconds=1)
    await anyio.sleep(1.5)
    ann.kill()
    history.work(bob)
    await anyio.sleep(_LONG)
    return history.violations(after_a_death=True)


async def moves_and_dies(world: World, recipe: type[WorkRecipe], *, after: int) -> list[Violation]:
    """One who sees to what is due is killed when it has sent so many commands more; others are there."""
    history, [ann, bob, cy] = _History(recipe), [await world.process(name) for name in ("ann", "bob", "cy")]
    history.move(ann)
    await history.put(cy, 1, delay=1)
    await history.put(cy, 2, 3, delay=5)
    await anyio.sleep(1)
    ann.kill(after=after)
    await anyio.sleep(1)
    history.move(bob)
    history.work(cy)
    await anyio.sleep(_LONG)
    return history.violations(after_a_death=True)


async def several_move(world: World, recipe: type[WorkRecipe]) -> list[Violation]:
    """Several see to what is due, and nobody dies."""
    history, [ann, bob, cy] = _History(recipe), [await world.process(name) for name in ("ann", "bob", "cy")]
    history.work(ann)
    history.move(bob)
    history.move(cy)
    await history.put(ann, *range(20), delay=1)
    await anyio.sleep(5)
    return history.violations()


async def has_a_fast_clock(world: World, recipe: type[WorkRecipe]) -> list[Violation]:
    """One who sees to what is due, by a minute."""
    history, ann = _History(recipe), await world.process("ann")
    bob = await world.process("bob", clock_ahead=60)
    history.work(ann)
    history.move(bob)
    await history.put(ann, 1, 2, 3, delay=30)
    await anyio.sleep(_LONG)
    return history.violations()


async def hears_no_reply_to_put(world: World, recipe: type[WorkRecipe]) -> list[Violation]:
    """The item is there, and the connection breaks before the one who put it knows."""
    history, [ann, bob] = _History(recipe), [await world.process(name) for name in ("ann", "bob")]
    history.work(bob)
    ann.lose_reply()
    await history.put(ann, 1)
    await anyio.sleep(_LONG)
    return history.violations()


# What is found.

_MUTANTS = [
    Mutant(BlpopWorker, works_and_dies, "never handled"),
    Mutant(BlpopWorker, hears_no_reply_to_put, "handled twice"),
    Mutant(CarelessPoller, several_move, "handled twice"),
    Mutant(CarelessPoller, has_a_fast_clock, "too early"),
    Mutant(BlpopWorker, partial(moves_and_dies, after=2), "never handled"),
    Mutant(LockingPoller, partial(moves_and_dies, after=2), "never handled"),  # as long as it is locked
    Mutant(LockingPoller, partial(moves_and_dies, after=3), "never handled"),
]

_AT_ONCE: list[Story] = [works_and_dies, hears_no_reply_to_put]
_DELAYED: list[Story] = [
    several_move,
    has_a_fast_clock,
    *(partial(moves_and_dies, after=after) for after in range(1, 5)),
]
_OURS = [
    pytest.param(recipe, story, id=f"{recipe.__name__}-{name_of(story)}")
    for recipe in (OurTasks, OurQueue, OurMailbox)
    for story in (_AT_ONCE if recipe is OurMailbox else [*_AT_ONCE, *_DELAYED])
]


@pytest.mark.parametrize("mutant", _MUTANTS, ids=str)
def test_checkers_flag(mutant: Mutant) -> None:
    """The recipe's defect shows in the story, and is named."""
    assert is_flagged(mutant)


@pytest.mark.parametrize(("recipe", "story"), _OURS)
def test_checkers_find_nothing_in_ours(recipe: type[WorkRecipe], story: Story) -> None:
    """In the same story."""
    assert find(story, recipe) == []
