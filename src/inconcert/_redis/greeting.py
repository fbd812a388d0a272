"""What kind of server answers, asked once when a coordinator opens.

A replica and a node of a cluster let us subscribe, and refuse the first script, or every other.  So we leave
them at once.  `HELLO` is allowed to every user, and costs nothing beside what opening sends anyway.
"""

from typing import cast

from inconcert._redis.call import Call
from inconcert._redis.channel import Channel
from inconcert._redis.commands import pack
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Command, Script
from inconcert.errors import InconcertError, NotConnected, Unavailable

__all__ = ["Greeting"]

_NO_SCRIPT = Script("hello", "")


class Greeting(Call):
    """The question to a channel's server, under way.

    Args:
        channel: Where to ask.
    """

    __slots__ = ()

    def __init__(self, channel: Channel) -> None:
        super().__init__(Command(_NO_SCRIPT, ("server",), ()))
        self.packed = pack("HELLO")
        channel.submit(self)

    async def check(self) -> None:
        """Wait for the answer.

        Raises:
            Unavailable: It is a server that cannot serve us.
        """
        try:
            said = _read(await self)
        except NotConnected:
            raise
        except InconcertError:  # it does not say, as before Redis 6: go on
            return
        if said.get("mode") == "cluster":
            raise Unavailable(
                "the server is a node of a Redis Cluster, which is not supported yet; "
                "connect to a server without cluster mode"
            )
        if said.get("mode") == "sentinel":
            raise Unavailable(
                "the server is a Sentinel; ask it for the master: "
                "Coordinator.from_client(redis.asyncio.Sentinel(...).master_for(...))"
            )
        if said.get("role") in ("replica", "slave"):
            raise Unavailable(
                "the server is a replica, to which only its master writes; connect to the master, or through Sentinel"
            )


def _read(reply: Reply) -> dict[str, str]:
    if isinstance(reply, list):  # of names and values in turn, before RESP3
        reply = dict(zip(*[iter(cast("list[object]", reply))] * 2, strict=False))
    fields = cast("dict[bytes, object]", reply)
    return {name.decode(): value.decode() for name, value in fields.items() if isinstance(value, bytes)}
