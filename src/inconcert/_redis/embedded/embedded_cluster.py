"""A private cluster: masters that live and die with the program that started them.

They do not meet: each begins with a file that names all of them and their slots, as if it had been a node before.
So they agree from the start, and serve as soon as Valkey lets a restarted master serve, which is after 2 s.
"""

import secrets
import socket
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlencode

import anyio
import anyio.to_thread

from inconcert._redis.embedded.server_process import ServerProcess, find_binary, starting, stop
from inconcert._redis.protocol.commands import pack
from inconcert._redis.protocol.slots import SLOTS
from inconcert._rules.limits import whole
from inconcert.errors import Unavailable

_MOST = 32  # masters; more than anybody tries out on one machine
_TRIES = 5  # another program may take a port between our choice and the server's start


class EmbeddedCluster:
    """A cluster of Valkey masters without replicas, for tests and tries; it keeps nothing.

    The nodes listen on loopback ports and ask for a password, which is in a file that only this user can read.  The
    ports that they use among themselves know no passwords: where other users of the machine are not trusted, use one
    server, which has a socket of its own.

    Args:
        masters: How many, 1 to 32.
    """

    def __init__(self, masters: int) -> None:
        self._masters = whole("cluster", masters, most=_MOST)
        self._processes: list[ServerProcess] = []
        self._url = ""

    @property
    def url(self) -> str:
        """The URL of its nodes, with the file with the password; new ones after every start.

        Raises:
            Unavailable: The cluster is not started.
        """
        if not self._processes:
            raise Unavailable("the embedded cluster is not running, so it has no address; start() it first")
        return self._url

    async def start(self) -> None:
        """Start it and return when all nodes serve; if this fails or is cancelled, nothing is left behind.

        Raises:
            ImportError: The extra is not installed.
            Unavailable: A node did not start; with its log.
            RuntimeError: It is already started.
        """
        if self._processes:
            raise RuntimeError("the embedded cluster is already started; stop() it first")
        binary = await anyio.to_thread.run_sync(find_binary)
        for remaining in reversed(range(_TRIES)):
            try:
                await self._start(binary)
            except Unavailable as error:
                if not remaining or "Address already in use" not in str(error):
                    raise
            else:
                return

    async def _start(self, binary: Path) -> None:
        password = secrets.token_urlsafe(32)
        try:
            with starting():
                nodes = _Node.several(self._masters)
                for node in nodes:
                    folder = _folder(node, nodes, password)
                    command = [str(binary), str(folder / "server.conf")]
                    self._processes.append(ServerProcess.spawn(folder, command))
            for node, process in zip(nodes, self._processes, strict=True):
                await process.answers(lambda: _state(node, password), b"cluster_state:ok")  # noqa: B023 - awaited here
        except BaseException:
            await self.stop()
            raise
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        options = urlencode({"password_file": _password_file(self._processes[0].folder)})
        self._url = f"redis+cluster://{hosts}?{options}"

    async def stop(self) -> None:
        """Stop all nodes. Does nothing if it is not started.

        A cancellation is raised only once they have ended.
        """
        processes, self._processes = self._processes, []
        await stop(processes)


class _Node(NamedTuple):
    id: str
    number: int
    port: int
    bus_port: int
    slots: str

    @classmethod
    def several(cls, count: int) -> list[Self]:
        """Nodes on free ports, with a share of the slots each."""
        with ExitStack() as open_sockets:  # all at once, or a port would be chosen twice
            sockets = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2 * count)]
            ports = [each.getsockname()[1] for each in sockets]
        ends = [SLOTS * number // count for number in range(count + 1)]
        return [
            cls(secrets.token_hex(20), number + 1, port, bus_port, f"{ends[number]}-{ends[number + 1] - 1}")
            for number, (port, bus_port) in enumerate(zip(ports[:count], ports[count:], strict=True))
        ]

    def line(self, myself: "_Node") -> str:
        """Its line in the file of a node."""
        flags = "myself,master" if self is myself else "master"
        # Without the shard's id, which is any such number, Valkey crashes when a script publishes.
        address = f"127.0.0.1:{self.port}@{self.bus_port},,shard-id={self.id}"
        return f"{self.id} {address} {flags} - 0 0 {self.number} connected {self.slots}"


def _folder(node: _Node, nodes: list[_Node], password: str) -> Path:
    """A folder with what a node reads when it starts; its command line could be read by other users."""
    folder = Path(tempfile.mkdtemp(prefix="inconcert-"))  # mode 0700
    settings = {
        "bind": "127.0.0.1",
        "port": node.port,
        "cluster-enabled": "yes",
        "cluster-port": node.bus_port,
        "requirepass": password,
        "masterauth": password,
        "dir": f'"{folder}"',
        "save": '""',
        "appendonly": "no",
        "loglevel": "warning",
    }
    state = [*(each.line(node) for each in nodes), f"vars currentEpoch {len(nodes)} lastVoteEpoch 0"]
    (folder / "server.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    (folder / "nodes.conf").write_text("".join(f"{line}\n" for line in state))
    _password_file(folder).write_text(password)
    return folder


def _password_file(folder: Path) -> Path:
    return folder / "password"


async def _state(node: _Node, password: str) -> bytes:
    """The reply of a node to `CLUSTER INFO`. Empty if there is no answer."""
    with anyio.move_on_after(1.0), suppress(OSError, anyio.EndOfStream, anyio.BrokenResourceError):
        async with await anyio.connect_tcp("127.0.0.1", node.port) as stream:
            await stream.send(pack("AUTH", password) + pack("CLUSTER", "INFO"))
            answer = b""
            while b"cluster_state:" not in answer:
                answer += await stream.receive()
            return answer
    return b""
