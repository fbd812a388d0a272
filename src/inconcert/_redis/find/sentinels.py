"""The present master, asked of Sentinels.

All of them are asked at once, and the answer with the highest configuration epoch counts.  Each failover raises the
epoch, so a Sentinel that was cut off, and still names the old master, is outvoted by one that knows better.

If none answers, the master that was known last still counts: it may well be alive.
"""

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple, cast

import anyio
import redis.asyncio.connection
import redis.asyncio.sentinel
import redis.exceptions

from inconcert._redis.driver.clients import client_options, login_options
from inconcert._redis.protocol.commands import pack
from inconcert._redis.wire.wire import Pool
from inconcert._rules.urls import Node, ServerUrl

_GRACE = 0.1  # seconds that the other Sentinels have after the first answer; longer if that took longer


class _Report(NamedTuple):
    epoch: int
    master: Node


class Sentinels(redis.asyncio.sentinel.Sentinel):
    """The Sentinels of one master, as the driver's pools ask them."""

    def __init__(self, nodes: tuple[Node, ...], service: str, *, timeout: float, options: dict[str, Any]) -> None:
        super().__init__(nodes, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        self._service = service  # the name by which they know the master
        self._timeout = timeout  # of all of them together, in seconds
        self._known: _Report | None = None
        self._asking: asyncio.Task[Node] | None = None

    async def discover_master(self, service_name: str) -> Node:
        """The master's address.  Calls at the same time share one round of questions.

        Raises:
            redis.asyncio.sentinel.MasterNotFoundError: Nobody knows.
        """
        del service_name  # there is only one
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._discover(), name="inconcert sentinels")
            self._asking.add_done_callback(lambda asking: asking.cancelled() or asking.exception())
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """End a round of questions that is under way."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _discover(self) -> Node:
        reports: list[_Report] = []
        failures: list[str] = []
        began = anyio.current_time()

        async def ask(pool: Pool) -> None:
            try:
                reports.append(await _ask(pool, self._service))
            except Exception as error:  # noqa: BLE001 - also what escapes redis-py when a transport dies
                failures.append(f"{_title(pool)}: {str(error).rstrip('.') or repr(error)}")
            else:
                now = anyio.current_time()
                limit.deadline = min(limit.deadline, now + max(_GRACE, now - began))

        with anyio.move_on_after(self._timeout) as limit:
            async with anyio.create_task_group() as group:
                for sentinel in self.sentinels:
                    group.start_soon(ask, sentinel.connection_pool)
        return self._choose(reports, failures)

    def _choose(self, reports: list[_Report], failures: list[str]) -> Node:
        best = max(reports, default=None)
        known = self._known
        if known is not None and (best is None or (best.epoch < known.epoch and not self._is_majority(reports))):
            return known.master
        if best is None:
            why = "; ".join(failures) or f"no answer within {self._timeout:g} s"
            raise redis.asyncio.sentinel.MasterNotFoundError(f"no Sentinel knows the master {self._service!r} ({why})")
        self._known = best
        return best.master

    def _is_majority(self, reports: list[_Report]) -> bool:
        """True if most say so: then epochs may also have begun again, with Sentinels that were set up again."""
        return 2 * len(reports) > len(self.sentinels)


async def _ask(pool: Pool, service: str) -> _Report:
    connection = cast("Any", pool).make_connection()
    try:
        await connection.connect()
        # Not the address in the second reply: during a failover that is still the old master's.
        names = pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service) + pack("SENTINEL", "MASTER", service)
        await connection.send_packed_command(names, check_health=False)
        address, fields = [await connection.read_response(disable_decoding=True) for _ in range(2)]
    finally:
        with suppress(redis.exceptions.RedisError, OSError):
            await connection.disconnect(nowait=True)
    state: dict[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=True))
    return _Report(int(state[b"config-epoch"]), (address[0].decode(), int(address[1])))


def _title(pool: Pool) -> str:
    options: dict[str, Any] = pool.connection_kwargs
    return f"{options['host']}:{options['port']}"


def master_options(parts: ServerUrl, *, timeout: float | None) -> dict[str, Any]:
    """Options of a client of the master, but for its address, which the Sentinels name."""
    options: dict[str, Any] = dict(cast("Any", redis.asyncio.connection).parse_url(parts.url))
    for name in "host", "port", "connection_class":
        options.pop(name, None)
    options["ssl"] = parts.url.startswith("rediss:")
    return client_options(timeout=timeout) | login_options(parts) | options


def sentinel_options(parts: ServerUrl, options: dict[str, Any]) -> dict[str, Any]:
    """Options of connections to the Sentinels: with the certificates of the master's, and a login of their own."""
    username, password = parts.sentinel_login
    return {
        **client_options(timeout=options["socket_timeout"]),
        **{name: value for name, value in options.items() if name.startswith(("ssl", "socket_"))},
        "username": username,
        "password": password,
        "protocol": 2,
    }
