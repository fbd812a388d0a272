"""Tasks whose jobs are members of groups, and what the server keeps of groups."""

from typing import Any

from inconcert import Coordinator, Task, current_job
from inconcert.tasks.running.sweeper import Sweeper
from tests.support.raw import raw

__all__ = ["Tasks", "nothing_is_kept"]


class Tasks:
    """The tasks of these tests, and what has run."""

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self.failing = True
        self.sent: list[int] = []
        self.reports = 0

        @concert.task(name="send", queue="q", max_attempts=1)
        async def send(number: int) -> int:
            self.sent.append(number)
            return number

        @concert.task(name="fail", queue="q", max_attempts=1)
        async def fail() -> None:
            if self.failing:
                raise ValueError("no luck")

        @concert.task(name="report", queue="r")
        async def report() -> list[int]:
            self.reports += 1
            group = current_job().group
            assert group is not None
            seen = await group.progress()
            return [seen.succeeded, seen.failed, seen.cancelled]

        self.send: Task[[int], Any] = send
        self.fail: Task[[], Any] = fail
        self.report: Task[[], Any] = report

    async def drain(self) -> None:
        """Run all that can run now."""
        await self.concert.run_worker("q", "r", burst=True)


async def nothing_is_kept(concert: Coordinator) -> None:
    """Of a group that has ended nothing stays, once it is swept."""
    await concert.tasks.purge_all()
    await concert.run_worker("q", "r", "other", burst=True)
    client: Any = raw(concert)
    for keys in concert._jobs.partitions:
        for group in await client.zrange(keys.settled, 0, -1):
            await client.zadd(keys.settled, {group: 1})
    await Sweeper(concert._ref.session, concert._jobs).sweep()
    for keys in concert._jobs.partitions:
        left = [keys.groups, keys.settled, keys.bodies, keys.states, keys.waiting, keys.pending, keys.unfollowed]
        left += [keys.parents, keys.children, keys.outcomes, keys.news]
        for key in left:
            assert not await client.exists(key), key
