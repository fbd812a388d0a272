"""Stories of those who take permits: each is told of a recipe, and answers what the checkers find in it."""

import anyio

from inconcert.testing import Process, World
from tests.mutants.permits import TTL, Held, Recipe
from tests.support.histories import (
    Attempt,
    Verdict,
    Violation,
    Write,
    fallen_tokens,
    false_verdicts,
    stale_writes,
    strandings,
    too_many_holders,
    wrong_refusals,
)

__all__ = [
    "dies",
    "has_a_fast_clock",
    "hears_no_reply_to_acquire",
    "hears_no_reply_to_release",
    "is_cancelled_while_it_acquires",
    "is_cancelled_while_it_releases",
    "is_crowded",
    "loses_all_data",
    "meets_a_server_without_scripts",
    "releases_late",
    "renews_late",
    "works_for_long",
    "writes_late",
]

_AND_A_LITTLE = 1  # second, beyond what something may take


class _Holder:
    """A process that gets permits, and notes in the history what it was told."""

    def __init__(self, history: list[Attempt], process: Process, recipe: Recipe) -> None:
        self._history = history
        self.process = process
        self.recipe = recipe
        self.attempt = Attempt(process.name, asked_at=0)
        self._held: Held | None = None

    @property
    def held(self) -> Held:
        assert self._held is not None
        return self._held

    async def acquire(self, timeout: float = 0) -> None:
        self.attempt = attempt = Attempt(self.process.name, World.now())
        self._history.append(attempt)
        held = await (self.recipe.acquire(timeout) if timeout else self.recipe.try_acquire())
        if held is not None:
            attempt.is_granted = True
            attempt.token = held.token
        attempt.answered_at = World.now()
        self._held = held

    async def work(self, seconds: float) -> None:
        """Until it is done, or told to stop."""
        with anyio.move_on_after(seconds):
            await self.held.lost()
        self.attempt.stopped_at = min(World.now(), self.process.died_at)

    async def release(self) -> bool | None:
        self.attempt.stopped_at = min(self.attempt.stopped_at, World.now())
        was_held = await self.recipe.release(self.held)
        self.attempt.gone_at = World.now()
        return was_held

    async def finish(self, seconds: float) -> None:
        """Work, and give it back."""
        await self.work(seconds)
        await self.release()

    async def use(self, seconds: float, *, timeout: float = 0) -> None:
        await self.acquire(timeout)
        if self._held is not None:
            await self.finish(seconds)


async def _holders(
    world: World, recipe: type[Recipe], *names: str, limit: int = 1
) -> tuple[list[Attempt], list[_Holder]]:
    history: list[Attempt] = []
    processes = [await world.process(name) for name in names]
    return history, [_Holder(history, process, recipe(process, limit)) for process in processes]


async def dies(world: World, recipe: type[Recipe], *, after: int) -> list[Violation]:
    """One asks, and its process is killed when the server has run some of its commands; another waits."""
    history, [ann, bob] = await _holders(world, recipe, "ann", "bob")
    ann.process.start(ann.use(4 * TTL))
    ann.process.kill(after=after)
    await anyio.sleep(1)
    ann.process.kill()
    ann.attempt.stopped_at = ann.process.died_at
    await bob.acquire(3 * TTL)
    return strandings(history, within=TTL + _AND_A_LITTLE, until=World.now())


async def works_for_long(world: World, recipe: type[Recipe]) -> list[Violation]:
    """The work takes longer than a lease."""
    history, [ann, bob] = await _holders(world, recipe, "ann", "bob")
    work = ann.process.start(ann.use(1.5 * TTL))
    await anyio.sleep(1)
    await bob.use(0.5 * TTL, timeout=3 * TTL)
    await work
    assert bob.attempt.is_granted
    return too_many_holders(history)


async def writes_late(world: World, recipe: type[Recipe]) -> list[Violation]:
    """A holder that is cut off, and cannot be stopped, writes after the next one has written."""
    _, [ann, bob] = await _holders(world, recipe, "ann", "bob")
    writes: list[Write] = []

    def write(holder: _Holder) -> None:
        token = holder.attempt.token
        highest = max((write.attempt.token or 0 for write in writes if write.is_accepted), default=0)
        writes.append(Write(holder.attempt, World.now(), is_accepted=token is None or token >= highest))

    await ann.acquire()
    write(ann)
    ann.process.cut()
    await bob.acquire(2 * TTL)
    assert bob.attempt.is_granted
    write(bob)
    write(ann)
    return stale_writes(writes)


async def releases_late(world: World, recipe: type[Recipe]) -> list[Violation]:
    """A release is under way for so long that the next one holds when it arrives; a third one waits."""
    history, [ann, bob, cy] = await _holders(world, recipe, "ann", "bob", "cy")
    await ann.acquire()
    ann.process.cut()
    release = ann.process.start(ann.release())
    await bob.acquire(2 * TTL)
    work = [bob.process.start(bob.finish(TTL / 2)), cy.process.start(cy.use(1, timeout=TTL))]
    await anyio.sleep(1)
    ann.process.heal()
    for task in [release, *work]:
        await task
    assert bob.attempt.is_granted
    return too_many_holders(history)


async def has_a_fast_clock(world: World, recipe: type[Recipe], *, limit: int) -> list[Violation]:
    """All permits are held, and then one asks whose clock is 11 s ahead; when it has let go, the first ask again."""
    history, holders = await _holders(world, recipe, *map(str, range(limit)), limit=limit)
    fast = await world.process("fast", clock_ahead=TTL + 1)
    ahead = _Holder(history, fast, recipe(fast, limit))
    for holder in holders:
        await holder.acquire()
    await ahead.process.start(ahead.use(0.1))
    for holder in holders:
        await holder.finish(0)
    await ahead.process.start(ahead.use(0.1))
    for holder in holders:
        await holder.use(0, timeout=TTL)
    return [*too_many_holders(history, limit=limit), *fallen_tokens(history)]


async def hears_no_reply_to_acquire(world: World, recipe: type[Recipe]) -> list[Violation]:
    """The lock is taken, and the connection breaks before its taker knows; it goes on trying."""
    history, [ann] = await _holders(world, recipe, "ann")
    ann.process.lose_reply()
    await ann.use(1, timeout=2 * TTL)
    return strandings(history, within=TTL / 2, until=World.now())


async def hears_no_reply_to_release(world: World, recipe: type[Recipe]) -> list[Violation]:
    """The lock is released well in time, and the connection breaks before its holder knows."""
    _, [ann] = await _holders(world, recipe, "ann")
    asked_at = World.now()
    await ann.acquire()
    ann.process.lose_reply()
    stopped_at = World.now()
    was_held = await ann.release()
    assert was_held is not None
    return false_verdicts([Verdict("ann", stopped_at, World.now(), asked_at + TTL, was_held)])


async def is_cancelled_while_it_acquires(world: World, recipe: type[Recipe]) -> list[Violation]:
    """The permit is taken, and its taker is cancelled before they know; another waits."""
    history, [ann, bob] = await _holders(world, recipe, "ann", "bob")
    ann.process.cut(after=1)
    with anyio.move_on_after(0.5):
        await ann.acquire()
    ann.attempt.stopped_at = World.now()
    ann.process.heal()
    await bob.acquire(3 * TTL)
    return strandings(history, within=TTL / 2, until=World.now())


async def is_cancelled_while_it_releases(world: World, recipe: type[Recipe]) -> list[Violation]:
    """The holder is cancelled when the release is on its way; another waits."""
    history, [ann, bob] = await _holders(world, recipe, "ann", "bob")
    await ann.acquire()
    ann.process.cut()
    with anyio.move_on_after(0.5):
        await ann.release()
    ann.process.heal()
    await bob.acquire(3 * TTL)
    return strandings(history, within=TTL + _AND_A_LITTLE, until=World.now())


async def meets_a_server_without_scripts(world: World, recipe: type[Recipe], *, after: int) -> list[Violation]:
    """A holder releases, and the server forgets all scripts, and again after some commands; another waits."""
    history, [ann, bob] = await _holders(world, recipe, "ann", "bob")
    await ann.acquire()
    await world.client.script_flush()
    ann.process.cut(after=after)
    release = ann.process.start(ann.release())
    await anyio.sleep(1)
    await world.client.script_flush()
    ann.process.heal()
    await release
    await bob.acquire(3 * TTL)
    return strandings(history, within=TTL / 2, until=World.now())


async def loses_all_data(world: World, recipe: type[Recipe]) -> list[Violation]:
    """The server, between two who hold one after the other."""
    history, holders = await _holders(world, recipe, "ann", "bob", "cy")
    for holder in holders:
        await holder.use(1)
        assert holder.attempt.is_granted
        if holder is holders[1]:
            await world.client.flushall()
    return fallen_tokens(history)


async def renews_late(world: World, recipe: type[Recipe]) -> list[Violation]:
    """A holder is cut off for longer than its lease, and then renews it."""
    _, [ann] = await _holders(world, recipe, "ann")
    await ann.acquire()
    lapses_at = World.now() + TTL
    ann.process.cut()
    await anyio.sleep(TTL + 0.3)
    ann.process.heal()
    asked_at = World.now()
    is_held = await ann.recipe.renew(ann.held)
    return false_verdicts([Verdict("ann", asked_at, World.now(), lapses_at, is_held)])


async def is_crowded(world: World, recipe: type[Recipe], *, limit: int, behind: float = 0) -> list[Violation]:
    """Twelve in four processes try again and again; the clock of one process may be behind."""
    history: list[Attempt] = []
    processes = [await world.process(str(number), clock_ahead=0 if number else -behind) for number in range(4)]
    holders = [_Holder(history, process, recipe(process, limit)) for process in processes * 3]
    for task in [holder.process.start(_tries(world, holder)) for holder in holders]:
        await task
    assert any(attempt.is_granted for attempt in history)
    return [*too_many_holders(history, limit=limit), *wrong_refusals(history, limit=limit)]


async def _tries(world: World, holder: _Holder) -> None:
    for _ in range(6):
        await holder.use(world.random.uniform(0, 0.01))
        await anyio.sleep(world.random.uniform(0, 0.003))
