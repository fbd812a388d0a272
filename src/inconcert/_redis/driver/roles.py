"""The role of a server that Sentinels have named: a master, or not.

A Sentinel may be the last to hear of a failover, and a replica may be configured to accept writes, which its master
then overwrites.  So the first command on such a connection is a question.
"""

from typing import Any, cast

import redis.asyncio.connection
import redis.asyncio.sentinel

from inconcert._redis.protocol.replies import Reply

HELLO = b"*1\r\n$5\r\nHELLO\r\n"


async def check_role(connection: redis.asyncio.connection.AbstractConnection, pool: object) -> None:
    """Ask for the role, if the pool's server was named by Sentinels; every user may run `HELLO`.

    Raises:
        ConnectionError: It is not a master.
    """
    if not isinstance(pool, redis.asyncio.sentinel.SentinelConnectionPool):
        return
    await connection.send_packed_command(HELLO, check_health=False)
    role = role_in(await cast("Any", connection).read_response(disable_decoding=True))
    if role != "master":
        raise ConnectionError(
            f"{cast('Any', connection).host}:{cast('Any', connection).port} is a {role}, not a master"
        )


def role_in(hello: Reply) -> str:
    """The role of a server, in its reply to `HELLO`: master, or replica."""
    return fields_of(hello).get("role", "")


def fields_of(hello: Reply) -> dict[str, str]:
    """The reply to `HELLO` as text, without its other parts."""
    if isinstance(hello, list):  # alternating names and values, before RESP3
        hello = dict(zip(*[iter(cast("list[object]", hello))] * 2, strict=False))
    fields = cast("dict[bytes, object]", hello)
    return {name.decode(): value.decode() for name, value in fields.items() if isinstance(value, bytes)}
