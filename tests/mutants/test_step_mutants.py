"""Durable steps: a script that keeps what a late twin sends is flagged, and ours, in the same story, is not."""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from inconcert._redis.protocol.scripts import Script, assemble
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.running import step_store
from inconcert.testing import World
from tests.mutants.flagging import find
from tests.support.durable_history import DurableHistory
from tests.support.histories import Violation
from tests.support.short_lease import with_lease

_LUA = Path(__file__).parents[2] / "src/inconcert/_lua"
_LEASE = 1.0  # seconds of a heartbeat: less than a call may take

_FENCE = "if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then\n  return 0\nend\n"


def _unfenced() -> Any:
    """The script that keeps a step, without the look at who holds the job."""
    text = assemble("tasks/commit_step", lambda part: (_LUA / f"{part}.lua").read_text("utf-8"))
    assert text.count(_FENCE) == 1
    return Script("tasks/commit_step", text.replace(_FENCE, "")).bind(JobKeys)


async def late_twin(world: World, recipe: None) -> list[Violation]:
    """What one sends is under way while another takes over, and that one dies in turn."""
    del recipe
    history, [ann, bob, cy] = DurableHistory(), [await world.process(name) for name in ("ann", "bob", "cy")]

    async def work(number: int) -> None:
        process = (ann, bob, cy)[number]
        concert = with_lease(process.concert, _LEASE)

        @concert.task(name="two")
        async def two() -> None:  # pyright: ignore[reportUnusedFunction]
            async def one() -> None:
                if number == 0:
                    process.cut()  # its result is held up
                elif number == 1:
                    ann.heal()
                    await anyio.sleep(0.1)

            body = history.body(process, "two")
            await body.step("one", one)
            if number == 1:
                process.kill()
            await body.step("two", anyio.lowlevel.checkpoint)

        await concert.run_worker("default")

    job = await cy.start(cy.concert.enqueue("two"))
    for number, process in enumerate((ann, bob, cy)):
        process.start(work(number))
        await anyio.sleep(2.5)
    await cy.start(job.result(timeout=60))
    return history.violations()


@pytest.mark.parametrize("fenced", [True, False])
def test_late_twin_is_flagged_unless_its_commit_is_fenced(fenced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it keeps, later attempts would get, although the next one has gone on with what it had."""
    if not fenced:
        monkeypatch.setattr(step_store, "COMMIT_STEP", _unfenced())
    assert [violation.kind for violation in find(late_twin, None)] == ([] if fenced else ["another result"])
