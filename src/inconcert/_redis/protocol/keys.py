"""The names of all keys and channels. No other module builds one, or reads one back.

A key is `{namespace:kind:name}:part`.  The braces are a hash tag: all keys of one object lie in one slot of Redis
Cluster.  A name may contain any characters, braces too: the part after the last brace has none, so two names never
share a key, and the tag ends at the name's first closing brace at the latest, the same for all parts.  Objects that
must share a slot with others have keys `{namespace:group}:kind:name:part`.

A channel is `namespace:database:kind:name`.  The server's channels do not belong to a database, but a namespace must
be separate in each, so the name includes the number.  The object's name comes last, so that a user's glob for names
also works for channels.  On a cluster, which has one database, a hash tag stands in place of its number: a sharded
channel must lie in the slot of the key that it is about, because the script that publishes runs there.

So `{namespace:*` matches all keys and `namespace:*` all channels: two ACL rules.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from inconcert._redis.protocol.slots import slot_of, tag_of
from inconcert._rules.names import check_name, check_namespace

KeysT = TypeVar("KeysT", bound=NamedTuple)

_SPECIAL_IN_A_GLOB = re.compile(r"[*?\[\\]")

# What users store has no TTL: it is there until it is consumed, trimmed or deleted.
_PERMANENT = re.compile(
    r":tasks:\d+}:|:queue:.*}:(bodies|queue|delayed|states|workers|claimed:.*|facts|dead|reasons|shut)$"
    r"|:chats:\d}:(heads|user:.*:chats|chat:.*:(members|state|messages))$"
    r"|:mailbox:.*}:(messages|unread|claims|claimed|dropped)$"
    r"|:index:.*}:(documents|words|postings|ranks|scores|sorted)$"
    r"|:namespace}:layout$",
    re.DOTALL,
)

# What keys and channels are about.  Those of a group come first: what follows the group's tag may have braces, too.
_KEYS = [
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\{[^:{}]+:tasks:\d+\}:(?P<kind>queue|bell|result|stream|items):(?P<name>.*)",
        r"\{[^:{}]+:chats:\d+\}:(?P<kind>chat|user):(?P<name>.*):\w+",
        r"\{[^:{}]+:(?P<kind>tasks|chats|namespace)(?::\d+)?\}:.*",
        r"\{[^:{}]+:(?P<kind>\w+):(?P<name>.*)\}:[^{}]*",
    )
]
_CHANNEL = re.compile(r"[^:]+:(?:\d+|\{\w+\}):(?P<kind>\w+):(?P<name>.*)", re.DOTALL)
_OF_THE_PROCESS = {"session", "inbox"}
_KINDS = {"periodic": "periodic function", "quorum": "quorum lock", "rate_limiter": "rate limiter"}
_KINDS_OF_TASKS = {"queue": "task queue", "bell": "task queue", "result": "job", "stream": "job", "items": "job"}


class Keyspace:
    """The keys and channels of one namespace in one database.

    Args:
        namespace: Prefix of all keys: 1 to 64 characters without space, colon or braces.
        database: The number of the server's database.
        is_sharded: Whether the server is a cluster, whose channels are sharded.
    """

    __slots__ = ("_inboxes", "database", "is_sharded", "namespace")

    def __init__(self, namespace: str, database: int = 0, *, is_sharded: bool = False) -> None:
        self.namespace = check_namespace(namespace)
        self.database = database
        self.is_sharded = is_sharded
        self._inboxes = "" if is_sharded else self.channels_beside("", "inbox")  # asked for with every command

    def of(self, bundle: type[KeysT], kind: str, name: str) -> KeysT:
        """The keys of the object `name`, all in one slot: a named tuple with a field for each part.

        Raises:
            InvalidName: `name` is empty, too long or not a valid string.
        """
        keys: KeysT = _of(bundle, self.namespace, kind, name if type(name) is str else check_name(kind, name))
        return keys

    def parts(self, kind: str, name: str, *parts: str) -> tuple[str, ...]:
        """The keys of these parts of the object `name`.

        Raises:
            InvalidName: `name` is empty, too long or not a valid string.
        """
        tag = _tag(self.namespace, kind, name)
        return tuple([tag + part for part in parts])

    def shared(self, kind: str, *parts: str) -> tuple[str, ...]:
        """The keys of these parts of something that exists once per namespace, such as its tasks."""
        tag = f"{{{self.namespace}:{kind}}}:"
        return tuple([tag + part for part in parts])

    def grouped(self, bundle: type[KeysT], group: str, kind: str, name: str) -> KeysT:
        """The keys of the object `name`, in one slot with its whole group and the group's shared keys.

        Raises:
            InvalidName: `name` is empty, too long or not a valid string.
        """
        return _filled(bundle, f"{{{self.namespace}:{group}}}:{kind}:{check_name(kind, name)}:")

    @property
    def globs(self) -> tuple[str, str]:
        """Globs for all keys and for all channels of the namespace, in any database."""
        namespace = _SPECIAL_IN_A_GLOB.sub(_escape, self.namespace)
        return f"{{{namespace}:*", f"{namespace}:*"

    @staticmethod
    def beside(bundle: type[KeysT], key: str) -> KeysT:
        """The keys of the object that `key` belongs to."""
        return _filled(bundle, key[: key.rindex(":") + 1])

    def inboxes(self, key: str) -> str:
        """Prefix of the inbox channel of every process, to which scripts on this key publish; its session follows."""
        return self._inboxes or self.channels_beside(key, "inbox")

    def all_inboxes(self, key: str) -> str:
        """Glob for the inbox channels of all processes to which scripts on this key publish."""
        return _SPECIAL_IN_A_GLOB.sub(_escape, self.inboxes(key)) + "*"

    def channel(self, key: str, kind: str, name: str) -> str:
        """The channel on which listeners to the object `name`, which has this key, are notified.

        Raises:
            InvalidName: `name` is empty, too long or not a valid string.
        """
        return self.channels_beside(key, kind) + check_name(kind, name)

    def channels_beside(self, key: str, kind: str) -> str:
        """Prefix of the channels of objects of a kind to which scripts on this key publish; the name follows."""
        where = f"{{{tag_of(slot_of(key))}}}" if self.is_sharded else self.database
        return f"{self.namespace}:{where}:{kind}:"

    def plain_channel(self, kind: str, name: str) -> str:
        """The channel of the object `name` that patterns match: on one server, its only one."""
        return f"{self.namespace}:{self.database}:{kind}:{name}"

    def channels(self, kind: str, pattern: str) -> str:
        """The glob for the plain channels of all objects whose names match `pattern`.

        Raises:
            InvalidName: `pattern` is empty, too long or not a valid string.
        """
        prefix = _SPECIAL_IN_A_GLOB.sub(_escape, self.plain_channel(kind, ""))
        return prefix + check_name(f"pattern of {kind}", pattern)

    def name_in(self, kind: str, channel: str) -> str:
        """The name of the object whose plain channel this is."""
        return channel.removeprefix(self.plain_channel(kind, ""))


class Subject(NamedTuple):
    """The subject of a key or a channel, in the words of users."""

    kind: str  # such as `lock`
    name: str | None  # which one; None of what a namespace has once


_SERVER = Subject("server", None)  # of what is not about a key


def is_permanent(key: str) -> bool:
    """True if a key may have no TTL."""
    return _PERMANENT.search(key) is not None


def subject(keys: Iterable[str]) -> Subject:
    """The subject of a command with these keys: that of its first key, unless others say it more exactly."""
    subjects = list(dict.fromkeys(map(_subject, keys))) or [_SERVER]
    for kind in subjects[0].kind, "task queue", "job":
        names = [name for its_kind, name in subjects if its_kind == kind and name is not None]
        if len(names) == 1:
            return Subject(kind, names[0])
        if names and kind == subjects[0].kind:
            return Subject(f"{kind}s", ", ".join(names))
    return subjects[0]


def channel_subject(channel: str) -> Subject:
    """The subject of a channel, or of a glob for channels."""
    found = _CHANNEL.fullmatch(channel)
    return _found(found, _KINDS) if found else _SERVER


def _subject(key: str) -> Subject:
    for pattern in _KEYS:
        if found := pattern.fullmatch(key):
            return _found(found, _KINDS_OF_TASKS if pattern is _KEYS[0] else _KINDS)
    return _SERVER


def _found(found: re.Match[str], kinds: dict[str, str]) -> Subject:
    kind = found["kind"]
    if kind in _OF_THE_PROCESS:
        return Subject("coordinator", None)
    return Subject(kinds.get(kind, kind), found.groupdict().get("name"))


def _escape(found: re.Match[str]) -> str:
    return "\\" + found[0]


def _tag(namespace: str, kind: str, name: str) -> str:
    return f"{{{namespace}:{kind}:{check_name(kind, name)}}}:"


@lru_cache(maxsize=256)  # a program makes many objects of one name
def _of(bundle: type[Any], namespace: str, kind: str, name: str) -> Any:  # noqa: ANN401 - of this type
    return _filled(bundle, _tag(namespace, kind, name))


def _filled(bundle: type[KeysT], start: str) -> KeysT:
    return bundle._make(map(start.__add__, bundle._fields))
