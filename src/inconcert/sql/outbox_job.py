"""A job that an outbox hands over: until the server knows it, its row says that it will."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from inconcert._rules.durations import Seconds
from inconcert.tasks.following.job import Job, JobLink
from inconcert.tasks.records.status import JobStatus, Snapshot
from inconcert.tasks.sending.draft import Draft

R_co = TypeVar("R_co", covariant=True)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds between looks while its row is not handed over

HasRow = Callable[[str], Awaitable[bool]]
Withdraw = Callable[[str], Awaitable[bool]]


class OutboxJob(Job[R_co], Generic[R_co], frozen=True, eq=False, kw_only=True):
    """A job with a row in the database.

    While its row is not handed over, or handed over again because the server has lost its data, it is `queued`.
    """

    _has_row: HasRow
    _withdraw: Withdraw

    async def cancel(self, *, timeout: Seconds | None = None) -> bool:
        """As `Job.cancel`; its row goes first, so that it is not handed over any more.

        Raises:
            NotConnected: See `Job.cancel`, also for the other errors; the row has gone then.
        """
        await self._withdraw(self.id)
        return await super().cancel(timeout=timeout)

    # Private.

    async def _inspect(self, address: str = "") -> Snapshot:
        seen = await super()._inspect(address)
        if seen.status is not JobStatus.UNKNOWN:
            return seen
        if await self._has_row(self.id):
            return Snapshot(JobStatus.QUEUED, b"", b"")
        return await super()._inspect(address)  # it may have been handed over, and have ended, between the two

    async def _watch(self, *, is_cancelling: bool = False) -> Snapshot:
        pause = _FIRST_PAUSE
        while (await super()._inspect()).status is JobStatus.UNKNOWN and await self._has_row(self.id):
            await anyio.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
        return await super()._watch(is_cancelling=is_cancelling)


def outbox_job(
    link: JobLink, job_id: str, draft: Draft[R_co] | None, *, has_row: HasRow, withdraw: Withdraw
) -> OutboxJob[R_co]:
    """The job of this id; without a draft if it was written by another process, or earlier."""
    if draft is None:
        return OutboxJob(link, job_id, created=False, _has_row=has_row, _withdraw=withdraw)
    return OutboxJob(link, job_id, draft.pattern.kind, _has_row=has_row, _withdraw=withdraw)
