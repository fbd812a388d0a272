"""Of the rights that a user is given, the server asks for each: without it, something is refused that our code does."""

import asyncio
from contextlib import aclosing, nullcontext, suppress

import anyio
import anyio.lowlevel
import pytest

from inconcert import Coordinator, Inspection, QueueFull
from inconcert._redis.operate.rights import least_rights
from inconcert._redis.protocol.scripts import Command, Script
from inconcert._redis.protocol.slots import slot_of
from inconcert.members.group import Group, count_members
from inconcert.reports.explain_job import JobQuestion
from inconcert.tasks.records.store import DUE
from inconcert.tasks.schedules.schedules import count_schedules
from tests.support.clusters import RealCluster
from tests.support.eventually import eventually
from tests.support.rights import DATABASE, Story, tell
from tests.support.servers import RealServer, command

# What is done with a coordinator, so that together the stories send every command.


async def opening(concert: Coordinator, server: RealServer) -> None:
    """Nothing but to open it."""


async def forgotten_script(concert: Coordinator, server: RealServer) -> None:
    """A server that does not have a script is sent its source."""
    session = concert._ref.session
    await session.run(Command(Script("tests/unknown", f"return '{session.id}'"), (session._bell,), ()))


async def permits(concert: Coordinator, server: RealServer) -> None:
    """One waits in line, and another downgrades."""
    async with concert.rwlock("a").write() as lease:
        with pytest.raises(TimeoutError):
            await concert.rwlock("a").write().acquire(timeout=0.01)
        await lease.downgrade()
    await concert.lock("a").waiters()


async def an_election(concert: Coordinator, server: RealServer) -> None:
    """It is won, and the term ends."""
    async with aclosing(concert.election("e").terms()) as terms:
        async for term in terms:
            async with term:
                break


async def meetings(concert: Coordinator, server: RealServer) -> None:
    """An event, a latch, a barrier and a limiter; and requests that are remembered for long."""
    await concert.event("e").set()
    url = server.url_of(DATABASE)
    for key in command(url, "KEYS", "*:event:e}:recent"):
        command(url, "PEXPIRE", key, 50_000)  # as after a minute
    await concert.event("e").clear()
    await concert.latch("l", 1).count_down()
    await concert.barrier("b", 1).abort()
    await concert.barrier("b", 1).reset()
    await concert.rate_limiter("r", 5, 1.0).try_acquire()


async def signals(concert: Coordinator, server: RealServer) -> None:
    """For one, for all, and for a pattern."""
    with anyio.move_on_after(1):
        async with concert.signals("s*").subscribe():
            pass
    async with asyncio.timeout(3), asyncio.TaskGroup() as group:
        group.create_task(concert.signal("s").wait())
        await eventually(concert.signal("s").notify)
    async with concert.signal("s").subscribe():
        await concert.signal("s").broadcast(1)


async def mail(concert: Coordinator, server: RealServer) -> None:
    """More than is fetched."""
    box = concert.mailbox("m")
    await box.send_many([1, 2, 3])
    await box.fetch(limit=1)
    await box.purge()


async def chats(concert: Coordinator, server: RealServer) -> None:
    """A chat that is trimmed, and its members."""
    chat = await concert.chat.create("ann", ["bob"], "hello", max_messages=1)
    await concert.chat.send(chat, "ann", "more")
    await concert.chat.fetch("bob")
    await concert.chat.members(chat)
    await concert.chat.unread("ann")
    await concert.chat.join(chat, "cy")
    await concert.chat.leave(chat, "cy")
    async with aclosing(concert.chat.listen("ann")) as batches:
        async for _ in batches:
            break


async def an_index(concert: Coordinator, server: RealServer) -> None:
    """More documents than one script reads."""
    index = concert.index("i")
    await asyncio.gather(
        *(index.add(f"{number}", f"every wor{number % 9}", scores={"price": number}) for number in range(1_100))
    )
    await index.search("wor*", weights={"price": 1})
    await index.search("every")
    await index.search('"every every"', weights={"price": -1})  # reads on and on, and finds none
    await index.suggest("wor")
    await index.remove("1")
    await index.clear()


async def a_queue(concert: Coordinator, server: RealServer) -> None:
    """Put, delayed, full, requeued, empty."""
    queue, waits = concert.queue("q", maxsize=2), f"cmd=blpop user={concert._ref.keys.namespace} "
    await queue.put(1)
    await queue.put(2, delay=0.01)
    with pytest.raises(QueueFull):
        await queue.put(3, timeout=0.01)
    await queue.peek()
    await queue.oldest_age()
    await (await queue.get(timeout=1)).nack()
    await (await queue.get(timeout=1)).ack()
    await queue.purge()
    async with asyncio.TaskGroup() as group:
        group.create_task(queue.get(timeout=4))
        with anyio.move_on_after(2):
            await eventually(lambda: waits in server.command("CLIENT", "LIST"))
        await queue.put(4)


async def jobs(concert: Coordinator, server: RealServer) -> None:
    """One with a name and one after it, in a worker."""

    @concert.task(name="work")
    async def work() -> int:
        return 1

    job = await work.options(unique="one", unique_for=60.0).enqueue()
    await work.options(unique="one", unique_for=60.0).enqueue()
    await work.options(after=[job]).enqueue()
    await concert.tasks.pause("other")
    await concert.tasks.stats("default")
    await JobQuestion(concert._ref, concert._jobs, concert.tasks, job.id).explanation(Inspection((), ()))
    async with asyncio.timeout(2):
        await concert.run_worker("default", burst=True)
    await job.result(timeout=1)


async def a_dead_job(concert: Coordinator, server: RealServer) -> None:
    """It is looked at, and stays as the latest."""

    @concert.task(name="fail", max_attempts=1)
    async def fail() -> None:
        raise ValueError

    await fail.enqueue()
    async with asyncio.timeout(2):
        await concert.run_worker("default", burst=True)
    await concert.tasks.purge_all(queue="default", keep=1)


async def a_group_of_members(concert: Coordinator, server: RealServer) -> None:
    """One joins, and somebody counts."""
    async with concert.members("crawlers") as me:
        assert (
            await count_members(concert._ref.session, Group.of(concert._ref, "crawlers")) == len(await me.list()) == 1
        )


async def a_schedule(concert: Coordinator, server: RealServer) -> None:
    """Others looked at it by a clock that was set back since."""
    [keys] = concert._jobs.partitions
    await concert.schedules.put("s", concert.task(name="work")(anyio.lowlevel.checkpoint).call(), every=60)
    await count_schedules(concert._ref.session, concert._jobs)
    command(server.url_of(DATABASE), "SET", keys.looked, 10**15)
    await concert._ref.session.run(DUE(keys, hold_ms=1, ttl_ms=1, ids=["in code"]))


STORIES: list[Story] = [
    opening, forgotten_script, permits, an_election, meetings, signals, mail, chats, a_queue, jobs, a_dead_job,
    a_group_of_members, a_schedule, an_index,
]  # fmt: skip


def sent(server: RealServer) -> set[str]:
    """The commands that the server was sent since this was last asked, by scripts too."""
    found = {name.removeprefix("cmdstat_") for name in server.command("INFO", "commandstats")}
    server.command("CONFIG", "RESETSTAT")
    return found


def named(server: RealServer, right: str) -> str:
    """How the server's statistics and log call it: Redis 6.2 does not tell subcommands apart."""
    return right.partition("|")[0] if server.kind == "redis6" else right


async def refused(
    story: Story, server: RealServer, rights: list[str], right: str, limiter: anyio.CapacityLimiter
) -> bool:
    """Whether the server refuses this command in the story of a user who lacks the right."""
    namespace = f"no-{right.replace('|', '-')}"
    others = [other for other in rights if other != right]
    async with limiter:
        with suppress(Exception), anyio.move_on_after(8):  # a listener tries again and again
            await tell(story, server, others, namespace)
    what = named(server, right)
    return any({namespace, what} <= set(map(str, entry)) for entry in server.command("ACL", "LOG", 10_000))


async def explained(concert: Coordinator, server: RealServer) -> None:
    """What the server knows, to a user who may not ask the processes."""
    async with concert.lock("a") as lease:
        found = await concert.explain("lock:a")
    assert (found.state, [reason.code for reason in found.reasons]) == ("held", ["unasked", "held"])
    assert "inconcert acl --inspect" in found.reasons[0].text
    assert lease.holder in found.reasons[1].text
    job = await concert.enqueue("t")
    codes = [reason.code for reason in (await concert.explain(f"job:{job.id}")).reasons]
    assert codes == ["no_consumer", "unasked"]
    await concert.queue("q").put("a")
    items = await concert.explain("items:q")
    assert (items.state, [reason.code for reason in items.reasons]) == ("unknown", ["unasked", "backlog"])
    async with await concert.queue("q").get():
        items = await concert.explain("items:q")
    assert (items.state, [reason.code for reason in items.reasons]) == ("served", ["unasked", "claimed", "backlog"])
    await concert.schedules.put("s", concert.task(name="t", queue="q")(anyio.lowlevel.checkpoint).call(), every=60)
    codes = [reason.code for reason in (await concert.explain("schedule:s")).reasons]
    assert codes == ["not_due", "unfollowed", "no_consumer", "never"]


async def test_explanation_has_what_the_server_knows(own_server: RealServer) -> None:
    """To a user who may not ask the processes."""
    rights = [rule[1:] for rule in least_rights("shop", server=own_server.version) if rule.startswith("+")]
    await tell(explained, own_server, rights, "shop")


@pytest.mark.torture
async def test_each_right_is_needed(own_server: RealServer) -> None:
    """For each there is a story in which the server refuses a command to a user who lacks this right alone."""
    rules = least_rights("shop", server=own_server.version)
    rights = [rule[1:] for rule in rules if rule.startswith("+")]
    story_of: dict[str, Story] = {}
    for story in STORIES:
        sent(own_server)
        await tell(story, own_server, rights, f"all-{story.__name__}")
        story_of = dict.fromkeys(sent(own_server), story) | story_of
    assert own_server.command("ACL", "LOG") == []
    story_of = {right: story_of[named(own_server, right)] for right in rights if named(own_server, right) in story_of}
    assert set(rights) - set(story_of) == set(), "add what sends these to the stories"

    own_server.command("CONFIG", "SET", "acllog-max-len", 10_000)
    limiter = anyio.CapacityLimiter(20)  # more at once would wait for each other
    results = await asyncio.gather(*(refused(story_of[right], own_server, rights, right, limiter) for right in rights))
    assert [right for right, needed in zip(rights, results, strict=True) if not needed] == []


async def hand_over_on_a_cluster(cluster: RealCluster, namespace: str) -> None:
    """A lock and an item that another process waits for, a signal, and an event in a slot that moves."""
    url = cluster.url.replace("redis+cluster://", f"redis+cluster://{namespace}:secret@")
    concert, other = (Coordinator(url, namespace=namespace, timeout=2.0) for _ in range(2))
    bell = f"{{{namespace}:queue:q}}:bell"
    async with concert, other:
        lease = await concert.lock("a").acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(other.lock("a").acquire(timeout=1))
            await eventually(concert.lock("a").waiters)
            await lease.release()
        async with asyncio.TaskGroup() as group:
            group.create_task(other.queue("q").get(timeout=2))
            with anyio.move_on_after(1):
                await eventually(lambda: cluster.owner(bell).command("EXISTS", bell))
            await concert.queue("q").put(1)
        async with concert.signal("s").subscribe():
            await other.signal("s").broadcast()
        slot = slot_of(f"{{{namespace}:event:e}}:flag")
        owner = cluster.owner_of(slot)
        await concert.event("e").set()
        to = next(node for node in cluster.masters if node is not owner)
        for _ in cluster.moving_slot(slot, to):
            await concert.event("e").is_set()


@pytest.mark.torture
async def test_each_right_on_a_cluster_is_needed(own_cluster: RealCluster) -> None:
    """All of them suffice, and without one the server refuses a command."""
    version = own_cluster.nodes[0].version
    more = set(least_rights("shop", server=version, cluster=True)) - set(least_rights("shop", server=version))
    assert more
    for taken in ["", *sorted(more)]:
        namespace = f"no{taken.replace('+', '-').replace('|', '-')}"
        rules = [rule for rule in least_rights(namespace, server=version, cluster=True) if rule != taken]
        for node in own_cluster.nodes:
            node.command("ACL", "SETUSER", namespace, "on", ">secret", *rules)
            node.command("ACL", "LOG", "RESET")
        with suppress(Exception) if taken else nullcontext(), anyio.move_on_after(5):
            await hand_over_on_a_cluster(own_cluster, namespace)
        told = [set(map(str, entry)) for node in own_cluster.nodes for entry in node.command("ACL", "LOG", 10_000)]
        assert any({namespace, taken[1:]} <= entry for entry in told) if taken else not told, taken
