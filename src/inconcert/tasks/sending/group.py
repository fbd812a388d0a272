"""Groups of jobs: any number of members, and one callback that runs once all of them have ended.

The server counts the members that have ended, in the very script that ends each: see docs/explanation/groups.md.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from inconcert._claims.keys import QueueKeys, keys_of
from inconcert._core.session import Session
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command
from inconcert._redis.wire.call import Call
from inconcert._rules.durations import milliseconds
from inconcert._rules.limits import whole
from inconcert._rules.payloads import JSON
from inconcert.errors import GroupClosed, GroupNotFound, InconcertError
from inconcert.tasks.following.cancellation import HAD_ENDED, by_queue, cancel
from inconcert.tasks.following.group_results import MemberResult, read_results
from inconcert.tasks.following.job import Job, JobLink
from inconcert.tasks.records.dependents import pass_on
from inconcert.tasks.records.group_ids import callback_id, member_id
from inconcert.tasks.records.store import (
    ADD_MEMBERS,
    CLOSE_GROUP,
    INSPECT_GROUP,
    OPEN_GROUP,
)
from inconcert.tasks.sending.draft import Draft, NewJob, refuse_id
from inconcert.tasks.sending.group_calls import Calls, check_call, check_calls, check_member, each_call
from inconcert.tasks.sending.traced import Traced

_log = logging.getLogger("inconcert.tasks")

_MOST = 500  # members in one script
_MOST_BYTES = 2**20  # in one script, so that none holds up the server for long
_MOST_AT_ONCE = 10 * _MOST  # members that are under way
_MOST_BYTES_AT_ONCE = 8 * _MOST_BYTES
_MOST_CANCELLED = 250  # in one script

_CLOSED, _MISSING, _ELSEWHERE = 0, -1, 2  # why members were not added

GroupWhen = Literal["succeeded", "ended"]
"""When the callback of a group runs: once all members have succeeded, or once all have ended."""


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group.

    Attributes:
        total: How many members it has by now.
        succeeded: How many have succeeded.
        failed: How many were dead-lettered, and were neither replayed nor purged since.
        cancelled: How many were cancelled, or purged from the dead letters.
        is_closed: Whether no more members can come: it was closed, or cancelled.
    """

    total: int
    succeeded: int
    failed: int
    cancelled: int
    is_closed: bool

    @property
    def left(self) -> int:
        """The number of members that have not ended."""
        return self.total - self.succeeded - self.failed - self.cancelled

    @property
    def is_done(self) -> bool:
        """True if all members have ended, and no more can come."""
        return self.is_closed and not self.left


class _Batch(NamedTuple):
    """Members that one script adds.

    Attributes:
        first: The number of the first of them.
        jobs: The members.
    """

    first: int
    jobs: Sequence[NewJob]


class Group:
    """A group of jobs with one callback.

    Made by `Coordinator.group`; `concert.tasks.group(id)` finds it again, in any process.

    ```python
    @concert.task()
    async def resize(picture: int) -> None: ...


    @concert.task()
    async def publish() -> None: ...


    group = await concert.group(then=publish.call())
    await group.add(resize.call(picture) for picture in range(1_000))
    await group.close()  # publish runs once, after all of them
    ```

    Attributes:
        id: Which group.
    """

    __slots__ = ("_jobs", "_keys", "_link", "_ref", "id")

    def __init__(self, link: JobLink, group_id: str) -> None:
        self.id = group_id
        self._link = link
        self._ref, self._jobs = link.ref, link.keyspace
        self._keys = link.keyspace.of_id(group_id)

    def __repr__(self) -> str:
        return f"<Group {self.id}>"

    @property
    def callback(self) -> Job[JSON]:
        """The callback: its `result()` waits for the whole group, its `cancel()` keeps it from running."""
        return self._job(callback_id(self.id))

    def member(self, number: int) -> Job[JSON]:
        """The member of this number; no I/O, so it may not exist.

        Args:
            number: From 0, in the order in which they were given.

        Raises:
            ValueError: It is not a number from 0.
        """
        return self._job(member_id(self.id, whole("number", number, least=0)))

    async def add(self, calls: Calls, *, start: int | None = None) -> int:
        """Add members, which may run at once.

        Any number of processes may add at the same time.

        Args:
            calls: Made by `Task.call`, in any number; read while they are sent.
            start: The number of the first of these; those whose numbers were given before are passed over. So after a
                crash the same calls, again from the first, with `start=0` add those that are missing. None adds all.

        Returns:
            How many were added. One whose unique name another live job has is not added, and does not count.

        Raises:
            GroupClosed: It was closed or cancelled; a part may have been added before.
            GroupNotFound: There is no such group, or it ended a day ago.
            TypeError: One is not a call of a task, or they are not a list of these.
            ValueError: One has a unique name or limits, and jobs are spread over several partitions; one runs after the
                callback of this group; or `start` is too high.
            Unavailable: The server could not be asked; a part may have been added before.
            OutcomeUnknown: The server did not answer; a part may have been added.

        Cost: 2 round trips for up to 5,000 members, or 8 MiB of them, and 1 for each further 5,000; 1 script for 500.
        """
        check_calls(calls)
        session = self._ref.session
        first = 0 if start is None else whole("start", start, least=0)
        number = first if start is not None else (await self._inspect())[1]
        count, follow = 0, False
        try:
            async with aclosing(self._windows(calls)) as windows:
                async for drafts in windows:
                    follow = follow or any(draft.options.after for draft in drafts)
                    added, number = await self._add(session, drafts, number, may_skip=start is not None)
                    count += added
        finally:
            if follow:
                await self._pass_on(session)
        return count

    async def close(self) -> None:
        """Say that all members are in: the callback runs once they have ended, at once if they have.

        Raises:
            GroupNotFound: There is no such group, or it ended a day ago.
            Unavailable: The server could not be asked; it is as it was.
            OutcomeUnknown: The server did not answer; it may be closed. Closing it again does no harm.
        """
        await self._close("closed")

    async def progress(self) -> GroupProgress:
        """Count the members that have ended, by outcome.

        Raises:
            GroupNotFound: There is no such group, or it ended a day ago.

        Cost: 1 round trip, O(1).
        """
        state, _, total, succeeded, failed, cancelled = await self._inspect()
        return GroupProgress(total, succeeded, failed, cancelled, is_closed=state != b"open")

    def results(self, *, start: int = 0) -> AsyncIterator[MemberResult]:
        """The end of each member, in the order in which they were given: `async for member in group.results()`.

        For a group that was begun with `keep_results=True`. In its callback all of them have ended. Elsewhere, those
        that have not ended are there with their state.

        Args:
            start: The number of the first one.

        Raises:
            ValueError: `start` is not a number from 0.
            GroupResultsGone: It keeps no results, or its callback has ended; also in the middle, instead of a gap.
            GroupNotFound: There is no such group, or it ended a day ago.

        Cost: 1 round trip for 500 members, or 1 MiB of results; 2 if these have more than 16 KiB. Only these are in
            memory.
        """
        return read_results(self._ref, self._keys, self.id, whole("start", start, least=0))

    async def cancel(self) -> int:
        """Cancel the callback and all members that have not ended; no more can be added.

        Members that wait will not run, and those that run are asked to stop, as `Job.cancel(timeout=0)` does. Whatever
        stops it, a second call goes on.

        Returns:
            How many jobs were cancelled, or asked to stop, the callback among them.

        Raises:
            GroupNotFound: There is no such group, or it ended a day ago.
            Unavailable: The server could not be asked; a part may be cancelled.
            OutcomeUnknown: The server did not answer; a part may be cancelled.

        Cost: 3 round trips, and 2 more for each 250 members that it ever had, 1 more for each queue in which some of
            these are delayed or wait for others.
        """
        count = await self._cancel([callback_id(self.id)])  # first: a cancelled group wakes no callback
        given = await self._close("cancelled")
        for first in range(0, given, _MOST_CANCELLED):
            last = min(first + _MOST_CANCELLED, given)
            count += await self._cancel([member_id(self.id, number) for number in range(first, last)])
        return count

    # Private.

    def _job(self, job_id: str) -> Job[JSON]:
        return Job(self._link, job_id, created=False)

    async def _cancel(self, ids: Sequence[str]) -> int:
        """Cancel these jobs of the group, in their queues; returns how many had not ended."""
        session, count = self._ref.session, 0
        for queue, some in (await by_queue(session, self._keys, ids)).items():
            answers = await cancel(session, self._jobs, self._keys, self._keys.queue(queue), some)
            count += sum(answer != HAD_ENDED for answer in answers)
        return count

    async def _inspect(self) -> Reply:
        reply = await self._ref.session.run(INSPECT_GROUP(self._keys, group=self.id))
        if not reply:
            raise GroupNotFound(self.id)
        return reply

    async def _close(self, state: str) -> int:
        """Let no more members in; returns how many numbers were given."""
        session = self._ref.session
        news, given = await session.run(CLOSE_GROUP(self._keys, group=self.id, state=state))
        if news == _MISSING:
            raise GroupNotFound(self.id)
        if news:
            await self._pass_on(session)
        count: int = given
        return count

    async def _pass_on(self, session: Session) -> None:
        """Let the callback run, if it may; or let the jobs know that members run after."""
        try:
            await pass_on(session, self._jobs, [self._keys])
        except InconcertError as error:  # the next heartbeat of a worker finds it again
            _log.warning("what waits for others in group %s cannot be passed on yet: %s", self.id, error)

    async def _windows(self, calls: Calls) -> AsyncGenerator[list[Draft[Any]]]:
        """In their order, as many as may be under way at once."""
        window: list[Draft[Any]] = []
        size = 0
        callback = callback_id(self.id)
        async for draft in each_call(calls):
            check_member(draft, self._jobs, callback=callback)
            if window and (len(window) == _MOST_AT_ONCE or size + len(draft.text) > _MOST_BYTES_AT_ONCE):
                yield window
                window, size = [], 0
            window.append(draft)
            size += len(draft.text)
        if window:
            yield window

    async def _add(
        self, session: Session, drafts: Sequence[Draft[Any]], number: int, *, may_skip: bool
    ) -> tuple[int, int]:
        """Add these, the first with this number; returns how many were added, and the next number."""
        members: list[NewJob] = []
        with Traced(session.observers, drafts) as traced:
            traced.jobs = members
            while drafts:
                batches = list(self._numbered(session, drafts, number, traced.trace))
                drafts, number = await self._send(session, batches, members, may_skip=may_skip)
        for job in members if session.observers else ():
            session.observers.job_enqueued(job.draft.name, job.draft.options.queue)
        return len(members), number

    async def _send(
        self, session: Session, batches: Sequence[_Batch], members: list[NewJob], *, may_skip: bool
    ) -> tuple[list[Draft[Any]], int]:
        """Send these, and note which were added; returns those that were refused, and the number of the first."""
        replies = await session.gather([Call(self._adding(session, batch, may_skip=may_skip)) for batch in batches])
        refused: list[_Batch] = []
        given = 0
        for batch, reply in zip(batches, replies, strict=True):
            answer, given, _, *were_added = reply
            if answer == _CLOSED:
                raise GroupClosed(self.id)
            if answer == _MISSING:
                raise GroupNotFound(self.id)
            if answer == _ELSEWHERE:  # others add at the same time, or the one before came later
                refused.append(batch)
            members += [job for job, was_added in zip(batch.jobs, were_added, strict=False) if was_added]
        if may_skip and len(refused) == len(batches):
            raise ValueError(f"start is {batches[0].first}, but group {self.id} has given {given} numbers by now")
        if may_skip:  # the numbers are those that were asked for
            given = refused[0].first if refused else batches[-1].first + len(batches[-1].jobs)
        return [job.draft for batch in refused for job in batch.jobs], given

    def _numbered(self, session: Session, drafts: Sequence[Draft[Any]], number: int, trace: str) -> Iterator[_Batch]:
        """In their order, as many as one script adds."""
        jobs: list[NewJob] = []
        size = 0
        for draft in drafts:
            if jobs and (len(jobs) == _MOST or size + len(draft.text) > _MOST_BYTES):
                yield _Batch(number, jobs)
                number, jobs, size = number + len(jobs), [], 0
            jobs.append(NewJob.under(member_id(self.id, number + len(jobs)), draft, session, self._keys, trace=trace))
            size += len(draft.text)
        yield _Batch(number, jobs)

    def _adding(self, session: Session, batch: _Batch, *, may_skip: bool) -> Command:
        queues: dict[str, QueueKeys] = {}
        parts: list[Argument] = []
        for job in batch.jobs:
            options = job.draft.options
            if options.queue not in queues:
                queues[options.queue] = self._keys.queue(options.queue)
            parts += (job.id, job.text, options.delay_ms(), options.queue)
            parts += (options.unique or "", milliseconds(options.unique_for))
            parts += (" ".join(dict.fromkeys(options.after)), options.even_if or "")
        return ADD_MEMBERS(
            self._keys,
            queues=keys_of(queues.values()),
            group=self.id,
            request=session.new_address(),
            first=batch.first,
            may_skip=int(may_skip),
            jobs=parts,
        )


async def open_group(link: JobLink, then: Draft[Any] | None, when: GroupWhen, *, keep_results: bool) -> Group:
    """Begin a group; see `Coordinator.group`."""
    if when not in get_args(GroupWhen):
        raise ValueError(f"when is {when!r}; give 'succeeded' or 'ended'")
    if then is not None:
        check_call(then, "then")
        refuse_id(then, "the callback of a group")
        if then.options.unique or then.options.after or then.options.at is not None:
            raise ValueError(
                f"{then!r} has unique=, after= or at=, which the callback of a group cannot have; a delay= counts from "
                "the end of the group"
            )
    session = link.ref.session
    id_, keys = link.keyspace.draw(session.new_address(), None)
    group = Group(link, id_)
    results = "kept" if keep_results else ""
    if then is None:
        opening = OPEN_GROUP(keys, group=id_, when="-", id="", envelope="", delay_ms=0, name="", results=results)
        await session.run(opening)
        return group
    with Traced(session.observers, [then]) as traced:
        callback = NewJob.under(callback_id(id_), then, session, keys, trace=traced.trace)
        command = OPEN_GROUP(
            keys,
            group=id_,
            when=when,
            id=callback.id,
            envelope=callback.text,
            delay_ms=then.options.delay_ms(),
            name=then.options.queue,
            results=results,
        )
        await session.run(command)
        traced.jobs = [callback]
    session.observers.job_enqueued(then.name, then.options.queue)
    return group
