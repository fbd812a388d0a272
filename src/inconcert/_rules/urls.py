"""Which URLs are valid, and how to show one without its secrets.

A mistyped URL may have its password anywhere, so only the scheme of a refused URL is shown.
"""

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

__all__ = ["check_url", "option_names", "without_secrets"]

_SCHEMES = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss", "unix": "unix"}
_UNCHECKED = {"ssl_cert_reqs": ("none", "optional"), "ssl_check_hostname": ("false", "f", "no", "n", "0")}
_OPTION_NAME = re.compile(r"[a-z_]+")
_HOST = re.compile(r"(\[[\w.:%]+\]|[\w.-]+)(:.*)?", re.DOTALL)  # a name or an address, and what may be a port


def check_url(url: str) -> str:
    """Return `url` in the driver's form if it is a valid server URL.

    Raises:
        TypeError: `url` is not a string.
        ValueError: The scheme is not that of Redis, Valkey or unix sockets, the host or the path is missing, the port
            or the database is not a number, a character is not escaped, or certificates would not be checked.  The
            message never contains the URL's secrets.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the URL of a server must be a string such as redis://host:6379/0, and this is {type(url)!r}")
    scheme, slashes, rest = url.partition("://")
    if not slashes or scheme not in _SCHEMES:
        raise ValueError("the URL must start with redis://, rediss://, valkey://, valkeys:// or unix://")
    shown = f"the URL {scheme}://..."
    try:
        parts = urlsplit(f"{_SCHEMES[scheme]}://{rest}")
        _check_place(shown, parts)
    except ValueError as error:
        if str(error).startswith(shown):
            raise
        raise ValueError(f"{shown} has brackets that hold no address, or characters that no address has") from None
    if any(value.lower() in _UNCHECKED.get(key, ()) for key, value in parse_qsl(parts.query)):
        raise ValueError(
            f"{shown} turns off the check of the server's certificate; give ssl_ca_certs=, "
            "or pass a client of your own to Coordinator.from_client()"
        )
    return f"{_SCHEMES[scheme]}://{rest}"


def _check_place(shown: str, parts: SplitResult) -> None:
    if parts.scheme == "unix":
        if not parts.path.strip("/") or parts.netloc.rpartition("@")[2]:
            raise ValueError(f"{shown} has no absolute path; write unix:///path/to/redis.sock")
        return
    if not _HOST.fullmatch(parts.netloc.rpartition("@")[2]):
        raise ValueError(f"{shown} has no host; write {parts.scheme}://host:6379/0")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"{shown} has an invalid port; give a number from 0 to 65535; "
            f"with a password write {parts.scheme}://user:password@host:6379/0"
        ) from None
    if parts.fragment or "@" in parts.path + parts.query:
        raise ValueError(f"{shown} has one of @ # behind its host; write %40 or %23 for it, and %2F %3F for / ?")
    database = parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        raise ValueError(f"{shown} has an invalid database; write {parts.scheme}://host:6379/0")


def option_names(url: str) -> list[str]:
    """The names of a URL's options, those that can be shown."""
    return [name for name, _ in parse_qsl(urlsplit(url).query) if _OPTION_NAME.fullmatch(name)]


def without_secrets(url: str) -> str:
    """A checked URL without user name, password and options."""
    parts = urlsplit(url)
    if set(parts.path) & set("@:"):  # a path, or a misplaced password
        return f"{parts.scheme}://..."
    database = dict(parse_qsl(parts.query)).get("db", "")
    options = f"?db={database}" if database.isdigit() else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{options}"
