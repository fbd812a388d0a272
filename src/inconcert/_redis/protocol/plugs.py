"""The forms of a script: plain, and with plugs.

A plug is a file `plugs/GROUP/NAME.lua`: a feature that some jobs, or items, have and others do not.  It names the keys
that only this feature has, and defines functions `NAME_HOOK` that scripts call at certain points of a job's life.  Each
has its includes before it, and no empty line in it: a script has only those that it calls.

A script that some of them hook into says so in its header, and has two forms, of which the plain one names no key of a
plug: `claims/ack`, and `claims/ack+jobs`.

    -- PLUGS on_end               the keys of all plugs of the group that have this hook come before those of any length
    -- @only jobs                 what follows is only in the form with the plugs of this group, or of these; `plain` is
    -- @end                       the form without; a header may have such lines, too
    -- @each on_end(keys, jobs)   calls this function of each plug of the group, in the order of their names
    -- @guard queue:list on_end   guards that key, and those that plugs with this hook name as `-- GUARD  history:zset`
"""

import re
from collections.abc import Mapping

_ONLY = re.compile(r"^ *-- @only (.+)\n((?:.*\n)*?) *-- @end\n", re.MULTILINE)
_EACH = re.compile(r"^( *)-- @each ((\w+)\(.*\))$\n", re.MULTILINE)
_PLUGS = re.compile(r"^-- PLUGS +(.*)\n", re.MULTILINE)
_KEYS = re.compile(r"^-- KEYS +(.*)\n", re.MULTILINE)
_GUARDS = re.compile(r"^-- GUARD +(.*)\n", re.MULTILINE)  # of a plug: its keys that a script is to look at first
_GUARD = re.compile(r"^( *-- @guard )(.*\bon_.*)\n", re.MULTILINE)


def form(text: str, group: str, plugs: Mapping[str, str]) -> str:
    """The text of a script, or of an include, in one of its forms.

    Args:
        text: As it is written.
        group: Which plugs; empty for the plain form.
        plugs: Name -> text of each plug of this group.
    """
    # Most files have none of these, and an expression that begins with a line takes longer than all the rest.
    if "-- @only " in text:
        text = _ONLY.sub(lambda part: part[2] if (group or "plain") in part[1].split() else "", text)

    def calls(line: re.Match[str]) -> str:
        indent, call, hook = line.groups()
        having = [name for name, plug in plugs.items() if _has(plug, name, hook)]
        return "".join(f"{indent}-- @include plugs/{group}/{name}/{hook}\n{indent}{name}_{call}\n" for name in having)

    def guard(line: re.Match[str]) -> str:
        named = line[2].split()
        having = [text for name, text in plugs.items() if any(_has(text, name, hook) for hook in named)]
        found = [each for each in named if ":" in each]
        found += [f"keys.{each}" for text in having for each in " ".join(_GUARDS.findall(text)).split()]
        return f"{line[1]}{' '.join(found)}\n" if found else ""

    if "-- @each " in text:
        text = _EACH.sub(calls, text)
    if "-- @guard " in text:
        text = _GUARD.sub(guard, text)
    if "-- PLUGS " not in text:
        return text
    hooks = " ".join(_PLUGS.findall(text)).split()
    hooked = [plug for name, plug in plugs.items() if any(_has(plug, name, hook) for hook in hooks)]
    return _with_keys(text, [key for plug in hooked for key in _names(plug)])


def function_of(plug: str, name: str, hook: str) -> str:
    """The part of a plug that defines this function."""
    return next(part for part in plug.split("\n\n") if _has(part, name, hook))


def _has(plug: str, name: str, hook: str) -> bool:
    return f"local function {name}_{hook}(" in plug


def _names(header: str) -> list[str]:
    return [str(name) for line in _KEYS.findall(header) for name in line.split()]


def _with_keys(text: str, added: list[str]) -> str:
    """The same, whose header has these keys, too, before those of any length."""
    own = _names(text)
    fixed = [name for name in own if not name.endswith("..")]
    keys = dict.fromkeys([*fixed, *added, *own])
    if len(keys) == len(own):
        return text
    first = next(_KEYS.finditer(text))
    return text[: first.start()] + f"-- KEYS {' '.join(keys)}\n" + _KEYS.sub("", text[first.end() :])
