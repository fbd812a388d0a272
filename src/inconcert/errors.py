"""Every error that this package raises.

    InconcertError
    ├── NotConnected          not executed: the coordinator is closed
    ├── Unavailable           not executed: the server could not be asked, or refused
    ├── OutcomeUnknown        sent, and no reply came
    │   └── QuorumNotReached      by a majority of several servers
    ├── WrongState            not executed: a key holds a foreign value, or a body a lease
    ├── WrongLayout           not executed: also a ValueError
    ├── InvalidName           not executed: also a ValueError
    ├── InvalidPayload        not executed: also a ValueError
    │   └── UnreadablePayload     executed: what was received cannot be read
    ├── AcquireTimeout        not executed: also a TimeoutError
    ├── LeaseLost             executed, and no longer held
    ├── StaleToken            not executed: a newer holder has written
    ├── NotHeld               not executed: released before
    │   ├── NobodyHolds           by force: it is free, or not there
    │   └── NotClaimed            a job or item that was ended before, or is claimed by another
    ├── UnknownTask           not executed
    ├── UnknownSchedule       not executed
    ├── NotAMember            not executed
    ├── BarrierBroken         executed, and not passed: also an asyncio.BrokenBarrierError
    ├── JobFailed             executed, and failed
    ├── JobCancelled          executed: it was cancelled
    ├── JobExpired            it was not started in time, or not done by its deadline
    ├── JobNotFound           not executed
    ├── GroupClosed           not executed
    ├── GroupNotFound         not executed
    ├── GroupResultsGone      not executed
    ├── StepChanged           not executed
    ├── StepRefused           not executed, or executed and not kept
    ├── MessageRefused        not executed
    ├── ChatNotFound          not executed
    ├── QueueFull             not executed: also an asyncio.QueueFull
    ├── QueueShutDown         not executed: from Python 3.13 also an asyncio.QueueShutDown
    └── ItemNotFound          not executed

Each error is exactly one of: not executed, executed, outcome unknown.  A message names the object, the fact and the
remedy; the same facts are attributes, and survive copying and pickling.
"""

import asyncio
import sys
from typing import Any

__all__ = [
    "AcquireTimeout",
    "BarrierBroken",
    "ChatNotFound",
    "GroupClosed",
    "GroupNotFound",
    "GroupResultsGone",
    "InconcertError",
    "InvalidName",
    "InvalidPayload",
    "ItemNotFound",
    "JobCancelled",
    "JobExpired",
    "JobFailed",
    "JobNotFound",
    "LeaseLost",
    "MessageRefused",
    "NobodyHolds",
    "NotAMember",
    "NotClaimed",
    "NotConnected",
    "NotHeld",
    "OutcomeUnknown",
    "QueueFull",
    "QueueShutDown",
    "QuorumNotReached",
    "RateLimited",
    "StaleToken",
    "StepChanged",
    "StepRefused",
    "Unavailable",
    "UnknownSchedule",
    "UnknownTask",
    "UnreadablePayload",
    "WrongLayout",
    "WrongState",
]


class InconcertError(Exception):
    """The base of every error of this package."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.args), self.__dict__


def _made(error_type: type[InconcertError], args: tuple[object, ...]) -> InconcertError:
    """An error with this message; the caller sets its attributes."""
    error = error_type.__new__(error_type)
    error.args = args
    return error


class _OfCall(InconcertError):
    """The base of errors of one call: operation, kind and name are None if no call is concerned."""

    def __init__(
        self, message: str = "", *, operation: str | None = None, kind: str | None = None, name: str | None = None
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.kind = kind
        self.name = name


class NotConnected(InconcertError):
    """The coordinator is not open, or was closed while the call waited; nothing was executed.

    Attributes:
        is_misuse: Whether the same call can never succeed, because the coordinator was never opened, or is open on
            another event loop: a mistake in code. Otherwise it was closed.
    """

    is_misuse = False

    def __init__(self, message: str = "", *, is_misuse: bool = False) -> None:
        super().__init__(message)
        self.is_misuse = is_misuse


class Unavailable(_OfCall):
    """The server could not be reached or refused the command; nothing was executed.

    Attributes:
        operation: What was called, such as `acquire`; None if it was not a single call, as when connecting.
        kind: The kind of its object, such as `lock`; None as above.
        name: Which one; None as above, and where a namespace has only one, such as its `tasks`.
    """


class OutcomeUnknown(_OfCall):
    """The command was sent and no reply came: it may or may not have been executed.

    Attributes:
        operation: What was called, such as `acquire`; None if it was not a single call.
        kind: The kind of its object, such as `lock`; None as above.
        name: Which one; None as above, and where a namespace has only one, such as its `tasks`.
    """


class QuorumNotReached(OutcomeUnknown):
    """A majority of several servers could not be asked; what the others granted is released, or lapses.

    Attributes:
        kind: `quorum lock`.
        name: Which one.
        reasons: Server address -> why it failed.
        servers: How many servers there are.
    """

    def __init__(self, name: str, reasons: dict[str, str], servers: int) -> None:
        listed = ", ".join(f"{server} ({reason})" for server, reason in reasons.items())
        super().__init__(
            f"quorum lock {name!r}: {len(reasons)} of {servers} servers failed, so no majority agrees: {listed}; "
            "bring them back, or wait and try again",
            kind="quorum lock",
            name=name,
        )
        self.reasons = reasons
        self.servers = servers


class WrongState(_OfCall):
    """The call does not fit the state of its object; nothing was executed.

    A key of the namespace holds a value that this package did not put there. Or a job is to leave its worker, to sleep
    or to wait, while its body holds a lease: that would be lost meanwhile, or held with nobody to use it.

    Attributes:
        operation: What was called, such as `acquire`.
        kind: The kind of its object, such as `lock`.
        name: Which one; None where a namespace has only one, such as its `tasks`.
    """


class WrongLayout(InconcertError, ValueError):
    """A namespace is stored otherwise than here: in another format, number of partitions or of chat groups.

    Nothing was executed.

    Attributes:
        namespace: Which one.
        parameter: `partitions`, `chat_groups`, or `format`: the number of the stored format, which a release of
            inconcert raises if its processes cannot share a namespace with those of the release before.
        given: The number with which it was opened; of the format, the one of this release.
        recorded: The number that it has; 0 if there is none.
    """

    def __init__(self, namespace: str, parameter: str, given: int, recorded: int) -> None:
        if parameter == "format":
            message = (
                f"namespace {namespace!r} has the stored format {recorded}, and this release of inconcert has {given}; "
                "open it with the release that its other processes have, or give another namespace"
            )
        else:
            message = (
                f"namespace {namespace!r} has {parameter}={recorded}, and was opened with {parameter}={given}; give "
                f"{parameter}={recorded}, or another namespace"
            )
        super().__init__(message)
        self.namespace = namespace
        self.parameter = parameter
        self.given = given
        self.recorded = recorded


class InvalidName(InconcertError, ValueError):
    """A name is empty, too long, or not a string; nothing was sent."""


class InvalidPayload(InconcertError, ValueError):
    """A value cannot be sent as JSON, would arrive changed, or is too large or too deep; nothing was sent."""


class UnreadablePayload(InvalidPayload):
    """A value that was stored or sent elsewhere does not fit its type here, is damaged, or has no valid signature.

    The fault is that of the process that has sent it, or of two releases that do not agree on a type; not of the
    caller, who has only asked for it.
    """


_WHO_HAS_IT = {
    "locks": "see who has each of them with lock(name).holders()",
    "quorum lock": "see who has it with holder()",
}


class AcquireTimeout(InconcertError, TimeoutError):
    """A permit was not granted in time; the waiter has left the line.

    Its `__cause__` is None if others held it; otherwise it says that the server did not answer.

    Attributes:
        kind: What was not granted, such as `lock`.
        name: Which one.
        timeout: The longest wait, in seconds.
    """

    def __init__(self, kind: str, name: str, timeout: float, *, why: str = "") -> None:
        or_else = f"check the server: {why}" if why else _WHO_HAS_IT.get(kind, "see who has it with holders()")
        super().__init__(
            f"{kind} {name!r} was not granted within {timeout:g} s; wait longer with timeout=, or {or_else}"
        )
        self.kind = kind
        self.name = name
        self.timeout = timeout


class RateLimited(InconcertError, TimeoutError):
    """A rate limiter has no permits for a caller in time; nothing was taken.

    Attributes:
        name: Which one.
        timeout: The longest wait, in seconds.
        retry_after: After how many seconds it would have granted them.
    """

    def __init__(self, name: str, timeout: float, *, retry_after: float) -> None:
        super().__init__(
            f"rate limiter {name!r} had no permit within {timeout:g} s; wait longer with timeout=, or try again in "
            f"{retry_after:g} s"
        )
        self.name = name
        self.timeout = timeout
        self.retry_after = retry_after


class LeaseLost(InconcertError):
    """A lease lapsed, or the server forgot it, while its holder still needed it."""

    def __init__(self, kind: str, name: str, fencing_token: int | None = None) -> None:
        token = f" (fencing token {fencing_token})" if fencing_token else ""
        super().__init__(
            f"the lease on {kind} {name!r}{token} was lost, and another may hold it now; "
            "undo or repeat the work, and use a longer ttl if the event loop is blocked for long"
        )
        self.kind = kind
        self.name = name
        self.fencing_token = fencing_token


class StaleToken(InconcertError):
    """A newer holder has written to the database; what this transaction has written is to be rolled back."""

    def __init__(self, name: str, fencing_token: int) -> None:
        super().__init__(
            f"fence {name!r} refuses token {fencing_token}: a newer holder has written; roll back, and acquire it again"
        )
        self.name = name
        self.fencing_token = fencing_token


class NotHeld(InconcertError):
    """A lease was released before, by the same holder."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(self._message(kind, name))
        self.kind = kind
        self.name = name

    @staticmethod
    def _message(kind: str, name: str) -> str:
        return f"the lease on {kind} {name!r} was released before; acquire it again"


class NobodyHolds(NotHeld):
    """The lease that was to be released by force is free, or is not there.

    Attributes:
        kind: Such as `lock`.
        name: Which one.
    """

    @staticmethod
    def _message(kind: str, name: str) -> str:
        return f"nobody holds {kind} {name!r} now; `inconcert ls` shows what is held"


class NotClaimed(NotHeld):
    """A job or item was acknowledged or requeued before, or its worker was presumed dead.

    Attributes:
        kind: `job` or `item`.
        name: Its id.
    """

    @staticmethod
    def _message(kind: str, name: str) -> str:
        return (
            f"{kind} {name!r} is no longer claimed here: it was acknowledged or requeued before, or its worker was "
            "presumed dead and another gets it; leave it, and make the work safe to repeat"
        )


class UnknownTask(InconcertError):
    """No task of this name is registered with the coordinator."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no task {name!r} is registered; import the module that defines it before the worker starts, by the "
            "name that it has where jobs are enqueued"
        )
        self.name = name


class JobFailed(InconcertError):
    """A job was dead-lettered: its attempts failed, or it cannot run."""

    def __init__(self, job_id: str, reason: str, traceback: str, attempts: int) -> None:
        super().__init__(
            f"job {job_id} was dead-lettered at attempt {attempts}: {reason}; "
            "see its traceback, and replay it once the cause is fixed"
        )
        self.job_id = job_id
        self.reason = reason
        self.traceback = traceback
        self.attempts = attempts


class JobCancelled(InconcertError):
    """A job was cancelled, so it has no result."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was cancelled; enqueue it again if it is to run")
        self.job_id = job_id


class JobExpired(InconcertError):
    """A job was not started in time, or not done by its deadline, and so it was dead-lettered."""

    def __init__(self, job_id: str, expires: float, *, is_deadline: bool = False) -> None:
        verb = "done" if is_deadline else "started"
        super().__init__(f"job {job_id} was not {verb} within {expires:g} s; replay it if it is still wanted")
        self.job_id = job_id
        self.expires = expires


class JobNotFound(InconcertError):
    """No job has this id, or it has ended and its result is no longer kept."""

    def __init__(self, job_id: str, *, among_the_dead: bool = False) -> None:
        super().__init__(
            f"job {job_id} is not in the dead-letter list; tasks.dead() shows what is"
            if among_the_dead
            else f"job {job_id} does not exist, or its result is no longer kept; use a longer result_ttl"
        )
        self.job_id = job_id


class GroupClosed(InconcertError):
    """A group of jobs was closed or cancelled, so it takes no more members; nothing was added by this call."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id} is closed, and takes no more members; begin another group for these")
        self.group_id = group_id


class GroupNotFound(InconcertError):
    """No group of jobs has this id, or its members ended more than a day ago."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"group {group_id} does not exist, or has ended more than a day ago; use the id of a group")
        self.group_id = group_id


class GroupResultsGone(InconcertError):
    """A group of jobs keeps no results of its members, or no longer does: its callback has ended."""

    def __init__(self, group_id: str, *, were_kept: bool) -> None:
        super().__init__(
            f"group {group_id} has let the results of its members go, because its callback has ended, or a day has "
            "passed; read them in the callback"
            if were_kept
            else f"group {group_id} does not keep the results of its members; give keep_results=True to concert.group()"
        )
        self.group_id = group_id
        self.were_kept = were_kept


class StepChanged(InconcertError):
    """The kept result of a durable step is not that of the code as it is now; the job is dead-lettered.

    Also if its body catches this: each later step raises it again.

    Attributes:
        job_id: Which job.
        step: The name of the step.
        was: What was kept.
        now: What the code asks for.
    """

    def __init__(self, job_id: str, step: str, was: str, now: str) -> None:
        super().__init__(
            f"step {step!r} of job {job_id} {was}, and now {now}; replay the job under the code that began it, take "
            'what was kept with on_change="keep", or give the new step a new name'
        )
        self.job_id = job_id
        self.step = step
        self.was = was
        self.now = now


class StepRefused(InconcertError):
    """A durable step was not kept: its name is taken, or the job has too many; the job is dead-lettered.

    Also if its body catches this: each later step raises it again.

    Attributes:
        job_id: Which job.
        step: The name of the step.
    """

    def __init__(self, job_id: str, step: str, why: str) -> None:
        super().__init__(f"step {step!r} of job {job_id} was refused: {why}")
        self.job_id = job_id
        self.step = step


class MessageRefused(InconcertError):
    """A message was not sent to a job, which has 1,000 of them, or 16 MiB.

    Attributes:
        job_id: Which job.
        name: The name of the message.
    """

    def __init__(self, job_id: str, name: str) -> None:
        super().__init__(
            f"message {name!r} was not sent to job {job_id}, which would have more than 1,000 messages, or more than "
            "16 MiB of them; send fewer, and of large ones the address where they are kept"
        )
        self.job_id = job_id
        self.name = name


class UnknownSchedule(InconcertError):
    """There is no schedule of this id; nothing was changed.

    Attributes:
        id: The id.
    """

    def __init__(self, id_: str) -> None:
        super().__init__(f"there is no schedule {id_!r}; concert.schedules.list() has those that there are")
        self.id = id_


class NotAMember(InconcertError):
    """A user who is not in the chat tried to do what only members may do."""

    def __init__(self, chat_id: str, user: str) -> None:
        super().__init__(f"{user!r} is not a member of chat {chat_id!r}; join it first")
        self.chat_id = chat_id
        self.user = user


class ChatNotFound(InconcertError):
    """No chat has this id: it was never created, or its last member left."""

    def __init__(self, chat_id: str) -> None:
        super().__init__(f"chat {chat_id!r} does not exist; create it first, or use the id that create() returned")
        self.chat_id = chat_id


class QueueFull(InconcertError, asyncio.QueueFull):
    """A queue was full; nothing was put in."""

    def __init__(self, name: str, maxsize: int, timeout: float | None = None) -> None:
        in_time = f" and had no room within {timeout:g} s" if timeout else ""
        super().__init__(
            f"queue {name!r} is full (maxsize={maxsize}){in_time}; "
            "wait longer with timeout=, or get and acknowledge more"
        )
        self.name = name
        self.maxsize = maxsize
        self.timeout = timeout


if sys.version_info >= (3, 13):
    _AsyncioQueueShutDown = asyncio.QueueShutDown
else:

    class _AsyncioQueueShutDown(Exception):
        """In place of the class that asyncio does not have yet."""


class QueueShutDown(InconcertError, _AsyncioQueueShutDown):
    """A queue was shut down: nothing was put in, or there is nothing more to get."""

    def __init__(self, name: str) -> None:
        super().__init__(f"queue {name!r} is shut down; reopen() lets it take items again")
        self.name = name


class ItemNotFound(InconcertError):
    """No dead-lettered item of a queue has this id."""

    def __init__(self, name: str, item_id: str) -> None:
        super().__init__(f"item {item_id!r} is not in the dead-letter list of queue {name!r}; dead() shows what is")
        self.name = name
        self.item_id = item_id


class BarrierBroken(InconcertError, asyncio.BrokenBarrierError):
    """A round of a barrier ended before all parties had arrived; none of its waiters passed.

    Attributes:
        name: Which barrier.
        holder: The participant whose lease has lapsed, as `session.number`; None if the barrier was aborted or reset.
    """

    def __init__(self, name: str, holder: str | None) -> None:
        if holder is None:
            why = "it was aborted, or reset while others waited"
            remedy = "call wait() again after reset()"
        else:
            why = (
                f"the lease of participant {holder} lapsed, because its process died, was suspended or lost the server"
            )
            remedy = "call wait() again, which begins a new round"
        super().__init__(f"a round of barrier {name!r} was broken: {why}; undo or repeat the work, and {remedy}")
        self.name = name
        self.holder = holder
