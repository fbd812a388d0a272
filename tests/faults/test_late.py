"""A first sending may come late: after its repetition was answered, and after later calls of anybody.

A call whose connection stalls is sent again on a new one.  What the old one holds may reach the server much later: a
proxy, or a kernel that still tries, does not know that it was given up.  So each script that changes something either
remembers what it was asked, or finds by itself that its time is over.  Here each runs, then what came later, then the
same bytes again; and nothing is changed.

A new script that changes something adds its story, or says in `BOUNDED` what its late run costs.
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from inconcert import (
    AcquireTimeout,
    Barrier,
    Coordinator,
    JobFailed,
    JobNotFound,
    LeaseLost,
    Limit,
    QueueFull,
    Signal,
    UnknownSchedule,
    current_job,
    durable,
)
from inconcert._core.permit_state import PermitKeys
from inconcert._core.session import Session
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert.periodic import _Keys as PeriodicKeys
from inconcert.quorum.rounds import QuorumKeys
from inconcert.tasks.running.claimed_job import state_of
from inconcert.tasks.running.stream_writer import append_items
from inconcert.tasks.schedules.timetable import instant_text
from inconcert.tasks.sending.draft import Draft, Pattern
from inconcert.tasks.sending.options import Options
from tests.support.eventually import eventually
from tests.support.lua_files import FORMS, file_of
from tests.support.raw import raw
from tests.support.schedules import job_ids, keys_of, look_at_all, now_ms, set_since
from tests.support.scripts import command_of

# Commands that change no key.
_READS = re.compile(
    "EXISTS|GET|GETRANGE|H(EXISTS|GET|GETALL|LEN|MGET|SCAN|STRLEN)|L(INDEX|LEN|POS|RANGE)|PTTL|PUBLISH|PUBSUB|S(CARD|DIFF|ISMEMBER|MEMBERS)"
    "|STRLEN|TIME|Z(CARD|COUNT|LEXCOUNT|RANGE|RANGEBYLEX|RANGEBYSCORE|RANK|REVRANGE|REVRANGEBYLEX|REVRANK|SCAN|SCORE)"
)

RUN: Draft[object] = Pattern[object]("run", Options()).draft((), {})

# What a late run may cost, of those that need not be refused.
BOUNDED = {
    "barriers/renew": "a lease of one who still takes part counts from then",
    "bells/leave": "a sleeper looks once, or goes to the end of the line when it looks next",
    "bells/ring": "one who sleeps looks once",
    "bells/sleep": "a place of a consumer that does not sleep: what rings for it is passed on",
    "chat/fetch": "it reads, and drops what is over age by now",
    "chat/history": "likewise",
    "claims/heartbeat": "a worker that retired is taken for alive for one lease, and holds nothing",
    "claims/hold_clock": "a worker that died since the last look is found dead later by as much",
    "claims/promote": "it moves what is due by now, as anybody may",
    "elections/renew": "the lease of one who still leads counts from then",
    "idempotency/keep": "an answer is kept once more, if it lapsed by now",
    "locks/acquire": "free locks are held by nobody for one ttl",
    "members/look": "it drops members that have lapsed by now, as anybody may",
    "members/list": "it drops members that have lapsed by now, as anybody may",
    "members/renew": "a membership that still holds counts from then",
    "mailboxes/unread": "it puts back what lapsed claims hold, as anybody may",
    "once/store": "a value is kept and handed out once more, while the lease under which it was computed is held",
    "outbox/look": "data that have no life get one, so that all rows are looked at once more",
    "permits/acquire": "a free permit is held by nobody for one ttl",
    "permits/renew": "a lease that still holds counts from then",
    "permits/renew_many": "likewise, each of them",
    "queues/join": "a place of nobody, who is told when nothing is left",
    "queues/standby": "a place of nobody, who is told when the queue is shut down",
    "quorum/take": "the lock is held by nobody on this server for one ttl",
    "rate_limits/take": "permits are taken that nobody uses, if they were refused before and are free by now",
    "reports/ask": "processes say once more what they hold, to an address of nobody",
    "schedules/declare": "schedules in code are looked at once more, and remembered for 30 days from then",
    "schedules/due": "schedules that are due at that moment are looked at 5 s later",
    "sessions/guard": "it notes what this server is now",
    "sessions/layout": "a namespace whose keys were all deleted has the layout of before",
    "signals/join": "a place of nobody: what comes for it is handed to the next",
    "tasks/add_counts": "jobs that have ended are counted in the hour in which they did",
    "tasks/ask_again": "jobs that wait by now ask once more, as anybody may let them",
    "tasks/end_expired": "it ends what has expired by now, as anybody may",
    "tasks/follow": "a child that has ended is told of its parent's end, and then forgotten",
    "tasks/forget": "a child that has ended stays forgotten",
    "tasks/go_on": "the key of a job that was replayed meanwhile, and has died again, goes on",
    "tasks/let_in": "it lets those in that may come by now, as any worker may that looks",
    "tasks/lift_limits": "it lifts what no job had for two minutes by now, as any worker may that looks",
    "tasks/passed_on": "what was passed on stays so; what somebody passes on may be passed on twice",
    "tasks/tell": "a child is told of each parent once",
    "tasks/report_served": "a queue that no one serves counts as served for two minutes",
    "tasks/resolve_dependents": "it passes on what there is by now, as anybody may",
    "tasks/sweep_groups": "it forgets groups that ended a day ago by now, and drops what was let go, as anybody may",
    "tasks/sweep_names": "it drops names that nobody has by now, as anybody may",
    "tasks/watch": "an address of nobody, for three minutes",
    "tasks/note_unknown": "a job that ran meanwhile is noted as not to be run, for a day longer than the grace",
}


def changes_something(name: str) -> bool:
    """Whether a script, or what it includes, has a command that is not in `_READS`."""
    commands = re.findall(r"redis\.p?call\(\s*(?:[^,']*and )?'(\w+)'", load(name).source)
    return not all(map(_READS.fullmatch, commands))


class Scene:
    """A coordinator whose calls of one script are kept, to be sent once more."""

    def __init__(self, concert: Coordinator) -> None:
        self.concert = concert
        self.session: Session = concert._ref.session
        self.calls: list[Call] = []

    @asynccontextmanager
    async def sent(self, name: str) -> AsyncGenerator[None, None]:
        """Keep the calls of this script that begin in the body."""
        channel = self.session.channel
        submit = channel.submit

        def keep(call: Call) -> None:
            if file_of(call.command.script.name) == name:
                self.calls.append(call)
            submit(call)

        channel.submit = keep  # type: ignore[method-assign]
        try:
            yield
        finally:
            channel.submit = submit  # type: ignore[method-assign]
        await eventually(lambda: self.calls)

    async def arrive(self) -> None:
        """The first sendings of all that were kept come now."""
        for call in self.calls:
            await self.session.run(call.command)

    async def arrive_at(self, barrier: Barrier, holder: str) -> None:
        """Take part in its round, for half a minute."""
        terms = {"parties": 2, "ttl_ms": 30_000, "waits": 1, "changes": "nowhere"}
        await self.session.run(command_of("barriers/arrive", barrier._terms.keys, holder=holder, **terms))

    async def join(self, signal: Signal, address: str) -> None:
        """Stand in line for a signal."""
        await self.session.run(command_of("signals/join", signal._keys, address=address, ticket=0, look_ms=30_000))

    async def everything(self) -> dict[bytes, bytes]:
        """All keys, but for what is remembered of requests, and what never changes."""
        client, namespace = raw(self.concert), self.concert._ref.keys.namespace
        keys = [key async for key in client.scan_iter(match=f"*{namespace}:*", count=1000)]
        changing = [
            key for key in keys if not key.endswith((b":recent", b":older", b":seen_even", b":seen_odd", b":layout"))
        ]
        return {key: await client.dump(key) for key in sorted(changing)}


Story = Callable[[Scene], AsyncGenerator[None, None]]
STORIES: dict[str, list[Story]] = {}


def late(name: str) -> Callable[[Story], Story]:
    """Add a story, in which calls of this script are kept; they come late where it yields."""

    def add(story: Story) -> Story:
        STORIES.setdefault(name, []).append(story)
        return story

    return add


@late("permits/evict")
async def _next_holder_is_not_released_by_force(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.lock("x").acquire()
    async with scene.sent("permits/evict"):
        await scene.concert.release_by_force("lock", "x")
    lease = await scene.concert.lock("x").acquire()
    yield
    await lease.renew()


@late("queues/purge")
async def _items_put_in_after_a_purge_stay(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    await queue.put("old")
    async with scene.sent("queues/purge"):
        assert await queue.purge() == 1
    await queue.put_many(["new", "newer"])
    await queue.put("later", delay=60)
    yield


@late("queues/put_plain")
async def _item_that_is_done_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    async with scene.sent("queues/put_plain"):
        await queue.put("x")
    await (await queue.get()).ack()
    yield


@late("queues/put")
async def _item_with_an_id_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    async with scene.sent("queues/put"):
        assert await queue.put("x", id="mine")
    await (await queue.get()).ack()
    yield


@late("queues/put")
async def _refused_item_is_not_put_in_later(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q", maxsize=1)
    await queue.put("first")
    async with scene.sent("queues/put"):
        with pytest.raises(QueueFull):
            await queue.put("refused")
    await (await queue.get()).ack()
    yield


@late("queues/put")
async def _put_that_gave_up_is_not_made_later(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q", maxsize=1)
    await queue.put("first")
    async with scene.sent("queues/put"):
        with pytest.raises(QueueFull):
            await queue.put("given up", timeout=0.05)
    await (await queue.get()).ack()
    yield


@late("queues/leave")
async def _leaving_takes_no_other_out_of_line(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q", maxsize=1)
    await queue.put("first")
    async with scene.sent("queues/leave"):
        with pytest.raises(QueueFull):
            await queue.put("given up", timeout=0.05)
    with pytest.raises(QueueFull):
        await queue.put("another", timeout=0.05)
    yield


@late("queues/shut")
async def _queue_that_was_opened_since_stays_open(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    async with scene.sent("queues/shut"):
        await queue.shutdown()
    await queue.reopen()
    yield
    await queue.put("x")


@late("queues/ack")
async def _item_that_came_back_is_not_ended_by_its_earlier_end(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    await queue.put_many([1, 2])
    async with scene.sent("queues/ack"):
        await (await queue.get()).ack()
    await queue.get()
    yield


@late("claims/ack")
async def _place_in_a_limit_is_not_freed_by_an_earlier_end(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="limited", limit=Limit(1))
    async def limited() -> None: ...

    await limited.enqueue()
    async with scene.sent("claims/ack"):
        await scene.concert.run_worker("default", burst=True)
    await scene.concert.enqueue_many([limited.call(), limited.call()])
    async with scene.concert.consume("default") as jobs:
        await anext(aiter(jobs))
        yield


@late("claims/nack")
async def _item_that_is_claimed_again_is_not_given_back(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    await queue.put("x")
    delivery = await queue.get()
    async with scene.sent("claims/nack"):
        await delivery.nack()
    await queue.get()
    yield


@late("claims/claim")
async def _job_is_not_taken_by_a_claim_of_long_ago(scene: Scene) -> AsyncGenerator[None, None]:
    async with scene.concert.consume("default") as jobs:
        async with scene.sent("claims/claim"):
            assert await jobs.try_claim(1) == []
        assert await jobs.try_claim(1) == []
        await scene.concert.enqueue("t")
        yield


@late("queues/get")
async def _item_is_not_taken_by_a_claim_of_long_ago(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q")
    async with scene.sent("queues/get"):
        with pytest.raises(TimeoutError):
            await queue.get(timeout=0)
    with pytest.raises(TimeoutError):
        await queue.get(timeout=0)
    await queue.put("x")
    yield


@late("claims/recover")
async def _worker_retires_once(scene: Scene) -> AsyncGenerator[None, None]:
    async with Coordinator.from_client(scene.concert.redis, namespace=scene.concert._ref.keys.namespace) as other:
        there = Scene(other)
        await other.queue("q").put("x")
        await other.queue("q").get()
        async with there.sent("claims/recover"):
            await other._getters.close()
        scene.calls += there.calls
        await eventually(there.calls[0].done)
    await scene.concert.queue("q").get()
    yield


@late("claims/replay")
async def _item_set_aside_again_stays_there(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q", max_attempts=1)
    await queue.put("x")
    first = await queue.get()
    await first.nack()
    async with scene.sent("claims/replay"):
        await queue.replay(first.id)
    await (await queue.get()).nack()
    yield


@late("claims/unsettle")
async def _item_that_was_put_back_and_has_ended_is_not_put_back(scene: Scene) -> AsyncGenerator[None, None]:
    async with Coordinator.from_client(scene.concert.redis, namespace=scene.concert._ref.keys.namespace) as other:
        there = Scene(other)
        queue = other.queue("q", delivery="at_most_once")
        await queue.put("x")
        delivery = await queue.get()
        [getting] = other._getters._open.values()
        getting._left_over.append(delivery._state)
        async with there.sent("claims/unsettle"):
            await other._getters.close()
        scene.calls += there.calls
    await (await scene.concert.queue("q").get()).ack()
    yield


@late("tasks/wait_again")
async def _dependant_set_aside_again_stays_there(scene: Scene) -> AsyncGenerator[None, None]:
    parent = await scene.concert.enqueue("t", queue="q", max_attempts=1)
    child = await scene.concert.enqueue("t", queue="q", after=[parent])

    async def fail() -> None:
        async with scene.concert.consume("q") as jobs:
            await (await anext(jobs)).nack()
            with pytest.raises(JobFailed, match="its parent"):
                await child.result(timeout=5)

    await fail()
    async with scene.sent("tasks/wait_again"):
        await scene.concert.tasks.replay(parent.id, dependants=True)
    await fail()
    yield


@late("claims/purge")
async def _what_is_set_aside_after_a_purge_stays(scene: Scene) -> AsyncGenerator[None, None]:
    queue = scene.concert.queue("q", max_attempts=1)
    async with scene.sent("claims/purge"):
        assert await queue.purge_dead() == 0
    await queue.put("x")
    await (await queue.get()).nack()
    yield


@late("claims/purge")
async def _job_that_was_not_set_aside_yet_is_not_purged(scene: Scene) -> AsyncGenerator[None, None]:
    job = await scene.concert.enqueue("no.such", [])
    async with scene.sent("claims/purge"):
        with pytest.raises(JobNotFound):
            await scene.concert.tasks.purge(job.id)
    await scene.concert.run_worker("default", burst=True)
    yield


@late("mailboxes/purge")
async def _messages_sent_after_a_purge_stay(scene: Scene) -> AsyncGenerator[None, None]:
    mailbox = scene.concert.mailbox("ann")
    await mailbox.send("old")
    async with scene.sent("mailboxes/purge"):
        assert await mailbox.purge() == 1
    await mailbox.send("new")
    yield


@late("mailboxes/send")
async def _message_that_was_handled_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    mailbox = scene.concert.mailbox("ann")
    async with scene.sent("mailboxes/send"):
        await mailbox.send("x")
    assert len(await mailbox.fetch()) == 1
    assert await mailbox.unread() == 0
    yield


@late("mailboxes/fetch")
async def _messages_are_not_claimed_for_a_fetch_that_was_handled(scene: Scene) -> AsyncGenerator[None, None]:
    mailbox = scene.concert.mailbox("ann")
    await mailbox.send("x")
    async with scene.sent("mailboxes/fetch"):
        assert len(await mailbox.fetch()) == 1
    await mailbox.send("y")
    yield


@late("mailboxes/fetch")
async def _messages_are_not_claimed_for_a_fetch_that_gave_up(scene: Scene) -> AsyncGenerator[None, None]:
    mailbox = scene.concert.mailbox("ann")
    async with scene.sent("mailboxes/fetch"):
        assert await mailbox.fetch(timeout=0.05) == []
    await mailbox.send("y")
    yield


@late("mailboxes/ack")
async def _later_messages_are_not_acknowledged(scene: Scene) -> AsyncGenerator[None, None]:
    mailbox = scene.concert.mailbox("ann")
    await mailbox.send("x")
    messages = await mailbox.fetch(ack=False)
    async with scene.sent("mailboxes/ack"):
        await mailbox.ack(messages)
    await mailbox.send("y")
    await mailbox.fetch(ack=False)
    yield


@late("mailboxes/withdraw")
async def _later_fetch_keeps_what_it_has(scene: Scene) -> AsyncGenerator[None, None]:
    mailbox = scene.concert.mailbox("ann")
    async with scene.sent("mailboxes/withdraw"):
        assert await mailbox.fetch(timeout=0.05) == []
    await mailbox.send("y")
    await mailbox.fetch(ack=False)
    yield


@late("tasks/enqueue")
async def _job_that_has_run_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    async with scene.sent("tasks/enqueue"):
        await run.options(unique="one").enqueue()
    await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/enqueue_own")
async def _job_of_a_chosen_id_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    async with scene.sent("tasks/enqueue_own"):
        await run.options(id="one").enqueue()
    await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/enqueue_plain")
async def _plain_jobs_that_have_run_do_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    async with scene.sent("tasks/enqueue_plain"):
        await run.enqueue()
        await run.enqueue()
    await scene.concert.run_worker("default", burst=True)
    await run.options(queue="other").enqueue()
    yield


@late("tasks/ack_and_enqueue")
async def _job_that_followed_another_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run(depth: int) -> None:
        if depth:
            current_job().enqueue_on_success(run.call(depth - 1))

    await run.enqueue(1)
    async with scene.sent("tasks/ack_and_enqueue"):
        await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/enqueue")
async def _job_refused_for_its_name_is_not_added_later(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    assert (await run.options(unique="one").enqueue()).created
    async with scene.sent("tasks/enqueue"):
        assert not (await run.options(unique="one").enqueue()).created
    await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/debounce")
async def _job_that_has_run_after_a_silence_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run(version: int) -> None: ...

    job = None
    async with scene.sent("tasks/debounce"):
        for version, queue in enumerate(["default", "default", "low"]):
            job = await run.options(queue=queue, unique="one", debounce=3600).enqueue(version)
    assert job is not None
    await job.reschedule(delay=0)
    await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/debounce")
async def _later_call_after_a_silence_stays(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run")
    async def run(version: int) -> None: ...

    async with scene.sent("tasks/debounce"):
        for version in range(2):
            await run.options(unique="one", debounce=3600).enqueue(version)
    await run.options(unique="one", debounce=7200).enqueue(2)
    yield


@late("tasks/replace")
async def _newest_that_has_run_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run(version: int) -> None: ...

    async with scene.sent("tasks/replace"):
        for version, queue in enumerate(["default", "default", "low"]):
            await run.options(queue=queue, unique="one", newest="replaces").enqueue(version)
    await scene.concert.run_worker("default", "low", burst=True)
    yield


@late("tasks/replace")
async def _newest_of_all_stays_and_is_not_cancelled(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run")
    async def run(version: int) -> None: ...

    async with scene.sent("tasks/replace"):
        for version in range(4):
            await run.options(unique="one", newest="replaces", delay=3600 * (version % 2)).enqueue(version)
    await run.options(unique="one", newest="replaces", priority=1).enqueue(4)
    yield


@late("tasks/open_group")
async def _group_that_has_ended_is_not_begun_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    async with scene.sent("tasks/open_group"):
        await scene.concert.group([run.call()], then=run.call())
    await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/add_members")
async def _members_that_have_run_do_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    group = await scene.concert.group(then=run.call())
    async with scene.sent("tasks/add_members"):
        await group.add([run.call(), run.call()])
        await group.add([run.call()], start=2)
    await scene.concert.run_worker("default", burst=True)
    await _forget_requests(scene)
    yield
    await group.cancel()


@late("tasks/close_group")
async def _group_that_was_cancelled_stays_so(scene: Scene) -> AsyncGenerator[None, None]:
    group = await scene.concert.group()
    async with scene.sent("tasks/close_group"):
        await group.close()
    await group.cancel()
    yield


async def _forget_requests(scene: Scene) -> None:
    """As it is after two minutes."""
    for keys in scene.concert._jobs.partitions:
        await raw(scene.concert).delete(keys.recent, keys.older)


@late("tasks/enqueue_after")
async def _job_that_ran_after_another_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", result_ttl=0)
    async def run() -> None: ...

    parent = await run.enqueue()
    async with scene.sent("tasks/enqueue_after"):
        await run.options(after=[parent]).enqueue()
    await scene.concert.run_worker("default", burst=True)
    yield


@late("tasks/cancel")
async def _replayed_job_is_not_cancelled(scene: Scene) -> AsyncGenerator[None, None]:
    job = await scene.concert.enqueue("no.such", [])
    await scene.concert.run_worker("default", burst=True, unknown_task_grace=0)
    async with scene.sent("tasks/cancel"):
        assert await job.cancel()
    await scene.concert.tasks.replay(job.id)
    yield


@late("tasks/reschedule")
async def _later_time_of_a_job_stays(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run")
    async def run() -> None: ...

    job = await run.options(delay=60).enqueue()
    async with scene.sent("tasks/reschedule"):
        assert await job.reschedule(delay=0.5)
    assert await job.reschedule(delay=100)
    yield


@late("tasks/pause")
async def _queue_paused_after_a_resume_stays_paused(scene: Scene) -> AsyncGenerator[None, None]:
    async with scene.sent("tasks/pause"):
        await scene.concert.tasks.resume("q")
    await scene.concert.tasks.pause("q")
    yield


@late("tasks/pause")
async def _queue_resumed_after_a_pause_goes_on(scene: Scene) -> AsyncGenerator[None, None]:
    async with scene.sent("tasks/pause"):
        await scene.concert.tasks.pause("q")
    await scene.concert.tasks.resume("q")
    yield


@late("tasks/free_names")
async def _name_of_a_replayed_job_stays_taken(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError

    job = await fails.options(unique="one", unique_until="started").enqueue()
    async with scene.sent("tasks/free_names"):
        await scene.concert.run_worker("default", burst=True)
    await scene.concert.tasks.replay(job.id)
    yield


@late("tasks/progress")
async def _progress_does_not_go_back(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        job = await anext(jobs)
        async with scene.sent("tasks/progress"):
            await job.progress(0.1)
        await job.progress(0.9)
        yield
        await job.ack()


@late("tasks/commit_step")
async def _step_of_a_job_that_another_worker_has_is_not_kept(scene: Scene) -> AsyncGenerator[None, None]:
    async def nothing() -> None:
        """Return what is kept as null."""

    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs) as job:
            async with scene.sent("tasks/commit_step"):
                await durable.step("first", nothing)
            await durable.step("second", nothing)
            await job.give_back()
        async with await anext(jobs):
            yield


@late("tasks/commit_step")
async def _step_of_a_job_that_has_ended_is_not_kept(scene: Scene) -> AsyncGenerator[None, None]:
    async def nothing() -> None:
        """Return what is kept as null."""

    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs), scene.sent("tasks/commit_step"):
            await durable.step("first", nothing)
        yield


@late("tasks/note_undo")
async def _job_that_another_worker_has_is_not_noted_to_be_undone(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs) as job, scene.sent("tasks/note_undo"), durable.undo():
            await job.give_back()
        async with await anext(jobs):
            yield


@late("tasks/receive")
async def _wait_of_a_job_that_another_worker_has_does_not_time_out(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs) as job:
            async with scene.sent("tasks/receive"):
                with pytest.raises(TimeoutError):
                    await durable.wait_for("one", int, timeout=0)
            await job.give_back()
        async with await anext(jobs):
            yield


@late("tasks/receive")
async def _wait_of_a_job_that_has_ended_leaves_nothing(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs), scene.sent("tasks/receive"):
            with pytest.raises(TimeoutError):
                await durable.wait_for("one", int, timeout=0)
        yield


@late("tasks/save_cursor")
async def _position_of_a_loop_does_not_go_back(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs) as job:
            each = durable.each("all", range(9), key=int)
            async with scene.sent("tasks/save_cursor"):
                assert [await anext(each) for _ in range(3)] == [0, 1, 2]
                await job.give_back()
        async with await anext(jobs) as job:
            each = durable.each("all", range(9), key=int)
            assert [await anext(each) for _ in range(3)] == [2, 3, 4]
            await job.give_back()
        async with await anext(jobs):
            yield


@late("tasks/send")
async def _message_is_not_sent_again(scene: Scene) -> AsyncGenerator[None, None]:
    job = await scene.concert.enqueue("run", [])
    async with scene.sent("tasks/send"):
        assert await job.send("one", 1)
    async with scene.concert.consume("default") as jobs, await anext(jobs):
        pass  # it ends
    yield


@late("tasks/append_items")
async def _items_of_a_job_that_another_worker_has_are_not_added(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs) as job:
            async with scene.sent("tasks/append_items"):
                await append_items(state_of(job), 1, [b"1"], 60.0)
            await job.give_back()
        async with await anext(jobs) as job:
            await append_items(state_of(job), 1, [], 60.0)
            yield


@late("tasks/append_items")
async def _items_of_a_job_that_has_ended_are_not_added(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.enqueue("run", [])
    async with scene.concert.consume("default") as jobs:
        async with await anext(jobs) as job, scene.sent("tasks/append_items"):
            await append_items(state_of(job), 1, [b"1"], 60.0)
        yield


@late("schedules/put")
async def _schedule_that_was_deleted_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    async with scene.sent("schedules/put"):
        await scene.concert.schedules.put("s", RUN, every=3600)
    await scene.concert.schedules.delete("s")
    yield


@late("schedules/put")
async def _schedule_that_was_changed_stays_so(scene: Scene) -> AsyncGenerator[None, None]:
    async with scene.sent("schedules/put"):
        await scene.concert.schedules.put("s", RUN, every=3600)
    await scene.concert.schedules.put("s", RUN, every=7200)
    yield


@late("schedules/delete")
async def _schedule_that_was_put_again_stays(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.schedules.put("s", RUN, every=3600)
    async with scene.sent("schedules/delete"):
        await scene.concert.schedules.delete("s")
    await scene.concert.schedules.put("s", RUN, every=3600)
    yield


@late("schedules/pause")
async def _schedule_that_was_resumed_goes_on(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.schedules.put("s", RUN, every=3600)
    async with scene.sent("schedules/pause"):
        await scene.concert.schedules.pause("s")
    await scene.concert.schedules.resume("s")
    yield


@late("schedules/pause")
async def _schedule_that_was_not_there_yet_is_not_paused(scene: Scene) -> AsyncGenerator[None, None]:
    async with scene.sent("schedules/pause"):
        with pytest.raises(UnknownSchedule):
            await scene.concert.schedules.pause("s")
    await scene.concert.schedules.put("s", RUN, every=3600)
    yield


@late("schedules/advance")
async def _instant_that_a_schedule_has_left_does_not_come_again(scene: Scene) -> AsyncGenerator[None, None]:
    await scene.concert.schedules.put("s", RUN, every=3600)
    await set_since(scene.concert, "s", 3_600_000)
    async with scene.sent("schedules/advance"):
        await look_at_all(scene.concert)
    keys = keys_of(scene.concert, "s")
    await raw(scene.concert).delete(keys.bodies, keys.queue("default").queue, keys.queue("default").bell)
    yield


@late("schedules/advance_alone")
async def _job_that_was_to_wait_for_the_last_one_and_is_cancelled_does_not_come_again(
    scene: Scene,
) -> AsyncGenerator[None, None]:
    await scene.concert.schedules.put("s", RUN, every=3600, overlap="wait")
    keys, client, hour = keys_of(scene.concert, "s"), raw(scene.concert), 3_600_000
    last = await now_ms(scene.concert) // hour * hour - hour
    former = f"schedule:s@{instant_text(last)}"
    await client.hset(keys.bodies, former, "1 {}")
    await client.hset(keys.schedules, "s", f"{last} {last} every%203600%20s")
    await client.zadd(keys.looks, {"s": 0})
    async with scene.sent("schedules/advance_alone"):
        await look_at_all(scene.concert)
    [waiting] = set(await job_ids(scene.concert)) - {former}
    await scene.concert.tasks.job(waiting).cancel()
    await client.delete(keys.bodies)
    yield


@late("tasks/unwatch")
async def _others_who_wait_for_a_job_stay(scene: Scene) -> AsyncGenerator[None, None]:
    job = await scene.concert.enqueue("run", [])
    async with scene.sent("tasks/unwatch"):
        with pytest.raises(TimeoutError):
            await job.result(timeout=0.05)
    await job._inspect(scene.session.new_address())
    yield


@late("chat/create")
async def _chat_that_all_have_left_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    chat = scene.concert.chat
    async with scene.sent("chat/create"):
        chat_id = await chat.create("ann", ["bob"], "hello")
    for user in ("ann", "bob"):
        await chat.leave(chat_id, user)
    yield


@late("chat/join")
async def _one_who_has_left_does_not_join_again(scene: Scene) -> AsyncGenerator[None, None]:
    chat = scene.concert.chat
    chat_id = await chat.create("ann", [], "hello")
    async with scene.sent("chat/join"):
        await chat.join(chat_id, "bob")
    await chat.leave(chat_id, "bob")
    yield


@late("chat/leave")
async def _one_who_has_joined_again_stays(scene: Scene) -> AsyncGenerator[None, None]:
    chat = scene.concert.chat
    chat_id = await chat.create("ann", ["bob"], "hello")
    async with scene.sent("chat/leave"):
        await chat.leave(chat_id, "bob")
    await chat.join(chat_id, "bob")
    yield


@late("chat/send")
async def _message_is_not_said_again(scene: Scene) -> AsyncGenerator[None, None]:
    chat = scene.concert.chat
    chat_id = await chat.create("ann", [], "hello")
    async with scene.sent("chat/send"):
        await chat.send(chat_id, "ann", "x")
    await chat.fetch("ann")
    await chat.send(chat_id, "ann", "y")
    yield


@late("chat/ack")
async def _read_position_does_not_go_back(scene: Scene) -> AsyncGenerator[None, None]:
    chat = scene.concert.chat
    chat_id = await chat.create("ann", ["bob"], "hello")
    message_id = (await chat.send(chat_id, "ann", "x")).id
    async with scene.sent("chat/ack"):
        await chat.ack("bob", chat_id, message_id)
    await chat.ack("bob", chat_id, (await chat.send(chat_id, "ann", "y")).id)
    yield


@late("events/set")
async def _event_cleared_after_it_was_set_stays_cleared(scene: Scene) -> AsyncGenerator[None, None]:
    event = scene.concert.event("e")
    async with scene.sent("events/set"):
        await event.set()
    await event.clear()
    yield


@late("events/clear")
async def _event_set_after_it_was_cleared_stays_set(scene: Scene) -> AsyncGenerator[None, None]:
    event = scene.concert.event("e")
    async with scene.sent("events/clear"):
        await event.clear()
    await event.set()
    yield


@late("latches/count_down")
async def _latch_counts_once(scene: Scene) -> AsyncGenerator[None, None]:
    latch = scene.concert.latch("l", 5)
    async with scene.sent("latches/count_down"):
        await latch.count_down()
    await latch.count_down()
    yield


@late("barriers/arrive")
async def _one_that_has_left_a_barrier_does_not_arrive_again(scene: Scene) -> AsyncGenerator[None, None]:
    barrier = scene.concert.barrier("b", 2)
    async with scene.sent("barriers/arrive"):
        await scene.arrive_at(barrier, "one.1")
    await scene.session.run(command_of("barriers/leave", barrier._terms.keys, holder="one.1"))
    yield


@late("barriers/leave")
async def _others_stay_in_a_round(scene: Scene) -> AsyncGenerator[None, None]:
    barrier = scene.concert.barrier("b", 2)
    await scene.arrive_at(barrier, "one.1")
    async with scene.sent("barriers/leave"):
        await scene.session.run(command_of("barriers/leave", barrier._terms.keys, holder="one.1"))
    await scene.arrive_at(barrier, "one.2")
    yield


@late("barriers/abort")
async def _round_that_begins_after_a_reset_is_not_broken(scene: Scene) -> AsyncGenerator[None, None]:
    barrier = scene.concert.barrier("b", 2)
    async with scene.sent("barriers/abort"):
        await barrier.abort()
    await barrier.reset()
    await scene.arrive_at(barrier, "one.1")
    yield


@late("barriers/reset")
async def _barrier_that_is_aborted_after_a_reset_stays_so(scene: Scene) -> AsyncGenerator[None, None]:
    barrier = scene.concert.barrier("b", 2)
    await barrier.abort()
    async with scene.sent("barriers/reset"):
        await barrier.reset()
    await barrier.abort()
    yield


@late("index/add")
async def _removed_document_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    index = scene.concert.index("i")
    async with scene.sent("index/add"):
        await index.add("d", "red apples")
    await index.remove("d")
    yield


@late("index/remove")
async def _document_added_again_stays(scene: Scene) -> AsyncGenerator[None, None]:
    index = scene.concert.index("i")
    await index.add("d", "red apples")
    async with scene.sent("index/remove"):
        await index.remove("d")
    await index.add("d", "green apples")
    yield


@late("index/clear")
async def _documents_added_after_a_clear_stay(scene: Scene) -> AsyncGenerator[None, None]:
    index = scene.concert.index("i")
    async with scene.sent("index/clear"):
        await index.clear()
    await index.add("d", "green apples")
    yield


@late("permits/release")
async def _later_holder_keeps_its_lease(scene: Scene) -> AsyncGenerator[None, None]:
    lock = scene.concert.lock("l")
    lease = await lock.acquire()
    async with scene.sent("permits/release"):
        await lease.release()
    async with lock:
        yield


@late("permits/release")
async def _one_who_gave_up_takes_no_other_out_of_line(scene: Scene) -> AsyncGenerator[None, None]:
    lock = scene.concert.lock("l")
    async with lock:
        async with scene.sent("permits/release"):
            with pytest.raises(AcquireTimeout):
                await lock.acquire(timeout=0.05)
        yield


@late("permits/drop")
async def _later_holder_is_not_dropped(scene: Scene) -> AsyncGenerator[None, None]:
    lock = scene.concert.lock("l")
    keys = scene.concert._ref.keys.of(PermitKeys, "lock", "l")
    lease = await lock.acquire()
    [holder] = await raw(scene.concert).zrange(keys.holders, 0, -1)
    async with scene.sent("permits/drop"):
        await scene.session.run(command_of("permits/drop", keys, holder=holder.decode()))
    with pytest.raises(LeaseLost):
        await lease.release()
    async with lock:
        yield


@late("permits/downgrade")
async def _writer_that_released_reads_no_more(scene: Scene) -> AsyncGenerator[None, None]:
    write = scene.concert.rwlock("l").write()
    lease = await write.acquire()
    async with scene.sent("permits/downgrade"):
        await lease.downgrade()
    await lease.release()
    async with write:
        yield


@late("elections/vacate")
async def _later_leader_stays_proclaimed(scene: Scene) -> AsyncGenerator[None, None]:
    election = scene.concert.election("e")
    async with scene.sent("elections/vacate"), election:
        await eventually(election.leader)
    async with election:
        await eventually(election.leader)
        yield


@late("quorum/release")
async def _holder_on_one_server_keeps_it(scene: Scene) -> AsyncGenerator[None, None]:
    keys = scene.concert._ref.keys.of(QuorumKeys, "quorum", "l")
    take = partial(command_of, "quorum/take", keys, ttl_ms=30_000)
    await scene.session.run(take(me="me"))
    async with scene.sent("quorum/release"):
        await scene.session.run(command_of("quorum/release", keys, me="me"))
    await scene.session.run(take(me="another"))
    yield


@late("rate_limits/refund")
async def _permits_are_given_back_once(scene: Scene) -> AsyncGenerator[None, None]:
    keys = scene.concert.rate_limiter("l", 1, 1.0)._keys
    run, new_address = scene.session.run, scene.session.new_address
    first, second, third = new_address(), new_address(), new_address()
    terms = {
        "cost_us": 1_000_000,
        "burst_us": 5_000_000,
        "interval_us": 1_000_000,
        "inboxes": scene.session.inboxes(""),
    }
    take = partial(command_of, "rate_limits/take", keys, longest_us=0, ticket=0, **terms)
    for request in (first, second):
        await run(take(request=request))
    async with scene.sent("rate_limits/refund"):
        assert await run(command_of("rate_limits/refund", keys, request=second, **terms)) == 1
    await run(take(request=third))
    yield


@late("rate_limits/reset")
async def _permits_taken_after_a_reset_stay_taken(scene: Scene) -> AsyncGenerator[None, None]:
    limiter = scene.concert.rate_limiter("l", 1, 60.0)
    assert await limiter.try_acquire()
    async with scene.sent("rate_limits/reset"):
        await limiter.reset()
    assert await limiter.try_acquire()
    yield
    assert not await limiter.try_acquire()


@late("rate_limits/settle")
async def _what_was_used_is_settled_once(scene: Scene) -> AsyncGenerator[None, None]:
    limiter = scene.concert.rate_limiter("l", 1, 60.0, burst=3)
    async with limiter.reserve(cost=3) as reservation, scene.sent("rate_limits/settle"):
        reservation.settle(1)

        async def is_settled() -> bool:
            return (await limiter.inspect()).remaining == 2

        await eventually(is_settled)
    yield
    assert (await limiter.inspect()).remaining == 2


@late("tasks/store_anew")
async def _job_by_name_that_has_run_does_not_run_again(scene: Scene) -> AsyncGenerator[None, None]:
    @scene.concert.task(name="run", limit=Limit(1), result_ttl=0)
    async def run() -> None: ...

    async with Coordinator.from_client(scene.concert.redis, namespace=scene.concert._ref.keys.namespace) as other:
        await other.enqueue("run")
    async with scene.sent("tasks/store_anew"):
        await scene.concert.run_worker("default", burst=True)
    yield


@late("signals/notify")
async def _nobody_is_woken_by_what_woke_nobody(scene: Scene) -> AsyncGenerator[None, None]:
    signal = scene.concert.signal("s")
    async with scene.sent("signals/notify"):
        assert not await signal.notify("old")
    await scene.join(signal, f"{scene.session.id}.9999")
    yield


@late("signals/broadcast")
async def _one_who_came_after_a_broadcast_waits(scene: Scene) -> AsyncGenerator[None, None]:
    signal = scene.concert.signal("s")
    async with scene.sent("signals/broadcast"):
        await signal.broadcast("old")
    await scene.join(signal, f"{scene.session.id}.9999")
    yield


@late("signals/leave")
async def _others_stay_in_line_for_a_signal(scene: Scene) -> AsyncGenerator[None, None]:
    signal, me, other = scene.concert.signal("s"), scene.session.new_address(), scene.session.new_address()
    await scene.join(signal, me)
    async with scene.sent("signals/leave"):
        leave = command_of("signals/leave", signal._keys, address=me, hands_on=1, inboxes=scene.session.inboxes(""))
        await scene.session.run(leave)
    await scene.join(signal, other)
    yield


@late("periodic/begin")
async def _run_that_is_due_is_left_to_who_asks_now(scene: Scene) -> AsyncGenerator[None, None]:
    keys = scene.concert._ref.keys.of(PeriodicKeys, "periodic", "p")
    begin = partial(command_of, "periodic/begin", keys, period_ms=60_000)
    async with scene.sent("periodic/begin"):
        assert await scene.session.run(begin(request="first")) == 0
        assert await scene.session.run(begin(request="second")) > 0
    await raw(scene.concert).delete(keys.latest)  # the period is over
    yield


@late("members/join")
async def _member_that_has_left_is_not_there_again(scene: Scene) -> AsyncGenerator[None, None]:
    group = scene.concert.members("g")
    async with scene.sent("members/join"):
        me = await group.join()
    await me.release()
    yield


@late("members/leave")
async def _leaving_ends_nothing_else(scene: Scene) -> AsyncGenerator[None, None]:
    group = scene.concert.members("g")
    me = await group.join()
    async with scene.sent("members/leave"):
        await me.release()
    you = await group.join()
    yield
    await you.release()


@late("members/update")
async def _value_that_was_changed_since_stays(scene: Scene) -> AsyncGenerator[None, None]:
    me = await scene.concert.members("g").join()
    async with scene.sent("members/update"):
        await me.update(1)
    await me.update(2)
    yield
    await me.release()


@late("members/share")
async def _keys_that_were_let_go_of_since_are_nobodys(scene: Scene) -> AsyncGenerator[None, None]:
    me = await scene.concert.members("g").join()
    shares = me.shares(["k", "l"])
    async with scene.sent("members/share"):
        await anext(shares)
    await shares.aclose()
    again = me.shares(["l"])
    await anext(again)
    yield
    await again.aclose()
    await me.release()


@late("members/share")
async def _keys_that_were_claimed_since_stay(scene: Scene) -> AsyncGenerator[None, None]:
    me = await scene.concert.members("g").join()
    shares = me.shares(["k"])
    await anext(shares)
    async with scene.sent("members/share"):
        await shares.aclose()
    again = me.shares(["k"])
    await anext(again)
    yield
    await again.aclose()
    await me.release()


@pytest.mark.each_case
@pytest.mark.parametrize(
    "story", [story for stories in STORIES.values() for story in stories], ids=lambda story: story.__name__[1:]
)
async def test_late_first_sending_changes_nothing(concert: Coordinator, story: Story) -> None:
    """See each story."""
    scene = Scene(concert)
    telling = story(scene)
    await anext(telling)
    before = await scene.everything()
    await scene.arrive()
    assert await scene.everything() == before
    with pytest.raises(StopAsyncIteration):
        await anext(telling)


def test_every_script_that_changes_something_has_a_story() -> None:
    """None was forgotten."""
    changing = {file_of(name) for name in FORMS if changes_something(name)}
    assert changing == STORIES.keys() | BOUNDED.keys()
    assert not STORIES.keys() & BOUNDED.keys()
