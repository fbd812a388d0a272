"""Scripts whose name a test has as text, and how many have run.

The first call of a script on a connection carries its source, later ones its hash.
"""

from collections.abc import Mapping
from typing import Any

from inconcert._redis.protocol.scripts import Command, load
from tests.support.lua_files import FORMS, file_of

__all__ = ["command_of", "scripts_run", "sent_in"]


def command_of(name: str, /, *bundles: object, **named: Any) -> Command:
    """This script, bound to these bundles of keys, with its other keys and arguments; of jobs, if it is not plain."""
    return load(name if name in FORMS else f"{name}+jobs").bind(*map(type, bundles))(*bundles, **named)


def scripts_run(stats: Mapping[str, Mapping[str, Any]]) -> int:
    """How many scripts a server has run, of its `INFO commandstats`."""
    return sum(int(stats.get(f"cmdstat_{name}", {}).get("calls", 0)) for name in ("eval", "evalsha"))


def sent_in(data: bytes, name: str) -> int:
    """How many calls of this script are in what was written, in any of its forms."""
    scripts = [load(form) for form in FORMS if file_of(form) == name]
    return sum(data.count(script.sha.encode()) + data.count(script.source.encode()) for script in scripts)
