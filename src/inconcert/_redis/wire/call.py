"""One command on its way to the server."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

from inconcert._redis.protocol.commands import Argument, pack
from inconcert._redis.protocol.operations import Operation
from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import Command, Script
from inconcert._redis.wire.background import note_failure
from inconcert.errors import InconcertError, Unavailable

Callers: TypeAlias = Iterable[asyncio.Future[Any]]


class Call(asyncio.Future[Reply]):
    """One command on its way, and the future of its reply.

    The caller that awaits it may be cancelled at any time.  A subclass may override `answered` to process the reply
    even then.
    """

    __slots__ = ("command", "give_up_at", "is_redirected", "must_run", "packed", "sends", "sent_at")

    overtakes = False  # whether it may pass calls that are held back, whatever their keys: true for renewals
    # whether it is written now if nothing is under way: true if its caller waits for it and sends nothing beside
    goes_at_once = False

    def __init__(self, command: Command, *, must_run: bool = False) -> None:
        asyncio.Future.__init__(self)  # by name: super() takes longer than many a call, and this is made for each
        self.command = command
        self.packed = command.pack()
        self.must_run = must_run  # whether the command is sent even if its caller was cancelled: true for cleanup
        # whether it goes to a node that is still importing its slot, which must be told so before
        self.is_redirected = False
        self.sends = 0  # how often it was written; more than once means that an earlier reply was lost
        self.sent_at = self.give_up_at = 0.0

    @property
    def is_wanted(self) -> bool:
        """True if its caller still waits; what must run is sent in any case."""
        return not self.done()

    @property
    def was_refused(self) -> bool:
        """True if it failed because the server did not run it."""
        return self.done() and not self.cancelled() and isinstance(self.exception(), Unavailable)

    @property
    def key(self) -> str:
        """The first of its keys."""
        return self.command.keys[0]

    @property
    def tags(self) -> set[str]:
        """The hash tags of its keys."""
        return {key.partition("}")[0] for key in self.command.keys}

    @property
    def operation(self) -> Operation:
        """The call, in the caller's words, for errors."""
        return self.command.operation

    def answered(self, reply: Reply) -> None:
        """Take the reply."""
        if not self.done():
            self.set_result(reply)

    def failed(self, error: InconcertError) -> None:
        """Take the error that replaces a reply; called by `fail`."""
        for caller in self.callers():
            if not caller.done():
                caller.set_exception(error)
                caller.exception()  # so that asyncio does not warn when nobody awaits it

    def callers(self) -> Callers:
        """The futures that get the error that replaces a reply."""
        return (self,)

    def fail(self, error: InconcertError) -> None:
        """End with an error, which reaches the callers even if `failed` of a subclass raises another."""
        try:
            self.failed(error)
        except Exception as unexpected:  # noqa: BLE001 - any: the callers would wait forever
            what = self.operation
            note_failure(f"ending a call ({what.kind}: {what.verb})", unexpected)
            Call.failed(self, error)

    def give_up(self, when: str) -> None:
        """Fail, because no answer has come."""
        self.fail(self.operation.unanswered(when, is_sent=self.sends > 0))

    def with_one_key(self) -> "Call | None":
        """A command on one key to send in its place while its slot moves key by key; None to wait."""
        return None

    def carry_source(self) -> None:
        """From now on send the script's source too: the server may not have it."""
        if self.command.script.source:  # otherwise it is a plain command
            self.packed = self.command.pack_with_source()


class AwaitedCall(Call):
    """A call whose caller waits for it, and sends nothing with it."""

    __slots__ = ()

    goes_at_once = True


class PlainCall(Call):
    """A command that is not a script, sent where a script on this key is."""

    __slots__ = ()

    def __init__(self, name: str, *args: Argument, key: str = "server") -> None:
        super().__init__(Command(Script(name.lower(), ""), (key,), ()))
        self.packed = pack(name, *args)
