"""Messages on their way into a mailbox: the messages, and the caps that the sender sets."""

from collections.abc import Iterable
from typing import Any, Generic

from inconcert._core.origin import Origin
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command, load
from inconcert._rules.codec import Codec, T, codec_of
from inconcert._rules.durations import Seconds
from inconcert._rules.limits import age_ms, whole
from inconcert.errors import InvalidPayload
from inconcert.mailboxes.fetch import MailboxKeys

_SEND = load("mailboxes/send").bind(MailboxKeys)

_MOST_MESSAGES = 1_000_000  # in a mailbox
_MOST_AT_ONCE = 1_000  # in one script: some milliseconds of the server's time
_MOST_BYTES = 8 * 2**20  # likewise


class Post(Generic[T]):
    """The sender to one mailbox.

    Raises:
        ValueError: `max_age` is not above 0, or `max_messages` is out of range.
        TypeError: JSON cannot represent `message_type`.
    """

    def __init__(
        self,
        keys: Keyspace,
        name: str,
        message_type: Any = None,  # noqa: ANN401 - also unions and the like
        *,
        max_messages: int,
        max_age: Seconds | None,
    ) -> None:
        self.keys = keys.of(MailboxKeys, "mailbox", name)  # the keys of the mailbox
        # how its messages are written and read
        self.codec: Codec[T] = codec_of(f"message to mailbox {name!r}", message_type)
        self.max_age_ms = age_ms(max_age)  # as given, in milliseconds; 0 for no limit
        self.name = name
        self.max_messages = whole("max_messages", max_messages, most=_MOST_MESSAGES)

    def encode(self, messages: Iterable[T]) -> list[bytes]:
        """The bodies of messages that are sent together.

        Raises:
            ValueError: There are more than 1,000.
            InvalidPayload: A message is not JSON, not of the mailbox's type, or they are too large.
        """
        what = f"messages to mailbox {self.name!r}"
        bodies = [self.codec.encode(message) for message in messages]
        size = sum(map(len, bodies))
        if len(bodies) > _MOST_AT_ONCE:
            raise ValueError(f"{len(bodies)} {what}; send at most {_MOST_AT_ONCE} at once")
        if size > _MOST_BYTES:
            raise InvalidPayload(f"{what} have {size} bytes together; send at most {_MOST_BYTES} at once")
        return bodies

    def send(self, origin: Origin, bodies: list[bytes], request: str = "") -> Command:
        """The command that adds these, once for 120 s under the same request; one is drawn if none is given.

        It is to be run again as long as it answers 1: the first thousand in line were dead.
        """
        return _SEND(
            self.keys,
            request=request or origin.new_address(),
            max_messages=self.max_messages,
            max_age_ms=self.max_age_ms,
            inboxes=origin.inboxes(self.keys.messages),
            bodies=bodies,
        )
