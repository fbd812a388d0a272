"""The permissions of a dashboard, and who grants them."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeAlias

from starlette.requests import Request


class Permission(StrEnum):
    """A permission, which a request needs.

    Attributes:
        VIEW: See any page: names, arguments, results, tracebacks.
        PAUSE: Pause claims from a queue.
        RESUME: Resume them.
        DRAIN: Cancel all jobs of a queue that do not run yet.
        CANCEL: Cancel a job.
        CANCEL_ALL: Cancel many jobs at once, by state, queue and task.
        RESCHEDULE: Change when a job is due.
        PROMOTE_ALL: Let many delayed jobs run now, by queue and task.
        REPLAY: Enqueue a dead-lettered job again.
        EDIT: Enqueue a dead-lettered job again with other arguments.
        REPLAY_ALL: Enqueue many dead-lettered jobs again, by queue, task and reason.
        PAUSE_SCHEDULE: Let a schedule enqueue nothing.
        RESUME_SCHEDULE: Let it go on.
        TRIGGER_SCHEDULE: Enqueue the job of a schedule now, once.
        PURGE: Drop a dead-lettered job.
        PURGE_ALL: Drop all dead-lettered jobs, or those of a queue, a task or a reason.
        RELEASE: Take a lock, semaphore, rwlock or leadership from a holder, whose body is stopped.
        PURGE_ITEMS: Drop the items of a queue that nobody has claimed.
        PURGE_MAILBOX: Drop all messages of a mailbox.
    """

    VIEW = "view"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    CANCEL = "cancel"
    CANCEL_ALL = "cancel-all"
    RESCHEDULE = "reschedule"
    PROMOTE_ALL = "promote-all"
    REPLAY = "replay"
    EDIT = "edit"
    REPLAY_ALL = "replay-all"
    PAUSE_SCHEDULE = "pause-schedule"
    RESUME_SCHEDULE = "resume-schedule"
    TRIGGER_SCHEDULE = "trigger-schedule"
    PURGE = "purge"
    PURGE_ALL = "purge-all"
    RELEASE = "release"
    PURGE_ITEMS = "purge-items"
    PURGE_MAILBOX = "purge-mailbox"


Allow: TypeAlias = Callable[[Request, Permission], "str | Awaitable[str | None] | None"]
"""Decides of each request whether it may: the name of the user for the log, or None to refuse."""


def read_only(request: Request, permission: Permission) -> str | None:
    """Lets every request see everything, and change nothing: for an application that others cannot reach."""
    del request
    return "anyone" if permission is Permission.VIEW else None
