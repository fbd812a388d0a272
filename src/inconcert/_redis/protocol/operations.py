"""A command as the caller sees it: the verb that was called, and its object. Errors speak in these words."""

from collections.abc import Iterable
from typing import NamedTuple, Self, TypeVar

from inconcert._redis.protocol.keys import channel_subject, subject
from inconcert.errors import OutcomeUnknown, Unavailable, WrongState

_ErrorT = TypeVar("_ErrorT", Unavailable, OutcomeUnknown, WrongState)

# By the names of scripts; all others are called as the script is.
_VERBS = {
    "barriers/arrive": "wait",
    "barriers/count": "n_waiting",
    "bells/leave": "claim",
    "bells/ring": "claim",
    "bells/sleep": "claim",
    "chat/list": "listen",
    "chat/news": "listen",
    "claims/workers": "stats",
    "elections/record": "acquire",
    "elections/vacate": "release",
    "events/inspect": "is_set",
    "index/count": "search",
    "index/words": "suggest",
    "latches/inspect": "remaining",
    "mailboxes/withdraw": "fetch",
    "outbox/look": "relay",
    "periodic/begin": "run",
    "permits/inspect": "holders",
    "queues/inspect": "counts",
    "queues/leave": "put",
    "queues/put_plain": "put",
    "quorum/inspect": "holder",
    "quorum/take": "acquire",
    "rate_limits/refund": "acquire",
    "rate_limits/take": "acquire",
    "sessions/layout": "open",
    "signals/join": "wait",
    "signals/leave": "wait",
    "tasks/add_members": "add",
    "tasks/close_group": "close",
    "tasks/enqueue_after": "enqueue",
    "tasks/enqueue_own": "enqueue",
    "tasks/enqueue_plain": "enqueue",
    "tasks/count_claimed": "stats",
    "tasks/debounce": "enqueue",
    "tasks/replace": "enqueue",
    "tasks/group_results": "results",
    "tasks/inspect_group": "progress",
    "tasks/open_group": "group",
    "tasks/places_in_use": "stats",
    "tasks/states": "cancel",
    "tasks/watch": "result",
    "tasks/unwatch": "result",
}
_VERBS_OF_QUEUES = {
    "claims/held": "explain",
    "claims/purge": "purge_dead",
    "claims/workers": "explain",
}


class Operation(NamedTuple):
    """The verb and its subject."""

    verb: str  # the method, such as `acquire`
    kind: str  # the kind of its object, such as `lock`
    name: str | None  # which one; None of what a namespace has once

    @classmethod
    def of(cls, script: str, keys: Iterable[str]) -> Self:
        """The one that runs this script, such as `permits/acquire`, on these keys."""
        kind, name = subject(keys)
        verbs = _VERBS | _VERBS_OF_QUEUES if kind == "queue" else _VERBS
        name_of_file = script.partition("+")[0]
        return cls(verbs.get(name_of_file, name_of_file.rpartition("/")[2]), kind, name)

    @classmethod
    def subscribing(cls, channel: str) -> Self:
        """The one that subscribes to this channel, or to the channels of this pattern."""
        return cls("subscribe", *channel_subject(channel))

    def __str__(self) -> str:
        return f"{self.kind}: {self.verb}" if self.name is None else f"{self.kind} {self.name!r}: {self.verb}"

    def error(self, error_type: type[_ErrorT], what: str) -> _ErrorT:
        """The error that says this of it: `what` goes on after the verb."""
        return error_type(f"{self} {what}", operation=self.verb, kind=self.kind, name=self.name)

    def unanswered(self, when: str, *, is_sent: bool) -> Unavailable | OutcomeUnknown:
        """The error that says that no answer came: `when` is a time, such as `within 10 s`."""
        if is_sent:
            what = f"was not answered {when}; it may have been executed, so check before repeating it"
            return self.error(OutcomeUnknown, what)
        what = f"was not sent {when}; nothing was executed, so try again when the server is back"
        return self.error(Unavailable, what)
