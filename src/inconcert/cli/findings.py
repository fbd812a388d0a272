"""The findings of `inconcert doctor`: a fact each, and the remedy.

A check is a function of what was seen, and `CHECKS` names each: by these names they are in the how-to page.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from inconcert._redis.operate.examination import Examination, Machine
from inconcert.tasks.operating.queue_stats import TaskStats
from inconcert.tasks.operating.stopped_keys import StoppedKey
from inconcert.tasks.running.workers import WorkerStatus

_OLDEST = {"redis": (6, 2), "valkey": (7, 2)}
_OLDEST_CLUSTER = {"redis": (7, 0), "valkey": (7, 2)}
_MOST_MEMORY = 0.9  # of what the server may use
_MOST_AHEAD = 1.0  # seconds
_MOST_LAG = 10  # seconds
_SMALLEST_BUFFER = 8 << 20  # bytes: several messages of a MiB
_FAILOVER = "a failover to it would lose what it has not read"
_SHOWN = 5  # names in one finding


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be."""

    check: str  # which check found it
    thing: str  # which thing, such as `server` or `queue 'mail'`
    so: str  # the fact
    do: str  # what to do about it


@dataclass(frozen=True, slots=True)
class Seen:
    """A look at a server and its namespace."""

    examination: Examination  # the servers
    stats: TaskStats | None = None  # the work; None if it could not be seen
    workers: Sequence[WorkerStatus] = ()  # who does it
    stopped: Sequence[StoppedKey] = ()  # the keys in strict order that wait because a job of theirs is dead


Found = Iterator[tuple[str, str, str]]
"""The thing, what is so, and what to do."""


def findings(seen: Seen) -> list[Finding]:
    """All that is not as it should be."""
    return [Finding(name, *found) for name, check in CHECKS.items() for found in check(seen)]


def _version(seen: Seen) -> Found:
    for machine in _asked(seen):
        name = "valkey" if "valkey_version" in machine.info else "redis"
        version = str(machine.info.get(f"{name}_version", ""))
        oldest = (_OLDEST_CLUSTER if seen.examination.is_cluster else _OLDEST)[name]
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if numbers and numbers < oldest:
            least = ".".join(map(str, oldest))
            yield machine.name, f"it is {name} {version}", f"upgrade it to {least} or newer"


def _eviction(seen: Seen) -> Found:
    for machine in _asked(seen):
        policy = machine.info.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            so = f"maxmemory-policy is {policy}: when it is full, it drops leases, jobs and chats"
            yield machine.name, so, "CONFIG SET maxmemory-policy noeviction"


def _memory(seen: Seen) -> Found:
    for machine in _asked(seen):
        used, limit = int(machine.info.get("used_memory", 0)), int(machine.info.get("maxmemory", 0))
        if limit and used > _MOST_MEMORY * limit:
            so = f"it uses {used / limit:.0%} of the {limit:,} bytes of maxmemory; when it is full, it refuses new work"
            yield machine.name, so, "raise maxmemory, or purge, drain or delete what is not needed"


def _persistence(seen: Seen) -> Found:
    for machine in _asked(seen):
        if not machine.info.get("aof_enabled"):
            saves = machine.config.get("save")
            lost = {None: "what it has not saved", "": "everything"}.get(saves, "what came since the last snapshot")
            yield machine.name, f"appendonly is no: a restart loses {lost}", "CONFIG SET appendonly yes"


def _disk(seen: Seen) -> Found:
    for machine in _asked(seen):
        for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
            if machine.info.get(name, "ok") != "ok":
                yield machine.name, f"{name} is {machine.info[name]}: it cannot write to its disk", "see its log"


def _timeout(seen: Seen) -> Found:
    for machine in seen.examination.machines:
        if int(machine.config.get("timeout", 0)):
            so = f"timeout is {machine.config['timeout']} s: it closes connections that only wait"
            yield machine.name, so, "CONFIG SET timeout 0"


def _keepalive(seen: Seen) -> Found:
    for machine in seen.examination.machines:
        if machine.config.get("tcp-keepalive") == "0":
            so = "tcp-keepalive is 0: it keeps the connections of machines that are gone"
            yield machine.name, so, "CONFIG SET tcp-keepalive 300"


def _buffer(seen: Seen) -> Found:
    for machine in seen.examination.machines:
        words = machine.config.get("client-output-buffer-limit", "").split()
        limit = int(words[words.index("pubsub") + 1]) if "pubsub" in words else 0
        if 0 < limit < _SMALLEST_BUFFER:
            so = f"client-output-buffer-limit of pubsub is {limit:,} bytes: a few large messages cut a connection"
            yield machine.name, so, "CONFIG SET client-output-buffer-limit 'pubsub 33554432 8388608 60'"


def _clock(seen: Seen) -> Found:
    for machine in seen.examination.machines:
        if abs(machine.clock_ahead) - machine.clock_error > _MOST_AHEAD:
            way = "ahead of" if machine.clock_ahead > 0 else "behind"
            so = f"its clock is {abs(machine.clock_ahead):.1f} s {way} this machine's"
            yield machine.name, so, "keep both with NTP; the server's is the only one that counts"


def _replicas(seen: Seen) -> Found:
    for machine in _asked(seen):
        if (seen.examination.is_cluster or seen.examination.is_watched) and machine.info.get("connected_slaves") == 0:
            yield machine.name, "no replica follows it: if it fails, nothing takes its place", "start a replica of it"
        for name, replica in machine.info.items():
            if not name.startswith("slave") or not isinstance(replica, dict):
                continue
            facts = cast("Mapping[str, object]", replica)
            which = f"replica {facts.get('ip')}:{facts.get('port')} of {machine.name}"
            if facts.get("state") != "online":
                yield (
                    which,
                    f"it is {facts.get('state')}",
                    "see its log; a failover to it would lose what it has not read",
                )
            elif int(str(facts.get("lag", 0))) > _MOST_LAG:
                so = f"it was last heard {facts['lag']} s ago"
                yield which, so, f"look at its load and its network; {_FAILOVER}"


def _min_replicas(seen: Seen) -> Found:
    for machine in _asked(seen):
        setting, good = machine.config.get("min-replicas-to-write"), machine.info.get("min_slaves_good_slaves")
        least = int(setting or 0)
        if setting == "0" and seen.examination.is_watched:
            so = "min-replicas-to-write is 0: cut off from its Sentinels, it goes on beside the new master"
            yield machine.name, so, "CONFIG SET min-replicas-to-write 1, also on its replicas"
        if good is not None and int(good) < least:
            so = f"min-replicas-to-write is {least}, and {good} replicas follow it: it refuses every change"
            yield machine.name, so, "start the replicas, or lower min-replicas-to-write"


def _masters(seen: Seen) -> Found:
    for name in seen.examination.away if seen.examination.is_cluster else ():
        yield name, "it is a master of the cluster, and does not answer", "start it, or look at its log and its network"


def _slots(seen: Seen) -> Found:
    if seen.examination.uncovered:
        settings = [machine.config.get("cluster-require-full-coverage") for machine in seen.examination.machines]
        so = f"no master has {seen.examination.uncovered:,} of the 16,384 slots: what lies there cannot be used"
        if "yes" in settings:
            so += ", and no other slot either, as cluster-require-full-coverage is yes"
        yield "cluster", so, "redis-cli --cluster fix"


def _rights(seen: Seen) -> Found:
    if seen.examination.lacking:
        so = f"its user may not send {', '.join(sorted(seen.examination.lacking))}"
        yield "server", so, "give it the rights that `inconcert acl` prints"


def _keys(seen: Seen) -> Found:
    endless = seen.examination.endless
    if endless:
        so = f"keys have no TTL, and would stay ({len(endless):,}): {_some(endless)}"
        yield "namespace", so, "delete them, if no program of yours has made them"


def _unserved(seen: Seen) -> Found:
    if seen.stats is None:
        return
    for name in seen.stats.unserved:
        queue = seen.stats.queues[name]
        so = f"jobs wait ({queue.ready + queue.delayed + queue.waiting:,}), and nobody serves it"
        yield f"queue {name!r}", so, "start a worker for it, or look whether its name is misspelt"


def _paused(seen: Seen) -> Found:
    if seen.stats is None:
        return
    for name, queue in seen.stats.queues.items():
        if queue.is_paused and queue.ready:
            so = f"it is paused, and jobs wait in it ({queue.ready:,})"
            yield f"queue {name!r}", so, f"concert.tasks.resume({name!r}), unless that is meant"


def _workers(seen: Seen) -> Found:
    for worker in seen.workers:
        if not worker.is_alive:
            where = f"{worker.host or 'an unknown host'}, pid {worker.pid}"
            so = f"on {where}: it is presumed dead, and holds jobs ({len(worker.running):,})"
            yield f"worker {worker.id}", so, "start another: any worker recovers its jobs"


def _stopped(seen: Seen) -> Found:
    for key in seen.stopped[:_SHOWN]:
        so = f"it is dead, and jobs of its key wait for it in strict order ({key.waiting:,})"
        more = len(seen.stopped) - _SHOWN
        others = f"; there are {more:,} others like it" if more > 0 else ""
        yield f"job {key.job_id}", so + others, "replay it, or purge it: then its key goes on"


CHECKS: Mapping[str, Callable[[Seen], Found]] = {
    "version": _version,
    "eviction": _eviction,
    "memory": _memory,
    "persistence": _persistence,
    "disk": _disk,
    "timeout": _timeout,
    "keepalive": _keepalive,
    "buffer": _buffer,
    "clock": _clock,
    "replicas": _replicas,
    "min-replicas": _min_replicas,
    "masters": _masters,
    "slots": _slots,
    "rights": _rights,
    "keys": _keys,
    "unserved": _unserved,
    "paused": _paused,
    "workers": _workers,
    "stopped": _stopped,
}


def _asked(seen: Seen) -> list[Machine]:
    """The servers that say something of themselves."""
    return [machine for machine in seen.examination.machines if machine.info]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
