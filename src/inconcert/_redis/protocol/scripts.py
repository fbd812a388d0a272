"""The Lua scripts, read from the `.lua` files beside this package, and called by the names in their headers.

A file is named `<primitive>/<verb>.lua`; some have several forms, see `plugs.py`.  A line `-- @include name` in it is
replaced by `include/name.lua`, which defines one local function, and may include others; each comes once, before the
first that calls it.  `-- @block name` does so inside a block that is seldom entered, and for this block alone: each
function that a script defines is made again when it runs.  When a module is imported, only the headers of its scripts
are read; a script is put together when it is called first.

A header names the keys and arguments, says what the script answers, and what a second run answers: any script may run
twice, because one whose reply was lost is sent again.

    -- KEYS  holders waiters results..
    -- ARGV  limit  number > 0
    -- ARGV  ids..  of the holders

Here the key `holders` is filled with the attribute `holders` of a bundle of keys, and the argument `limit` with the
keyword `limit`; so no caller counts, and no script does.  What its code uses of these becomes a local: `holders` is
`KEYS[1]`, `limit` is `ARGV[1]` as a number because its header says so (a `flag` is true if it is '1', and anything else
is text), and `IDS` is where those of any length begin in ARGV.  `keys` is a table of those keys that the code, and what
it includes, uses as `keys.holders`.

`-- @guard queue:list` in the code is replaced by a command that fails if the key holds something else.  So a foreign
key stops a script before it has changed anything.

What a key holds is said where its bundle names it.  Many bundles have `recent` and `older`, hashes of a request -> the
answer to it, for 120 s: see `include/remember.lua`.
"""

import hashlib
import itertools
import re
from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import NamedTuple

from inconcert._redis.protocol.commands import Argument, pack, pack_parts
from inconcert._redis.protocol.operations import Operation
from inconcert._redis.protocol.plugs import form, function_of

_LUA = files("inconcert").joinpath("_lua")
_INCLUDE = re.compile(r"^( *)-- @(include|block) ([\w/]+)$", re.MULTILINE)
_HEADER = re.compile(r"(?:--(?! @guard).*\n)*")
_KEYS = re.compile(r"^-- KEYS +(.*)", re.MULTILINE)
_ARGV = re.compile(r"^-- ARGV +(\w+)(\.\.)?(?: +(number|flag)\b)?", re.MULTILINE)
_GUARD = re.compile(r"-- @guard (.*)")
_TEXT = re.compile(r"'[^'\n]*'|--.*")
_FIELD = re.compile(r"keys\.(\w+)")
_GOES_ON, _IS_WITHIN = re.compile(r"\w"), re.compile(r"[.\w]")  # after a name, and before it
_COUNT_OF = {"list": "LLEN", "zset": "ZCARD", "hash": "HLEN", "set": "SCARD", "string": "STRLEN"}
_HAS_ROOM = "local has_room = false", "local has_room = true"
_FEW = 10  # arguments; the number of fewer is one digit
_COUNT = len(b"*9\r\n")  # with which such a number of parts begins

Binder = Callable[..., "Command"]


class Command(NamedTuple):
    """A script with its keys and arguments."""

    script: "Script"
    keys: tuple[str, ...]
    args: tuple[Argument, ...]

    @property
    def operation(self) -> Operation:
        """The call, in the caller's words, for errors."""
        return Operation.of(self.script.name, self.keys)

    def pack(self) -> bytes:
        """The bytes that run it, if the server has the script in its cache."""
        script, keys, args = self
        if script.has_few_keys and (count := len(args)) < _FEW:
            kept = _kept(script, keys, count)
            if kept:
                return (kept[0] or _keep(kept, script, keys, count)) + pack_parts(args)[_COUNT:]
            kept.append(b"")  # they are packed for later when they come again: those of a job may never do
        return pack_parts(("EVALSHA", script.sha, len(keys), *keys, *args))

    def pack_with_source(self) -> bytes:
        """The bytes that load the script and run it, in one step."""
        return pack("EVAL", self.script.source, len(self.keys), *self.keys, *self.args)

    def with_room(self) -> "Command":
        """The same, whose answer may be large; see `Script.with_room`."""
        return self._replace(script=self.script.with_room)


@lru_cache(maxsize=1024)
def _kept(script: "Script", keys: tuple[str, ...], count: int) -> list[bytes]:
    """The bytes of a command with these keys up to its arguments, of which there are so many; empty at first."""
    del script, keys, count
    return []


def _keep(kept: list[bytes], script: "Script", keys: tuple[str, ...], count: int) -> bytes:
    """Pack these bytes: they take as long to pack as the arguments, or longer."""
    packed = pack("EVALSHA", script.sha, len(keys), *keys)
    kept[0] = b"*%d" % (3 + len(keys) + count) + packed[packed.index(b"\r") :]
    return kept[0]


class Script:
    """One script, ready to be called.

    Args:
        name: Such as `permits/acquire`.
        text: The Lua text, with its header; without its includes.

    Attributes:
        name: Such as `permits/acquire`.
        has_few_keys: Whether its header names each of its keys.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text
        self._header = parameters(text)
        self.has_few_keys = not any(each.array == "KEYS" and each.has_any_length for each in self._header)
        self._binders: dict[tuple[type, ...], Binder] = {}

    @cached_property
    def source(self) -> str:
        """The text that the server runs, with its includes and without comments, so that a comment changes no script.

        Raises:
            FileNotFoundError: One is missing.
            ValueError: They go in a circle.
        """
        group = self.name.partition("+")[2]
        whole = assemble(self.name, lambda name: self._text if name == self.name else read(name, group))
        return _without_comments(whole)

    @cached_property
    def sha(self) -> str:
        """The digest that `EVALSHA` takes."""
        return hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def prepare(self) -> None:
        """Put it together now, while nobody waits for it: that takes about 2 ms, once in a process."""
        self.sha  # noqa: B018 - it is kept

    @cached_property
    def with_room(self) -> "Script":
        """Its other form, which answers in any case; this one answers `LARGE BYTES` in place of a large answer."""
        return Script(self.name, self.source.replace(*_HAS_ROOM))

    def __repr__(self) -> str:
        return f"<Script {self.name}>"

    def bind(self, *bundles: type) -> Binder:
        """A function that fills in the keys and arguments.

        It takes a bundle of each of these types, with keys as attributes; and by keywords, named as in the header,
        the arguments and the keys that no bundle has.  Variable-length arguments (`ARGV[3..]`) are one flat iterable.
        """
        if bundles not in self._binders:
            self._binders[bundles] = self._binder(bundles)
        return self._binders[bundles]

    def _binder(self, bundles: tuple[type, ...]) -> Binder:
        """Compiled, as a named tuple is: it runs for each command, and a loop over names takes five times longer."""
        given = {"KEYS": "", "ARGV": ""}
        keywords: list[str] = []
        for array, name, has_any_length, _ in self._header:
            place = next((number for number, bundle in enumerate(bundles) if name in key_names(bundle)), None)
            if array == "KEYS" and place is not None and not has_any_length:
                given[array] += f"bundle{place}.{name}, "
            else:
                given[array] += f"*{name}, " if has_any_length else f"{name}, "
                keywords.append(name)
        parameters = [f"bundle{number}" for number in range(len(bundles))] + (["*", *keywords] if keywords else [])
        code = f"lambda {', '.join(parameters)}: tuple.__new__(Command, (script, ({given['KEYS']}), ({given['ARGV']})))"
        binder: Binder = eval(code, {"Command": Command, "script": self})  # noqa: S307 - made of our own headers
        return binder


@cache
def load(name: str) -> Script:
    """The script of this name, such as `permits/acquire`; or `claims/ack+jobs`, in its form with these plugs."""
    name_of_file, _, group = name.partition("+")
    return Script(name, read(name_of_file, group))


class Parameter(NamedTuple):
    """A key or an argument of a script, as its header has it."""

    array: str
    name: str
    has_any_length: bool
    kind: str  # `number`, `flag` ('1' or '0'), or '' for text

    @property
    def local(self) -> str:
        """Its name in the code, or the number from which those of any length begin."""
        return self.name.upper() if self.has_any_length else self.name

    def element(self, number: int) -> str:
        """The Lua that reads it, if it is this one of its array."""
        form = {"number": "tonumber({})", "flag": "{} == '1'"}.get(self.kind, "{}")
        return form.format(f"{self.array}[{number}]")


def parameters(text: str) -> list[Parameter]:
    """The keys and arguments that the header of a script names, in their order."""
    header = next(_HEADER.finditer(text))[0]
    keys = " ".join(_KEYS.findall(header)).split()
    found = [Parameter("KEYS", name.removesuffix(".."), name.endswith(".."), "") for name in keys]
    return found + [Parameter("ARGV", name, bool(tail), kind) for name, tail, kind in _ARGV.findall(header)]


def assemble(name: str, read: Callable[[str], str]) -> str:
    """The text of a script: its header, each of its includes once and before its first use, its locals, and its code.

    Args:
        name: Such as `permits/acquire`.
        read: Gives the text of a file by its name without `.lua`.

    Raises:
        ValueError: Includes go in a circle.
    """
    inserted: set[str] = set()

    def insert(text: str, *including: str) -> str:
        inside: set[str] = set()  # the function of this file: what comes after it does not see them

        def one(line: re.Match[str]) -> str:
            nonlocal inserted
            indent, which, name = line.groups()
            before = inserted.copy()
            found = include(name if "/" in name else f"include/{name}", *including)
            if which == "block":
                inserted = before
            elif indent:
                inside.update(inserted - before)
            if not indent:
                return found
            return "".join([line if line == "\n" else indent + line for line in found.splitlines(keepends=True)])

        lines = text.splitlines(keepends=True)  # each by itself, as the expression takes long in a text
        whole = "".join([_INCLUDE.sub(one, line) if "-- @" in line else line for line in lines])
        inserted.difference_update(inside)
        return whole

    def include(name: str, *including: str) -> str:
        if name in including:
            raise ValueError(f"{' includes '.join([*including, name])}: a circle")
        if name in inserted:
            return ""
        inserted.add(name)
        return insert(_GUARD.sub(_guard, read(name)).rstrip(), *including, name)

    text = read(name)
    end = next(_HEADER.finditer(text)).end()  # of nothing, if there is none
    header, code = insert(text[:end], name), _GUARD.sub(_guard, text[end:]).rstrip()
    whole = insert(code, name)
    return f"{header}{_locals(parameters(header), code, header + whole)}{whole}\n"


def _locals(given: list[Parameter], code: str, whole: str) -> str:
    """The keys and arguments that this code uses, by their names; and `keys`, with those that the whole script uses."""
    text = _TEXT.sub("", code)
    numbers = {"KEYS": itertools.count(1), "ARGV": itertools.count(1)}
    values: dict[str, str] = {}
    for each in given:
        number = next(numbers[each.array])
        values[each.local] = str(number) if each.has_any_length else each.element(number)
    if _uses(text, "keys"):
        fields = sorted(set(_FIELD.findall(whole)) & values.keys())
        values["keys"] = f"{{{', '.join(f'{name} = {values[name]}' for name in fields)}}}"
    found = {name: value for name, value in values.items() if _uses(text, name)}
    return f"local {', '.join(found)} = {', '.join(found.values())}\n" if found else ""


def _uses(code: str, name: str) -> bool:
    """True if code without texts and comments uses this name; an expression for all names takes much longer."""
    at = code.find(name)
    while at >= 0:
        end = at + len(name)
        if not _GOES_ON.match(code, end) and not (at and _IS_WITHIN.match(code, at - 1)):
            return True
        at = code.find(name, end)
    return False


def _guard(line: re.Match[str]) -> str:
    pairs = (each.partition(":") for each in line[1].split())
    return " ".join(f"redis.call('{_COUNT_OF[kind]}', {key})" for key, _, kind in pairs)


def read(name: str, group: str = "") -> str:
    """The text of a file, in its form with the plugs of this group; `plugs/jobs/after/on_end` is a function of one."""
    plugs = _plugs(group) if group else {}
    *_, plug, hook = name.rsplit("/", 2)
    is_hook = name == f"plugs/{group}/{plug}/{hook}"
    text = function_of(plugs[plug], plug, hook) if is_hook else _LUA.joinpath(f"{name}.lua").read_text("utf-8")
    return form(text, group, plugs)


@cache
def _plugs(group: str) -> dict[str, str]:
    """Name -> text of each plug of a group, in the order of their names."""
    found = {file.name.removesuffix(".lua"): file for file in _LUA.joinpath("plugs", group).iterdir()}
    return {name: found[name].read_text("utf-8") for name in sorted(found)}


def _without_comments(text: str) -> str:
    """The code of a script, which has no `--` in its strings, without empty lines."""
    lines = [line.partition("--")[0].rstrip() for line in text.splitlines()]
    return "".join([f"{line}\n" for line in lines if line])


@cache
def key_names(bundle: type) -> list[str]:
    """The names of the keys that objects of this type have: its fields that are annotated as text."""
    annotated = (getattr(base, "__annotations__", {}) for base in reversed(bundle.__mro__))  # each has those of its own
    return [name for fields in annotated for name, kind in fields.items() if kind is str]
