"""The results of a group's members, read in pages by its callback, or by another reader of the group.

The server keeps them with the group, from the end of each member to the end of the callback.
Source: docs/explanation/groups.md
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import TypeVar, overload

from inconcert._core.session import SessionRef
from inconcert._rules.payloads import JSON
from inconcert.errors import GroupNotFound, GroupResultsGone, JobCancelled, JobFailed, JobNotFound
from inconcert.tasks.records.group_ids import member_id
from inconcert.tasks.records.status import JobStatus, has_ended, not_in_time, read_outcome
from inconcert.tasks.records.store import GROUP_RESULTS, JobKeys

T = TypeVar("T")

_PAGE = 500  # members in one script
_MISSING, _NOT_KEPT = -1, -2


@dataclass(frozen=True, slots=True)
class MemberResult:
    """The end of one member of a group: like an `asyncio.Future` that is done.

    Attributes:
        number: Of the member, from 0, in the order in which they were given.
        id: The id of its job.
        status: Its state. `UNKNOWN` if it was not added, because another live job had its unique name.
    """

    number: int
    id: str
    status: JobStatus
    _about: bytes = field(repr=False)

    @overload
    def result(self) -> JSON: ...

    @overload
    def result(self, as_type: type[T]) -> T: ...

    def result(self, as_type: type[T] | None = None) -> JSON | T:
        """The return value of its function.

        Args:
            as_type: The type to read it as, such as the dataclass that the function returned; None for the JSON value.

        Raises:
            JobFailed: It was dead-lettered; has the reason and the traceback.
            JobCancelled: It was cancelled, or purged from the dead letters.
            JobNotFound: It was not added.
            TimeoutError: It has not ended.
            UnreadablePayload: The result is not of this type.
            TypeError: JSON cannot represent this type.
        """
        if not has_ended(self.status):
            raise not_in_time(self.id, 0, self.status)
        return read_outcome(self.id, self.status, self._about, as_type)

    def exception(self) -> JobFailed | JobCancelled | JobNotFound | None:
        """The error that `result` raises for a member without a result; None for one that has succeeded.

        Raises:
            TimeoutError: It has not ended.
        """
        if self.status is not JobStatus.SUCCEEDED:
            try:
                self.result()
            except (JobFailed, JobCancelled, JobNotFound) as error:
                return error
        return None


async def read_results(ref: SessionRef, keys: JobKeys, group_id: str, number: int) -> AsyncGenerator[MemberResult]:
    """Those of the members from this number on; see `Group.results`."""
    given = number + 1
    while number < given:
        command = GROUP_RESULTS(keys, group=group_id, first=number, most=_PAGE)
        given, *parts = await ref.session.run(command)
        if given == _MISSING:
            raise GroupNotFound(group_id)
        if given < 0:
            raise GroupResultsGone(group_id, were_kept=given != _NOT_KEPT)
        for status, about in zip(parts[::2], parts[1::2], strict=True):
            yield MemberResult(number, member_id(group_id, number), JobStatus(status.decode()), about)
            number += 1
