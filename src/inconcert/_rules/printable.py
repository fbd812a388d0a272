"""JSON of what other people may have named in any way, such as files of the system and asyncio tasks."""

from typing import cast

import msgspec


def encode_anyhow(value: object) -> bytes:
    """JSON of a value; what UTF-8 cannot hold of its strings is shown as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(msgspec.to_builtins(value)))


def _printable(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_printable(each) for each in cast("list[object]", value)]
    return value
