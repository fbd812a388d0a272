"""The calls of tasks that users give to a group, in any number."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from typing import Any, TypeAlias

from inconcert.tasks.records.store import JobKeyspace
from inconcert.tasks.sending.draft import Draft, check_partition, refuse_id

Calls: TypeAlias = Iterable[Draft[Any]] | AsyncIterable[Draft[Any]]
"""Jobs that are not enqueued yet, made by `Task.call`."""


async def each_call(calls: Calls) -> AsyncGenerator[Draft[Any]]:
    """These, one by one."""
    if isinstance(calls, AsyncIterable):
        async for draft in calls:
            yield draft
    else:
        for draft in calls:
            yield draft


def check_calls(calls: object) -> None:
    """Raise TypeError if these are not several."""
    if not isinstance(calls, Iterable | AsyncIterable):
        raise TypeError(f"the members of a group are {calls!r}; give a list of task.call(...)")


def check_member(draft: Draft[Any], jobs: JobKeyspace, *, callback: str | None = None) -> None:
    """Raise TypeError or ValueError if this cannot be a member of a group, whose callback has this id."""
    check_call(draft, "a member of a group")
    refuse_id(draft, "a member of a group")
    if callback in draft.options.after:
        raise ValueError(
            f"{draft!r} runs after the callback of its own group, and neither would ever run; enqueue it outside of "
            "the group"
        )
    if draft.options.debounce is not None or draft.options.newest is not None:
        which = "newest=" if draft.options.debounce is None else "debounce="
        raise ValueError(f"{draft!r} has {which}, which a member of a group cannot have: it might replace another job")
    check_partition(draft, jobs.partitions[0])
    if draft.options.unique and len(jobs.partitions) > 1:
        raise ValueError(
            f"{draft!r} has unique=, which a member of a group cannot have where jobs are spread over "
            f"{len(jobs.partitions)} partitions: the name and the group would lie in different ones"
        )


def check_call(draft: object, what: str) -> None:
    """Raise TypeError if this is not a call of a task."""
    if not isinstance(draft, Draft):
        raise TypeError(f"{what} is {draft!r}; give task.call(...)")
