"""fakeredis, but for its parser, which copies what is left to read for each line of a command.

A coordinator sends all scripts when it is opened, so half the time of an opening on fakeredis went into such copies.
"""

from collections.abc import Generator
from typing import Any, cast

from fakeredis.aioredis import AsyncFakeSocket

__all__ = ["install"]


def install() -> None:
    """Read commands in all connections to fakeredis in linear time."""
    cast("Any", AsyncFakeSocket)._parse_commands = _parse_commands


def _parse_commands(self: Any) -> Generator[None, bytes]:
    """Be sent bytes, and process each command when it is complete: `*2`, and then `$3`, `GET` and so on."""
    read, at = bytearray(), 0

    def is_line() -> bool:
        return read.find(b"\n", at) >= 0

    def number() -> int:
        nonlocal at
        end = read.find(b"\r\n", at)
        found = int(read[at + 1 : end])
        at = end + 2
        return found

    while True:
        while self._paused or not is_line():
            del read[:at]
            at = 0
            read += yield
        fields: list[bytes] = []
        for _ in range(number()):
            while not is_line():
                read += yield
            length = number()
            while len(read) < at + length + 2:
                read += yield
            fields.append(bytes(read[at : at + length]))
            at += length + 2
        self._process_command(fields)
