"""What processes say when they are asked what they hold and what they wait for."""

import asyncio
import os
import socket
import sys
import time

import pytest

from inconcert import Coordinator, Job, NotConnected
from inconcert._redis.protocol.scripts import load
from inconcert.reports.reporter import ReportKeys, report_keys
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.raw import client_of, publish
from tests.support.reports import held, may_ask, waits_of
from tests.support.servers import RealServer
from tests.support.world import world

__all__ = ["may_ask"]  # the fixture

_ASK = load("reports/ask").bind(ReportKeys)
_ANSWER = load("reports/answer").bind(ReportKeys)


def here() -> str:
    """The line that calls this."""
    frame = sys._getframe(1)
    return f"{__file__}:{frame.f_lineno}"


async def test_inspect_shows_who_listens_to_signals(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """From which line and since when; and no more when they have left."""
    began_at = time.time()
    async with elsewhere.signal("deploy").subscribe():
        line = here()
        seen = await any_concert.inspect()
        async with any_concert.signal("deploy").subscribe() as left:
            pass
    [listener] = [each for process in seen.processes for each in process.listeners]
    after = [each for process in (await any_concert.inspect()).processes for each in process.listeners]

    assert (listener.name, listener.is_pattern, listener.is_redacted) == ("deploy", False, False)
    assert listener.line == f"{__file__}:{int(line.rpartition(':')[2]) - 1}"
    assert abs(listener.since - began_at) < 60
    assert (after, repr(left)) == ([], "<Subscription to signal 'deploy'>")


@pytest.mark.skipif(world().least_rights, reason="servers let nobody subscribe to a pattern without a rule for it")
async def test_inspect_shows_who_listens_by_pattern(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """To all signals whose names match."""
    async with elsewhere.signals("shop:*").subscribe():
        seen = await any_concert.inspect()
    [listener] = [each for process in seen.processes for each in process.listeners]

    assert (listener.name, listener.is_pattern) == ("shop:*", True)


async def test_inspect_shows_who_holds_a_lock_and_from_where(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Asked from another process; its task, its line, its fencing token and what its user calls it."""
    async with any_concert.lock("item:42", label="order 7") as lease:
        line = here().rpartition(":")[2]
        seen = await elsewhere.inspect()
    [entry] = held(seen)
    task = asyncio.current_task()
    assert task is not None
    assert (entry.kind, entry.name, entry.holder) == ("lock", "item:42", lease.holder)
    assert (entry.fencing_token, entry.label, entry.task) == (lease.fencing_token, "order 7", task.get_name())
    assert entry.line == f"{__file__}:{int(line) - 1}"
    assert 0 < entry.remaining <= 30
    assert {process.id for process in seen.processes} == {one._ref.session.id for one in (any_concert, elsewhere)}
    assert {(process.host, process.pid) for process in seen.processes} == {(socket.gethostname(), os.getpid())}
    assert seen.silent == ()
    assert held(await elsewhere.inspect()) == []


async def test_inspect_shows_waiters_in_line(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Of all processes, numbered in the order in which they will be served."""
    lock = any_concert.lock("item")
    async with lock, in_background(_hold(any_concert)):
        await waits_of(any_concert, 1)
        async with in_background(_hold(elsewhere)):
            first, second = sorted(await waits_of(any_concert, 2), key=lambda entry: entry.position or 0)
            assert (first.position, second.position) == (1, 2)
            assert first.holder.startswith(any_concert._ref.session.id)
            assert second.holder.startswith(elsewhere._ref.session.id)
            assert first.line is not None
            assert first.line.startswith(__file__)
            tasks = {id(task) for task in asyncio.all_tasks()}
            assert {first.task_id, second.task_id} <= tasks


async def _result(job: Job[None]) -> None:
    await job.result()


async def _hold(concert: Coordinator) -> None:
    async with concert.lock("item"):
        await asyncio.Event().wait()


@pytest.mark.parametrize("side", ["read", "write"])
async def test_inspect_shows_the_side_of_an_rwlock(any_concert: Coordinator, side: str) -> None:
    """Kind and name are those of the rwlock."""
    rwlock = any_concert.rwlock("doc", label="page")
    async with rwlock.read() if side == "read" else rwlock.write():
        [entry] = held(await any_concert.inspect())
        assert (entry.kind, entry.name, entry.mode, entry.label) == ("rwlock", "doc", side, "page")


async def test_inspect_shows_every_kind_of_lease(any_concert: Coordinator) -> None:
    """Each lock of several, a permit of a semaphore, a term."""
    async with (
        any_concert.locks("a", "b", label="both"),
        any_concert.semaphore("s", limit=2, label="permit"),
        any_concert.election("e"),
    ):
        entries = held(await any_concert.inspect())
        assert [(entry.kind, entry.name, entry.label) for entry in entries] == [
            *[("lock", "a", "both"), ("lock", "b", "both"), ("semaphore", "s", "permit"), ("election", "e", None)]
        ]
        assert all(entry.line is not None and entry.line.startswith(__file__) for entry in entries)


async def test_inspect_shows_memberships(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """As long as they last, each by its id."""
    async with any_concert.members("crawlers") as one, elsewhere.members("crawlers") as two:
        entries = held(await elsewhere.inspect())
    assert {(entry.kind, entry.name, entry.holder) for entry in entries} == {
        ("members", "crawlers", one.id),
        ("members", "crawlers", two.id),
    }
    assert all(0 < entry.remaining <= 30 for entry in entries)
    assert held(await any_concert.inspect()) == []


async def test_inspect_shows_the_job_that_holds_and_who_waits_for_a_job(any_concert: Coordinator) -> None:
    """The lock has the id of the job in whose body it was acquired."""
    gate, started = asyncio.Event(), asyncio.Event()

    @any_concert.task
    async def work() -> None:
        async with any_concert.lock("inner"):
            started.set()
            await gate.wait()

    job = await work.enqueue()
    async with in_background(any_concert.run_worker("default")), in_background(_result(job)):
        await started.wait()
        [wait] = await waits_of(any_concert, 1)
        [entry] = held(await any_concert.inspect())
        gate.set()
    assert (wait.kind, wait.name, wait.line is not None) == ("job", job.id, True)
    assert (entry.name, entry.job_id) == ("inner", job.id)


async def test_line_is_that_of_the_user_behind_an_exit_stack_and_a_timeout(any_concert: Coordinator) -> None:
    """And unknown where the event loop calls `acquire` itself."""
    from contextlib import AsyncExitStack

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(any_concert.lock("a"))
        lease = await any_concert.lock("b").acquire(timeout=5)
        other = await asyncio.create_task(any_concert.lock("c").acquire())
        a, b, c = held(await any_concert.inspect())
        await lease.release()
        await other.release()
    assert a.line is not None
    assert b.line is not None
    assert a.line.startswith(__file__)
    assert b.line.startswith(__file__)
    assert c.line is None
    task = asyncio.current_task()
    assert task is not None
    assert a.task == b.task == c.task == task.get_name()  # in whose variables they are


async def test_name_that_is_not_unicode_is_shown_with_escapes(any_concert: Coordinator, elsewhere: Coordinator) -> None:
    """Of an asyncio task or a label; `os.fsdecode()` gives such ones for files. The process still answers."""
    name = os.fsdecode(b"caf\xe9.txt")
    task = asyncio.current_task()
    assert task is not None
    task.set_name(name)
    async with any_concert.lock("item:42", label=name):
        seen = await elsewhere.inspect()
    [entry] = held(seen)
    assert (entry.task, entry.label) == ("caf\\udce9.txt", "caf\\udce9.txt")
    assert seen.silent == ()


async def test_process_may_show_something_in_place_of_names(any_concert: Coordinator, namespace: str) -> None:
    """A function that fails shows nothing of them."""

    def redacted(kind: str, name: str) -> str:
        if name == "bad":
            raise LookupError(name)
        return f"{kind} of {len(name)}"

    client = client_of(any_concert)
    async with (
        Coordinator.from_client(client, namespace=namespace, label="web", report=redacted) as web,
        web.lock("secret"),
        web.lock("bad"),
        web.signal("secret").subscribe(),
    ):
        await web._ref.session.inbox.listen(report_keys(web._ref.keys).asked)
        seen = await any_concert.inspect()
    assert [(entry.name, entry.is_redacted) for entry in held(seen)] == [("lock of 6", True), ("?", True)]
    listeners = [each for process in seen.processes for each in process.listeners]
    assert [(each.name, each.is_redacted) for each in listeners] == [("signal of 6", True)]
    assert [process.label for process in seen.processes] == [None, "web"]


async def test_process_that_does_not_report_is_silent(any_concert: Coordinator, namespace: str) -> None:
    """Its id is known all the same."""
    async with Coordinator.from_client(client_of(any_concert), namespace=namespace, report=False) as quiet:
        async with quiet.lock("item"):
            await eventually(lambda: quiet._ref.opened is not None)
            seen = await any_concert.inspect(timeout=0.05)
        assert held(seen) == []
        assert len(seen.processes) <= 1
        if not quiet._ref.keys.is_sharded:  # on a cluster it listens to nothing
            assert quiet._ref.session.id in seen.silent


async def test_answer_is_bounded(any_concert: Coordinator) -> None:
    """The rest is counted."""
    locks = [any_concert.lock(f"{number}") for number in range(1003)]
    leases = await asyncio.gather(*(lock.acquire() for lock in locks))
    [process] = (await any_concert.inspect(timeout=5)).processes
    await asyncio.gather(*(lease.release() for lease in leases))
    assert (len(process.holds), process.more) == (1000, 3)


async def test_namespaces_do_not_see_each_other(any_concert: Coordinator, namespace: str) -> None:
    """Also when the name of one is a glob that matches the other's."""
    glob = Coordinator.from_client(client_of(any_concert), namespace=f"{namespace[:-1]}?")
    async with glob as other, any_concert.lock("item"):
        seen, other_id = await other.inspect(), other._ref.session.id
    assert [process.id for process in seen.processes] == [other_id]
    assert held(seen) == []


@pytest.mark.one_server("on a cluster nobody expects an answer of a process that does not report")
async def test_inspect_ends_when_the_coordinator_closes(server: RealServer, namespace: str) -> None:
    """It does not wait for processes that are silent."""
    async with Coordinator(server.url, namespace=namespace, report=False) as quiet:
        async with Coordinator(server.url, namespace=namespace) as closing:
            asking = asyncio.create_task(closing.inspect(timeout=60))
            await asyncio.sleep(0)
            await quiet.inspect(timeout=0.01)
        with pytest.raises(NotConnected):
            await asking


async def test_inspect_needs_time(any_concert: Coordinator) -> None:
    """It waits for answers."""
    with pytest.raises(ValueError, match="inspect"):
        await any_concert.inspect(timeout=0)


@pytest.mark.parametrize("text", ["reports ask", "reports ask x 3", "reports ask 0123456789abcdef.11 many"])
async def test_foreign_question_is_ignored(concert: Coordinator, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the next one is answered."""
    key = report_keys(concert._ref.keys).asked
    channel = concert._ref.keys.inboxes(key) + concert._ref.session.id
    await concert.inspect()
    await publish(concert, channel, text)
    await eventually(lambda: "ignored a foreign message" in caplog.text)
    assert len((await concert.inspect()).processes) == 1


@pytest.mark.twice("reports/ask", "reports/answer")
async def test_question_and_answer_may_be_sent_twice(concert: Coordinator) -> None:
    """Of those who ask only if nobody has, the first asks."""
    session, keys = concert._ref.session, concert._ref.keys
    await concert.inspect()  # so that it is heard on a cluster, too
    key = report_keys(keys)
    where = {"inboxes": keys.inboxes(key.asked), "pattern": keys.all_inboxes(key.asked)}
    for quiet_ms in (0, 4000):
        for _ in range(2):
            answer = await session.run(_ASK(key, **where, address=f"{session.id}.11", quiet_ms=quiet_ms))
            assert answer == [session.id.encode()]
    assert await session.run(_ASK(key, **where, address=f"{session.id}.12", quiet_ms=4000)) == 0
    for _ in range(2):
        inbox = keys.inboxes(key.asked) + session.id
        assert await session.run(_ANSWER(key, inbox=inbox, address=f"{session.id}.11", report="{}")) == 1
