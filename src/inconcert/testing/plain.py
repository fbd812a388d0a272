"""Commands as they are, sent where the coordinator sends its scripts: they run after all that it sent before."""

from inconcert._redis.protocol.commands import Argument, pack
from inconcert._redis.protocol.scripts import Command, Script
from inconcert._redis.wire.call import Call


class PlainCall(Call):
    """A command that is not a script."""

    __slots__ = ()

    def __init__(self, name: str, key: str, *args: Argument) -> None:
        super().__init__(Command(Script(name.lower(), ""), (key,), ()))
        self.packed = pack(name, key, *args)
