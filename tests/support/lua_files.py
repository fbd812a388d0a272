"""The Lua files of the package, and the forms in which its scripts run."""

import re
from pathlib import Path

from inconcert._redis.protocol.scripts import read

__all__ = ["FILES", "FORMS", "INCLUDED", "LUA", "PLUGS", "file_of", "text_of", "title"]

LUA = Path(__file__).parents[2] / "src/inconcert/_lua"
INCLUDED = sorted((LUA / "include").rglob("*.lua"))
PLUGS = sorted((LUA / "plugs").rglob("*.lua"))
FILES = sorted(set(LUA.rglob("*.lua")) - {*INCLUDED, *PLUGS})  # of scripts


def title(path: Path) -> str:
    """A script by its folder and verb, as its first line has it."""
    return path.relative_to(LUA).with_suffix("").as_posix()


def _forms(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    groups = {group for line in re.findall(r"^ *-- @only (.+)$", text, re.MULTILINE) for group in line.split()}
    if "-- PLUGS " in text:
        of_both = {"jobs", "items"} if "plain" not in groups else {"jobs"}
        groups |= {"claims": of_both, "queues": {"items"}}.get(path.parent.name, {"jobs"})
    if not groups:
        return [title(path)]
    return sorted(title(path) if group == "plain" else f"{title(path)}+{group}" for group in groups)


FORMS = [form for path in FILES for form in _forms(path)]  # such as `claims/ack`, and `claims/ack+jobs`


def text_of(name: str) -> str:
    """The text of a script in this form, as its file has it: with comments, without includes."""
    name_of_file, _, group = name.partition("+")
    return read(name_of_file, group)


def file_of(name: str) -> str:
    """The script of which this is a form."""
    return name.partition("+")[0]
