"""Valid URLs, and showing one without its secrets.

A mistyped URL may have its password anywhere, so only the scheme of a refused URL is shown.

`redis+sentinel://` and `redis+cluster://` name several nodes, separated by commas.  Each is checked as the URL of one
server is, so both kinds obey the same rules.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

Topology = Literal["server", "sentinel", "cluster"]
Node = tuple[str, int]  # host and port

_SCHEMES = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss", "unix": "unix"}
_PORTS = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_EXAMPLES = {
    "server": "{}://host:6379/0",
    "sentinel": "{}://host1:26379,host2:26379/mymaster/0",
    "cluster": "{}://host1:6379,host2:6379",
}
_UNCHECKED = {"ssl_cert_reqs": ("none", "optional"), "ssl_check_hostname": ("false", "f", "no", "n", "0")}
_OPTION_NAME = re.compile(r"[a-z_]+")
_HOST = re.compile(r"(\[[\w.:%]+\]|[\w.-]+)(:.*)?", re.DOTALL)  # a name or an address, and what may be a port
_PARTS = re.compile(r"((?:[^/?#]*@)?)([^/?#]*)([^?#]*)(.*)", re.DOTALL)  # user and password@, nodes, path, the rest
_SERVICE = re.compile(r"[A-Za-z0-9._-]+")  # what a Sentinel accepts
_SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """The parts of a valid URL."""

    topology: Topology  # the kind of servers that it leads to
    # that of one server, in the driver's form: for Sentinels with the first one's address in node of the
    # master's, for a cluster that of the first node.  It has the credentials, the database and the options
    url: str = field(repr=False)
    shown: str  # the URL without user name, password and options, but for the path of the file with the password
    nodes: tuple[Node, ...] = ()  # the Sentinels, or nodes of the cluster; empty for one server
    service: str = ""  # the name by which Sentinels know the master; otherwise empty
    # user name and password with which to log in to the Sentinels, each None if not given
    sentinel_login: tuple[str | None, str | None] = field(default=(None, None), repr=False)
    password_file: Path | None = None  # a file with the password; then `url` has no credentials
    # the user that this password is of; None for the default one
    username: str | None = field(default=None, repr=False)

    @contextmanager
    def naming_options(self) -> Generator[None]:
        """Raise ValueError with the name of the option that the driver does not take, and never with a value."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the driver, its parser or ssl
            names = [name for name, _ in parse_qsl(urlsplit(self.url).query) if _OPTION_NAME.fullmatch(name)]
            named = next((f"the option {name!r}" for name in names if name in str(error)), "an option")
            raise ValueError(
                f"the URL of {self.shown} has {named} that redis-py does not take, or not with this value"
            ) from None


def parse_url(url: str) -> ServerUrl:
    """Return the parts of `url` if it is valid.

    Raises:
        TypeError: `url` is not a string.
        ValueError: The scheme is not that of Redis, Valkey or unix sockets, a host, the path or the name of the master
            is missing, a port or the database is not a number, a character is not escaped, or certificates would not
            be checked.  The message never contains the URL's secrets.
    """
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"the URL of a server must be a string such as redis://host:6379/0, and this is {type(url).__name__}; "
            "is the environment variable set that it comes from?"
        )
    scheme, slashes, rest = url.partition("://")
    base, plus, topology = scheme.partition("+")
    if not slashes or base not in _SCHEMES or (plus and (base == "unix" or topology not in ("sentinel", "cluster"))):
        raise ValueError(
            "the URL must start with redis://, rediss://, valkey://, valkeys:// or unix://; "
            "for Sentinels or a cluster with redis+sentinel:// or redis+cluster://, and so on"
        )
    shown = f"the URL {scheme}://..."
    try:
        rest, password_file = _without_password_file(rest)
        parts = _several(shown, scheme, cast("Topology", topology), rest) if plus else _one(shown, scheme, rest)
        return parts if password_file is None else _with_password_file(shown, parts, password_file)
    except ValueError as error:
        if str(error).startswith(shown):
            raise
        raise ValueError(f"{shown} has brackets that hold no address, or characters that no address has") from None


def _one(shown: str, scheme: str, rest: str) -> ServerUrl:
    url = f"{_SCHEMES[scheme]}://{rest}"
    parts = _checked(shown, url, _EXAMPLES["server"].format(scheme))
    return ServerUrl("server", _with_host_check(url), _without_secrets(parts))


def _several(shown: str, scheme: str, topology: Topology, rest: str) -> ServerUrl:
    example = _EXAMPLES[topology].format(scheme)
    base = _SCHEMES[scheme.partition("+")[0]]
    found = _PARTS.fullmatch(rest)
    assert found is not None  # noqa: S101 - each part may be empty
    login, hosts, path, end = found.groups()
    service = ""
    if topology == "sentinel":
        service, _, path = path.removeprefix("/").partition("/")
        if not _SERVICE.fullmatch(service) or (service.isdigit() and not path):  # a database alone
            raise ValueError(f"{shown} has no name of the master, or an invalid one; write {example}")
    nodes = [_checked(shown, f"{base}://{login}{host}/{path.lstrip('/')}{end}", example) for host in hosts.split(",")]
    first = nodes[0]
    options = parse_qsl(first.query, keep_blank_values=True)
    if topology == "cluster" and (_database(first) or "0").strip("0"):
        raise ValueError(f"{shown} names a database, and a cluster has one only; write {example}")
    logins = {name: value for name, value in options if name in _SENTINEL_OPTIONS}
    if logins and topology == "sentinel":
        query = urlencode([(name, value) for name, value in options if name not in _SENTINEL_OPTIONS])
        first = first._replace(query=query)
    database = _database(first) or "0"
    tail = f"/{service}/{database if database.isdigit() else ''}" if service else ""
    return ServerUrl(
        topology,
        _with_host_check(first.geturl()),
        f"{scheme}://{hosts}{tail}",
        nodes=tuple((node.hostname or "", node.port or _PORTS[topology]) for node in nodes),
        service=service,
        sentinel_login=(logins.get("sentinel_username"), logins.get("sentinel_password")),
    )


def _without_password_file(rest: str) -> tuple[str, str | None]:
    """The rest of a URL without this option, and the option's value; None if there is none."""
    address, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    paths = [value for name, value in options if name == "password_file"]
    if not paths:
        return rest, None
    query = urlencode([(name, value) for name, value in options if name != "password_file"])
    return f"{address}?{query}" if query else address, paths[-1]


def _with_password_file(shown: str, parts: ServerUrl, path: str) -> ServerUrl:
    url = urlsplit(parts.url)
    login = url.netloc.rpartition("@")[0]
    if ":" in login or "password" in dict(parse_qsl(url.query)):
        raise ValueError(f"{shown} has a password and a password_file; leave out one of the two")
    if not path:
        raise ValueError(f"{shown} has a password_file without a path")
    return replace(
        parts,
        url=parts.url.replace(f"//{login}@", "//", 1),
        shown=f"{parts.shown}{'&' if '?' in parts.shown else '?'}{urlencode({'password_file': path})}",
        password_file=Path(path),
        username=unquote(login) if login else None,
    )


def _checked(shown: str, url: str, example: str) -> SplitResult:
    parts = urlsplit(url)
    _check_address(shown, parts, example)
    if any(value.lower() in _UNCHECKED.get(key, ()) for key, value in parse_qsl(parts.query)):
        raise ValueError(
            f"{shown} turns off the check of the server's certificate; give ssl_ca_certs=, "
            "or pass a client of your own to Coordinator.from_client()"
        )
    return parts


def _check_address(shown: str, parts: SplitResult, example: str) -> None:
    if parts.scheme == "unix":
        if not parts.path.strip("/") or parts.netloc.rpartition("@")[2]:
            raise ValueError(f"{shown} has no absolute path; write unix:///path/to/redis.sock")
        return
    if not _HOST.fullmatch(parts.netloc.rpartition("@")[2]):
        raise ValueError(f"{shown} has no host; write {example}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"{shown} has an invalid port; give a number from 0 to 65535; with a password write "
            f"{example.replace('://', '://user:password@')}; several hosts need redis+sentinel:// or redis+cluster://"
        ) from None
    if parts.fragment or "@" in parts.path + parts.query:
        raise ValueError(f"{shown} has one of @ # behind its host; write %40 or %23 for it, and %2F %3F for / ?")
    database = parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit()):
        raise ValueError(f"{shown} has an invalid database; write {example}")


def _with_host_check(url: str) -> str:
    """With an option whose value is the default only since redis-py 6: certificates must name their host."""
    query = urlsplit(url).query
    if not url.startswith("rediss:") or "ssl_check_hostname" in dict(parse_qsl(query)):
        return url
    return f"{url.rstrip('?')}{'&' if query else '?'}ssl_check_hostname=true"


def _without_secrets(parts: SplitResult) -> str:
    """Without user name, password and options."""
    if set(parts.path) & set("@:"):  # a path, or a misplaced password
        return f"{parts.scheme}://..."
    database = dict(parse_qsl(parts.query)).get("db", "")
    options = f"?db={database}" if database.isdigit() else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{options}"


def _database(parts: SplitResult) -> str:
    """The database that a URL names, by its option or else by its path; "" if it names none."""
    return dict(parse_qsl(parts.query)).get("db", "") or parts.path.strip("/")
