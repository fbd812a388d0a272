"""The scripts of tasks, each run twice: one whose reply was lost is sent again, and answers as its TWICE line says.

A new script is added to `SECOND`, or has a test of its own here.
"""

import re
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from inconcert import Coordinator, WrongState
from inconcert._claims.claimed import Row
from inconcert._claims.keys import HELD, QueueKeys
from inconcert.tasks.following.cancellation import HAD_ENDED
from inconcert.tasks.records.store import COUNT_CLAIMED, RESCHEDULE, JobKeys
from tests.support.eventually import eventually
from tests.support.ledger import Ledger, facts_text, read_ledger
from tests.support.moves import moves, moves_between
from tests.support.raw import raw
from tests.support.scripts import command_of

WORKER = "session.1"
HOUR = 3_600_000  # milliseconds
MOST = 9  # ends that a history keeps
REASON = '{"reason":"no"}'
RECORDED = f"3 #{MOST}:ab+ {{}}"  # a job whose end is to be in a history, with its arguments
DONE: list[Any] = [0, 0, [], [], 0]  # what `tasks/resolve_dependents` answers when nothing is left


class WorkerKeys(NamedTuple):
    """The keys of one worker."""

    claimed: str


class Scene:
    """One worker that holds `held`, and jobs in each of the other places."""

    def __init__(self, concert: Coordinator) -> None:
        self.client: Any = raw(concert)
        self.keys: JobKeys = concert._jobs.partitions[0]
        self.queue: QueueKeys = self.keys.queue("q")
        self.worker = WorkerKeys(self.keys.claimed(WORKER))
        self.session = concert._ref.session
        self.inboxes = self.session.inboxes("")
        self._namespace = concert._ref.keys.namespace

    async def run(self, script: str, /, **named: Any) -> Any:
        """Run a script once: it moves jobs only as it declares."""
        before = await read_ledger(self.client, self._namespace)
        answer = await self.session.run(command_of(script, self.keys, self.queue, self.worker, **named))
        moved = moves_between(before, await read_ledger(self.client, self._namespace))
        assert moved <= moves(script) | {("new", then) for was, then in moves(script) if was == "gone"}
        return answer

    async def enqueue(self, *jobs: tuple[str, int, str], again: bool = False) -> list[bytes]:
        """Run the script that adds jobs: id, delay in ms, unique name; `again` when the request is forgotten."""
        if again:
            await self.forget_requests()
        answer: list[bytes] = await self.run(
            "tasks/enqueue",
            results=self.keys.results(job for job, _, _ in jobs),
            queue_name="q",
            jobs=[part for job, delay_ms, name in jobs for part in (job, RECORDED, delay_ms, name, 0)],
        )
        return answer

    async def enqueue_plain(self, number: int, *jobs: str) -> Any:
        """Run the script that adds jobs that need nothing, as this request of one session."""
        parts = [part for job in jobs for part in (job, RECORDED)]
        return await self.run("tasks/enqueue_plain", queue_name="q", session="session", number=number, jobs=parts)

    async def forget_requests(self) -> None:
        """As it is after two minutes, or if very many others come."""
        await self.client.delete(self.keys.recent, self.keys.older)

    async def heartbeat(self, worker: str = WORKER, *, is_new: int = 0) -> Any:
        """Run the script that says that a worker lives, for a minute."""
        return await self.run("claims/heartbeat", worker=worker, ttl_ms=60_000, is_new=is_new, skip=0, about="")

    async def ask(self, number: int, count: int = 1) -> Any:
        """Run the script that claims."""
        return await self.run(
            "claims/claim",
            queues=(self.queue.queue, self.queue.bell, self.queue.delayed),
            worker=WORKER,
            number=number,
            count=count,
            suspects=1,
            names=["q"],
        )

    async def claim(self, number: int, count: int = 1) -> list[bytes]:
        """Run the script that claims, and return the ids."""
        answer = await self.ask(number, count)
        assert answer[0] == 1
        return [row.id for row in Row.read(number, answer[3], answer[4], answer[5:])]

    async def ack(
        self,
        job: str = "held",
        position: int = 2001,
        *,
        result: str = "succeeded 1",
        ttl_ms: int = HOUR,
        unique: str = "name",
        failed: str = "",
        kept: Sequence[str] = (),
    ) -> Any:
        """Run the script that ends a job."""
        return await self.run(
            "claims/ack+jobs",
            results=[self.keys.result(job), *kept],
            inboxes=self.inboxes,
            worker=WORKER,
            histories=f"1 1 {MOST}:ab+,",
            failed=failed,
            jobs=(job, position, result, ttl_ms, unique),
        )

    async def nack(self, verdict: str, job: str = "held", position: int = 2001, *, delay_ms: int = 0) -> Any:
        """Run the script that says that a job was not done; one that is asleep waits for two messages."""
        return await self.run(
            "claims/nack",
            id=job,
            position=position,
            verdict=verdict,
            delay_ms=delay_ms,
            reason="4 paid6 packed" if verdict == "asleep" else REASON,
            name="q",
            inboxes=self.inboxes,
            worker=WORKER,
        )

    async def say(self, job: str, position: int) -> Any:
        """Run the script that says how far a job is."""
        return await self.run("tasks/progress", id=job, position=position, how_far="[0.5]", number=1)

    async def recover(self, max_crashes: int) -> Any:
        """Run the script that gives back what the worker holds."""
        return await self.run(
            "claims/recover",
            queues=(self.queue.queue, self.queue.bell, self.queue.delayed),
            worker=WORKER,
            max_crashes=max_crashes,
            inboxes=self.inboxes,
            names=["q"],
        )

    async def cancel(self, job: str = "held", *, request: str = "one") -> Any:
        """Run the script that cancels a job; for each job it is another request."""
        [answer] = await self.run(
            "tasks/cancel",
            results=[self.keys.result(job), *self.keys.kept_attempts([job])],
            ttl_ms=HOUR,
            inboxes=self.inboxes,
            request=f"{request} of {job}",
            ids=[job],
        )
        return answer

    async def reschedule(self, job: str, delay_ms: int, *, request: str = "one") -> Any:
        """Run the script that changes when a job is due; for each job and delay it is another request."""
        named = {"ids": [job], "delay_ms": delay_ms, "name": "q"}
        return await self.run("tasks/reschedule", **named, request=f"{request} of {job} in {delay_ms}")

    async def watch(self, job: str, address: str = "") -> Any:
        """Run the script that says how a job is, and tells who waits for its end."""
        return await self.run("tasks/watch", result=self.keys.result(job), id=job, address=address)

    async def promote(self) -> Any:
        """Run the script that moves what is due."""
        return await self.run("claims/promote", front=0)

    async def pass_on(self, *queues: QueueKeys, suffix: str = "", passer: str = "me") -> Any:
        """Run the script that tells who waits for others; it goes on with those of these queues."""
        return await self.run(
            "tasks/resolve_dependents",
            queues=[key for queue in queues for key in queue[1:]],
            inboxes=self.inboxes,
            suffix=suffix,
            passer=passer,
            names=[queue.name for queue in queues],
        )

    async def ledger(self) -> Ledger:
        """Where the jobs are, each in one place."""
        ledger = await read_ledger(self.client, self._namespace)
        assert ledger.everywhere() == Counter(ledger.bodies)
        assert ledger.strays() == {}
        return ledger


@pytest.fixture
async def scene(any_concert: Coordinator) -> Scene:
    """`held` is claimed, `ready1` to `ready3` wait, `due` is due, `later` is not, and `dead` was set aside."""
    made = Scene(any_concert)
    await made.heartbeat(is_new=1)
    await made.enqueue(("dead", 0, ""))
    assert await made.claim(1) == [b"dead"]
    assert await made.nack("dead", "dead", 1001) == 1
    await made.enqueue(("held", 0, "name"))
    assert await made.claim(2) == [b"held"]
    await made.enqueue(*((f"ready{number}", 0, "") for number in (1, 2, 3)))
    await made.enqueue(*((job, HOUR, "") for job in ("due", "later")))
    await made.client.zadd(made.queue.delayed, {"due": 1})
    return made


async def test_job_dies_without_a_key_of_its_queue(scene: Scene) -> None:
    """A foreign key there stops only what goes back, before anything is changed."""
    await scene.client.delete(scene.queue.bell)
    await scene.client.set(scene.queue.bell, "theirs")
    with pytest.raises(WrongState):
        await scene.nack("back")
    assert await scene.nack("dead") == 1
    assert "held" in (await scene.ledger()).dead


async def test_all_who_wait_are_told_however_many(scene: Scene) -> None:
    """Thousands of processes; those who wait for others are not."""
    watchers = scene.keys.watchers
    await scene.client.zadd(watchers, {f"held 0{number}.1": 0 for number in range(2500)})
    await scene.client.zadd(watchers, {"heldon 1.1": 0, "ready1 1.1": 0})
    await scene.client.hset(scene.keys.facts, "held", facts_text(flags="w"))
    assert await scene.ack(ttl_ms=0, unique="") == [1]
    assert await scene.client.zrange(watchers, 0, -1) == [b"heldon 1.1", b"ready1 1.1"]
    assert await scene.client.pttl(scene.keys.result("held")) > 0


SECOND: dict[str, tuple[dict[str, Any], object, object]] = {
    "claims/claimed_queues": ({}, [b"q"], [b"q"]),
    "claims/purge": ({"ids": ["dead"], "age_ms": 0, "keep": 0, "request": "one"}, [1, 0], [1, 0]),
    "claims/replay": ({"queue_name": "q", "jobs": ("dead", "", ""), "request": "one"}, 1, 1),
    "claims/workers": ({"cursor": "0"}, [b"0", WORKER.encode()], [b"0", WORKER.encode()]),
    "tasks/cancelling": ({"ids": ("held", "ready1")}, [], []),
    "tasks/commit_step": ({"id": "held", "position": 2001, "number": 1, "step": "[]"}, 1, 1),
    "tasks/free_names": ({"request": "one", "jobs": ("name", "held")}, 1, 1),
    "tasks/group_results": ({"group": "g.0", "first": 0, "most": 5}, [-1], [-1]),
    "tasks/inspect_group": ({"group": "g.0"}, [], []),
    "tasks/note_undo": ({"id": "held", "position": 2001}, b"-", b"-"),
    "tasks/outcomes": ({"ids": ["held"]}, [b""], [b""]),
    "tasks/pause": ({"name": "q", "is_paused": 1, "request": "one"}, 1, 1),
    "tasks/progress": ({"id": "held", "position": 2001, "how_far": "[0.5]", "number": 1}, 1, 1),
    "tasks/receive": ({"id": "held", "position": 2001, "name": "4 paid", "is_over": 1}, [1, b""], [1, b""]),
    "tasks/report_served": ({"silent_ms": 1000, "count": 1, "names": ["q", "other"]}, [b"other"], [b"other"]),
    "tasks/states": ({"ids": ("held", "ready1")}, [b"running session.1", b""], [b"running session.1", b""]),
    "tasks/unwatch": ({"id": "held", "address": "session.2"}, 0, 0),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.twice(name)) for name in SECOND])
async def test_second_run_changes_nothing(scene: Scene, name: str) -> None:
    """A script whose reply was lost is sent again, and answers what its header says."""
    named, first, second = SECOND[name]
    assert await scene.run(name, **named) == first
    before = await scene.ledger()
    assert await scene.run(name, **named) == second
    assert await scene.ledger() == before


@pytest.mark.twice("tasks/store_anew")
async def test_second_storing_of_a_job_with_its_limits_changes_nothing(scene: Scene) -> None:
    """It went back to its queue, where another worker may have it by now."""
    anew: dict[str, Any] = {"id": "held", "position": 2001, "envelope": "3/1:ab {}", "name": "q", "worker": WORKER}
    assert await scene.run("tasks/store_anew", inboxes=scene.inboxes, **anew) == 1
    before = await scene.ledger()
    assert await scene.run("tasks/store_anew", inboxes=scene.inboxes, **anew) == 0
    assert await scene.ledger() == before
    assert (await scene.client.hget(scene.keys.bodies, "held")).partition(b" ")[2] == b"3/1:ab {}"


@pytest.mark.twice("tasks/note_unknown")
async def test_since_when_a_job_cannot_be_run_is_noted_once(scene: Scene) -> None:
    """A second run does not move it. Once the grace is over, it is forgotten, and a replay begins anew."""
    noted: dict[str, Any] = {"id": "held", "grace_ms": HOUR}
    assert await scene.run("tasks/note_unknown", **noted) == 0
    [first_ms] = await scene.client.zrange(scene.keys.unknown, 0, -1, withscores=True)
    assert 0 <= await scene.run("tasks/note_unknown", **noted) < HOUR
    assert [first_ms] == await scene.client.zrange(scene.keys.unknown, 0, -1, withscores=True)
    await scene.client.zincrby(scene.keys.unknown, -HOUR, "held")
    assert await scene.run("tasks/note_unknown", **noted) == -1
    assert await scene.run("tasks/note_unknown", **noted) == 0


@pytest.mark.twice("tasks/send")
@pytest.mark.parametrize("has_left", [False, True])
async def test_second_message_of_a_request_changes_nothing(scene: Scene, *, has_left: bool) -> None:
    """The same answer, even once the job has ended; another request is too late, and another queue is named."""
    if has_left:
        await scene.nack("asleep", delay_ms=HOUR)

    async def send(request: str, name: str = "4 paid", queue: str = "q") -> Any:
        sent = {"id": "held", "name": name, "message": "7", "queue_name": queue}
        return await scene.run("tasks/send", **sent, request=request)

    before = await scene.ledger()
    if has_left:
        assert await send("lost", queue="other") == [2, b"q"]
        assert await scene.ledger() == before
    assert await send("one") == [1, b""]
    before = await scene.ledger()
    assert await send("one") == [1, b""]
    assert await send("two") == [0, b""]
    assert await scene.ledger() == before
    assert await scene.client.hgetall(scene.keys.messages) == {b"4 paid held": b"7"}
    assert await scene.client.hget(scene.keys.received, "held") == b"1 1 4 paid"
    if has_left:
        assert before.ready["q"][0] == "held"
    else:
        await scene.ack()
        before = await scene.ledger()
        assert [await send("one"), await send("three")] == [[1, b""], [0, b""]]
        assert await scene.ledger() == before


@pytest.mark.parametrize("verdict", ["asleep", "back"])
async def test_message_that_came_before_the_job_left_brings_it_back_at_once(scene: Scene, verdict: str) -> None:
    """No message falls between the look for it and the script that lets the job sleep."""
    await scene.run("tasks/send", id="held", name="6 packed", message="7", queue_name="q", request="one")
    await scene.nack(verdict, delay_ms=HOUR)
    assert (await scene.ledger()).ready["q"][0] == "held"
    assert not await scene.client.exists(scene.keys.awaited)


@pytest.mark.twice("tasks/save_cursor")
async def test_position_of_a_loop_does_not_go_back(scene: Scene) -> None:
    """A first sending that comes late, or a worker that does not hold the job, changes nothing."""

    async def save(count: int, position: int = 2001) -> Any:
        at = {"id": "held", "position": position}
        return await scene.run("tasks/save_cursor", **at, number=1, count=count, step=f"[{count}]")

    assert [await save(9), await save(9), await save(10)] == [1, 1, 1]
    before = await scene.ledger()
    assert [await save(10), await save(9), await save(11, position=1)] == [1, 1, 0]  # the older one comes last
    assert await scene.ledger() == before
    _, _, _, *found = await scene.run("tasks/read_steps", id="held", after=0)
    assert found == [1, b"[10]"]


@pytest.mark.twice("tasks/read_steps")
async def test_second_look_at_the_steps_finds_the_same(scene: Scene) -> None:
    """Those after a number."""
    await scene.run("tasks/commit_step", id="held", position=2001, number=1, step="one")
    await scene.run("tasks/commit_step", id="held", position=2001, number=3, step="three")
    for _ in range(2):
        has_more, now_ms, awaited, *found = await scene.run("tasks/read_steps", id="held", after=0)
        assert (has_more, awaited, found) == (0, b"", [1, b"one", 3, b"three"])
        assert now_ms > 1_700_000_000_000
    assert (await scene.run("tasks/read_steps", id="held", after=1))[3:] == [3, b"three"]


@pytest.mark.twice("tasks/attempts")
@pytest.mark.parametrize("ends", ["cancelled", "done"])
async def test_second_look_at_the_attempts_finds_the_same(scene: Scene, ends: str) -> None:
    """And once the job is gone, those that were noted until then, once; they go with its result."""
    [kept] = scene.keys.kept_attempts(["held"])
    await scene.nack("retry", delay_ms=0)
    found = [await scene.run("tasks/attempts", id="held", kept_attempts=kept) for _ in range(2)]
    assert found[0] == found[1] != b""
    if ends == "cancelled":
        assert [await scene.cancel() for _ in range(2)] == [1, 1]
    else:
        await scene.promote()
        assert await scene.claim(3, 9) == [b"ready1", b"ready2", b"ready3", b"due", b"held"]
        assert [await scene.ack(position=3005, failed="1,", kept=[kept], ttl_ms=HOUR) for _ in range(2)] == [[1], [0]]
    assert (await scene.ledger()).attempts == {"dead": ["1"], ":held": ["1"]}
    assert await scene.run("tasks/attempts", id="held", kept_attempts=kept) == found[0]
    assert 0 < await scene.client.pttl(scene.keys.result("held")) <= HOUR
    assert 0 < await scene.client.pttl(kept) <= HOUR


async def append(scene: Scene, first: int, *items: str, worker: str = WORKER, position: int = 2001) -> Any:
    """Run the script that adds items to the stream of `held`."""
    return await scene.run(
        "tasks/append_items",
        stream=scene.keys.stream("held"),
        items=scene.keys.items("held"),
        id="held",
        worker=worker,
        position=position,
        attempt=1,
        first=first,
        ttl_ms=HOUR,
        channel=scene.keys.stream_channel("held"),
        added=items,
    )


async def read_items(scene: Scene, run: str = "", after: int = 0) -> list[Any]:
    """Run the script that reads the stream of `held`."""
    found: list[Any] = await scene.run(
        "tasks/read_items",
        stream=scene.keys.stream("held"),
        items=scene.keys.items("held"),
        run=run,
        after=after,
    )
    return found


@pytest.mark.twice("tasks/append_items")
async def test_second_append_adds_nothing(scene: Scene) -> None:
    """Also when more were added in between; and what overlaps is added once."""
    assert await append(scene, 1, "one", "two") == 1
    assert await append(scene, 3, "three") == 1
    before = await read_items(scene)
    for _ in range(2):
        assert await append(scene, 1, "one", "two") == 1
        assert await append(scene, 2, "two", "three") == 1
        assert await read_items(scene) == before
    assert before[1:] == [1, 1, 3, b"one", b"two", b"three"]
    assert await append(scene, 3, "three", "four") == 1
    assert (await read_items(scene))[3:] == [4, b"one", b"two", b"three", b"four"]
    assert await append(scene, 5, "late", position=2000) == 0
    assert (await read_items(scene))[3] == 4


async def test_another_claim_begins_the_stream_anew(scene: Scene) -> None:
    """With a run of its own; a server that lost items in between has a gap, and no item in a wrong place."""
    await append(scene, 1, "one", "two")
    first_run = (await read_items(scene))[0]
    await append(scene, 1, worker="other.1")
    run, *rest = await read_items(scene)
    assert int(run) > int(first_run)
    assert rest == [1, 1, 0]
    await append(scene, 5, "five", worker="other.1")
    assert await read_items(scene, run.decode(), 0) == [run, 1, 5, 5, b"five"]
    await append(scene, 6, "six", worker="other.1")
    assert await read_items(scene, run.decode(), 5) == [run, 1, 6, 6, b"six"]
    assert await read_items(scene, after=-1) == [run, 1, 6, 6, b"six"]
    assert await read_items(scene, after=-9) == [run, 1, 5, 6, b"five", b"six"]


@pytest.mark.twice("tasks/read_items")
async def test_second_look_at_a_stream_finds_the_same(scene: Scene) -> None:
    """Behind an item of the same run; from the beginning of another."""
    assert [await read_items(scene) for _ in range(2)] == [[b"", 0, 1, 0]] * 2
    await append(scene, 1, "one", "two", "three")
    run = (await read_items(scene))[0]
    before = await scene.ledger()
    assert [await read_items(scene, run.decode(), 2) for _ in range(2)] == [[run, 1, 3, 3, b"three"]] * 2
    assert await read_items(scene, run.decode(), 3) == [run, 1, 4, 3]
    assert await read_items(scene, run.decode(), 9) == [run, 1, 10, 3]
    assert (await read_items(scene, "1", 2))[2:] == [1, 3, b"one", b"two", b"three"]
    assert await scene.ledger() == before


@pytest.mark.twice("tasks/enqueue")
async def test_second_enqueue_adds_nothing(scene: Scene) -> None:
    """As long as the job is there, or what became of it; whoever has its unique name by then."""
    assert await scene.enqueue(("new", 0, "mine"), ("other", 0, "mine")) == [b"", b"new"]
    before = await scene.ledger()
    assert await scene.enqueue(("new", 0, "mine"), again=True) == [b""]
    assert await scene.ledger() == before
    await scene.run("tasks/free_names", request="one", jobs=("mine", "new"))
    assert await scene.enqueue(("third", 0, "mine")) == [b""]
    assert await scene.enqueue(("new", 0, "mine"), again=True) == [b""]
    assert await scene.cancel("new") == 1
    before = await scene.ledger()
    assert await scene.enqueue(("new", 0, "mine"), again=True) == [b""]
    assert await scene.ledger() == before
    assert before.ready["q"][-1] == "third"


@pytest.mark.twice("tasks/enqueue_own")
@pytest.mark.parametrize("delay_ms", [0, HOUR])
async def test_second_enqueue_of_a_chosen_id_adds_nothing(scene: Scene, delay_ms: int) -> None:
    """It was added; a later request is told of it, also when the earlier one is forgotten."""
    keys = scene.keys

    async def enqueue(request: str) -> Any:
        return await scene.run(
            "tasks/enqueue_own",
            result=keys.result("own"),
            stream=keys.stream("own"),
            items=keys.items("own"),
            queue_name="q",
            request=request,
            id="own",
            envelope="3 #!2 {}",
            delay_ms=delay_ms,
        )

    assert await enqueue("first") == [b""]
    before = await scene.ledger()
    assert [await enqueue(request) for request in ("first", "second", "second")] == [[b""], [b"own"], [b"own"]]
    assert await scene.ledger() == before
    await scene.forget_requests()
    assert await enqueue("first") == [b"own"]
    assert await scene.ledger() == before
    assert before.delayed["q"].count("own") == 1


@pytest.mark.twice("tasks/enqueue_plain")
async def test_second_plain_enqueue_adds_nothing(scene: Scene) -> None:
    """Though the job has run, and later requests came."""
    ready = (await scene.ledger()).ready["q"]
    await scene.client.delete(scene.keys.finished)
    for number in (1, 1, 2, 2, 1):
        assert await scene.enqueue_plain(number, f"a{number}", f"b{number}") == 1
    ledger = await scene.ledger()
    assert ledger.ready["q"] == [*ready, "a1", "b1", "a2", "b2"]
    assert await scene.client.exists(scene.keys.finished) == 0, "the queue was not empty, so its name is known"
    await scene.client.hdel(scene.keys.bodies, *ledger.ready["q"])
    await scene.client.delete(scene.queue.queue)
    for number in (1, 2):
        assert await scene.enqueue_plain(number, f"a{number}") == 1
    assert "q" not in (await scene.ledger()).ready
    assert await scene.enqueue_plain(3, "a3") == 1
    assert await scene.client.hgetall(scene.keys.finished) == {b"q": b"0"}
    await scene.client.delete(scene.keys.seen_even, scene.keys.seen_odd)
    before = await scene.ledger()
    assert await scene.enqueue_plain(3, "a3") == 1, "the job is there"
    assert await scene.ledger() == before


async def test_plain_enqueue_that_was_overtaken_adds_its_job_once(scene: Scene) -> None:
    """Those that never come are no harm; of those that were overtaken the latest are known, up to 2,000 characters."""
    before = (await scene.ledger()).ready["q"]
    for number in (5, 3, 3, 5, 1, 4, 3, 4, 6, 2, 1, 2, 6):
        await scene.enqueue_plain(number, f"j{number}")
    assert (await scene.ledger()).ready["q"] == [*before, *(f"j{number}" for number in (5, 3, 1, 4, 6, 2))]
    [seen] = [key for key in (scene.keys.seen_even, scene.keys.seen_odd) if await scene.client.exists(key)]
    assert await scene.client.hgetall(seen) == {b"session": b"6"}

    for number in range(8, 1000, 2):
        await scene.enqueue_plain(number, f"j{number}")
    both = [await scene.client.hget(key, "session gaps") for key in (scene.keys.seen_even, scene.keys.seen_odd)]
    [gaps] = filter(None, both)  # in the other one by now if ten minutes have just begun
    assert 1900 < len(gaps) <= 2000
    before = (await scene.ledger()).ready["q"]
    for number in (7, 997, 995, 998, 997):
        await scene.enqueue_plain(number, f"j{number}")
    assert (await scene.ledger()).ready["q"] == [*before, "j997", "j995"]


async def test_plain_enqueue_is_run_by_a_server_that_has_lost_the_last_ones(scene: Scene) -> None:
    """It knows an older number of the session, or none; what it lost may come again, too."""
    before = (await scene.ledger()).ready["q"]
    await scene.enqueue_plain(1, "j1")
    await scene.enqueue_plain(9, "j9")
    for number in (7, 8, 7):
        await scene.enqueue_plain(number, f"j{number}")
    [seen] = [key for key in (scene.keys.seen_even, scene.keys.seen_odd) if await scene.client.exists(key)]
    await scene.client.delete(seen)
    for number in (9, 12, 11, 7, 11):
        await scene.enqueue_plain(number, f"j{number}")
    assert (await scene.ledger()).ready["q"] == [*before, *(f"j{number}" for number in (1, 9, 7, 8, 12, 11))]


@pytest.mark.twice("tasks/open_group")
async def test_second_opening_of_a_group_changes_nothing(scene: Scene) -> None:
    """Also when its callback has ended by then."""
    opening = {"group": "g.0", "when": "ended", "id": "g~then.0", "envelope": "{}", "delay_ms": 0, "name": "q"}
    opening["results"] = "kept"
    assert await scene.run("tasks/open_group", **opening) == 1
    before = await scene.ledger()
    assert before.states["g~then.0"] == "waiting 0 q"
    assert await scene.run("tasks/open_group", **opening) == 0
    assert await scene.ledger() == before
    assert await scene.cancel("g~then.0") == 1
    assert await scene.run("tasks/open_group", **opening) == 0
    assert "g~then.0" not in (await scene.ledger()).bodies


@pytest.mark.twice("tasks/add_members")
@pytest.mark.parametrize("may_skip", [0, 1])
async def test_second_run_adds_no_member_twice(scene: Scene, may_skip: int) -> None:
    """Within the minute the answer is the same; after it, the numbers were given."""
    await scene.run("tasks/open_group", group="g.0", when="-", id="", envelope="", delay_ms=0, name="", results="")
    members = ("g~10.0", "{}", 0, "q", "", 0, "", "", "g~11.0", "{}", HOUR, "q", "mine", 0, "", "")
    adding = {"queues": scene.queue[1:], "group": "g.0", "request": "one", "first": 0, "may_skip": may_skip}
    assert await scene.run("tasks/add_members", **adding, jobs=members) == [1, 2, 2, 1, 1]
    before = await scene.ledger()
    assert await scene.run("tasks/add_members", **adding, jobs=members) == [1, 2, 2, 1, 1]
    await scene.forget_requests()
    again = [1, 2, 2, 0, 0] if may_skip else [2, 2, 2]
    assert await scene.run("tasks/add_members", **adding, jobs=members) == again
    assert await scene.ledger() == before
    assert await scene.run("tasks/inspect_group", group="g.0") == [b"open", 2, 2, 0, 0, 0]


@pytest.mark.twice("tasks/close_group")
async def test_second_closing_of_a_group_changes_nothing(scene: Scene) -> None:
    """The news of its end are there once."""
    opening = {"group": "g.0", "when": "ended", "id": "g~then.0", "envelope": "{}", "delay_ms": 0, "name": "q"}
    await scene.run("tasks/open_group", **opening, results="")
    assert await scene.run("tasks/close_group", group="g.0", state="closed") == [1, 0]
    assert await scene.run("tasks/close_group", group="g.0", state="closed") == [0, 0]
    assert await scene.client.lrange(scene.keys.news, 0, -1) == [b"g~then.0"]
    for _ in range(2):
        assert await scene.run("tasks/close_group", group="g.0", state="cancelled") == [0, 0]
    assert await scene.run("tasks/close_group", group="g.0", state="closed") == [0, 0]
    assert (await scene.run("tasks/inspect_group", group="g.0"))[0] == b"cancelled"


@pytest.mark.twice("tasks/lift_limits")
async def test_second_lifting_of_a_limit_changes_nothing(scene: Scene) -> None:
    """Once it is lifted, no job has it that was enqueued a while ago."""
    await scene.client.hset(scene.keys.places, "ab", "1 1 0")
    await scene.client.zadd(scene.keys.held_back, {f"ab {1:014d} late": 0})
    await scene.client.zadd(scene.queue.delayed, {"late": 4e15 + 1})
    await scene.client.hset(scene.keys.states, "late", "delayed q")
    lifting = {"name": "q", "quiet_ms": 60_000, "lifted": ("/9:ab", "/9:cd")}
    assert await scene.run("tasks/lift_limits", **lifting) == [b"/9:ab"]
    assert await scene.client.lindex(scene.queue.queue, 0) == b"late"
    before = await scene.ledger()
    assert await scene.run("tasks/lift_limits", **lifting) == [b"/9:ab"]
    assert await scene.ledger() == before
    assert await scene.client.hget(scene.keys.places, "ab") != b"1 1 0"


@pytest.mark.twice("tasks/let_in")
async def test_second_look_at_the_lines_lets_nobody_in(scene: Scene) -> None:
    """The first has kept the only place for the first in line."""
    line, limits = "a1b2", "/w1.x61:a1b2"
    await scene.client.hset(scene.keys.places, "+", f"{line} x61 - 0 0 0")
    for order, job in enumerate(("first", "last"), 1):
        await scene.client.hset(scene.keys.bodies, job, f"{order} 3{limits} {{}}")
        await scene.client.zadd(scene.keys.held_back, {f"{line} {order:014d} {job}": 0})
        await scene.client.zadd(scene.queue.delayed, {job: 4e15 + order})
        await scene.client.hset(scene.keys.states, job, "delayed q")
    assert await scene.run("tasks/let_in", queues=[], names=[]) == [0, b"q"]
    letting_in = {"queues": (scene.queue.queue, scene.queue.bell, scene.queue.delayed), "names": ["q"]}
    next_ms, name = await scene.run("tasks/let_in", **letting_in)
    assert (name, 0 < next_ms <= 1000) == (b"q", True)
    assert await scene.client.lindex(scene.queue.queue, 0) == b"first"
    before = await scene.ledger()
    assert (await scene.run("tasks/let_in", **letting_in))[1:] == [b"q"]
    assert await scene.ledger() == before


@pytest.mark.twice("tasks/end_expired")
async def test_second_look_at_what_has_expired_ends_nothing(scene: Scene) -> None:
    """What was ended is dead once, and stays so."""
    body = b'1 {"name":"t","args":[],"kwargs":{},"expires":0.5}'
    await scene.client.hset(scene.keys.bodies, "ready2", body)
    await scene.client.zadd(scene.keys.children, {"ready2 later": 0})  # which is to hear of it
    await scene.client.hset(scene.keys.facts, "ready2", facts_text(2, why="it broke"))
    looking = {"inboxes": scene.inboxes, "name": "q", "ids": ("held", "ready1", "ready2")}
    assert await scene.run("tasks/end_expired", **looking) == [3, 1, b"ready2"]
    assert b'"attempts":2}' in await scene.client.hget(scene.keys.reasons, "ready2")
    before = await scene.ledger()
    assert await scene.run("tasks/end_expired", **looking) == [3, 0]
    assert await scene.ledger() == before
    assert sorted(before.dead) == ["dead", "ready2"]


@pytest.mark.twice("tasks/sweep_groups")
async def test_second_sweep_of_groups_finds_nothing(scene: Scene) -> None:
    """What was due is forgotten, and results with it."""
    await scene.run("tasks/open_group", group="g.0", when="-", id="", envelope="", delay_ms=0, name="", results="kept")
    await scene.run("tasks/close_group", group="g.0", state="closed")
    assert await scene.run("tasks/sweep_groups") == 0
    await scene.client.zadd(scene.keys.settled, {"g.0": 1})
    assert await scene.run("tasks/sweep_groups") == 1
    assert await scene.run("tasks/sweep_groups") == 0
    assert await scene.run("tasks/inspect_group", group="g.0") == []
    await scene.client.hset(scene.keys.groups, mapping={"g.0": "closed ended 2 2 2 0 0 2", "g~11.0": "succeeded 1"})
    await scene.client.zadd(scene.keys.settled, {"g.0": 1})
    assert [await scene.run("tasks/sweep_groups") for _ in range(2)] == [1, 0]
    assert await scene.client.hgetall(scene.keys.groups) == {b"g.0": b"closed ended 2 2 2 0 0 gone"}


@pytest.mark.twice("tasks/ask_again")
async def test_jobs_that_wait_do_not_ask_twice(scene: Scene) -> None:
    """The second run says when to ask next."""
    keys = scene.keys
    await scene.client.hset(keys.pending, "child.1", "parent.0")
    await scene.client.zadd(keys.children, {"ended.1 child.0": 0})
    assert await scene.run("tasks/ask_again", suffix=".1") == [30_000, 1]
    before = await scene.ledger()
    wait_ms, has_news = await scene.run("tasks/ask_again", suffix=".1")
    assert (0 < wait_ms <= 30_000, has_news) == (True, 0)
    assert await scene.ledger() == before
    assert await scene.client.lrange(keys.news, 0, -1) == [b"child.1", b"ended.1"]
    assert await scene.client.zrange(keys.followers, 0, -1) == [b"ended.1 child.0"]
    await scene.client.delete(keys.pending, keys.children)


async def debounce(scene: Scene, job: str, request: str, *, is_new: int = 1, text: str = "{}", signed: int = 0) -> Any:
    """Run the script that adds a job after a silence of an hour, or replaces one."""
    return await scene.run(
        "tasks/debounce",
        result=scene.keys.result(job),
        request=request,
        id=job,
        is_new=is_new,
        envelope=f"3 #~ {text}",
        is_signed=signed,
        silence_ms=HOUR,
        longest_ms=4 * HOUR,
        unique_name="late",
        name="q",
    )


@pytest.mark.twice("tasks/debounce")
async def test_second_call_of_a_debounced_job_adds_and_replaces_nothing(scene: Scene) -> None:
    """Also when it comes late: after a later call, and after the job has begun."""
    keys, client = scene.keys, scene.client
    assert [await debounce(scene, "one", "1") for _ in range(2)] == [[1, b"one", b""]] * 2
    assert [await debounce(scene, "two", "2", text="[2]") for _ in range(2)] == [[2, b"one", b""]] * 2
    assert [await debounce(scene, "three", "3", signed=1) for _ in range(2)] == [[4, b"one", b"q"]] * 2
    third: dict[str, Any] = {"is_new": 0, "text": "[3]", "signed": 1}
    assert [await debounce(scene, "one", "4", **third) for _ in range(2)] == [[2, b"one", b""]] * 2
    before, body = await scene.ledger(), await client.hget(keys.bodies, "one")
    assert body.endswith(b" [3]")
    assert await debounce(scene, "two", "2", text="[2]") == [2, b"one", b""]
    assert (await scene.ledger(), await client.hget(keys.bodies, "one")) == (before, body)
    await scene.reschedule("one", 0)
    assert b"one" in await scene.claim(3, 5)
    before = await scene.ledger()
    assert await debounce(scene, "three", "3", signed=1) == [4, b"one", b"q"]
    assert await debounce(scene, "one", "4", **third) == [2, b"one", b""]
    assert await scene.ledger() == before
    assert [await debounce(scene, "one", "5", **third) for _ in range(2)] == [[5, b"", b""]] * 2
    assert await scene.ledger() == before
    await scene.forget_requests()
    assert await debounce(scene, "one", "1") == [1, b"one", b""]
    assert await scene.ledger() == before


async def replace(scene: Scene, job: str, request: str, *, known: str = "", text: str = "{}", signed: int = 0) -> Any:
    """Run the script that adds a job, and lets it replace the one of its name."""
    queue = scene.keys.queue("q")
    return await scene.run(
        "tasks/replace",
        its=(queue.queue, queue.bell, queue.delayed, scene.keys.result(known or job), "kept"),
        result=scene.keys.result(job),
        request=request,
        id=job,
        known=known,
        envelope=f'{{"name":"t","args":{text}}}',
        its_envelope=f'{{"name":"t","args":{text}}}' if known and signed else "",
        is_signed=signed,
        delay_ms=0,
        unique_name="newest",
        name="q",
        its_name="q",
        inboxes="inboxes:",
        ttl_ms=HOUR,
    )


@pytest.mark.twice("tasks/replace")
async def test_second_call_of_the_newest_adds_replaces_and_cancels_nothing(scene: Scene) -> None:
    """Also when it comes late: after later calls, and after the job has begun, failed, or ended."""
    keys, client = scene.keys, scene.client

    async def body(job: str) -> bytes:
        return bytes(await client.hget(keys.bodies, job))

    assert [await replace(scene, "one", "1") for _ in range(2)] == [[1, b"", b""]] * 2
    assert [await replace(scene, "two", "2", text="[2]") for _ in range(2)] == [[2, b"one", b""]] * 2
    assert [await replace(scene, "three", "3", signed=1) for _ in range(2)] == [[3, b"one", b"q"]] * 2
    third: dict[str, Any] = {"known": "one", "text": "[3]", "signed": 1}
    assert [await replace(scene, "three", "4", **third) for _ in range(2)] == [[2, b"one", b""]] * 2
    before = await scene.ledger()
    assert await replace(scene, "two", "2", text="[2]") == [2, b"one", b""]
    assert (await scene.ledger(), (await body("one")).endswith(b"[3]}")) == (before, True)

    assert b"one" in await scene.claim(3, 5)
    assert [await replace(scene, "four", "5", text="[4]") for _ in range(2)] == [[1, b"", b""]] * 2
    assert [await replace(scene, "five", "6", text="[5]") for _ in range(2)] == [[2, b"four", b""]] * 2
    states = await client.hgetall(keys.states)
    assert states[b"one"].startswith(b"cancelling ")
    assert states[b"four"] == b"waiting 0:replaces q"
    assert await client.hget(keys.unique, "newest") == b"four 0 one"
    before = await scene.ledger()
    for job, request, answer in (("one", "1", 1), ("three", "3", 3), ("four", "5", 1)):
        assert (await replace(scene, job, request))[0] == answer
    assert (await scene.ledger(), (await body("four")).endswith(b"[5]}")) == (before, True)

    await scene.forget_requests()
    assert await replace(scene, "four", "5") == [1, b"", b""]
    assert await scene.ledger() == before


@pytest.mark.twice("tasks/history")
async def test_second_look_at_a_history_finds_the_same(scene: Scene) -> None:
    """A part at a time, and only of this task."""
    await scene.ack()
    for _ in range(2):
        _, held = await scene.run("tasks/history", task="ab", before="", limit=1)
        assert held.split()[2] == b"succeeded"
        assert held.endswith(b" held \n{}")
        _, dead = await scene.run("tasks/history", task="ab", before=held.split()[1], limit=9)
        assert dead.split()[2] == b"failed"
        assert await scene.run("tasks/history", task="abc", before="", limit=9) == [0]


@pytest.mark.twice("claims/ack")
async def test_second_ack_changes_nothing(scene: Scene) -> None:
    """The result stays that of the first, and the job is counted once."""
    assert await scene.ack() == [1]
    before = await scene.ledger()
    assert before.results == {"held": "succeeded 1"}
    assert before.history == [("dead", "failed"), ("held", "succeeded")]
    assert await scene.ack() == [0]
    assert await scene.ack(result="succeeded 2") == [0]
    assert await scene.ledger() == before
    assert await scene.client.hgetall(scene.keys.finished) == {b"q": b"1"}
    assert not await scene.client.exists(scene.keys.unique, scene.keys.checks)


@pytest.mark.twice("tasks/ack_and_enqueue")
async def test_second_end_of_a_job_adds_what_follows_it_once(scene: Scene) -> None:
    """Also when the job that follows has run by then; one that does not hold the job adds nothing."""
    [kept] = scene.keys.kept_attempts(["held"])
    end = {
        "result": scene.keys.result("held"),
        "kept_attempts": kept,
        "outcome": "succeeded 1",
        "ttl_ms": HOUR,
        "name": "name",
    }
    end |= {"inboxes": scene.inboxes, "worker": WORKER, "id": "held"}
    end |= {"queues": scene.queue[1:] * 2, "jobs": ("next", "{}", 0, "q", "then", "{}", HOUR, "q")}
    end |= {"histories": f"1 1 {MOST}:ab+,"}
    before = await scene.ledger()
    assert await scene.run("tasks/ack_and_enqueue+jobs", position=1001, **end) == [0]
    assert await scene.ledger() == before
    assert await scene.run("tasks/ack_and_enqueue+jobs", position=2001, **end) == [1]
    after = await scene.ledger()
    assert after.results == {"held": "succeeded 1"}
    assert after.history == [("dead", "failed"), ("held", "succeeded")]
    assert after.ready["q"][-1] == "next"
    assert after.states["then"] == "delayed q"
    assert await scene.run("tasks/ack_and_enqueue+jobs", position=2001, **end) == [0]
    assert await scene.ledger() == after
    assert await scene.cancel("next") == 1
    assert await scene.run("tasks/ack_and_enqueue+jobs", position=2001, **end) == [0]
    assert "next" not in (await scene.ledger()).bodies
    assert await scene.client.hget(scene.keys.finished, "q") == b"1"


async def test_ack_from_another_place_changes_nothing(scene: Scene) -> None:
    """That of an earlier claim of the same job."""
    before = await scene.ledger()
    assert await scene.ack(position=1001) == [0]
    assert await scene.nack("back", position=1001) == 0
    assert await scene.say("held", 1001) == 0
    assert await scene.ledger() == before


@pytest.mark.twice("tasks/cancel")
@pytest.mark.parametrize("job", ["ready2", "due", "later"])
async def test_second_cancel_of_a_job_that_waits_changes_nothing(scene: Scene, job: str) -> None:
    """It has ended."""
    assert await scene.cancel(job) == 1
    before = await scene.ledger()
    assert job not in before.bodies
    assert before.results == {job: "cancelled "}
    assert before.history == [("dead", "failed"), (job, "cancelled")]
    assert await scene.cancel(job) == 1
    assert await scene.ledger() == before


@pytest.mark.twice("tasks/cancel")
async def test_second_cancel_of_a_running_job_changes_nothing(scene: Scene) -> None:
    """Its worker is told again."""
    assert await scene.cancel() == 0
    before = await scene.ledger()
    assert before.states["held"] == f"cancelling {WORKER}"
    assert await scene.cancel() == 0
    assert await scene.ledger() == before
    for _ in range(2):
        assert await scene.run("tasks/cancelling", ids=("held", "ready1")) == [b"held"]


@pytest.mark.parametrize("job", ["dead", "nobody"])
async def test_cancel_of_what_does_not_run_changes_nothing(scene: Scene, job: str) -> None:
    """Twice or once."""
    before = await scene.ledger()
    for _ in range(2):
        assert await scene.cancel(job) == HAD_ENDED
        assert await scene.ledger() == before


@pytest.mark.twice("claims/nack")
@pytest.mark.parametrize("is_cancelled", [False, True])
@pytest.mark.parametrize("verdict", ["retry", "back", "asleep", "crash", "dead"])
async def test_second_nack_changes_nothing(scene: Scene, verdict: str, is_cancelled: bool) -> None:
    """Whatever was to become of the job."""
    if is_cancelled:
        await scene.cancel()
    assert await scene.nack(verdict, delay_ms=HOUR) == 1
    before = await scene.ledger()
    assert before.history == [("dead", "failed"), ("held", "failed")][: 2 if verdict == "dead" else 1]
    assert await scene.nack(verdict, delay_ms=HOUR) == 0
    assert await scene.ledger() == before
    facts = await scene.client.hget(scene.keys.facts, "held")
    came_back = "x" if is_cancelled and verdict != "dead" else ""
    known = {"retry": facts_text(1, flags=f"{came_back}a", why="no"), "dead": facts_text(1, flags="a")}
    known |= {"crash": facts_text(crashes=1, flags=f"{came_back}a")}
    assert (facts or b"").decode() == known.get(verdict, came_back and facts_text(flags=came_back))
    assert before.attempts.get("held") == (["1"] if verdict in known else None)
    if verdict == "asleep":
        assert await scene.client.hexists(scene.keys.awaited, "held") != is_cancelled
    if is_cancelled and verdict != "dead":
        assert before.states["held"] == "cancelling "
        assert before.ready["q"][0] == "held"


async def test_job_that_came_back_is_cancelled_at_once(scene: Scene) -> None:
    """It was to be stopped, and has no worker any more: the next look ends it."""
    await scene.cancel()
    await scene.recover(0)
    assert await scene.watch("held") == [b"queued", b"", b""]
    assert await scene.cancel(request="another") == 1
    ledger = await scene.ledger()
    assert "held" not in ledger.bodies
    assert ledger.results == {"held": "cancelled "}


@pytest.mark.twice("claims/claim")
async def test_second_claim_answers_with_the_same_jobs(scene: Scene) -> None:
    """And no others, even if it may have more by now; without those that ended meanwhile, each at its old place."""
    first = await scene.ask(3, 2)
    ready1, ready2 = Row.read(3, first[3], first[4], first[5:])
    assert [ready1.id, ready2.id] == [b"ready1", b"ready2"]
    again = await scene.ask(3, 3)
    assert Row.read(3, again[3], again[4], again[5:]) == [ready1, ready2]
    assert await scene.ack("ready1", 3001, result="", ttl_ms=0, unique="") == [1]
    _, _, _, left, queues, *parts = await scene.ask(3, 2)
    assert Row.read(3, left, queues, parts) == [ready2]
    assert (await scene.ledger()).ready == {"q": ["ready3"]}
    assert await scene.ack("ready2", 3002, result="", ttl_ms=0, unique="") == [1]


@pytest.mark.parametrize("form", ["claims/ack", "claims/ack+jobs"])
async def test_jobs_that_are_not_held_do_not_end_with_others(scene: Scene, form: str) -> None:
    """Each keeps its own result, and its own answer."""
    ids, places = ["ready1", "ready2", "ready3"], [3001, 3001, 3003]
    assert await scene.claim(3, 3) == [id_.encode() for id_ in ids]
    more = [""] * form.endswith("+jobs")
    jobs = [part for id_, at in zip(ids, places, strict=True) for part in (id_, at, f"succeeded {at}", HOUR, *more)]
    results = [scene.keys.result(id_) for id_ in ids]
    given: dict[str, Any] = {"histories": "", "failed": ""}
    if not more:
        given = {"result": jobs.pop(2), "ttl_ms": jobs.pop(2)}  # how the first one ends, as those alike would
    answer = await scene.run(form, results=results, inboxes=scene.inboxes, worker=WORKER, jobs=jobs, **given)
    assert answer == [1, 0, 1]
    ledger = await scene.ledger()
    assert ledger.results == {"ready1": "succeeded 3001", "ready3": "succeeded 3003"}
    assert "ready2" in ledger.bodies
    assert not {"ready1", "ready3"} & set(ledger.bodies)


async def test_second_claim_says_when_the_jobs_were_claimed(scene: Scene) -> None:
    """By the first run, whose reply was lost: from then on they count for a rate, and for how long they ran."""
    first = await scene.ask(3, 2)

    async def is_later() -> bool:
        seconds, microseconds = await scene.client.time()
        return bool(seconds * 1_000 + microseconds // 1_000 > first[2])

    await eventually(is_later)
    assert (await scene.ask(3, 2))[2] == first[2]


async def test_claim_passes_over_what_was_cancelled(scene: Scene) -> None:
    """However many there are before a job that is to run; and twice, it answers the same."""
    for job in ("ready1", "ready2"):
        await scene.cancel(job)
    for _ in range(2):
        assert await scene.claim(3) == [b"ready3"]
    jobs = [f"many{number}" for number in range(1200)]
    for first in range(0, 1200, 400):
        await scene.enqueue(*((job, 0, "") for job in jobs[first : first + 400]))
    await scene.client.hdel(scene.keys.bodies, *jobs[:-1])
    answer = await scene.ask(4, 1)
    assert (answer[1], answer[3:]) == (0, [0, b""])  # it looked at a thousand, and is to be asked again
    assert await scene.client.llen(scene.queue.bell) == 1
    assert await scene.claim(5) == [b"many1199"]


async def test_claim_that_comes_after_a_later_one_takes_nothing(scene: Scene) -> None:
    """Its first sending was stuck in a connection given up long ago: a job that it took would be run by nobody."""
    await scene.claim(3, 3)
    assert await scene.claim(4, 3) == []
    await scene.enqueue(("new", 0, ""))
    for number in (2, 3):
        assert await scene.claim(number, 3) == []
    assert (await scene.ledger()).ready == {"q": ["new"]}
    assert await scene.claim(4, 3) == []  # found nothing the first time, so nothing again
    assert await scene.claim(5, 3) == [b"new"]


@pytest.mark.twice("claims/promote")
async def test_second_promote_moves_nothing_again(scene: Scene) -> None:
    """Each due job is moved once."""
    assert (await scene.promote())[0] == 1
    moved, next_ms = await scene.promote()
    assert moved == 0
    assert 3_590_000 < next_ms <= HOUR
    assert (await scene.ledger()).ready["q"][-1] == "due"


async def test_promote_moves_nothing_early(scene: Scene) -> None:
    """By the server's clock; asked all the while, it says how long it will be."""
    await scene.promote()
    for delay_ms in (1, 10, 30):
        await scene.enqueue((f"in{delay_ms}", delay_ms, ""))
        due_ms = await scene.client.zscore(scene.queue.delayed, f"in{delay_ms}")
        moved = 0
        while not moved:
            moved, next_ms = await scene.promote()
            assert moved or 0 < next_ms <= delay_ms
        seconds, microseconds = await scene.client.time()
        assert seconds * 1000 + microseconds // 1000 >= due_ms


@pytest.mark.twice("tasks/reschedule")
@pytest.mark.parametrize("delay_ms", [0, 2 * HOUR])
async def test_second_reschedule_does_the_same(scene: Scene, delay_ms: int) -> None:
    """The job is in one place, and due as long after the second run."""
    before = await scene.ledger()
    seconds, _ = await scene.client.time()
    for _ in range(2):
        assert await scene.reschedule("later", delay_ms) == 1
        ledger = await scene.ledger()
        if delay_ms:
            assert ledger == before
            assert await scene.client.zscore(scene.queue.delayed, "later") >= seconds * 1000 + delay_ms
        else:
            assert (ledger.ready["q"][-1], ledger.delayed) == ("later", {"q": ["due"]})
            assert "later" not in ledger.states


@pytest.mark.twice("tasks/reschedule")
@pytest.mark.parametrize("delay_ms", [0, HOUR])
async def test_second_reschedule_of_a_job_that_waits_for_others_does_the_same(scene: Scene, delay_ms: int) -> None:
    """Its delay, and not for how many it waits."""
    await follow(scene, "child", "held", "ready1", delay_ms=1)
    for _ in range(2):
        assert await scene.reschedule("child", delay_ms) == 1
        assert (await scene.ledger()).states["child"] == f"waiting {delay_ms} q"


@pytest.mark.parametrize("job", ["ready1", "held", "dead", "nobody"])
async def test_reschedule_that_is_too_late_changes_nothing(scene: Scene, job: str) -> None:
    """Twice or once; one in its queue may run now as it is."""
    before = await scene.ledger()
    for delay_ms in (HOUR, HOUR, 0, 0):
        is_so_already = job == "ready1" and not delay_ms
        assert await scene.reschedule(job, delay_ms) == int(is_so_already)
    assert await scene.ledger() == before


async def test_reschedule_and_promote_have_the_job_once_whoever_comes_first(scene: Scene) -> None:
    """A job that is due and was not moved yet can be put off; one that was moved is in its queue."""
    assert await scene.reschedule("due", HOUR) == 1
    assert (await scene.promote())[0] == 0
    assert await scene.reschedule("due", 0) == 1
    assert (await scene.promote())[0] == 0
    assert await scene.reschedule("due", HOUR, request="another") == 0
    ledger = await scene.ledger()
    assert (ledger.ready["q"][-1], ledger.delayed) == ("due", {"q": ["later"]})


async def test_reschedule_stops_before_a_key_that_is_not_ours(scene: Scene) -> None:
    """The job stays where it is."""
    before = await scene.ledger()
    await scene.client.set("mine", "x", px=60_000)
    for queue in (scene.queue._replace(queue="mine"), scene.queue._replace(bell="mine")):
        with pytest.raises(WrongState):
            await scene.session.run(RESCHEDULE(scene.keys, queue, delay_ms=0, name="q", request="one", ids=["later"]))
    assert await scene.ledger() == before
    await scene.client.delete("mine")


@pytest.mark.twice("claims/heartbeat")
async def test_second_heartbeat_answers_the_same(scene: Scene) -> None:
    """And one of a worker that is dead does not bring it back."""
    await scene.client.zadd(scene.keys.workers, {"other": 1})
    for _ in range(2):
        alive, _, next_ms, has_news, count, *dead = await scene.heartbeat()
        assert (alive, has_news, count, dead) == (1, 0, 1, [b"other"])
        assert 59_000 < next_ms <= 60_000
        assert (await scene.heartbeat("other"))[0] == 0


@pytest.mark.twice("claims/compare")
async def test_second_comparison_is_the_same(scene: Scene) -> None:
    """And changes nothing."""
    before = await scene.ledger()
    for _ in range(2):
        assert await scene.run("claims/compare", held=["held", 2001]) == [[], []]
        assert await scene.run("claims/compare", held=[]) == [[], [b"held", 2001, b"q"]]
        lost = await scene.run("claims/compare", held=["held", 1001, "later", 1002, "unknown", 1003])
        assert lost == [[1001, 1002], [b"held", 2001, b"q"]]
        assert await scene.ledger() == before


@pytest.mark.twice("claims/unsettle")
async def test_second_requeueing_of_a_settled_job_adds_nothing(scene: Scene) -> None:
    """Also when it was claimed in between; its result and its end are not there any more."""
    assert await scene.ack() == [1]
    finished = int(await scene.client.hget(scene.keys.finished, "q"))
    named = {"results": [scene.keys.result("held")], "request": "one", "queue_name": "q"}
    assert await scene.run("claims/unsettle", **named, jobs=["held", "1 {}", "name"]) == b"1"
    assert (await scene.ledger()).ready["q"][0] == "held"
    assert await scene.client.exists(scene.keys.result("held")) == 0
    assert int(await scene.client.hget(scene.keys.finished, "q")) == finished - 1
    assert await scene.client.hget(scene.keys.unique, "name") == b"held 0"
    assert await scene.claim(3) == [b"held"]
    before = await scene.ledger()
    assert await scene.run("claims/unsettle", **named, jobs=["held", "1 {}", "name"]) == b"1"
    assert await scene.run("claims/unsettle", **named | {"request": "two"}, jobs=["held", "1 {}", ""]) == b"0"
    assert await scene.ledger() == before


@pytest.mark.twice("claims/hold_clock")
async def test_second_hold_answers_the_same(scene: Scene) -> None:
    """The clock does not advance by what has passed until then; a clock that is not there stays so."""
    _, at_ms, *_ = await scene.heartbeat()
    seen_ms = int((await scene.client.get(scene.keys.clock)).split()[1])
    await scene.client.set(scene.keys.clock, f"{at_ms} {seen_ms - 5_000}", px=60_000)
    for _ in range(2):
        assert await scene.run("claims/hold_clock") == at_ms
    assert 0 <= (await scene.heartbeat())[1] - at_ms < 5_000
    await scene.client.delete(scene.keys.clock)
    for _ in range(2):
        assert await scene.run("claims/hold_clock") == -1
    assert await scene.client.exists(scene.keys.clock) == 0


@pytest.mark.twice("claims/recover")
async def test_second_recovery_counts_no_second_crash(scene: Scene) -> None:
    """And a live worker is left alone."""
    assert await scene.recover(3) == [-1, 0, 0]
    await scene.client.zadd(scene.keys.workers, {WORKER: 1})
    assert await scene.recover(3) == [1, 0, 0]
    before = await scene.ledger()
    assert before.crashes == {"held": 1}
    assert before.attempts["held"] == ["1"]
    assert await scene.recover(3) == [0, 0, 0]
    assert await scene.ledger() == before


@pytest.mark.parametrize(("most", "reason"), [(1, "1 worker died with it"), (2, None), (10, None)])
async def test_job_says_how_many_crashes_it_is_good_for(scene: Scene, most: int, reason: str | None) -> None:
    """Its body has it before the envelope, for the script that recovers."""
    client, keys = scene.client, scene.keys
    enqueued_ms, _, envelope = (await client.hget(keys.bodies, "held")).partition(b" ")
    await client.hset(keys.bodies, "held", b"%s %d %s" % (enqueued_ms, most, envelope))
    await client.zadd(keys.workers, {WORKER: 1})
    assert await scene.recover(3) == ([1, 0, 0] if reason is None else [0, 1, 0])
    ledger = await scene.ledger()
    assert ledger.reasons.get("held") == (None if reason is None else {"reason": reason, "attempts": 1})


@pytest.mark.twice("tasks/watch")
@pytest.mark.parametrize("address", ["", "session.2"])
async def test_second_watch_answers_the_same(scene: Scene, address: str) -> None:
    """Wherever the job is; and whoever waits for it waits once."""
    await scene.ack()
    await scene.cancel("ready3")
    await scene.claim(3)
    await scene.say("ready1", 3001)
    expected = {
        "held": [b"succeeded", b"1"],
        "ready1": [b"running", b""],
        "ready2": [b"queued", b""],
        "ready3": [b"cancelled", b""],
        "later": [b"delayed", b"q"],
        "dead": [b"failed", f"{REASON}\nq".encode()],
        "nobody": [b"unknown", b""],
    }
    for job, answer in expected.items():
        how_far = b"[0.5]" if job == "ready1" and not address else b""
        for _ in range(2):
            assert await scene.watch(job, address) == [*answer, how_far]
    watched = ["later", "ready1", "ready2"] if address else []
    assert await scene.client.zrange(scene.keys.watchers, 0, -1) == [f"{job} {address}".encode() for job in watched]
    for job in watched:
        assert [await scene.run("tasks/unwatch", id=job, address=address) for _ in range(2)] == [1, 0]
    assert not await scene.client.exists(scene.keys.watchers)


@pytest.mark.twice("claims/dead")
async def test_second_look_at_the_dead_is_the_same(scene: Scene) -> None:
    """The latest, or one."""
    for job in ("", "dead"):
        first = await scene.run("claims/dead", id=job, skip=0, limit=10)
        assert (first[0], first[1], first[3]) == (0, b"dead", f"{REASON}\nq".encode())
        assert await scene.run("claims/dead", id=job, skip=0, limit=10) == first
    assert await scene.run("claims/dead", id="held", skip=0, limit=10) == [0]


@pytest.mark.twice("tasks/stats")
async def test_second_stats_are_the_same(scene: Scene) -> None:
    """One worker, one dead; three ready, two delayed, none waiting, none finished."""
    queues = (scene.queue.queue, scene.queue.delayed)
    for _ in range(2):
        stats = await scene.run("tasks/stats", queues=queues, names=["q"])
        workers, dead, ready, delayed, held_back, waiting, oldest_ms, is_paused, finished = stats
        assert (workers, dead, ready, delayed, held_back, waiting, is_paused, finished) == (1, 1, 3, 2, 0, 0, 0, 0)
        assert 0 <= oldest_ms < 60_000


@pytest.mark.twice("tasks/places_in_use")
async def test_second_count_of_places_is_the_same(scene: Scene) -> None:
    """Of each limit that is asked for."""
    await scene.client.hset(scene.keys.places, "a", "2 5 0")
    for _ in range(2):
        assert await scene.run("tasks/places_in_use", limits=["a", "b"]) == [2, 0]


@pytest.mark.twice("tasks/held_back")
async def test_second_look_at_what_holds_a_job_back_is_the_same(scene: Scene) -> None:
    """Which limit it is, how many are before it, and who has a place; and changes nothing."""
    limits = "/r10,10:c/s:a/1:a/2:b"
    await scene.client.hset(scene.keys.bodies, mapping=dict.fromkeys(("z", "next"), f"1 3{limits} {{}}"))
    await scene.client.zadd(scene.queue.delayed, {"z": 4_000_000_000_000_007, "next": 70})
    await scene.client.zadd(scene.keys.held_back, {f"b {5:014} y": 0, f"b {7:014} z": 0, f"a {3:014} x": 0})
    places = {"b": "2 3 0", "held": "/s:a/1:a/2:b", "gone": "/1:f", "@a": "y", "c": "99 70 20 10 1 99 next"}
    await scene.client.hset(scene.keys.places, mapping=places)
    before = await scene.ledger()
    for _ in range(2):
        found = await scene.run("tasks/held_back", id="z", running=["held", "gone", "none"])
        assert found == [limits.encode(), b"b", 1, 2, 3, b"", b"held"]
        assert await scene.run("tasks/held_back", id="next", running=[]) == [limits.encode(), b"c", 0, 0, 20, b""]
        assert await scene.run("tasks/held_back", id="ready1", running=[]) == []
        assert await scene.ledger() == before


@pytest.mark.twice("tasks/described")
async def test_second_list_of_workers_is_the_same(scene: Scene) -> None:
    """And changes nothing."""
    await scene.run("claims/heartbeat", worker=WORKER, ttl_ms=60_000, is_new=0, skip=0, about="{}")
    before = await scene.ledger()
    for _ in range(2):
        cursor, worker, is_alive, said = await scene.run("tasks/described", cursor="0")
        assert (cursor, worker, is_alive, said.partition(b" ")[2]) == (b"0", WORKER.encode(), 1, b"{}")
        assert await scene.ledger() == before


@pytest.mark.twice("claims/held")
async def test_second_list_of_what_is_held_is_the_same(scene: Scene) -> None:
    """And changes nothing."""
    before = await scene.ledger()
    for _ in range(2):
        found = await scene.session.run(HELD(scene.keys, claimed=[scene.worker.claimed]))
        count, nth, job, claim, body = found
        assert (count, nth, job, body.partition(b" ")[2]) == (1, 0, b"held", RECORDED.encode())
        assert re.fullmatch(rb"2001 1 \d{13} q", claim)
        assert await scene.ledger() == before


@pytest.mark.twice(
    "tasks/queue_names",
    "tasks/queued_ids",
    "tasks/delayed_ids",
    "tasks/dead_ids",
    "tasks/claimed_ids",
    "tasks/waiting_ids",
    "tasks/describe_jobs",
)
async def test_second_list_of_jobs_is_the_same(scene: Scene) -> None:
    """And changes nothing."""
    before = await scene.ledger()
    times = {"at_ms": "", "last": "", "limit": 10}
    for _ in range(2):
        assert await scene.run("tasks/queue_names", cursor="0") == [b"0", b"q"]
        assert await scene.run("tasks/queued_ids", position=0, last="ready1", limit=1) == [1, b"ready2"]
        assert (await scene.run("tasks/dead_ids", **times))[::2] == [b"dead"]
        assert (await scene.run("tasks/delayed_ids", **times))[::2] == [b"due", b"later"]
        [job, claim] = await scene.run("tasks/claimed_ids", last=0, limit=10)
        assert (job, claim.split()[:2]) == (b"held", [b"2001", b"1"])
        assert await scene.run("tasks/waiting_ids", cursor="0", count=10) == [b"0"]
        looked, *found = await scene.run("tasks/describe_jobs", head="", ids=["gone", "ready1", "held"])
        assert (looked, found[::7]) == (3, [b"ready1", b"held"])
        assert found[1::7] == [b"queued ", f"running {WORKER}".encode()]
        assert await scene.ledger() == before


@pytest.mark.twice("tasks/locate")
async def test_second_look_for_a_job_is_the_same(scene: Scene) -> None:
    """In its queue, among the delayed ones, or in neither; and changes nothing."""
    queues = (scene.queue.queue, scene.queue.delayed)
    before = await scene.ledger()
    for _ in range(2):
        for job, name, ahead in (("ready2", b"q", 1), ("later", b"q", -1), ("held", b"", -1)):
            _, *found = await scene.run("tasks/locate", queues=queues, id=job, names=["q"])
            assert (*found[:4], found[5]) == (b"", b"", name, ahead, 0)
            assert (found[4] > 0) == (job == "later")
        assert await scene.ledger() == before


@pytest.mark.twice("tasks/count_claimed")
async def test_second_count_of_what_runs_is_the_same(scene: Scene) -> None:
    """And changes nothing."""
    before = await scene.ledger()
    for _ in range(2):
        assert await scene.session.run(COUNT_CLAIMED(claimed=[scene.worker.claimed])) == [b"q", 1]
        assert await scene.ledger() == before


@pytest.mark.twice("tasks/sweep_names")
async def test_second_sweep_looks_at_others(scene: Scene) -> None:
    """At most 500 in each; what is taken still is looked at again in an hour."""
    names = {f"{number:03}": f"gone {number + 1}" for number in range(700)} | {"taken": "held 0"}
    await scene.client.hset(scene.keys.unique, mapping=names)
    await scene.client.zadd(scene.keys.checks, dict.fromkeys(names, 1))
    assert [await scene.run("tasks/sweep_names") for _ in range(3)] == [500, 201, 0]
    assert set(await scene.client.hkeys(scene.keys.unique)) == {b"name", b"taken"}


async def follow(scene: Scene, job: str, *after: str, delay_ms: int = 0, suffix: str = "") -> None:
    """Run the script that adds a job after others, thrice: the first run adds it, whatever is forgotten then."""
    keys = scene.keys
    ledgers = list[tuple[Ledger, Any, Any]]()
    for forgets in (False, False, True):
        if forgets:
            await scene.forget_requests()
        answer = await scene.run(
            "tasks/enqueue_after",
            result=keys.result(job),
            results=keys.results(parent for parent in after if parent.endswith(suffix)),
            queue_name="q",
            id=job,
            envelope="{}",
            delay_ms=delay_ms,
            name="",
            window_ms=0,
            suffix=suffix,
            even_if="",
            after=after,
        )
        assert answer == [b""]
        found = [await scene.client.zrange(keys.children, 0, -1), await scene.client.hgetall(keys.waiting)]
        ledgers.append((await scene.ledger(), *found))
    assert ledgers[0] == ledgers[1] == ledgers[2]


@pytest.mark.twice("tasks/enqueue_after")
async def test_second_follow_counts_no_parent_twice(scene: Scene) -> None:
    """Wherever its parents are."""
    await follow(scene, "child", "held", "ready1")
    assert (await scene.ledger()).states["child"] == "waiting 0 q"
    assert await scene.client.hget(scene.keys.pending, "child") == b"held ready1"
    await follow(scene, "orphan", "held", "dead")
    assert "orphan" in (await scene.ledger()).dead
    assert await scene.ack() == [2]
    await follow(scene, "late", "held")
    assert (await scene.ledger()).ready["q"][-1] == "late"
    children = ["dead orphan", "held child", "held late", "held orphan", "ready1 child"]
    assert await scene.client.zrange(scene.keys.children, 0, -1) == [pair.encode() for pair in children]


@pytest.mark.twice("tasks/wait_again", "tasks/children")
async def test_second_replay_of_a_dependant_changes_nothing(scene: Scene) -> None:
    """Also when it was dead-lettered again in between."""
    await follow(scene, "orphan", "held", "dead")
    await follow(scene, "child", "held")
    for _ in range(2):
        named = {"ids": ["held"], "after": "", "limit": 10, "is_deep": 0}
        assert await scene.run("tasks/children", **named) == [b"held", b"child", b"held", b"orphan"]
        assert await scene.run("tasks/children", **named | {"after": "child"}) == [b"held", b"orphan"]
        assert await scene.run("tasks/children", **named | {"limit": 1}) == [b"held", b"child"]

    async def wait_again(request: str, *after: str, job: str = "orphan") -> Any:
        terms = {"request": request, "queue_name": "q", "delay_ms": 0, "name": "", "suffix": "", "even_if": ""}
        return await scene.run("tasks/wait_again", id=job, after=after, **terms)

    before = await scene.ledger()
    for _ in range(2):
        assert await wait_again("of another", "held", job="child") == 0
        assert await scene.ledger() == before
        assert await wait_again("in vain", "held", "dead") == 0
        assert (await scene.ledger()).dead == before.dead
    assert await wait_again("once", "held") == 1
    before = await scene.ledger()
    assert before.states["orphan"] == "waiting 0 q"
    assert await scene.client.hget(scene.keys.waiting, "q") == b"2"
    for _ in range(2):
        assert await wait_again("once", "held") == 1
        assert await scene.ledger() == before
    assert await scene.client.hget(scene.keys.waiting, "q") == b"2"


@pytest.mark.twice("tasks/resolve_dependents")
async def test_second_pass_on_tells_nobody_twice(scene: Scene) -> None:
    """Neither of the end of a parent, nor of that it may run: it goes on with what is left."""
    for job in ("first", "second"):
        await follow(scene, job, "held", "ready1")
    await follow(scene, "third", "held", delay_ms=HOUR)
    assert await scene.ack() == [2]
    keys, queue = scene.keys, scene.queue
    for queues, answer in (((), [1, 0, [b"q"], [], 0]), ((queue,), DONE), ((queue,), DONE)):
        assert await scene.pass_on(*queues) == answer
        states = (await scene.ledger()).states
        assert (states["first"], states["second"]) == ("waiting 0 q", "waiting 0 q")
        pending = await scene.client.hgetall(keys.pending)
        assert pending == {b"first": b"ready1", b"second": b"ready1"}
        assert await scene.client.hgetall(keys.waiting) == {b"q": b"2" if queues else b"3"}
    assert (await scene.ledger()).states["third"] == "delayed q"
    assert await scene.client.hget(scene.keys.outcomes, "held") == b"succeeded 1"
    for _ in range(2):
        assert await scene.run("tasks/outcomes", ids=("held", "ready1")) == [b"succeeded 1", b""]


async def test_end_of_a_parent_is_news_once(scene: Scene) -> None:
    """Also when it is set aside, or was cancelled; a heartbeat tells of it until it is passed on."""
    for parent in ("held", "ready1"):
        await follow(scene, f"child of {parent}".replace(" ", "-"), parent)
    assert await scene.cancel("ready1") == 2
    assert await scene.cancel("ready1") == 2
    assert await scene.cancel("ready1", request="another") == HAD_ENDED
    assert [await scene.nack("dead") for _ in range(2)] == [2, 0]
    assert await scene.client.lrange(scene.keys.news, 0, -1) == [b"ready1", b"held"]
    assert (await scene.heartbeat())[3] == 1
    assert await scene.pass_on(scene.queue) == [2, 0, [], [], 0]
    assert await scene.pass_on(scene.queue) == DONE
    assert (await scene.heartbeat())[3] == 0
    assert {"child-of-held", "child-of-ready1", "held"} <= set((await scene.ledger()).dead)


async def test_child_goes_on_waiting_for_a_parent_that_was_replayed_before_it_was_told(scene: Scene) -> None:
    """The parent has not failed any more."""
    await follow(scene, "child", "held")
    await scene.nack("dead")
    assert await scene.run("claims/replay", queue_name="q", jobs=("held", "", ""), request="one") == 1
    assert await scene.pass_on(scene.queue) == DONE
    assert (await scene.ledger()).waiting == ["child"]


async def test_crash_that_sets_a_parent_aside_is_news(scene: Scene) -> None:
    """Its children follow it."""
    await follow(scene, "child", "held")
    await scene.client.zadd(scene.keys.workers, {WORKER: 1})
    await scene.client.hset(scene.keys.facts, "held", facts_text(crashes=2))
    assert [await scene.recover(3) for _ in range(2)] == [[0, 1, 1], [0, 0, 0]]
    assert (await scene.ledger()).history == [("dead", "failed"), ("held", "failed")]
    await scene.pass_on(scene.queue)
    assert "child" in (await scene.ledger()).dead


async def test_pass_on_goes_round_a_key_that_is_not_ours(scene: Scene) -> None:
    """The job is put at the end of the news, and goes on when the key is gone."""
    await follow(scene, "child", "held")
    assert await scene.ack() == [2]
    await scene.client.set("mine", "x")
    keys, queue = scene.keys, scene.queue._replace(queue="mine")
    for _ in range(2):
        await scene.client.rpush(keys.news, "another")
        assert await scene.pass_on(queue) == [1, 1, [], [], 1]
        assert await scene.client.lrange(keys.news, 0, -1) == [b"child"]
    assert await scene.pass_on(scene.queue) == DONE
    assert (await scene.ledger()).ready["q"][-1] == "child"
    await scene.client.delete("mine")


# What concerns other partitions.  Here all ids end with `.0` that are of this one.


async def others_are_told(scene: Scene) -> list[bytes]:
    """What other partitions are to know, in words."""
    answer, again = [await scene.pass_on(scene.queue, suffix=".0") for _ in range(2)]
    assert sorted(again[3]) == sorted(answer[3])
    assert (await scene.pass_on(scene.queue, suffix=".0", passer="another"))[3] == []  # somebody is at it
    return [b" ".join(answer[3][at : at + 3]) for at in range(0, len(answer[3]), 4)]


@pytest.mark.twice("tasks/follow")
async def test_second_follow_of_a_job_elsewhere_adds_nothing(scene: Scene) -> None:
    """One that runs is followed; of one that has ended, or is not known, its child is told."""
    relations = ("held", "child.1", "dead", "child.1", "nobody", "child.1")
    results = scene.keys.results(relations[::2])
    kept = list[Any]()
    for _ in range(2):
        assert await scene.run("tasks/follow", results=results, relations=relations) == 2
        keys = scene.keys
        kept.append([await scene.client.zrange(key, 0, -1) for key in (keys.children, keys.followers)])
    assert kept[0] == kept[1] == [[b"dead child.1", b"held child.1", b"nobody child.1"]] * 2
    told = await others_are_told(scene)
    assert told == [b"tell dead child.1", b"tell nobody child.1"]


@pytest.mark.twice("tasks/tell")
async def test_second_tell_from_elsewhere_changes_nothing(scene: Scene) -> None:
    """A job waits for each parent once; it fails with the first that has not succeeded; and one may be gone."""
    await follow(scene, "child.0", "one.1", "two.1", suffix=".0")
    await follow(scene, "other.0", "one.1", "two.1", suffix=".0")
    assert await others_are_told(scene) == [
        b"follow one.1 child.0",
        b"follow two.1 child.0",
        b"follow one.1 other.0",
        b"follow two.1 other.0",
    ]
    await scene.client.delete(scene.keys.unfollowed, scene.keys.passing)
    first = ("one.1", "child.0", "succeeded ", "one.1", "other.0", "cancelled ", "one.1", "gone.0", "succeeded ")
    for _ in range(2):
        answer = await scene.run("tasks/tell", inboxes=scene.inboxes, relations=first)
        assert answer == [1, 1, 1, 0]
        assert await scene.client.hgetall(scene.keys.pending) == {b"child.0": b"two.1"}
        assert "other.0" in (await scene.ledger()).dead
    last = ("two.1", "child.0", "succeeded ")
    for _ in range(2):
        assert await scene.run("tasks/tell", inboxes=scene.inboxes, relations=last) == [1, 1]
    assert (await scene.ledger()).waiting == ["child.0"]
    await scene.pass_on(scene.queue, suffix=".0")
    assert (await scene.ledger()).ready["q"][-1] == "child.0"


@pytest.mark.twice("tasks/forget")
async def test_second_forget_from_elsewhere_changes_nothing(scene: Scene) -> None:
    """What became of a parent is kept as long as there is another child."""
    relations = ("held", "a.1", "held", "b.1")
    await scene.run("tasks/follow", results=scene.keys.results(relations[::2]), relations=relations)
    assert await scene.ack() == [2]
    for child, is_kept in (("a.1", True), ("b.1", False)):
        for _ in range(2):
            await scene.run("tasks/forget", relations=("held", child))
        assert await scene.client.hexists(scene.keys.outcomes, "held") == is_kept
    assert not await scene.client.exists(scene.keys.children, scene.keys.followers)


@pytest.mark.twice("tasks/passed_on")
async def test_second_note_of_what_was_passed_on_changes_nothing(scene: Scene) -> None:
    """What was not passed on is tried again: at once, or after the five seconds that whoever tries it has."""
    keys = scene.keys
    relations = ("held", "a.1", "held", "b.1")
    await scene.run("tasks/follow", results=keys.results(relations[::2]), relations=relations)
    await follow(scene, "child.0", "one.1", "two.2", suffix=".0")
    assert await scene.ack() == [2]
    assert await others_are_told(scene) == [
        b"follow one.1 child.0",
        b"follow two.2 child.0",
        b"tell held a.1",
        b"tell held b.1",
    ]
    passer, until_ms = (await scene.client.hget(keys.passing, "held")).split()
    assert passer == b"me"
    assert 4000 < int(until_ms) - time.time() * 1000 <= 5000
    noted = ("tell", "held", "a.1", 1, "gone", "held", "b.1", 1, "follow", "one.1", "child.0", 0)
    for _ in range(2):
        await scene.run("tasks/passed_on", relations=noted)
        assert await scene.client.hkeys(keys.passing) == [b"child.0"]
        assert await scene.client.hgetall(keys.unfollowed) == {b"child.0": b"two.2"}
        assert not await scene.client.exists(keys.followers)
        assert await scene.client.zrange(keys.children, 0, -1) == [b"held a.1"]
    await scene.client.hset(keys.passing, "child.0", "another 1")
    assert await others_are_told(scene) == [b"follow two.2 child.0"]


@pytest.mark.twice("tasks/dead_times")
async def test_second_look_at_dead_letters_is_the_same(scene: Scene) -> None:
    """The latest first."""
    await scene.client.zadd(scene.keys.dead, {"dead": 5, "deader": 7, "deadest": 9})
    for _ in range(2):
        assert await scene.run("tasks/dead_times", skip=1, limit=2) == [7, 5]
