"""A master, its replicas and three Sentinels, all on private ports, whose failovers take a second."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Self

from redis.exceptions import RedisError

from tests.support.processes import process_state
from tests.support.servers import RealServer

__all__ = ["SentinelSet"]

_NAME = "shop"
_SENTINELS = 3
_DEADLINE = 30.0  # seconds
# How often Sentinels ping, ask and tell each other things, in milliseconds: a tenth of what they do by themselves.
_HURRY = {"info-period": 200, "ping-period": 100, "ask-period": 100, "publish-period": 200, "election-timeout": 1000}


class _Sentinel(RealServer):
    """A server in the mode that watches others. It keeps what it knows in its configuration file."""

    def __init__(self, master: RealServer) -> None:
        super().__init__()
        self._file = self.folder / "sentinel.conf"
        lines = [f"monitor {_NAME} 127.0.0.1 {master.port} 2", f"down-after-milliseconds {_NAME} 500"]
        lines += [f"failover-timeout {_NAME} 1000", f"parallel-syncs {_NAME} 5"]
        self._file.write_text("".join(f"sentinel {line}\n" for line in lines))

    def _arguments(self) -> list[str]:
        options = {"bind": "127.0.0.1", "port": str(self.port), "unixsocket": str(self.socket), "dir": str(self.folder)}
        return [
            str(self._file),
            "--sentinel",
            *(part for name, value in options.items() for part in (f"--{name}", value)),
        ]


class SentinelSet:
    """Servers of which Sentinels say which one is the master.

    Args:
        replicas: How many of them are replicas in the beginning.
        options: Lines of their configuration, "_" for "-".
    """

    def __init__(self, *, replicas: int = 1, **options: str) -> None:
        self._replicas = replicas
        self._options = {"repl_diskless_sync_delay": "0", "repl_ping_replica_period": "1"} | options
        self._opened = ExitStack()
        self.servers: list[RealServer] = []
        self.sentinels: list[RealServer] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._opened.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

    @property
    def url(self) -> str:
        """For coordinators."""
        return self.url_of(self.sentinels)

    def url_of(self, sentinels: list[RealServer], *, name: str = _NAME) -> str:
        """For coordinators that ask only these Sentinels, in this order."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in sentinels)}/{name}/0"

    @property
    def master(self) -> RealServer:
        """What most Sentinels that answer take for the master."""
        ports = [port for port in map(self._port_of_master, self._living()) if port]
        return next(one for one in self.servers if one.port == max(ports, key=ports.count))

    @property
    def replicas(self) -> list[RealServer]:
        """All servers but the master."""
        master = self.master
        return [one for one in self.servers if one is not master]

    def fail_over(self) -> RealServer:
        """Let a Sentinel promote a replica while the master lives, and return the new master when all know it."""
        before = self.master
        self._wait(lambda: self._accepted("SENTINEL", "FAILOVER", _NAME))
        return self.wait_for_new_master(before)

    def wait_for_new_master(self, before: RealServer) -> RealServer:
        """Return the new master when every Sentinel that runs names one that is not this."""
        self._wait(lambda: all(self._port_of_master(one) not in (0, before.port) for one in self._living()))
        return self.master

    def settle(self) -> None:
        """Return when every server but the master is a replica of it, and has all that it has, as Sentinels know."""
        master = self.master
        self._wait(lambda: all(self._follows(one, master) for one in self.replicas))
        self._wait(lambda: all(self._knows_all(one) for one in self._living()))

    def _start(self) -> None:
        master = self._server()
        for _ in range(self._replicas):
            self._server(replicaof=f"127.0.0.1 {master.port}")
        self._wait(lambda: all(self._follows(one, master) for one in self.servers[1:]))
        for _ in range(_SENTINELS):
            sentinel = self._opened.enter_context(_Sentinel(master))
            self.sentinels.append(sentinel)
            for period, ms in _HURRY.items():
                sentinel.command("SENTINEL", "DEBUG", period, ms)
        self._wait(lambda: all(self._knows_all(one) for one in self.sentinels))

    def _server(self, **options: str) -> RealServer:
        server = self._opened.enter_context(RealServer("valkey", **self._options, **options))
        self.servers.append(server)
        return server

    def _living(self) -> list[RealServer]:
        return [one for one in self.sentinels if one.is_running() and process_state(one.pid) != "T"]

    def _port_of_master(self, sentinel: RealServer) -> int:
        try:
            return int(sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", _NAME)[1])
        except RedisError:
            return 0

    def _accepted(self, *args: str) -> bool:
        try:
            return bool(self._living()[0].command(*args))
        except RedisError:  # such as INPROG, and NOGOODSLAVE just after another failover
            return False

    def _knows_all(self, sentinel: RealServer) -> bool:
        state = _fields(sentinel.command("SENTINEL", "MASTER", _NAME))
        others = [_fields(one) for one in sentinel.command("SENTINEL", "REPLICAS", _NAME)]
        healthy = [one for one in others if one["flags"] == "slave" and one["master-link-status"] == "ok"]
        is_complete = state["num-other-sentinels"] == str(_SENTINELS - 1) and len(healthy) == len(self.servers) - 1
        return is_complete and state["flags"] == "master"

    def _follows(self, replica: RealServer, master: RealServer) -> bool:
        try:
            ours, theirs = (
                master.command("INFO", "replication"),
                replica.command("INFO", "replication"),
            )  # in this order
        except RedisError:
            return False
        is_linked = theirs.get("master_link_status") == "up" and int(theirs["master_port"]) == master.port
        return is_linked and bool(theirs["slave_repl_offset"] >= ours["master_repl_offset"])

    def _wait(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE
        while not fact():
            if time.monotonic() > deadline:
                states = [one.command("SENTINEL", "MASTER", _NAME) for one in self._living()]
                raise AssertionError(f"the Sentinels do not get there: {states}")
            time.sleep(0.02)


def _fields(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
