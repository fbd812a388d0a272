"""The least rights of a user for one namespace: which commands, keys and channels, as rules for `ACL SETUSER`.

The commands are those of the scripts, which run with the rights of their caller, and those that connections send.
Every user may run `HELLO` and `AUTH`.
"""

from enum import StrEnum

from inconcert._redis.find.master_watch import EVENTS
from inconcert._redis.protocol.keys import Keyspace


class Server(StrEnum):
    """The servers that check the rights: this version or a later one."""

    REDIS_6_2 = "redis-6.2"
    REDIS_7 = "redis-7"
    REDIS_7_2 = "redis-7.2"
    VALKEY = "valkey"
    VALKEY_9_1 = "valkey-9.1"


_CONNECTIONS = ("client|setname", "ping", "select")
_SINCE_7_2 = ("client|setinfo",)  # the driver goes on without it, but `ACL LOG` would tell of each connection
_SCRIPTS = ("eval", "evalsha")
_MESSAGES = ("psubscribe", "publish", "pubsub|numsub", "punsubscribe", "subscribe", "unsubscribe")
_ONE_SERVER = ("blpop",)  # idle consumers on a cluster wait for messages instead
_CLUSTER = (
    "asking",
    "cluster|slots",
    "pubsub|shardnumsub",
    "spublish",
    "ssubscribe",
    "sunsubscribe",
)
_INSPECT, _INSPECT_CLUSTER = "pubsub|channels", "pubsub|shardchannels"
_SENTINEL = ("client|setname", "ping", "sentinel|get-master-addr-by-name", "sentinel|master", "subscribe")
_DATA = (
    *("lindex", "llen", "lpop", "lpos", "lpush", "lrange", "lrem", "ltrim", "rpush"),
    *("del", "exists", "persist", "pexpire", "pttl", "rename", "unlink"),
    *("get", "getrange", "incrby", "set"),
    *("hdel", "hexists", "hget", "hgetall", "hincrby", "hlen", "hmget", "hscan", "hset", "hsetnx"),
    *("sadd", "scard", "sdiff", "sismember", "smembers", "srem"),
    *("zadd", "zcard", "zcount", "zlexcount", "zmscore", "zpopmin", "zrange", "zrangebylex", "zrangebyscore", "zrank"),
    *("zrem", "zremrangebyscore", "zrevrange", "zrevrangebylex", "zrevrangebyscore", "zrevrank", "zscan", "zscore"),
    "zunionstore",
    "time",
)


def least_rights(
    namespace: str,
    *,
    server: Server = Server.REDIS_7,
    database: int | None = None,
    cluster: bool = False,
    failover_guard: bool = False,
    replicas: bool = False,
    inspect: bool = False,
) -> list[str]:
    """The rules that let a user use a namespace, and nothing else.

    They replace the rights that the user has, and leave its passwords.

    Args:
        namespace: The coordinator's.
        server: What checks the rules.
        database: The only database that the user may select; None for any. Only Valkey 9.1 has a rule for it.
        cluster: Whether the server is a cluster.
        failover_guard: Whether a coordinator has this option.
        replicas: Whether a coordinator has this option.
        inspect: Whether the user may call `Coordinator.inspect`. Then it may also list the channels of all namespaces:
            no server lets it list some.

    Raises:
        InvalidName: `namespace` is not valid.
        ValueError: This server has no such rules.
    """
    if cluster and server is Server.REDIS_6_2:
        raise ValueError("a cluster needs Redis 7.0 or newer: sharded channels are new in it")
    if database is not None and server is not Server.VALKEY_9_1:
        raise ValueError(f"{server} has no rules for databases; Valkey 9.1 has")
    keys, channels = Keyspace(namespace).globs
    commands = [*_CONNECTIONS, *_SCRIPTS, *_MESSAGES, *_DATA]
    commands += [] if server is Server.REDIS_7 else _SINCE_7_2  # 7.0 refuses rules for commands that it does not know
    commands += _CLUSTER if cluster else _ONE_SERVER
    commands += ["info"] if failover_guard else []
    commands += ["wait"] if replicas else []
    commands += [_INSPECT_CLUSTER if cluster else _INSPECT] if inspect else []
    rules = [] if server is Server.REDIS_6_2 else ["clearselectors"]
    rules += ["resetkeys", f"~{keys}", "resetchannels", f"&{channels}"]
    rules += ["resetdbs", f"db={database}"] if database is not None else []
    return [*rules, "-@all", *(f"+{command}" for command in commands)]


def sentinel_rights(server: Server = Server.REDIS_7) -> list[str]:
    """The rules that let a user learn from a Sentinel which server is the master, and when that changes."""
    commands = _SENTINEL if server is Server.REDIS_7 else (*_SENTINEL, *_SINCE_7_2)
    rules = [] if server is Server.REDIS_6_2 else ["clearselectors"]
    channels = [f"&{event}" for event in EVENTS]
    return [*rules, "resetkeys", "resetchannels", *channels, "-@all", *(f"+{command}" for command in commands)]
