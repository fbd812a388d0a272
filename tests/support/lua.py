"""Which names a Lua program uses, as Lua's own compiler sees them.

They are read from the bytecode of Lua 5.1, the version that all supported servers run.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

__all__ = ["Names", "instructions_of", "names_of"]

_dump: Callable[[bytes, bytes], bytes] = (
    import_module("lupa.lua51")  # which has no type hints
    .LuaRuntime(encoding=None)
    .eval(b"function(text, name) return string.dump(assert(loadstring(text, name))) end")
)

# The operations in the order of their numbers, as lopcodes.h of Lua 5.1 has them.
_OPERATIONS = (
    *("MOVE", "LOADK", "LOADBOOL", "LOADNIL", "GETUPVAL", "GETGLOBAL", "GETTABLE", "SETGLOBAL", "SETUPVAL", "SETTABLE"),
    *(
        "NEWTABLE",
        "SELF",
        "ADD",
        "SUB",
        "MUL",
        "DIV",
        "MOD",
        "POW",
        "UNM",
        "NOT",
        "LEN",
        "CONCAT",
        "JMP",
        "EQ",
        "LT",
        "LE",
    ),
    *("TEST", "TESTSET", "CALL", "TAILCALL", "RETURN", "FORLOOP", "FORPREP", "TFORLOOP", "SETLIST", "CLOSE", "CLOSURE"),
    "VARARG",
)
_OF_TWO = {"ADD", "SUB", "MUL", "DIV", "MOD", "POW", "EQ", "LT", "LE"}
_READ_A = {"SETGLOBAL", "SETUPVAL", "SETTABLE", "TEST"}
_READ_B = {"MOVE", "GETTABLE", "SETTABLE", "SELF", "UNM", "NOT", "LEN", "TESTSET", *_OF_TWO}
_READ_C = {"GETTABLE", "SETTABLE", "SELF", *_OF_TWO}
_CONSTANT = 256  # an operand from here on is a constant, not a register


@dataclass(frozen=True, slots=True)
class Names:
    """What a program does with names.

    Attributes:
        read: Globals that it reads.
        assigned: Globals that it sets.
        unused: Locals and parameters that it never reads, each as `name:line`; without those that are called `_`.
    """

    read: frozenset[str]
    assigned: frozenset[str]
    unused: list[str]


@dataclass(frozen=True, slots=True)
class _Local:
    name: str
    start: int  # the first instruction that may see it
    end: int


@dataclass(frozen=True, slots=True)
class _Function:
    code: tuple[int, ...]
    constants: list[str]  # "" for those that are not strings
    inner: list["_Function"]
    lines: tuple[int, ...]
    locals: list[_Local]


class _Reader:
    """Reads the bytecode of one program, from its start to its end."""

    def __init__(self, code: bytes) -> None:
        # Lua 5.1, little endian, with integers of 4 bytes, sizes of 8, instructions of 4 and numbers of 8.
        assert code.startswith(b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00"), code[:12]
        self._code = code
        self._at = 12

    def function(self) -> _Function:
        self._string()  # the program's name
        self._take("<ii4B")
        code = self._take(f"<{self._integer()}I")
        constants = [self._constant() for _ in range(self._integer())]
        inner = [self.function() for _ in range(self._integer())]
        lines = self._take(f"<{self._integer()}i")
        names = [_Local(self._string(), self._integer(), self._integer()) for _ in range(self._integer())]
        for _ in range(self._integer()):
            self._string()  # an upvalue's name
        return _Function(code, constants, inner, lines, names)

    def _take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self._code, self._at)
        self._at += struct.calcsize(form)
        return values

    def _integer(self) -> int:
        return self._take("<i")[0]

    def _string(self) -> str:
        (size,) = self._take("<Q")
        self._at += size
        return self._code[self._at - size : self._at - 1].decode(errors="backslashreplace") if size else ""

    def _constant(self) -> str:
        (kind,) = self._take("<B")
        if kind == 4:
            return self._string()
        self._at += {0: 0, 1: 1, 3: 8}[kind]  # nil, boolean, number
        return ""


def names_of(text: str) -> Names:
    """What this program does with names.

    Raises:
        lupa.lua51.LuaError: It does not compile.
    """
    functions = _functions(text)
    return Names(
        frozenset(name for function in functions for name in _globals(function, "GETGLOBAL")),
        frozenset(name for function in functions for name in _globals(function, "SETGLOBAL")),
        [found for function in functions for found in _unused(function)],
    )


def instructions_of(text: str) -> list[tuple[tuple[int, ...], list[str]]]:
    """What each function of this program does, wherever its lines are, with the strings that it uses.

    Raises:
        lupa.lua51.LuaError: It does not compile.
    """
    return [(function.code, function.constants) for function in _functions(text)]


def _functions(text: str) -> list[_Function]:
    return list(_all(_Reader(_dump(text.encode(), b"=")).function()))


def _all(function: _Function) -> Iterator[_Function]:
    yield function
    for inner in function.inner:
        yield from _all(inner)


def _globals(function: _Function, operation: str) -> Iterator[str]:
    for instruction in function.code:
        if _OPERATIONS[instruction & 0x3F] == operation:
            yield function.constants[instruction >> 14]


def _unused(function: _Function) -> Iterator[str]:
    read = [set(_registers(instruction)) for instruction in function.code]
    for number, local in enumerate(function.locals):
        # Locals are in registers one after the other, in the order in which they are declared.
        register = sum(other.start <= local.start < other.end for other in function.locals[:number])
        is_ours = not local.name.startswith("(") and local.name != "_"  # Lua's own are `(for index)` and such
        if is_ours and not any(register in registers for registers in read[local.start : local.end]):
            yield f"{local.name}:{function.lines[max(0, local.start - 1)]}"


def _registers(instruction: int) -> Iterator[int]:
    """The registers that an instruction reads, as far as they may be those of locals.

    Arguments of calls, and of what else takes a row of registers, have been moved to registers of their own before.
    """
    operation = _OPERATIONS[instruction & 0x3F]
    a, c, b = instruction >> 6 & 0xFF, instruction >> 14 & 0x1FF, instruction >> 23
    if operation in _READ_A or (operation == "RETURN" and b == 2):
        yield a
    if operation in _READ_B and b < _CONSTANT:
        yield b
    if operation in _READ_C and c < _CONSTANT:
        yield c
