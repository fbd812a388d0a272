"""The exceptions by which the engine leaves a body: to come back later, or because the job is undone."""

from typing import cast

__all__ = ["Asleep", "Undoing", "asleep", "is_undoing"]


class Asleep(BaseException):
    """Raised in the body of a job that leaves its place in the worker, to come back later.

    Attributes:
        delay: In how many seconds.
        awaited: Names of the messages that bring it back sooner.
    """

    def __init__(self, delay: float, awaited: frozenset[str] = frozenset()) -> None:
        for_what = f" waits for {', '.join(map(repr, sorted(awaited)))}" if awaited else " sleeps"
        super().__init__(f"the job{for_what}, and comes back in {delay:g} s; let this exception pass")
        self.delay = delay
        self.awaited = awaited


class Undoing(BaseException):
    """Raised in the body of a job that is undone, where it would go on with what it has not begun."""

    def __init__(self) -> None:
        super().__init__("the job is undone, and does not go on here; let this exception pass")


def is_undoing(error: BaseException | None) -> bool:
    """Whether it says that the job is undone, by itself or in a group of a task group, where others may have failed."""
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return any(map(is_undoing, inner)) and all(isinstance(each, Exception) or is_undoing(each) for each in inner)
    return isinstance(error, Undoing)


def asleep(error: BaseException | None) -> Asleep | None:
    """How a body sleeps that raised this; None if it raised something else."""
    if isinstance(error, Asleep):
        return error
    if isinstance(error, BaseExceptionGroup):  # of a task group
        inner = [asleep(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions]
        found = [each for each in inner if each is not None]
        if len(found) == len(inner):
            return Asleep(min(each.delay for each in found), frozenset[str]().union(*(each.awaited for each in found)))
    return None
