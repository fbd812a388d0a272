"""The exceptions by which the engine leaves a body: to come back later, or because the job is undone."""

from collections.abc import Iterator
from typing import cast


class Asleep(BaseException):
    """Raised in the body of a job that leaves its place in the worker, to come back later."""

    def __init__(self, delay: float, awaited: frozenset[str] = frozenset()) -> None:
        for_what = f" waits for {', '.join(map(repr, sorted(awaited)))}" if awaited else " sleeps"
        super().__init__(f"the job{for_what}, and comes back in {delay:g} s; let this exception pass")
        self.delay = delay  # in how many seconds
        self.awaited = awaited  # names of the messages that bring it back sooner


class Undoing(BaseException):
    """Raised in the body of a job that is undone, where it would begin something new."""

    def __init__(self) -> None:
        super().__init__("the job is undone, and does not go on here; let this exception pass")


def is_undoing(error: BaseException | None) -> bool:
    """True if it says that the job is undone, by itself or in a group of a task group, where others may have failed."""
    others = [each for each in _leaves(error) if not isinstance(each, Exception)]
    return bool(others) and all(isinstance(each, Undoing) for each in others)


def asleep(error: BaseException | None) -> Asleep | None:
    """The sleep of a body that raised this; None if it raised something else."""
    if isinstance(error, Asleep):
        return error
    ends = _leaves(error)
    found = [each for each in ends if isinstance(each, Asleep)]
    if not found or len(found) < len(ends):
        return None
    return Asleep(min(each.delay for each in found), frozenset[str]().union(*(each.awaited for each in found)))


def and_within(error: BaseException | None) -> Iterator[BaseException]:
    """This error and, if it is a group, all that are in it; a group may be nested deeper than calls can be."""
    left = [] if error is None else [error]
    while left:
        each = left.pop()
        yield each
        if isinstance(each, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", each).exceptions


def _leaves(error: BaseException | None) -> list[BaseException]:
    """This error; of a group, such as one of a task group, all in it that are not groups."""
    return [each for each in and_within(error) if not isinstance(each, BaseExceptionGroup)]
