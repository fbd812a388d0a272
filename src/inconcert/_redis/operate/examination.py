"""Facts about a server, missing rights of its user, and keys that would stay by mistake: for `inconcert doctor`.

It is asked through the user's own client.  What the user may not ask is named, and the rest is seen all the same.
"""

import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import redis.exceptions
from redis.asyncio.sentinel import SentinelConnectionPool

from inconcert._redis.driver.clients import Client, ClusterClient
from inconcert._redis.protocol.keys import Keyspace, is_permanent
from inconcert._redis.protocol.replies import Reply

_CONFIG = (
    *("timeout", "tcp-keepalive", "client-output-buffer-limit", "save", "min-replicas-to-write"),
    "cluster-require-full-coverage",
)
_AWAY = redis.exceptions.RedisError, redis.exceptions.RedisClusterException
_MOST_KEYS = 100_000  # looked at, so that a large database is not read through
_AT_ONCE = 1000  # keys in one reply
_SLOTS = 16384

# Each command of a script, so that it changes nothing: `$` is a string, on which others fail after the rights were
# checked, and `-` does not exist.  The string is set first, and ends by itself.  `redis.acl_check_cmd`, in
# a script, is not asked instead: for `EVAL` with too few arguments it ends Valkey 9.
TRIALS = (
    *("set $ x PX 10000", "get $", "getrange $ 0 0", "incrby $ 1"),
    *("lindex $ 0", "llen $", "lpop $", "lpos $ x", "lpush $ x"),
    *("lrange $ 0 0", "lrem $ 0 x", "ltrim $ 0 0", "rpush $ x"),
    *("exists $", "persist -", "pexpire $ 10000", "pttl $", "rename - -", "unlink -"),
    *("hdel $ x", "hexists $ x", "hget $ x", "hgetall $", "hincrby $ x 1", "hlen $", "hmget $ x", "hscan $ 0"),
    *("hset $ x x", "hsetnx $ x x"),
    *("sadd $ x", "scard $", "sdiff $", "sismember $ x", "smembers $", "srem $ x"),
    *("zadd $ 1 x", "zcard $", "zcount $ 0 0", "zlexcount $ - +", "zmscore $ x", "zpopmin $", "zrange $ 0 0"),
    *("zrangebylex $ - +", "zrangebyscore $ 0 0", "zrank $ x", "zrem $ x", "zremrangebyscore $ 0 0", "zrevrange $ 0 0"),
    *("zrevrangebylex $ + -", "zrevrangebyscore $ 0 0", "zrevrank $ x", "zscan $ 0", "zscore $ x", "zunionstore $ 1 $"),
    *("time", "del $"),
)
ONE_SERVER_TRIALS = ("blpop $ 1",)  # while there is the string


@dataclass(frozen=True, slots=True)
class Machine:
    """A server, or a master of a cluster."""

    name: str  # which one, as it is shown
    info: Mapping[str, Any]  # what `INFO` says; empty if it may not be asked
    config: Mapping[str, str]  # those of its settings that matter here; without those that may not be asked
    clock_ahead: float = 0.0  # by how many seconds its clock is ahead of ours, give or take `clock_error`
    clock_error: float = 0.0  # in seconds


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings."""

    machines: Sequence[Machine]  # the server, or the masters of the cluster, as far as they answer
    away: Sequence[str] = ()  # the masters of the cluster that do not
    is_cluster: bool = False
    is_watched: bool = False  # whether Sentinels say which server is the master
    lacking: Sequence[str] = ()  # the commands that the user may not send
    endless: Sequence[str] = ()  # some keys of the namespace without a TTL that should have one
    uncovered: int = 0  # how many slots of the cluster no master has
    unseen: Sequence[str] = ()  # what could not be asked, and why


async def examine(client: Client, keys: Keyspace) -> Examination:
    """Look at everything; if the servers cannot be asked at all, that is in `unseen`.

    Cost: For each master 8 round trips, and 2 for each 1,000 keys up to 100,000; and 1 for the rights.
    """
    try:
        return await _Examiner(client, keys).examine()
    except (*_AWAY, OSError) as error:
        return Examination((), unseen=(str(error),))


class _Examiner:
    def __init__(self, client: Client, keys: Keyspace) -> None:
        self._client: Any = client  # redis-py's types differ between its versions
        self._keys = keys
        self._is_cluster = isinstance(client, ClusterClient)
        self._plain = {} if self._is_cluster else {"transaction": False}  # how to make a pipeline
        self._unseen: dict[str, None] = {}

    async def examine(self) -> Examination:
        nodes = [self._client]
        uncovered = 0
        if self._is_cluster:
            # Not the client, which asks one master more, and each node by itself: one that is away hides no other.
            await self._client.nodes_manager.initialize()
            nodes = self._client.get_primaries()
            uncovered = _SLOTS - len(self._client.nodes_manager.slots_cache)
        machines: list[Machine] = []
        endless: list[str] = []
        for node in nodes:
            async with self._noting(self._name_of(node)):
                machines.append(await self._machine(node))
                endless += await self._endless(node)
        lacking: list[str] = []
        if machines:
            async with self._noting("rights"):
                lacking = await self._lacking()
        return Examination(
            machines=machines,
            away=sorted({self._name_of(node) for node in nodes} - {machine.name for machine in machines}),
            is_cluster=self._is_cluster,
            is_watched=not self._is_cluster and isinstance(self._client.connection_pool, SentinelConnectionPool),
            lacking=lacking,
            endless=endless,
            uncovered=uncovered,
            unseen=list(self._unseen),
        )

    @asynccontextmanager
    async def _noting(self, what: str) -> AsyncGenerator[None]:
        """Note that this cannot be seen if a server does not answer: nothing more is asked of it."""
        try:
            yield
        except (*_AWAY, OSError) as error:
            self._unseen[f"{what}: {error}"] = None

    async def _ask(self, node: Any, what: str, *args: object) -> Reply:  # noqa: ANN401 - as above
        """The answer of a server; None if it refuses."""
        try:
            return await node.execute_command(what, *args)
        except redis.exceptions.ResponseError as error:
            self._unseen[f"{what}: {error}"] = None
            return None

    async def _machine(self, node: Any) -> Machine:  # noqa: ANN401 - as above
        config: dict[str, str] = {}
        for name in _CONFIG:
            found = await self._ask(node, "CONFIG GET", name)
            config |= found or {}
        info = await self._ask(node, "INFO")
        began_at, started = time.time(), time.monotonic()
        clock = await self._ask(node, "TIME")
        error = (time.monotonic() - started) / 2
        ahead = 0.0 if clock is None else float(clock[0]) + float(clock[1]) / 1e6 - began_at - error
        return Machine(self._name_of(node), info or {}, config, ahead, error)

    def _name_of(self, node: Any) -> str:  # noqa: ANN401 - as above
        return str(node.name) if self._is_cluster else "server"

    async def _lacking(self) -> list[str]:
        """The commands of scripts, and of the wait for bells, that the user may not send."""
        first, *others = TRIALS
        more = () if self._is_cluster else ONE_SERVER_TRIALS
        refused = await self._refused([first])
        return refused or await self._refused([*more, *others])  # without the first, others would make a key that stays

    async def _refused(self, trials: Sequence[str]) -> list[str]:
        scratch, absent = self._keys.shared("doctor", "scratch", "absent")
        pipeline = self._client.pipeline(**self._plain)
        for trial in trials:
            name, *words = trial.split()
            pipeline.execute_command(name.upper(), *({"$": scratch, "-": absent}.get(word, word) for word in words))
        replies = await pipeline.execute(raise_on_error=False)
        refusal = redis.exceptions.NoPermissionError
        return [
            trial.partition(" ")[0] for trial, reply in zip(trials, replies, strict=True) if isinstance(reply, refusal)
        ]

    async def _endless(self, node: Any) -> list[str]:  # noqa: ANN401 - as above
        """Keys without a TTL that should have one."""
        glob, _ = self._keys.globs
        found: list[str] = []
        cursor, looked_at = "0", 0
        while looked_at < _MOST_KEYS:
            reply = await self._ask(node, "SCAN", cursor, "MATCH", glob, "COUNT", _AT_ONCE)
            if reply is None:
                break
            cursor, names = reply[0], [_text(name) for name in reply[1]]
            looked_at += _AT_ONCE
            found += await self._without_ttl([name for name in names if not is_permanent(name)])
            if _text(cursor) == "0":
                return found
        else:
            self._unseen[f"keys without a TTL: only the first {_MOST_KEYS:,} of a database were looked at"] = None
        return found

    async def _without_ttl(self, names: Iterable[str]) -> list[str]:
        names = list(names)
        if not names:
            return []
        pipeline = self._client.pipeline(**self._plain)
        for name in names:
            pipeline.pttl(name)
        lives = await pipeline.execute(raise_on_error=False)
        return [name for name, life in zip(names, lives, strict=True) if life == -1]


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
