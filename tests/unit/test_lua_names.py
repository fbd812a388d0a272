"""Every Lua script, with its includes inserted, compiles, and knows each name that it uses."""

import pytest

from inconcert._redis.protocol.scripts import assemble, load, read
from tests.support.each import each
from tests.support.lua import Names, instructions_of, names_of
from tests.support.lua_files import FORMS, text_of

# What every supported server gives to a script, as far as it needs it: no clock, no randomness, no output.
GLOBALS = {
    *("KEYS", "ARGV", "redis", "bit", "cjson", "cmsgpack", "math", "string", "table"),
    *("error", "ipairs", "next", "pairs", "pcall", "select", "tonumber", "tostring", "type", "unpack"),
}


def test_scripts_are_found() -> None:
    """The other test here has something to look at."""
    assert FORMS


@each("script", FORMS)
def test_script_knows_the_names_that_it_uses(script: str) -> None:
    """It reads no global that the server does not give it, such as an include that is missing, and sets none."""
    names = names_of(load(script).source)

    assert names.read - GLOBALS == set()
    assert names.assigned == set()


@each("script", FORMS)
def test_script_reads_each_local(script: str) -> None:
    """What it computes, takes apart or includes is used; `_` is for what is not."""
    assert names_of(load(script).source).unused == []


@each("script", FORMS)
def test_script_without_comments_does_the_same(script: str) -> None:
    """No server is sent comments, and none of the code is taken for one."""
    _, _, group = script.partition("+")
    text = assemble(script, lambda part: text_of(script) if part == script else read(part, group))
    source = load(script).source

    assert instructions_of(source) == instructions_of(text)
    assert "--" not in source
    assert "\n\n" not in source


@pytest.mark.parametrize(
    ("text", "read", "assigned", "unused"),
    [
        ("local now = server_time() return now", {"server_time"}, set[str](), []),
        ("local function f() total = 1 end f()", set[str](), {"total"}, []),
        ("return type(x) == 'nil' and '\\255' or 2", {"type", "x"}, set[str](), []),
        ("local a, b = 1, 2\nreturn a", set[str](), set[str](), ["b:1"]),
        ("\nlocal a = 1\nlocal a = 2\nreturn a", set[str](), set[str](), ["a:2"]),
        ("local a a = 1", set[str](), set[str](), ["a:1"]),
        ("local function f(x, _) end", set[str](), set[str](), ["f:1", "x:1"]),
        ("for i, v in ipairs(t) do f(v) end", {"f", "ipairs", "t"}, set[str](), ["i:1"]),
        ("local a = 1 do local a = 2 end return a", set[str](), set[str](), ["a:1"]),
    ],
)
def test_name_is_found(text: str, read: set[str], assigned: set[str], unused: list[str]) -> None:
    """Globals are found in every function; a local is unused if no later instruction in its scope reads it."""
    assert names_of(text) == Names(frozenset(read), frozenset(assigned), unused)


@pytest.mark.parametrize(
    "text",
    [
        "local a = 1 return a",
        "local a = 1 return a, 2",
        "local a, b = 1, 2 return a .. '-' .. b",
        "local a = 1 return -a",
        "local a = {} a.x = 1",
        "local a = 1 if a then return 1 end",
        "local a = 1 return a or 2",
        "local a = 1 local b = a == 2 return not b",
        "local a = {} return a[1], #a",
        "local a = 'x' return a:upper()",
        "local f = tostring return f(1)",
        "local a = 1 return function() return a end",
        "local a = 1 return function() return function() return a end end",
        "local a = 1 for _ = a, 3 do end",
        "local a, b = 1, 2 return 1 + a <= 3 * b",
        "local a = 1 local b = a return b",
        "local a = {1} return unpack(a, 1)",
        "local a = 1 return {a}",
        "local a = 1 total = a",
    ],
)
def test_local_that_is_read_is_not_unused(text: str) -> None:
    """However it is read: in an expression, as an argument, or by a function inside."""
    assert names_of(text).unused == []
