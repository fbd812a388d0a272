"""The two forms of a script are made from one text, and from the plugs that hook into it."""

from inconcert._redis.protocol.plugs import form, function_of

SCRIPT = """\
-- things/end: end some.
--
-- KEYS  things results..
-- PLUGS on_end
-- RETURNS  nothing
-- @guard things:hash on_end
-- @guard on_end
-- @only plain
f(things)
-- @end
-- @each on_end(keys, things)
"""
PLUGS = {
    "first": """\
-- plugs/jobs/first: a feature.
--
-- KEYS  ones
-- GUARD  ones:zset

-- @include one
-- Ends them.
local function first_on_end(keys)
  one(keys.ones)
end

-- @include other
local function first_on_back(keys)
  other(keys.ones)
end
""",
    "second": """\
-- plugs/jobs/second: a feature that has nothing to do at an end.
--
-- KEYS  twos
-- GUARD  twos:zset

local function second_on_back(keys)
  two(keys.twos)
end
""",
}


def test_plain_form_has_nothing_of_plugs() -> None:
    """No key, no guard, no call; a guard of nothing else is gone."""
    assert form(SCRIPT, "", {}).splitlines()[2:] == [
        "-- KEYS  things results..",
        "-- PLUGS on_end",
        "-- RETURNS  nothing",
        "-- @guard things:hash",
        "f(things)",
    ]


def test_other_form_has_the_plugs_with_its_hook() -> None:
    """Their keys come before those of any length, and are guarded; each function is included by itself."""
    assert form(SCRIPT, "jobs", PLUGS).splitlines()[2:] == [
        "-- KEYS things ones results..",
        "-- PLUGS on_end",
        "-- RETURNS  nothing",
        "-- @guard things:hash keys.ones:zset",
        "-- @guard keys.ones:zset",
        "-- @include plugs/jobs/first/on_end",
        "first_on_end(keys, things)",
    ]


def test_function_of_a_plug_has_its_own_includes() -> None:
    """And not those of another."""
    assert function_of(PLUGS["first"], "first", "on_end").splitlines()[:2] == ["-- @include one", "-- Ends them."]
    assert "one" not in function_of(PLUGS["first"], "first", "on_back").replace("ones", "")
