"""The header of every Lua script says what the script really takes, returns and costs."""

import re
from functools import cache
from importlib import import_module
from inspect import getsource
from keyword import iskeyword
from pathlib import Path
from pkgutil import walk_packages
from sys import modules

import pytest

import inconcert
from inconcert._redis.protocol.scripts import Parameter, Script, key_names, load, parameters
from tests.support.each import each
from tests.support.lua_files import FILES, FORMS, INCLUDED, PLUGS, text_of, title

TYPES = {"hash", "list", "set", "string", "zset"}
OF_MANY = {"recent", "older", "earlier"}  # keys of many bundles; `_redis/protocol/scripts.py` says what they hold

_TITLE = re.compile(r"\A-- (?P<title>[\w/]+): \S")
_INCLUDE = re.compile(r"^ *-- @(?:include|block) (?P<name>\w+)$", re.MULTILINE)
_GUARD = re.compile(r"-- @guard (.*)")
_COMMENT_OR_STRING = re.compile(r"--\[\[.*?\]\]|--[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.DOTALL)


def split(text: str) -> tuple[str, str]:
    """The leading comment of a script, and its code with comments and the contents of strings taken out."""
    header = re.match(r"(?:--(?! @guard)[^\n]*\n)*", text)
    end = header.end() if header else 0
    return text[:end], _COMMENT_OR_STRING.sub("''", _GUARD.sub(r"guard(\1)", text[end:]))


def disagreements(header: str, code: str) -> list[str]:
    """Where a header and its code differ on what the script is given, by name."""
    given = parameters(header)
    words = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code))
    of_table = set(re.findall(r"\bkeys\.(\w+)", code))
    found = [f"{each.array} {each.name} is named and not used" for each in given if not _is_used(each, words, of_table)]
    found += [f"keys.{name} is used and not named" for name in sorted(of_table - {each.name for each in given})]
    found += [f"{element} is used by its number" for element in re.findall(r"\b(?:KEYS|ARGV)\[\d+\]", code)]
    return found


def _is_used(given: Parameter, words: set[str], of_table: set[str]) -> bool:
    if given.has_any_length:
        return bool(words & {given.local, given.array})
    return given.name in words | of_table or ("keys" in words and given.array == "KEYS")  # by what it includes


def test_scripts_are_found() -> None:
    """The other tests here have something to look at."""
    assert FILES


@each("script", FILES, ids=title)
def test_header_begins_with_the_name_of_its_script(script: Path) -> None:
    """The first line is `-- folder/verb: purpose`, by the file's own path."""
    found = _TITLE.match(script.read_text("utf-8"))

    assert found, "the first line is not '-- folder/verb: purpose'"
    assert found["title"] == title(script)


@each("script", FORMS)
def test_header_says_keys_result_repetition_and_cost(script: str) -> None:
    """A script names at least one key, and has one line each for RETURNS, TWICE and COST."""
    header, _ = split(text_of(script))

    assert any(each.array == "KEYS" for each in parameters(header)), "no '-- KEYS  name name' line"
    for word in ("RETURNS", "TWICE", "COST"):
        assert len(re.findall(rf"^-- {word} +\S", header, re.MULTILINE)) == 1, f"not exactly one '-- {word}' line"


@each("script", FORMS)
def test_header_names_what_the_code_uses(script: str) -> None:
    """Keys and arguments of the header are those of the code, no more and no fewer, and never by number."""
    assert disagreements(*split(text_of(script))) == []


@each("script", FORMS)
def test_names_in_a_header_are_keywords_of_the_caller(script: str) -> None:
    """Callers give keys and arguments by these names, so each is a Python name, and there once."""
    given = parameters(split(text_of(script))[0])
    names = [each.name for each in given]

    assert [name for name in names if not name.isidentifier() or iskeyword(name)] == []
    assert len(set(names)) == len(names)
    for array in ("KEYS", "ARGV"):
        assert not any(each.has_any_length for each in [each for each in given if each.array == array][:-1])


@pytest.fixture(scope="module")
def documented() -> dict[str, dict[str, str]]:
    """For each script the keys that its bundles have, with the type that is said of each."""
    for module in walk_packages(inconcert.__path__, "inconcert."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return {name: {key: said for bundle in _bundles(load(name)) for key, said in _documented(bundle)} for name in FORMS}


def _bundles(script: Script) -> set[type]:
    return {bundle for bundles in script._binders for bundle in bundles}


@cache
def _documented(bundle: type) -> list[tuple[str, str]]:
    texts = "\n".join(getsource(modules[base.__module__]) for base in bundle.__mro__ if base.__module__ != "builtins")
    said = re.findall(rf"^ +(\w+)(?:: str  #| ) *({'|'.join(TYPES)})\b", texts, re.MULTILINE)
    return [(name, first) for name, first in reversed(said) if name in key_names(bundle)]  # the first of a name counts


@each("script", FORMS)
def test_what_each_key_holds_is_said(script: str, documented: dict[str, dict[str, str]]) -> None:
    """Where its bundle names it; or in the header, as `--  name: type`, if the caller gives it by itself."""
    header, _ = split(text_of(script))
    of_bundles = documented[script]
    here = dict(re.findall(r"^--  +(\w+): (\w+)", header, re.MULTILINE))
    keys = [each.name for each in parameters(header) if each.array == "KEYS" and each.name not in OF_MANY]

    assert [name for name in keys if of_bundles.get(name, here.get(name, "")) not in {*TYPES, "holders"}] == []


@each("script", FORMS)
def test_guards_expect_what_a_key_holds(script: str, documented: dict[str, dict[str, str]]) -> None:
    """`-- @guard queue:list` has the type of the bundle."""
    of_bundles = documented[script]
    pairs = [each.split(":") for line in _GUARD.findall(text_of(script)) for each in line.split()]

    assert [name for name, kind in pairs if of_bundles.get(name.rpartition(".")[2], kind) != kind] == []


@each("path", [*FILES, *INCLUDED, *PLUGS], ids=title)
def test_includes_are_what_is_called(path: Path) -> None:
    """A file, or a function of a plug, includes what it calls, and no more: nothing leans on what another includes."""
    whole = path.read_text("utf-8")
    for text in whole.split("\n\n") if path in PLUGS else [whole]:
        code = _COMMENT_OR_STRING.sub("", text)
        calls = {*re.findall(r"(?<!function )(?<![.:\w])(\w+)\(", code), *re.findall(r"\bpcall\((\w+)", code)}
        functions = set(re.findall(r"function (\w+)\(", text))

        assert sorted(_INCLUDE.findall(text)) == sorted(calls & {include.stem for include in INCLUDED} - functions)


@each("include", INCLUDED, ids=title)
def test_include_is_one_function_of_its_arguments(include: Path) -> None:
    """An include is one `local function` named as its file, that is given what it needs."""
    _, body = split(text_of(title(include)))

    assert re.findall(r"^(?:local )?function ([\w.:]+)", body, re.MULTILINE) == [include.stem]
    assert re.search(rf"^local function {include.stem}\(", body, re.MULTILINE)
    assert not re.search(r"\b(?:KEYS|ARGV)\b", body)


@each("include", INCLUDED, ids=title)
def test_include_is_used(include: Path) -> None:
    """Some script or include inserts it."""
    assert any(include.stem in _INCLUDE.findall(path.read_text("utf-8")) for path in [*FILES, *INCLUDED, *PLUGS])


_HEADER = """\
-- things/take: take one.
--
-- KEYS  things
--       things: zset  all of them
-- ARGV  holder   string
-- ARGV  names..  strings
"""


@pytest.mark.parametrize(
    "body",
    [
        "f(things, holder) for i = NAMES, #ARGV do g(ARGV[i]) end",
        "f(things, holder, unpack(ARGV, NAMES))",
        "f(keys.things, holder, ARGV[NAMES])",
        "-- @guard things:zset\nf(holder, ARGV[NAMES]) -- and not KEYS[2]",
    ],
)
def test_true_header_passes(body: str) -> None:
    """What is of any length may be read by a loop, by `unpack`, or by an index; a key by its local or in `keys`."""
    assert disagreements(*split(f"{_HEADER}{body}")) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("f(holder, ARGV[NAMES])", "KEYS things is named and not used"),
        ("f(things, ARGV[NAMES])", "ARGV holder is named and not used"),
        ("f(things, holder)", "ARGV names is named and not used"),
        ("f(things, 'holder', ARGV[NAMES]) --[[ holder ]]", "ARGV holder is named and not used"),
        ("f(things, holder, ARGV[NAMES], keys.others)", "keys.others is used and not named"),
        ("f(things, holder, ARGV[NAMES], KEYS[2])", "KEYS[2] is used by its number"),
    ],
)
def test_false_header_is_found(body: str, expected: str) -> None:
    """Each way in which a header can be wrong is reported, by name."""
    assert disagreements(*split(f"{_HEADER}{body}")) == [expected]


@pytest.mark.parametrize("script", [form for form in FORMS if f"{form}+jobs" in FORMS])
def test_script_of_a_plain_job_names_no_key_of_a_plug(script: str) -> None:
    """Who does not use a feature does not pay for it."""
    of_plugs = {key.name for plug in PLUGS for key in parameters(plug.read_text("utf-8"))}
    shared = {"dead"}  # where any job may go

    assert {key.name for key in parameters(split(text_of(script))[0])} & of_plugs - shared == set()


def test_some_scripts_are_of_plain_jobs() -> None:
    """The test before has something to look at."""
    assert {"claims/ack+jobs", "claims/claim+jobs"} <= set(FORMS)
