"""That a simulated world is quick, the same for the same seed, and does to a process what it says."""

import time

import anyio
import pytest

from inconcert.testing import World, simulate


def order_of(seed: int) -> list[str]:
    """In which order three processes come to a counter."""
    order: list[str] = []

    async def story(world: World) -> None:
        async def count(name: str) -> None:
            process = await world.process(name)
            for _ in range(10):
                await process.client.incr("counter")
                order.append(name)

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(count, name)

    simulate(story, seeds=[seed])
    return order


def test_a_seed_is_an_order() -> None:
    """The same again and again, and another for another."""
    assert order_of(1) == order_of(1) != order_of(2)


def test_an_hour_passes_at_once() -> None:
    """On all clocks but the real one."""

    async def story(world: World) -> None:
        began_at, began_server = world.now(), await world.client.time()
        await anyio.sleep(3600)
        assert 3600 <= world.now() - began_at < 3601
        assert 3600 <= (await world.client.time())[0] - began_server[0] <= 3601

    began_at = time.perf_counter()
    simulate(story, seeds=1)
    assert time.perf_counter() - began_at < 10


def test_clock_of_a_process_is_its_own() -> None:
    """The server has another, also when that process asks it."""

    async def story(world: World) -> None:
        process = await world.process("fast", clock_ahead=60)

        async def look() -> None:
            assert 59 < time.time() - (await process.client.time())[0] < 61

        await process.start(look())

    simulate(story, seeds=1)


def test_clock_of_the_server_is_stepped_alone() -> None:
    """It goes on from there, and the clocks of processes do not see it."""

    async def story(world: World) -> None:
        process = await world.process("right")

        async def look() -> None:
            assert 3599 < (await process.client.time())[0] - time.time() < 3601

        world.step_clock(86400)
        world.step_clock(-82800)
        await process.start(look())

    simulate(story, seeds=1)


def test_process_dies_after_so_many_commands() -> None:
    """They are run, and nobody hears the last reply."""

    async def story(world: World) -> None:
        process = await world.process("ann")

        async def count() -> None:
            while True:
                await process.client.incr("counter")

        process.kill(after=3)
        process.start(count())
        await anyio.sleep(60)
        assert await world.client.get("counter") == "3"
        assert process.died_at < 1

    simulate(story, seeds=1)


def test_cut_link_lets_everything_through_when_it_is_healed() -> None:
    """What was sent meanwhile, too."""

    async def story(world: World) -> None:
        process = await world.process("ann")
        process.cut()
        task = process.start(process.client.incr("counter"))
        await anyio.sleep(60)
        assert await world.client.get("counter") is None
        process.heal()
        assert await task == 1

    simulate(story, seeds=1)


def test_command_without_reply_is_sent_again_by_the_driver() -> None:
    """Which is what recipes are built on; with ours it changes nothing."""

    async def story(world: World) -> None:
        process = await world.process("ann")
        process.lose_reply()
        assert await process.client.incr("counter") == 2

    simulate(story, seeds=1)


def test_what_a_process_raises_is_raised() -> None:
    """When the world ends."""

    async def story(world: World) -> None:
        async def fail() -> None:
            raise ValueError

        (await world.process("ann")).start(fail())
        await anyio.sleep(1)

    with pytest.raises(ValueError):  # noqa: PT011 - it has no message
        simulate(story, seeds=1)


def test_seed_that_fails_is_named_and_can_be_replayed() -> None:
    """Those before it have passed, and those after it are not tried; alone it fails again, and another passes."""
    tried: list[int] = []
    order = order_of(3)

    async def story(world: World) -> None:
        tried.append(1)
        found: list[str] = []

        async def count(name: str) -> None:
            process = await world.process(name)
            for _ in range(10):
                await process.client.incr("counter")
                found.append(name)

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(count, name)
        if found == order:
            raise KeyError(world)

    with pytest.raises(KeyError) as failed:
        simulate(story, seeds=10)
    assert failed.value.__notes__ == ["the story failed with seed 3; simulate(..., seeds=[3]) replays it"]
    assert len(tried) == 4
    with pytest.raises(KeyError):
        simulate(story, seeds=[3])
    simulate(story, seeds=[1, 2])


async def test_event_loop_in_this_thread_is_refused() -> None:
    """It is told where to call it from."""

    async def story(world: World) -> None: ...

    with pytest.raises(RuntimeError, match="call it from a function that is not async"):
        simulate(story)


def test_story_without_an_end_is_told() -> None:
    """Instead of waiting for ever."""

    async def story(world: World) -> None:
        await world.process("ann")
        await anyio.sleep_forever()

    with pytest.raises(AssertionError, match="the story has not ended"):
        simulate(story, seeds=1)


def test_process_shows_what_a_story_may_do() -> None:
    """And nothing of its engine."""

    async def story(world: World) -> None:
        shown = [name for name in dir(await world.process("ann")) if not name.startswith("_")]
        assert " ".join(shown) == "client concert cut died_at heal kill lose_reply name start world"

    simulate(story, seeds=1)
