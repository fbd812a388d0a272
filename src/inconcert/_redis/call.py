"""One command on its way to the server."""

import asyncio

from inconcert._redis.commands import Argument
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Script
from inconcert.errors import InconcertError

__all__ = ["Call"]


class Call(asyncio.Future[Reply]):
    """One command on its way, and the future of its reply.

    The caller that awaits it may be cancelled at any time.  A subclass may override `answered` to hear of the reply
    even then.

    Attributes:
        keys: The script's keys.
        must_run: Whether the command is sent even if its caller was cancelled: true of those that tidy up.
        overtakes: Whether it may pass calls that are held back, whatever they are about: true of those that keep alive.
        sends: How often it was written; more than once means that an earlier reply was lost.
    """

    __slots__ = ("_args", "_script", "give_up_at", "keys", "must_run", "packed", "sends", "sent_at")

    overtakes = False

    def __init__(
        self, script: Script, keys: tuple[str, ...], args: tuple[Argument, ...], *, must_run: bool = False
    ) -> None:
        super().__init__()
        self.packed = script.pack(keys, args)
        self.must_run = must_run
        self.sends = 0
        self.sent_at = self.give_up_at = 0.0
        self._script = script
        self.keys = keys
        self._args = args

    @property
    def is_wanted(self) -> bool:
        """Whether there is still a reason to send it."""
        return self.must_run or not self.done()

    @property
    def key(self) -> str:
        """The first of its keys."""
        return self.keys[0]

    @property
    def tags(self) -> set[str]:
        """What it is about: the hash tags of its keys."""
        return {key.partition("}")[0] for key in self.keys}

    @property
    def title(self) -> str:
        """What is called, for messages."""
        return f"{self._script.name} on {self.keys[0]!r}"

    def answered(self, reply: Reply) -> None:
        """Take the reply."""
        if not self.done():
            self.set_result(reply)

    def failed(self, error: InconcertError) -> None:
        """Take the error that stands for a reply."""
        if not self.done():
            self.set_exception(error)
            self.exception()  # asyncio is not to warn of it when nobody awaits this call

    def carry_source(self) -> None:
        """From now on carry the script's source along: the server does not know it."""
        self.packed = self._script.pack_with_source(self.keys, self._args)
