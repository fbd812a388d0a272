"""Names of primitives that are filled in from a request, such as `order:{order_id}`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from inconcert.errors import InvalidName

_FIELD = re.compile(r"(?:(?P<source>query|header)\.(?P<field>[^.\[\]]+)|(?P<path>[A-Za-z_]\w*))")
_NO_CLIENT = "unknown"  # of a connection without an address, such as a unix socket


@dataclass(frozen=True, slots=True)
class RequestValues:
    """The values of a request that can fill a name."""

    path: Mapping[str, object]  # the parameters of its path
    query: Mapping[str, str]  # the parameters of its query
    headers: Mapping[str, str]  # its headers; names are looked up in lower case
    client: str | None  # the address of the other end; None if it has none


class NameTemplate:
    """A name with fields: `{order_id}` of the path, `{query.page}`, `{header.x-tenant}`, and `{client}`.

    A field says where its value comes from, so that no client can put a header where a path parameter is meant.

    Args:
        template: The name; braces of its own are doubled.

    Raises:
        ValueError: A field is something else.
    """

    def __init__(self, template: str) -> None:
        self._template = template
        self._parts: list[tuple[str, re.Match[str] | None]] = []
        for text, field, spec, conversion in Formatter().parse(template):
            found = None if field is None else _FIELD.fullmatch(field)
            if field is not None and (found is None or spec or conversion):
                raise ValueError(
                    f"the name {template!r} has a field {field!r}; write the name of a path parameter, query.NAME, "
                    "header.NAME or client"
                )
            self._parts.append((text, found))

    def __repr__(self) -> str:
        return f"<NameTemplate {self._template!r}>"

    def fill(self, values: RequestValues) -> str:
        """The name for this request.

        Raises:
            InvalidName: The request does not have the parameter or the header.
            LookupError: The route has no such path parameter.
        """
        return "".join(text + ("" if field is None else self._value(field, values)) for text, field in self._parts)

    def _value(self, field: re.Match[str], values: RequestValues) -> str:
        name = field["field"] or field["path"]
        match field["source"], name:
            case "query", _:
                value = values.query.get(name)
            case "header", _:
                value = values.headers.get(name.lower())
            case _, "client":
                value = values.client or _NO_CLIENT
            case _:
                if name not in values.path:
                    raise LookupError(
                        f"the name {self._template!r} needs the path parameter {name!r}, and the route has only "
                        f"{sorted(values.path)}; rename it in one of the two"
                    )
                value = str(values.path[name])
        if value is None:
            kind = "query parameter" if field["source"] == "query" else field["source"]
            raise InvalidName(f"the request has no {kind} {name!r}; send it")
        return value
