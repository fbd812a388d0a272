"""Jobs that run after jobs of other partitions: what is passed on may be lost, late, or passed on twice.

Between two steps of one process anything may happen: the process dies, another begins, a message comes again.
"""

import secrets
from typing import Any, NamedTuple

import pytest
import redis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from inconcert._claims.claimed import Row
from inconcert._claims.keys import CLAIM, HEARTBEAT
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.tasks.records.store import (
    ACK_WITH_PLUGS,
    CANCEL,
    ENQUEUE,
    ENQUEUE_AFTER,
    FOLLOW,
    FORGET,
    PASSED_ON,
    RESOLVE_DEPENDENTS,
    TELL,
    WATCH,
    JobKeys,
    JobKeyspace,
)
from tests.support.ledger import read_ledger_now
from tests.support.servers import RealServer
from tests.support.world import examples

PARTITIONS = 3
HOUR = 3_600_000  # milliseconds
INBOXES = "inbox:"

partitions = st.integers(0, PARTITIONS - 1)
picks = st.integers(0, 1000)


class Message(NamedTuple):
    """What a process is about to tell a partition, and from where."""

    origin: int
    kind: str
    parent: str
    child: str
    outcome: str


class PartitionsModel(RuleBasedStateMachine):
    """Any number of processes that pass on, and one worker for each partition."""

    client: Any  # of a server, for a script takes it a hundredth of the time that fakeredis takes

    def __init__(self) -> None:
        super().__init__()
        self.namespace = f"model-{secrets.token_hex(4)}"
        self.jobs = JobKeyspace(Keyspace(self.namespace), PARTITIONS)
        self.count = 0
        self.claims = 0
        self.after: dict[str, list[str]] = {}
        self.even_if: dict[str, str] = {}  # how the parents of a job may have ended besides
        self.purged: set[str] = set()
        self.ended: dict[str, str] = {}
        self.dead: set[str] = set()
        self.held: dict[str, int] = {}  # claimed, and the place of each
        self.messages: list[Message] = []  # on their way, perhaps for a long time
        self.delivered: list[tuple[Message, str]] = []  # and as what they are to be noted
        for keys in self.jobs.partitions:
            self.run(
                HEARTBEAT(
                    keys, claimed=keys.claimed("session.w"), worker="session.w", ttl_ms=HOUR, is_new=1, skip=0, about=""
                )
            )

    def teardown(self) -> None:
        self.everything_is_passed_on()
        self.client.delete(*self.client.keys(f"{{{self.namespace}:*"))

    def run(self, command: Command) -> Any:
        """As one whose reply was lost: each runs twice."""
        parts = (command.script.source, len(command.keys), *command.keys, *command.args)
        answers = [self.client.eval(*parts) for _ in range(2)]
        return answers[command.script.name == "tasks/resolve_dependents"]

    # Jobs come and end.

    @rule(number=partitions, parents=st.lists(picks, max_size=3), even_if=st.sampled_from(["", "failed", "ended"]))
    def enqueue(self, number: int, parents: list[int], even_if: str) -> None:
        """A job of this partition, after up to three others, one of which may not be known."""
        self.count += 1
        job, keys = f"job{self.count}.{number}", self.jobs.partitions[number]
        known = [*self.after, "never.1"]
        after = list(dict.fromkeys(known[pick % len(known)] for pick in parents))
        self.after[job], self.even_if[job] = after, even_if
        if not after:
            jobs = (job, "{}", 0, "", 0)
            self.run(ENQUEUE(keys, keys.queue("q"), results=[keys.result(job)], queue_name="q", jobs=jobs))
            return
        here = [parent for parent in after if parent.endswith(keys.suffix)]
        command = ENQUEUE_AFTER(
            keys,
            keys.queue("q"),
            result=keys.result(job),
            results=keys.results(here),
            queue_name="q",
            id=job,
            envelope="{}",
            delay_ms=0,
            name="",
            window_ms=0,
            suffix=keys.suffix,
            even_if=even_if,
            after=after,
        )
        self.run(command)

    @rule(number=partitions)
    def claim(self, number: int) -> None:
        """The first of a partition that may run; and it may, for all that it runs after have succeeded."""
        keys = self.jobs.partitions[number]
        self.claims += 1
        queue = keys.queue("q")
        command = CLAIM(
            keys,
            claimed=keys.claimed("session.w"),
            queues=(queue.queue, queue.bell, queue.delayed),
            worker="session.w",
            number=self.claims,
            count=1,
            suspects=1,
            names=["q"],
        )
        _, _, _, count, queues, *answer = self.run(command)
        for row in Row.read(self.claims, count, queues, answer):
            job = row.id.decode()
            assert job not in self.held
            assert job not in self.ended
            assert all(self.lets_run(parent, job) for parent in self.after[job])
            self.held[job] = row.position

    @precondition(lambda self: self.held)
    @rule(pick=picks, succeeds=st.booleans())
    def end(self, pick: int, succeeds: bool) -> None:
        """A claimed job succeeds, and its result is not kept; or it fails for the last time."""
        job = list(self.held)[pick % len(self.held)]
        keys, position = self.jobs.of_id(job), self.held.pop(job)
        if succeeds:
            command = ACK_WITH_PLUGS(
                keys,
                claimed=keys.claimed("session.w"),
                results=[keys.result(job), *keys.kept_attempts([job])],
                inboxes=INBOXES,
                worker="session.w",
                histories="",
                failed="1,",
                jobs=(job, position, "succeeded 1", HOUR, ""),
            )
            assert self.run(command) != [0]
            self.ended[job] = "succeeded 1"
            return
        command = keys.scripts.nack(
            keys,
            keys.queue("q"),
            claimed=keys.claimed("session.w"),
            id=job,
            position=position,
            verdict="dead",
            delay_ms=0,
            reason="{}",
            name="q",
            inboxes=INBOXES,
            worker="session.w",
        )
        assert self.run(command)
        self.dead.add(job)

    @precondition(lambda self: self.after)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        """A job that is not claimed, wherever it is; nothing if it has ended."""
        job = list(self.after)[pick % len(self.after)]
        keys = self.jobs.of_id(job)
        if job in self.held:
            return
        was_there = self.status(job) in ("queued", "waiting")
        command = CANCEL(
            keys,
            keys.queue("none"),
            results=(*keys.results([job]), *keys.kept_attempts([job])),
            ttl_ms=HOUR,
            inboxes=INBOXES,
            request=f"cancel {job}",
            ids=[job],
        )
        self.run(command)
        if was_there:
            self.ended[job] = "cancelled "

    @rule(number=partitions)
    def purge(self, number: int) -> None:
        """What was dead-lettered in a partition is forgotten."""
        keys = self.jobs.partitions[number]
        dead = {job.decode() for job in self.client.zrange(keys.dead, 0, -1)}
        self.dead, self.purged = self.dead | dead, self.purged | dead
        self.run(
            keys.scripts.purge(
                keys, age_ms=0, keep=0, request=f"purge {self.count} {self.claims} {len(self.ended)}", ids=()
            )
        )

    # What is passed on.

    @rule(number=partitions)
    def resolve(self, number: int) -> None:
        """A process sees what there is to pass on."""
        self.messages += self.look(self.jobs.partitions[number])

    def look(self, keys: JobKeys) -> list[Message]:
        queue = keys.queue("q")
        parts = (queue.queue, queue.bell, queue.delayed)
        command = RESOLVE_DEPENDENTS(
            keys, queues=parts, inboxes=INBOXES, suffix=keys.suffix, passer=secrets.token_hex(4), names=["q"]
        )
        _, _, names, work, stuck = self.run(command)
        assert (names, stuck) == ([], 0)
        texts = [part.decode() for part in work]
        return [Message(keys.number, *texts[at : at + 4]) for at in range(0, len(texts), 4)]

    @precondition(lambda self: self.messages)
    @rule(pick=picks, is_kept=st.booleans())
    def deliver(self, pick: int, is_kept: bool) -> None:
        """One partition hears; and the same message may come again, at any later time."""
        message = self.messages[pick % len(self.messages)]
        if not is_kept:
            self.messages.remove(message)
        self.delivered.append((message, self.tell(message)))

    def tell(self, message: Message) -> str:
        """Let the partition know; returns as what it is to be noted."""
        pair = message.parent, message.child
        if message.kind == "tell":
            keys = self.jobs.of_id(message.child)
            command = TELL(keys, inboxes=INBOXES, relations=(*pair, message.outcome))
            _, is_there = self.run(command)
            return "tell" if is_there else "gone"
        keys = self.jobs.of_id(message.parent)
        if message.kind == "follow":
            self.run(FOLLOW(keys, results=keys.results([message.parent]), relations=pair))
        else:
            self.run(FORGET(keys, relations=pair))
        return message.kind

    @precondition(lambda self: self.delivered)
    @rule(pick=picks, is_all=st.booleans())
    def note(self, pick: int, is_all: bool) -> None:
        """The process notes that it was heard."""
        message, kind = self.delivered.pop(pick % len(self.delivered))
        self.noted(message, kind, is_all=is_all)

    def noted(self, message: Message, kind: str, *, is_all: bool) -> None:
        keys = self.jobs.partitions[message.origin]
        self.run(PASSED_ON(keys, relations=(kind, message.parent, message.child, int(is_all))))

    @rule()
    def process_dies(self) -> None:
        """What it was about to say, and to note, is lost."""
        self.messages.clear()
        self.delivered.clear()

    @rule(number=partitions)
    def five_seconds_pass(self, number: int) -> None:
        """Another process may pass on what the last one has not."""
        self.client.delete(self.jobs.partitions[number].passing)

    @rule()
    def everything_is_passed_on(self) -> None:
        """By one process, to the end; what was said before comes after that, once more."""
        late, self.messages, self.delivered = self.messages, [], []
        for message in (None, *late):
            if message is not None:
                self.tell(message)
            self.pass_on()
        for job, after in self.after.items():
            status = self.status(job)
            if job in self.ended or job in self.held or job in self.dead:
                continue
            if status in ("failed", "unknown") and any(parent in self.purged for parent in after):
                self.dead.add(job)  # what became of its parent was no longer known when it was added
            elif all(self.lets_run(parent, job) for parent in after):
                assert status == "queued"
            elif any(self.has_ended(parent) and not self.lets_run(parent, job) for parent in after):
                assert status in ("failed", "unknown")  # it may have been purged
                self.dead.add(job)
            else:
                assert status == "waiting"
        self.pass_on()
        if not any(self.status(job) in ("queued", "waiting", "running", "failed") for job in self.after):
            for keys in self.jobs.partitions:
                kept = (keys.parents, keys.children, keys.followers, keys.outcomes, keys.news)
                assert not self.client.exists(*kept, keys.pending, keys.unfollowed, keys.passing, keys.waiting)

    def lets_run(self, parent: str, job: str) -> bool:
        """Whether a parent has ended, and so that this job may run."""
        even_if = self.even_if[job]
        if self.client.zscore(self.jobs.of_id(parent).dead, parent) is not None:  # perhaps because of its own parent
            self.dead.add(parent)
        how = "failed" if parent in self.dead else self.ended.get(parent)
        return (
            how == "succeeded 1" or (how == "failed" and even_if != "") or (how == "cancelled " and even_if == "ended")
        )

    def has_ended(self, parent: str) -> bool:
        """Whether a parent has ended, or never was."""
        return parent in self.ended or parent in self.dead or parent == "never.1"

    def pass_on(self) -> None:
        for keys in self.jobs.partitions:
            self.client.delete(keys.passing)
        has_more = True
        while has_more:
            has_more = False
            for keys in self.jobs.partitions:
                messages = self.look(keys)
                for message in messages:
                    self.noted(message, self.tell(message), is_all=True)
                has_more = has_more or bool(messages) or bool(self.client.exists(keys.news))

    def status(self, job: str) -> str:
        keys = self.jobs.of_id(job)
        [status, _, _] = self.run(WATCH(keys, result=keys.result(job), id=job, address=""))
        return str(status.decode())

    # What holds after each step.

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        ledger = read_ledger_now(self.client, self.namespace)
        ledger.check(put=len(ledger.bodies), done=0)
        assert not set(ledger.bodies) & self.ended.keys()

    @invariant()
    def nobody_runs_before_its_parents_have_ended(self) -> None:
        ready = read_ledger_now(self.client, self.namespace).ready.get("q", [])
        for job in ready:
            assert all(self.lets_run(parent, job) for parent in self.after[job])


def test_partitions_model(server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens in whatever order."""
    make: Any = redis.Redis
    client = make.from_url(server.admin_url)
    monkeypatch.setattr(PartitionsModel, "client", client, raising=False)
    run_state_machine_as_test(
        PartitionsModel, settings=settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
    )
    client.close()
