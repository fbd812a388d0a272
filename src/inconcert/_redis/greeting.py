"""What kind of server answers, checked once when a coordinator opens.

A replica or a cluster node lets us subscribe but refuses the first script, or every other one, so it is rejected at
once.  Every user may run `HELLO`, and it costs little beside what opening sends anyway.
"""

from inconcert._redis.call import Call
from inconcert._redis.channel import Channel
from inconcert._redis.commands import pack
from inconcert._redis.roles import fields_of
from inconcert._redis.scripts import Command, Script
from inconcert.errors import InconcertError, NotConnected, Unavailable

__all__ = ["Greeting"]

_NO_SCRIPT = Script("hello", "")


class Greeting(Call):
    """A `HELLO` under way to a channel's server.

    Args:
        channel: The channel that sends it.
    """

    __slots__ = ()

    def __init__(self, channel: Channel) -> None:
        super().__init__(Command(_NO_SCRIPT, ("server",), ()))
        self.packed = pack("HELLO")
        channel.submit(self)

    async def check(self) -> None:
        """Wait for the answer.

        Raises:
            Unavailable: This kind of server is not supported.
        """
        try:
            said = fields_of(await self)
        except NotConnected:
            raise
        except InconcertError:  # no answer, as before Redis 6: continue
            return
        if said.get("mode") == "cluster":
            raise Unavailable(
                "the server is a node of a Redis Cluster, which is not supported yet; "
                "connect to a server without cluster mode"
            )
        if said.get("mode") == "sentinel":
            raise Unavailable(
                "the server is a Sentinel; let it name the master: write redis+sentinel://host:26379/mymaster/0"
            )
        if said.get("role") in ("replica", "slave"):
            raise Unavailable(
                "the server is a replica, to which only its master writes; connect to the master, or through Sentinel"
            )
