"""The ids of a group's jobs, which say of which group they are: a member needs no note of it beside its id.

The group `HEAD.PARTITION` has the members `HEAD~NUMBER.PARTITION` and the callback `HEAD~then.PARTITION`.
"""

import re

from inconcert._rules.names import check_job_id
from inconcert.errors import InvalidName

_OF_A_GROUP = re.compile(r"(.+)~(?:[0-9a-f]\d+|then)(\.\d+)")


def member_id(group: str, number: int) -> str:
    """The id of the member of this number; they sort by their text as by their numbers, as other ids do."""
    head, _, partition = group.rpartition(".")
    text = str(number)
    return f"{head}~{len(text):x}{text}.{partition}"


def callback_id(group: str) -> str:
    """The id of the callback."""
    head, _, partition = group.rpartition(".")
    return f"{head}~then.{partition}"


def is_callback(job_id: str) -> bool:
    """True if this is the id of a callback."""
    return "~then." in job_id and group_of(job_id) is not None


def group_of(job_id: str) -> str | None:
    """The group of which this job is a member, or the callback; None if it is of none."""
    found = _OF_A_GROUP.fullmatch(job_id) if "~" in job_id else None
    return None if found is None else found[1] + found[2]


def check_group_id(group: str) -> str:
    """Return `group` if a group can have this id.

    Raises:
        InvalidName: It cannot, or it is the id of a job of a group.
    """
    check_job_id(group)
    if "~" in group or not group.rpartition(".")[2].isdigit():
        raise InvalidName(f"invalid group id {group!r}; pass the string from `Group.id`")
    return group
