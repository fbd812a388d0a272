"""That a simulated world is quick, the same for the same seed, and does to a process what it says."""

import time

import anyio
import pytest

from tests.support.simulation import World, run


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

    run(story, seed=seed)
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
    run(story)
    assert time.perf_counter() - began_at < 10


def test_clock_of_a_process_is_its_own() -> None:
    """The server has another, also when that process asks it."""

    async def story(world: World) -> None:
        process = await world.process("fast", clock_ahead=60)

        async def look() -> None:
            assert 59 < time.time() - (await process.client.time())[0] < 61

        await process.start(look())

    run(story)


def test_clock_of_the_server_is_stepped_alone() -> None:
    """It goes on from there, and the clocks of processes do not see it."""

    async def story(world: World) -> None:
        process = await world.process("right")

        async def look() -> None:
            assert 3599 < (await process.client.time())[0] - time.time() < 3601

        world.step_clock(86400)
        world.step_clock(-82800)
        await process.start(look())

    run(story)


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

    run(story)


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

    run(story)


def test_command_without_reply_is_sent_again_by_the_driver() -> None:
    """Which is what recipes are built on; with ours it changes nothing."""

    async def story(world: World) -> None:
        process = await world.process("ann")
        process.lose_reply()
        assert await process.client.incr("counter") == 2

    run(story)


def test_what_a_process_raises_is_raised() -> None:
    """When the world ends."""

    async def story(world: World) -> None:
        async def fail() -> None:
            raise ValueError

        (await world.process("ann")).start(fail())
        await anyio.sleep(1)

    with pytest.raises(ValueError):  # noqa: PT011 - it has no message
        run(story)


def test_story_without_an_end_is_told() -> None:
    """Instead of waiting for ever."""

    async def story(world: World) -> None:
        await world.process("ann")
        await anyio.sleep_forever()

    with pytest.raises(AssertionError, match="the story has not ended"):
        run(story)
