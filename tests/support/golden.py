"""What a release has stored, kept as a file: all keys of a namespace in which there is one of each thing.

    python -m tests.support.golden > tests/golden/format-1.json

writes the file of the format that the code has. The file of a format that was released is never written anew.
"""

import asyncio
import json
import re
import sys
from typing import Any

import redis

from inconcert import Coordinator, Job, durable
from inconcert._core.layout import FORMAT
from tests.support.pages import ROOT

__all__ = ["NAMESPACE", "add", "dump", "fill", "load"]

NAMESPACE = "golden"
# Instants, in seconds, milliseconds or microseconds, which are moved to the present when a file is loaded.
_INSTANT = re.compile(r"(?<![\w.])1[789]\d{8}(?:\d{3}){0,2}(?![\w])")


def add(concert: Coordinator) -> None:
    """Register the tasks of the jobs in the file."""

    @concert.task(name="golden.add", queue="golden")
    async def add(a: int, b: int = 2) -> int:
        return a + b

    @concert.task(name="golden.fail", queue="golden", max_attempts=1)
    async def fail(when: bool = True) -> str:
        if when:
            raise ValueError("as it should")
        return "never"

    @concert.task(name="golden.wait", queue="golden")
    async def wait(order: str) -> str:
        charged = await durable.step("charge", str.upper, order)
        answer = await durable.wait_for("answer", str, timeout=86_400)
        return f"{charged} {answer}"


async def fill(concert: Coordinator) -> dict[str, Any]:
    """Store one of each thing that lasts, and return the names of what has no name of its own."""
    add(concert)
    ids: dict[str, Any] = {}

    async def enqueue(name: str, task: str, *args: Any, **options: Any) -> Job[Any]:
        job = await concert.enqueue(task, args, queue="golden", **options)
        ids[name] = job.id
        return job

    await enqueue("done", "golden.add", 1)
    await enqueue("dead", "golden.fail")
    await enqueue("sleeping", "golden.wait", "sword")
    await concert.run_worker("golden", burst=True)
    ready = await enqueue("ready", "golden.add", 20, unique="one")
    await enqueue("delayed", "golden.add", 30, delay=3600)
    await enqueue("child", "golden.add", 40, after=[ready])
    await concert.queue("items").put_many(["first", {"second": 2}])
    await concert.mailbox("ann").send({"text": "hello"})
    ids["chat"] = await concert.chat.create("ann", ["bob"], "lunch?")
    await concert.event("ready").set()
    await concert.latch("two", 2).count_down()
    await concert.index("articles").add("doc:1", "Fair locks", scores={"votes": 3})
    for _ in range(3):
        await concert.rate_limiter("login", 3, period=3600).try_acquire()
    lease = await concert.lock("held", ttl=3600).acquire()
    ids |= {"fencing_token": lease.fencing_token, "holder": lease.holder}
    return ids


def dump(client: Any) -> dict[str, Any]:
    """All keys of the namespace, each with its type and content, but for those of sessions that were open."""
    keys: dict[str, Any] = {}
    for key in sorted(client.scan_iter(f"{{{NAMESPACE}:*")):
        if ":session:" not in key:
            kind: str = client.type(key)
            keys[key] = {"type": kind, "lasts": client.ttl(key) == -1, "content": _read(client, key, kind)}
    seconds, microseconds = client.time()
    return {"format": FORMAT, "at": seconds * 1_000_000 + microseconds, "keys": keys}


def _read(client: Any, key: str, kind: str) -> Any:
    match kind:
        case "string":
            return client.get(key)
        case "list":
            return client.lrange(key, 0, -1)
        case "hash":
            return dict(sorted(client.hgetall(key).items()))
        case "set":
            return sorted(client.smembers(key))
        case _:
            return client.zrange(key, 0, -1, withscores=True)


def load(golden: dict[str, Any], url: str, namespace: str) -> dict[str, Any]:
    """Store the keys of a file in another namespace, as if it were of this moment; return its names."""
    client = _client(url)
    seconds, microseconds = client.time()
    moved = seconds * 1_000_000 + microseconds - golden["at"]

    def shift(found: re.Match[str]) -> str:
        digits = found[0]
        return str(int(digits) + moved // 10 ** (16 - len(digits)))

    text = json.dumps(golden).replace(f"{{{NAMESPACE}:", f"{{{namespace}:")
    fresh: dict[str, Any] = json.loads(_INSTANT.sub(shift, text))
    for key, stored in fresh["keys"].items():
        content = stored["content"]
        match stored["type"]:
            case "string":
                client.set(key, content)
            case "list":
                client.rpush(key, *content)
            case "hash":
                client.hset(key, mapping=content)
            case "set":
                client.sadd(key, *content)
            case _:
                client.zadd(key, dict(content))
        if not stored["lasts"]:
            client.expire(key, 3600)
    client.close()
    names: dict[str, Any] = fresh["names"]
    return names


def _client(url: str) -> Any:
    client: Any = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType] - its types have holes
        url, decode_responses=True, encoding_errors="surrogateescape"
    )
    return client


async def _main() -> None:
    async with Coordinator.embedded(namespace=NAMESPACE, report=False) as concert:
        names = await fill(concert)
        client = _client(str(concert.url))
        golden = dump(client) | {"names": names}
        client.close()
        sys.stdout.write(json.dumps(golden, indent=1).replace(str(ROOT), "") + "\n")  # in a traceback


if __name__ == "__main__":
    asyncio.run(_main())
