"""The header of every Lua script says what the script really takes, returns and costs."""

import re
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

import pytest

LUA = Path(__file__).parents[2] / "src/inconcert/_lua"
INCLUDES = LUA / "include"
SCRIPTS = sorted(path for path in LUA.rglob("*.lua") if INCLUDES not in path.parents)
INCLUDED = sorted(INCLUDES.rglob("*.lua"))

_ENTRY = re.compile(r"^-- (?P<array>KEYS|ARGV)\[(?P<index>\d+)(?P<tail>\.\.)?\] +(?P<name>\S+) +\S", re.MULTILINE)
_TITLE = re.compile(r"\A-- (?P<title>[\w/]+): \S")
_INCLUDE = re.compile(r"^-- @include (?P<name>\w+)$", re.MULTILINE)
_COMMENT_OR_STRING = re.compile(r"--\[\[.*?\]\]|--[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Uses:
    """The elements of KEYS or ARGV that a header names or a body uses.

    `tail` is where a part of variable length begins (`ARGV[3..]`): None for no such part, 0 where the code hides it.
    """

    fixed: frozenset[int]
    tail: int | None


def split(text: str) -> tuple[str, str]:
    """The leading comment of a script, and its code with comments and the contents of strings taken out."""
    header = re.match(r"(?:--[^\n]*\n)*", text)
    end = header.end() if header else 0
    return text[:end], _COMMENT_OR_STRING.sub("''", text[end:])


def named(header: str, array: str) -> dict[int, str]:
    """What the header calls each element of KEYS or ARGV."""
    return {int(entry["index"]): entry["name"] for entry in _ENTRY.finditer(header) if entry["array"] == array}


def promised(header: str, array: str) -> Uses:
    """The elements of KEYS or ARGV that the header names."""
    entries = [entry for entry in _ENTRY.finditer(header) if entry["array"] == array]
    tails = [int(entry["index"]) for entry in entries if entry["tail"]]
    return Uses(frozenset(int(entry["index"]) for entry in entries if not entry["tail"]), min(tails, default=None))


def constants(body: str) -> dict[str, str]:
    """The numbers that the code names: `local FIRST_QUEUE, PARTS = 9, 2`."""
    found: dict[str, str] = {}
    for names, numbers in re.findall(r"^local ([A-Z][A-Z_, ]*) = (\d+(?:, \d+)*)\b", body, re.MULTILINE):
        found |= dict(zip(names.split(", "), numbers.split(", "), strict=True))
    return found


def used(body: str, array: str) -> Uses:
    """The elements of KEYS or ARGV that the code uses, by their numbers or by constants such as FIRST_QUEUE."""
    for name, number in constants(body).items():
        body = re.sub(rf"\b{name}\b", number, body)
    fixed = frozenset(map(int, re.findall(rf"\b{array}\[(\d+)\]", body)))
    starts = [
        *re.findall(rf"\bfor \w+ = (\d+), #{array}\b", body),
        *re.findall(rf"\bunpack\({array}, (\d+)", body),
    ]
    if starts:
        return Uses(fixed, min(map(int, starts)))
    return Uses(fixed, 0 if re.search(rf"\b{array}\b(?!\[\d+\])", body) else None)


def disagreements(header: str, body: str) -> list[str]:
    """Where header and body differ on what the script is given."""
    found: list[str] = []
    for array in ("KEYS", "ARGV"):
        says, does = promised(header, array), used(body, array)
        in_tail = frozenset(index for index in does.fixed if says.tail is not None and index >= says.tail)
        found += [f"{array}[{index}] is named and not used" for index in sorted(says.fixed - does.fixed)]
        found += [f"{array}[{index}] is used and not named" for index in sorted(does.fixed - in_tail - says.fixed)]
        if (says.tail is None) != (does.tail is None and not in_tail):
            found.append(f"{array}[n..] is {'used and not named' if says.tail is None else 'named and not used'}")
        elif says.tail and does.tail and says.tail != does.tail:
            found.append(f"{array}[{says.tail}..] is named, and the loop begins at {does.tail}")
    return found


def locals_of(body: str) -> list[tuple[str, str, str]]:
    """Which local is which element: (name, KEYS or ARGV, index) of each `local a, b = KEYS[1], tonumber(ARGV[2])`."""
    found: list[tuple[str, str, str]] = []
    for names, values in re.findall(r"^ *local ([\w, ]+) =\s+(.*)$", body, re.MULTILINE):
        # Commas inside parentheses do not part values.
        parts = re.sub(r"\([^()]*\)", lambda inner: inner[0].replace(",", ";"), values).split(",")
        for name, value in zip(names.split(","), parts, strict=False):
            if element := re.fullmatch(r"(?:tonumber\()?(KEYS|ARGV)\[(\d+)\]\)?", value.strip()):
                found.append((name.strip(), element[1], element[2]))
    return found


def title(path: Path) -> str:
    """A script by its folder and verb, as its first line has it."""
    return path.relative_to(LUA).with_suffix("").as_posix()


def test_scripts_are_found() -> None:
    """The other tests here have something to look at."""
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=title)
def test_header_begins_with_the_name_of_its_script(script: Path) -> None:
    """The first line is `-- folder/verb: purpose`, by the file's own path."""
    found = _TITLE.match(script.read_text("utf-8"))

    assert found, "the first line is not '-- folder/verb: purpose'"
    assert found["title"] == title(script)


@pytest.mark.parametrize("script", SCRIPTS, ids=title)
def test_header_says_keys_result_repetition_and_cost(script: Path) -> None:
    """A script names at least one key, and has one line each for RETURNS, TWICE and COST."""
    header, _ = split(script.read_text("utf-8"))

    assert named(header, "KEYS"), "no '-- KEYS[n]  name  type  meaning' line"
    for word in ("RETURNS", "TWICE", "COST"):
        assert len(re.findall(rf"^-- {word} +\S", header, re.MULTILINE)) == 1, f"not exactly one '-- {word}' line"


@pytest.mark.parametrize("script", SCRIPTS, ids=title)
def test_header_names_what_the_body_uses(script: Path) -> None:
    """KEYS and ARGV of the header are those of the body, no more and no fewer."""
    assert disagreements(*split(script.read_text("utf-8"))) == []


@pytest.mark.parametrize("array", ["KEYS", "ARGV"])
@pytest.mark.parametrize("script", SCRIPTS, ids=title)
def test_header_numbers_without_gaps_or_repeats(script: Path, array: str) -> None:
    """Elements are listed once each, from 1 upwards, and a variable part comes last."""
    header, _ = split(script.read_text("utf-8"))
    entries = [entry for entry in _ENTRY.finditer(header) if entry["array"] == array]

    assert [int(entry["index"]) for entry in entries] == list(range(1, len(entries) + 1))
    assert not any(entry["tail"] for entry in entries[:-1])


@pytest.mark.parametrize("script", SCRIPTS, ids=title)
def test_names_in_a_header_are_keywords_of_the_caller(script: Path) -> None:
    """Callers give keys and arguments by these names, so each is a Python name, and there once."""
    header, _ = split(script.read_text("utf-8"))
    names = [*named(header, "KEYS").values(), *named(header, "ARGV").values()]

    assert [name for name in names if not name.isidentifier() or iskeyword(name)] == []
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("script", SCRIPTS, ids=title)
def test_body_calls_keys_and_arguments_as_its_header_does(script: Path) -> None:
    """`local holders = KEYS[1]` has the name that KEYS[1] has in the header."""
    header, body = split(script.read_text("utf-8"))
    wrong = [
        f"{array}[{index}] is {named(header, array)[int(index)]} in the header, and {local} in the body"
        for local, array, index in locals_of(body)
        if int(index) in promised(header, array).fixed and named(header, array)[int(index)] != local
    ]

    assert wrong == []


@pytest.mark.parametrize("path", [*SCRIPTS, *INCLUDED], ids=title)
def test_includes_are_what_is_called(path: Path) -> None:
    """A file includes each function that it calls, and no other: it does not lean on what another includes."""
    text = path.read_text("utf-8")
    calls = set(re.findall(r"(?<!function )(?<![.:\w])(\w+)\(", _COMMENT_OR_STRING.sub("", text)))
    functions = set(re.findall(r"function (\w+)\(", text))

    assert sorted(_INCLUDE.findall(text)) == sorted(calls & {include.stem for include in INCLUDED} - functions)


@pytest.mark.parametrize("include", INCLUDED, ids=title)
def test_include_is_one_function_of_its_arguments(include: Path) -> None:
    """An include is one `local function` named as its file, that is given what it needs."""
    text = include.read_text("utf-8")
    _, body = split(text)

    assert re.findall(r"^(?:local )?function ([\w.:]+)", body, re.MULTILINE) == [include.stem]
    assert re.search(rf"^local function {include.stem}\(", body, re.MULTILINE)
    assert not re.search(r"\b(?:KEYS|ARGV)\b", body)


@pytest.mark.parametrize("include", INCLUDED, ids=title)
def test_include_is_used(include: Path) -> None:
    """Some script or include inserts it."""
    assert any(include.stem in _INCLUDE.findall(path.read_text("utf-8")) for path in [*SCRIPTS, *INCLUDED])


_HEADER = """\
-- things/take: take one.
--
-- KEYS[1]  things  zset  all of them
-- ARGV[1]  holder  string
-- ARGV[2..]  names  strings
"""


@pytest.mark.parametrize(
    "body",
    [
        "f(KEYS[1], ARGV[1]) for i = 2, #ARGV do g(ARGV[i]) end",
        "f(KEYS[1], ARGV[1], unpack(ARGV, 2))",
        "local FIRST, PARTS = 2, 3\nf(KEYS[1], ARGV[1]) for i = FIRST, #ARGV, PARTS do g(ARGV[i]) end",
        "f(KEYS[1], ARGV[1], ARGV[2], ARGV[1 + n])",
        "f(KEYS[1], ARGV[1], ARGV[2]) -- and not KEYS[2]",
    ],
)
def test_true_header_passes(body: str) -> None:
    """A variable part may be read by a loop, by `unpack`, by a computed index or by a literal one."""
    assert disagreements(*split(f"{_HEADER}{body}")) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("f(ARGV[1], ARGV[2])", "KEYS[1] is named and not used"),
        ("f(KEYS[1], KEYS[2], ARGV[1], ARGV[2])", "KEYS[2] is used and not named"),
        ("f(KEYS[1], ARGV[1])", "ARGV[n..] is named and not used"),
        ("f(KEYS[i], KEYS[1], ARGV[1], ARGV[2])", "KEYS[n..] is used and not named"),
        ("f(KEYS[1], ARGV[1]) for i = 3, #ARGV do end", "ARGV[2..] is named, and the loop begins at 3"),
        (
            "local FIRST = 3  -- of the names\nf(KEYS[1], ARGV[1]) for i = FIRST, #ARGV do end",
            "ARGV[2..] is named, and the loop begins at 3",
        ),
        ("f(KEYS[1], 'ARGV[1]', ARGV[2]) --[[ ARGV[1] ]]", "ARGV[1] is named and not used"),
    ],
)
def test_false_header_is_found(body: str, expected: str) -> None:
    """Each way in which a header can be wrong is reported."""
    assert disagreements(*split(f"{_HEADER}{body}")) == [expected]


def test_locals_are_read() -> None:
    """Several in one line, numbers made of text, and what is neither."""
    body = "local holders, limit, place = KEYS[1], tonumber(ARGV[2]), f(KEYS[3], 2)\nlocal now = ARGV[1]"

    assert locals_of(body) == [("holders", "KEYS", "1"), ("limit", "ARGV", "2"), ("now", "ARGV", "1")]
