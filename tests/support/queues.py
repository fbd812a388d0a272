"""The items of a queue: what was put in and is not done is ready, delayed, claimed or dead, and only one of these."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from inconcert import Coordinator
from inconcert._redis.protocol.keys import Keyspace
from inconcert.queues.store import ItemKeys
from tests.support.raw import raw

__all__ = ["ItemLedger", "items_of", "read_items"]


@dataclass(frozen=True, slots=True)
class ItemLedger:
    """The items of a queue by where they are, at one moment; those that are claimed by their workers."""

    ready: list[Any]
    delayed: list[Any]
    claimed: dict[str, list[Any]]
    dead: list[Any]
    workers: list[str]

    def check(self, *, put: int, done: int) -> None:
        """Raise AssertionError unless put = ready + delayed + claimed + done + dead."""
        held = sum(map(len, self.claimed.values()))
        assert put == len(self.ready) + len(self.delayed) + held + len(self.dead) + done


_READ = """
local answer = {}
for i = 1, 6 do
  local kind = redis.call('TYPE', KEYS[i])['ok']
  local read = {hash = {'HGETALL', KEYS[i]}, list = {'LRANGE', KEYS[i], 0, -1}, zset = {'ZRANGE', KEYS[i], 0, -1}}
  answer[i] = read[kind] and redis.call(unpack(read[kind])) or {}
end
for _, worker in ipairs(answer[5]) do
  answer[#answer + 1] = {worker, redis.call('HKEYS', ARGV[1] .. worker)}
end
return answer
"""


async def read_items(client: Any, namespace: str, name: str) -> ItemLedger:
    """Read all items of a queue in one step; each must be one of these, and only one."""
    keys = ItemKeys(Keyspace(namespace), name)
    of_queue = (keys.bodies, keys.only.queue, keys.only.delayed, keys.dead, keys.workers, keys.alive)
    bodies, ready, delayed, dead, workers, alive, *held = await client.eval(_READ, 6, *of_queue, keys.claimed(""))
    items = {id_: json.loads(body.partition(b" ")[2]) for id_, body in zip(bodies[::2], bodies[1::2], strict=True)}
    claimed = {worker: [id_ for id_ in ids if id_ != b"#"] for worker, ids in held}
    everywhere = Counter([*ready, *delayed, *dead, *(id_ for ids in claimed.values() for id_ in ids)])
    assert everywhere == Counter(list(items)), "an item is nowhere, or twice"

    def of(ids: list[bytes]) -> list[Any]:
        return [items[id_] for id_ in ids]

    return ItemLedger(
        ready=of(ready),
        delayed=of(delayed),
        claimed={worker.decode(): sorted(of(ids), key=str) for worker, ids in claimed.items() if ids},
        dead=of(dead),
        workers=[worker.decode() for worker in dict.fromkeys((*workers, *alive))],
    )


async def items_of(concert: Coordinator, name: str = "q") -> ItemLedger:
    """The items of a queue of this coordinator."""
    return await read_items(raw(concert), concert._ref.keys.namespace, name)
