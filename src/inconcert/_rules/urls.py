"""Which URLs name a server, and how to show one without its secrets."""

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

__all__ = ["check_url", "without_secrets"]

_SECRET = {"password", "username", "ssl_password"}
_UNCHECKED = {"ssl_cert_reqs": ("none", "optional"), "ssl_check_hostname": ("false", "f", "no", "n", "0")}


def check_url(url: str) -> str:
    """Return `url` if it names a server without a doubt.

    Raises:
        ValueError: The scheme is not `redis://`, `rediss://` or `unix://`, the host or the path is missing, the port or
            the database is no number, or certificates would not be checked.  The message never holds the URL's secrets.
    """
    shown = without_secrets(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"the URL {shown!r} has brackets that hold no address") from None
    if parts.scheme not in ("redis", "rediss", "unix") or "://" not in url:
        raise ValueError(f"the URL {shown!r} must start with redis://, rediss:// or unix://")
    if parts.scheme == "unix":
        if not parts.path.strip("/") or parts.netloc.rpartition("@")[2]:
            raise ValueError(f"the URL {shown!r} has no absolute path; write unix:///path/to/redis.sock")
        return url
    if not parts.hostname:
        raise ValueError(f"the URL {shown!r} has no host; write {parts.scheme}://host:6379/0")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"the URL {shown!r} has a port that is no number from 0 to 65535") from None
    database = parts.path.strip("/")
    if (database and not database.isascii()) or (database and not database.isdigit()):
        raise ValueError(f"the URL {shown!r} has a database that is no number; write {parts.scheme}://host:6379/0")
    if any(value.lower() in _UNCHECKED.get(key, ()) for key, value in parse_qsl(parts.query)):
        raise ValueError(
            f"the URL {shown!r} turns off the check of the server's certificate; give ssl_ca_certs=, "
            "or pass a client of your own to Coordinator.from_client()"
        )
    return url


def without_secrets(url: str) -> str:
    """The URL without user name, password and secret query parameters."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "..."
    if "@" in parts.path + parts.query + parts.fragment:  # mistyped, or with a password that has one of /?#
        return f"{parts.scheme}:..."
    place = parts.netloc.rpartition("@")[2]
    query = urlencode([(key, value) for key, value in parse_qsl(parts.query) if key not in _SECRET])
    shown = urlunsplit((parts.scheme, place, parts.path, query, ""))
    if "://" in url and "://" not in shown:  # without a host, as in unix:///path, the slashes are lost
        shown = shown.replace(":", "://", 1)
    return shown
