"""Where the jobs of a namespace are, in all partitions: what was enqueued and is not done lies in exactly one place."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from redis.asyncio import RedisCluster

from inconcert import Coordinator
from tests.support.eventually import eventually
from tests.support.raw import raw

__all__ = ["Ledger", "all_done", "ledger_of", "read_ledger", "read_ledger_now", "until"]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The places of all jobs, by their ids, at one moment.

    Attributes:
        bodies: Those that are not done.
        ready: Queue -> those that may run now, the next one first.
        delayed: Queue -> those that are due later, the earliest first.
        claimed: Worker -> those that it holds.
        waiting: Those that run after others, and wait for them.
        dead: Those that were set aside.
        reasons: Why.
        states: Where those are that are not in their queue, or are to be cancelled, as the server notes it.
        flagged: What each has beside its body, by its flags; those that have something.
        failures: How many attempts of each failed.
        crashes: How many workers died with each.
        attempts: Which attempts of each are noted as failed; those of one that has ended under `:ID`.
        workers: Those who are not known to be dead.
        results: What is kept of those that have ended.
        history: Those that have ended, and how, in the histories of their tasks, in order.
    """

    bodies: list[str]
    ready: dict[str, list[str]]
    delayed: dict[str, list[str]]
    claimed: dict[str, list[str]]
    waiting: list[str]
    dead: list[str]
    reasons: dict[str, dict[str, Any]]
    states: dict[str, str]
    flagged: dict[str, str]
    failures: dict[str, int]
    crashes: dict[str, int]
    attempts: dict[str, list[str]]
    workers: list[str]
    results: dict[str, str]
    history: list[tuple[str, str]]

    def strays(self) -> dict[str, str]:
        """What there is of jobs that are gone; but flags of those cancelled where they may have had a turn.

        A claim drops these.
        """
        gone = self.flagged.keys() - set(self.bodies)
        flags = {id_: self.flagged[id_] for id_ in gone if self.flagged[id_] != "l"}
        return flags | {id_: "attempts" for id_ in self.attempts if id_ not in self.bodies and id_[0] != ":"}

    def everywhere(self) -> Counter[str]:
        """How often each job is somewhere."""
        found = Counter([*self.dead, *self.waiting])
        for part in (self.ready, self.delayed, self.claimed):
            for ids in part.values():
                found.update(ids)
        return found

    def check(self, *, put: int, done: int) -> None:
        """Raise AssertionError unless put = ready + delayed + waiting + claimed + done + dead, each in one place."""
        assert self.everywhere() == Counter(self.bodies)
        assert self.strays() == {}
        assert put == len(self.bodies) + done, f"{put} were put, {len(self.bodies)} are there, {done} are done"


# In one step, so that it is right at any moment: every key of the tasks, with all that it holds.
_READ = """
local answer = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind = redis.call('TYPE', key)['ok']
  local read = {
    list = {'LRANGE', key, 0, -1}, zset = {'ZRANGE', key, 0, -1}, hash = {'HGETALL', key}, set = {'SMEMBERS', key},
    string = {'MGET', key}
  }
  answer[#answer + 1] = {key, kind, redis.call(unpack(read[kind]))}
end
return answer
"""


async def read_ledger(client: Any, namespace: str) -> Ledger:
    """Ask where all jobs are, with a `redis.asyncio` client: on a cluster one master after the other."""
    tasks = f"{{{namespace}:tasks:"
    if not isinstance(client, RedisCluster):
        return _ledger(await client.eval(_READ, 0, tasks))
    await client.initialize()
    nodes = client.get_primaries()
    return _ledger(
        [row for node in nodes for row in await client.execute_command("EVAL", _READ, 0, tasks, target_nodes=node)]
    )


def read_ledger_now(client: Any, namespace: str) -> Ledger:
    """Ask where all jobs are, with a plain `redis` client."""
    return _ledger(client.eval(_READ, 0, f"{{{namespace}:tasks:"))


async def ledger_of(concert: Coordinator) -> Ledger:
    """Where the jobs are, each in one place."""
    ledger = await read_ledger(raw(concert), concert._ref.keys.namespace)
    assert ledger.everywhere() == Counter(ledger.bodies)
    assert ledger.strays() == {}
    return ledger


async def until(concert: Coordinator, fact: Callable[[Ledger], object], *, timeout: float = 10.0) -> Ledger:
    """Wait until the jobs lie so, and return how."""
    lies: list[Ledger] = []

    async def found() -> bool:
        lies[:] = [await ledger_of(concert)]
        return bool(fact(lies[0]))

    await eventually(found, timeout=timeout)
    return lies[0]


async def all_done(concert: Coordinator) -> None:
    """Wait until no job is left."""
    await until(concert, lambda ledger: not ledger.bodies)


def _ledger(rows: list[tuple[bytes, bytes, list[bytes]]]) -> Ledger:
    found: dict[str, Any] = {}
    for key, kind, items in rows:
        texts = [item.decode(errors="replace") for item in items]
        part = key.decode().partition("}:")[2]  # the same of all partitions
        if kind == b"hash":
            found.setdefault(part, {}).update(zip(texts[::2], texts[1::2], strict=True))
        else:
            found.setdefault(part, []).extend(texts)

    bodies = found.get("bodies", {})

    def of(kind: str) -> dict[str, list[str]]:
        start = f"{kind}:"
        return {part.removeprefix(start): value for part, value in found.items() if part.startswith(start)}

    def jobs(kind: str) -> dict[str, list[str]]:
        # What was cancelled leaves its id behind in its queue, and no body.
        found = {name: [id_ for id_ in value if id_ in bodies] for name, value in of(kind).items()}
        return {name: ids for name, ids in found.items() if ids}

    def claims() -> dict[str, list[str]]:
        found = {worker: [id_ for id_ in value if id_ != "#"] for worker, value in of("claimed").items()}
        return {worker: ids for worker, ids in found.items() if ids}

    def counts(field: int) -> dict[str, int]:
        numbers = {id_: int(facts.split(" ")[field]) for id_, facts in found.get("facts", {}).items()}
        return {id_: number for id_, number in numbers.items() if number}

    return Ledger(
        bodies=list(bodies),
        ready=jobs("queue"),
        delayed=jobs("delayed"),
        claimed=claims(),
        waiting=[id_ for id_, state in found.get("states", {}).items() if state.startswith("waiting ")],
        dead=found.get("dead", []),
        reasons={id_: json.loads(reason.partition("\n")[0]) for id_, reason in found.get("reasons", {}).items()},
        states=found.get("states", {}),
        flagged={id_: facts.split(" ")[0] for id_, facts in found.get("facts", {}).items()},
        failures=counts(1),
        crashes=counts(2),
        attempts={id_: _numbers(lines) for id_, lines in found.get("failed_attempts", {}).items()}
        | {f":{id_}": _numbers(lines) for id_, [lines] in of("kept_attempts").items()},
        workers=list(dict.fromkeys([*found.get("workers", []), *found.get("alive", [])])),
        results={id_: text for id_, [text] in of("result").items()},
        history=[(entry.split(" ")[7], entry.split(" ")[2]) for entry in found.get("history", [])],
    )


def _numbers(lines: str) -> list[str]:
    return [json.loads(line)[0] for line in lines.splitlines()]


def facts_text(failures: int = 0, crashes: int = 0, *, flags: str = "", why: str = "") -> str:
    """What is stored of a job beside its body, as the scripts write it."""
    return f"{flags} {failures} {crashes} {why}"


def failures_of(facts: dict[bytes, bytes]) -> dict[str, int]:
    """How many attempts of each failed, if any did, by the hash of facts as a client reads it."""
    return _counted(facts, 1)


def crashes_of(facts: dict[bytes, bytes]) -> dict[str, int]:
    """How many workers died with each, if any did."""
    return _counted(facts, 2)


def _counted(facts: dict[bytes, bytes], field: int) -> dict[str, int]:
    counts = {id_.decode(): int(text.split(b" ")[field]) for id_, text in facts.items()}
    return {id_: count for id_, count in counts.items() if count}
