"""The kind of server that answers, checked once when a coordinator opens.

A replica or a cluster node lets us subscribe but refuses the first script, or every other one, so it is rejected at
once.  Every user may run `HELLO`, and it costs little beside what opening sends anyway.
"""

from inconcert._redis.driver.roles import fields_of
from inconcert._redis.wire.call import PlainCall
from inconcert._redis.wire.transport import Commands
from inconcert.errors import InconcertError, NotConnected, Unavailable

_SHARDED_SINCE = 7  # version of Redis that has sharded Pub/Sub


async def greet(channel: Commands, *, expects_cluster: bool = False) -> None:
    """Ask a channel's server what it is, and check that.

    Raises:
        Unavailable: This kind of server is not supported.
    """
    hello = PlainCall("HELLO")
    channel.submit(hello)
    try:
        said = fields_of(await hello)
    except NotConnected:
        raise
    except InconcertError:  # no answer, as before Redis 6: continue
        return
    check_kind(said, expects_cluster=expects_cluster)


def check_kind(said: dict[str, str], *, expects_cluster: bool) -> None:
    """Check what a server says in its reply to `HELLO`.

    Raises:
        Unavailable: This kind of server is not supported.
    """
    if said.get("mode") == "cluster" and not expects_cluster:
        raise Unavailable(
            "the server is a node of a cluster; write redis+cluster://host:6379, or rediss+cluster:// with TLS, "
            "or pass a redis.asyncio.RedisCluster to Coordinator.from_client()"
        )
    if expects_cluster and int(said.get("version", "7").partition(".")[0]) < _SHARDED_SINCE:
        raise Unavailable(
            f"the cluster runs Redis {said['version']}, which has no sharded Pub/Sub; a cluster needs Redis 7.0 or "
            "newer, or Valkey"
        )
    if said.get("mode") == "sentinel":
        raise Unavailable(
            "the server is a Sentinel; let it name the master: write redis+sentinel://host:26379/mymaster/0"
        )
    if said.get("role") in ("replica", "slave"):
        raise Unavailable(
            "the server is a replica, to which only its master writes; connect to the master, or through Sentinel"
        )
