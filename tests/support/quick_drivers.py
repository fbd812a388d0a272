"""redis-py and fakeredis, without what takes a quarter and half of the time in which a coordinator is opened.

For each connection redis-py parses the metadata of its own package, to tell the server which version it is. The parser
of fakeredis copies what is left to read for each line of a command, and an opened coordinator sends all scripts.
"""

from collections.abc import Generator
from functools import cache
from typing import Any, cast

import redis.utils
from fakeredis.aioredis import AsyncFakeSocket

__all__ = ["install"]


def install() -> None:
    """Read the metadata once, and commands in all connections to fakeredis in linear time."""
    redis.utils.get_lib_version = cache(redis.utils.get_lib_version)
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
