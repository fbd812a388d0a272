"""The Lua scripts, read from the `.lua` files beside this package.

A file is named `<primitive>/<verb>.lua`.  A line `-- @include name` in it is replaced by `include/name.lua`, which
defines one local function.  A header says what the script is given, what it answers, and what a second run answers:
any script may run twice, for one whose reply was lost is sent again.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files

from inconcert._redis.commands import Argument, pack

__all__ = ["Script", "load", "loaded"]

_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)


class Script:
    """One script, ready to be packed for the server.

    Attributes:
        name: Such as `permits/acquire`.
        source: The Lua text, includes inserted.
        sha: What `EVALSHA` calls it by.
    """

    __slots__ = ("name", "sha", "source")

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def pack(self, keys: tuple[str, ...], args: tuple[Argument, ...]) -> bytes:
        """The bytes that run this script, if the server has it in its cache."""
        return pack("EVALSHA", self.sha, len(keys), *keys, *args)

    def pack_with_source(self, keys: tuple[str, ...], args: tuple[Argument, ...]) -> bytes:
        """The bytes that load this script and run it, in one step."""
        return pack("EVAL", self.source, len(keys), *keys, *args)

    def pack_load(self) -> bytes:
        """The bytes that load this script."""
        return pack("SCRIPT", "LOAD", self.source)


_loaded: list[Script] = []


@cache
def load(name: str) -> Script:
    """The script of this name, such as `permits/acquire`."""
    script = Script(name, _INCLUDE.sub(lambda match: _text(f"include/{match[1]}").rstrip(), _text(name)))
    _loaded.append(script)
    return script


def loaded() -> list[Script]:
    """Every script that this process uses."""
    return _loaded


def _text(name: str) -> str:
    return files("inconcert").joinpath("_lua", f"{name}.lua").read_text("utf-8")
