"""The scripts of groups against a dictionary: members end in every way and order, and the callback is started once."""

from dataclasses import dataclass, field
from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._claims.claimed import Row
from inconcert._claims.keys import CLAIM, HEARTBEAT
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.tasks.records.group_ids import callback_id, member_id
from inconcert.tasks.records.store import (
    ACK_WITH_PLUGS,
    ADD_MEMBERS,
    CANCEL,
    CLOSE_GROUP,
    ENQUEUE,
    FOLLOW,
    FORGET,
    GROUP_RESULTS,
    INSPECT_GROUP,
    OPEN_GROUP,
    PASSED_ON,
    RESOLVE_DEPENDENTS,
    SWEEP_GROUPS,
    WAIT_AGAIN,
    JobKeys,
)
from tests.support.ledger import crashes_of, read_ledger_now
from tests.support.world import examples

HOUR = 3_600_000  # milliseconds
INBOXES = "inbox:"
GROUPS = ("one.15.0", "two.15.0")

picks = st.integers(0, 1000)
groups = st.sampled_from(GROUPS)


@dataclass
class Member:
    """A member, as the model sees it.

    Attributes:
        where: `ready`, `held`, `waiting`, `dead`, `succeeded`, `cancelled`, or `purged`.
        parent: The job that it runs after; empty for none.
        position: Where its worker holds it.
        result: What it returned, once it has succeeded.
    """

    where: str
    parent: str = ""
    position: int = 0
    result: bytes = b""


@dataclass
class Known:
    """A group, as the model sees it."""

    when: str
    state: str = "open"
    keeps: str = ""  # results: or 'kept', 'dropping', 'gone'
    given: int = 0
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    callback: str = "waiting"  # or 'started', 'dead', 'cancelled', 'none'
    is_news: bool = False

    def count(self, *where: str) -> int:
        """How many members are there."""
        return sum(member.where in where for member in self.members.values())

    @property
    def has_ended(self) -> bool:
        """Whether all have ended, and no more can come."""
        return self.state != "open" and not self.count("ready", "held", "waiting")


class GroupsModel(RuleBasedStateMachine):
    """Two groups in one partition, one worker, and a job that members run after."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = JobKeys(Keyspace("model"))
        self.queue = self.keys.queue("q")
        self.known: dict[str, Known] = {}
        self.requests = 0
        self.workers = 0
        self.claims = 0
        self.parents = 0
        self.parent = ""  # the job that members run after, while it is live

    def teardown(self) -> None:
        self.client.close()

    def run(self, command: Command) -> Any:
        return self.client.eval(command.script.source, len(command.keys), *command.keys, *command.args)

    def twice(self, command: Command) -> Any:
        """Its reply was lost, and it was sent again."""
        answer = self.run(command)
        assert self.run(command) == answer
        return answer

    def new_request(self) -> str:
        """One that was never made before."""
        self.requests += 1
        return f"request-{self.requests}"

    @initialize(ends=st.booleans(), keeps=st.tuples(st.booleans(), st.booleans()))
    def begin(self, ends: bool, keeps: tuple[bool, bool]) -> None:
        for group, when, is_kept in zip(GROUPS, ("succeeded", "ended" if ends else "-"), keeps, strict=True):
            results = "kept" if is_kept else ""
            self.known[group] = Known(when, callback="none" if when == "-" else "waiting", keeps=results)
            command = OPEN_GROUP(
                self.keys,
                group=group,
                when=when,
                id=callback_id(group),
                envelope="" if when == "-" else "{}",
                delay_ms=0,
                name="callbacks",
                results=results,
            )
            assert self.run(command) == 1
            assert self.run(command) == 0
        self.begin_worker()
        self.begin_parent()

    def begin_worker(self) -> None:
        self.workers += 1
        assert self.run(
            HEARTBEAT(
                self.keys,
                claimed=self.keys.claimed(self.worker),
                worker=self.worker,
                ttl_ms=HOUR,
                is_new=1,
                skip=0,
                about="{}",
            )
        )[0]

    @property
    def worker(self) -> str:
        return f"session.{self.workers}"

    def begin_parent(self) -> None:
        self.parents += 1
        self.parent = f"parent{self.parents}.0"
        queue = self.keys.queue("parents")
        jobs = (self.parent, "{}", 0, "", 0)
        self.run(ENQUEUE(self.keys, queue, results=[self.keys.result(self.parent)], queue_name="parents", jobs=jobs))

    # Members come in.

    @rule(group=groups, count=st.integers(1, 3), follows=st.booleans(), back=st.integers(0, 2), may_skip=st.booleans())
    def add(self, group: str, count: int, follows: bool, back: int, may_skip: bool) -> None:
        """Also some that are in already, and from one who does not know that."""
        known = self.known[group]
        first = max(0, known.given - back)
        ids = [member_id(group, number) for number in range(first, first + count)]
        after = self.parent if follows else ""
        command = ADD_MEMBERS(
            self.keys,
            queues=self.queue[1:],
            group=group,
            request=self.new_request(),
            first=first,
            may_skip=int(may_skip),
            jobs=[part for id_ in ids for part in (id_, "{}", 0, "q", "", 0, after, "")],
        )
        answer, given, total, *added = self.twice(command)
        self.client.delete(self.keys.recent, self.keys.older)  # as it is after two minutes
        again = self.run(command)
        are_there = may_skip and first + count <= known.given
        if known.state != "open" and not are_there:
            assert (answer, again[0]) == (0, 0)
        elif first < known.given and not may_skip:
            assert (answer, again[0]) == (2, 2)
        else:
            new = [id_ for number, id_ in enumerate(ids, first) if number >= known.given]
            assert added == [int(id_ in new) for id_ in ids]
            for id_ in new:
                known.members[id_] = Member("waiting" if after else "ready", after)
            known.given = max(known.given, first + count)
            assert again[0] in ((1, 2) if known.state == "open" else (0, 1))
            assert again[3:] == ([0] * count if may_skip else [])
        assert (given, total) == (known.given, len(known.members))

    @rule(group=groups)
    def close(self, group: str) -> None:
        known = self.known[group]
        if known.state == "open":
            known.state = "closed"
            self.note_end(known)
        for _ in range(2):
            _, given = self.run(CLOSE_GROUP(self.keys, group=group, state="closed"))
            assert given == known.given

    @rule(group=groups)
    def cancel_group(self, group: str) -> None:
        """As `Group.cancel` begins; the members are cancelled one by one."""
        known = self.known[group]
        if known.callback == "waiting":
            self.end_callback(group, known)
        known.state = "cancelled"
        self.run(CLOSE_GROUP(self.keys, group=group, state="cancelled"))

    @rule(group=groups)
    def cancel_callback(self, group: str) -> None:
        """Before it is started, or while it is in its queue."""
        known = self.known[group]
        if known.callback in ("waiting", "started"):
            self.end_callback(group, known)

    def end_callback(self, group: str, known: Known) -> None:
        """It is gone, and results with it."""
        assert self.cancel_job(callback_id(group)) == 1
        known.callback = "cancelled"
        known.keeps = known.keeps and "dropping"

    @rule(group=groups)
    def purge_callback(self, group: str) -> None:
        """One that is dead: it cannot be replayed any more."""
        known = self.known[group]
        if known.callback != "dead":
            return
        ids = [callback_id(group)]
        assert self.twice(
            self.keys.scripts.purge(self.keys, age_ms=0, keep=0, request=self.new_request(), ids=ids)
        ) == [1, 0]
        known.callback = "purged"
        known.keeps = known.keeps and "dropping"

    @rule()
    def sweep(self) -> None:
        """Results that were let go are dropped; less than a day has passed for all others."""
        assert self.run(SWEEP_GROUPS(self.keys)) == sum(known.keeps == "dropping" for known in self.known.values())
        for known in self.known.values():
            known.keeps = "gone" if known.keeps == "dropping" else known.keeps

    # They end.

    def note_end(self, known: Known) -> None:
        known.is_news = known.is_news or known.has_ended

    def found(self, pick: int, *where: str) -> tuple[Known, str, Member] | None:
        """One of the members that are there."""
        every = [(known, *pair) for known in self.known.values() for pair in known.members.items()]
        some = [one for one in every if one[2].where in where]
        return some[pick % len(some)] if some else None

    @rule(count=st.integers(1, 4))
    def claim(self, count: int) -> None:
        self.claims += 1
        command = CLAIM(
            self.keys,
            claimed=self.keys.claimed(self.worker),
            queues=self.queue[1:],
            worker=self.worker,
            number=self.claims,
            count=count,
            suspects=count,
            names=["q"],
        )
        _, _, _, taken, queues, *answer = self.run(command)
        members = {id_: member for known in self.known.values() for id_, member in known.members.items()}
        for row in Row.read(self.claims, taken, queues, answer):
            member = members[row.id.decode()]
            assert member.where == "ready"
            member.where, member.position = "held", row.position

    @precondition(lambda self: self.found(0, "held"))
    @rule(pick=picks, result=st.sampled_from(["succeeded 1", "", "cancelled "]))
    def end(self, pick: int, result: str) -> None:
        """It is done, or was stopped; and once more."""
        found = self.found(pick, "held")
        if found is None:
            return
        known, id_, member = found
        command = ACK_WITH_PLUGS(
            self.keys,
            claimed=self.keys.claimed(self.worker),
            results=[self.keys.result(id_), *self.keys.kept_attempts([id_])],
            inboxes=INBOXES,
            worker=self.worker,
            histories="",
            failed="1,",
            jobs=(id_, member.position, result, 0, ""),
        )
        member.where = "cancelled" if result == "cancelled " else "succeeded"
        member.result = result.removeprefix("succeeded ").strip().encode() or b"null"
        self.note_end(known)
        assert self.run(command)[0] in (1, 2)
        assert self.run(command) == [0]

    @precondition(lambda self: self.found(0, "held"))
    @rule(pick=picks, verdict=st.sampled_from(["dead", "back", "again"]))
    def give_up(self, pick: int, verdict: str) -> None:
        found = self.found(pick, "held")
        if found is None:
            return
        known, id_, member = found
        command = self.keys.scripts.nack(
            self.keys,
            self.queue,
            claimed=self.keys.claimed(self.worker),
            id=id_,
            position=member.position,
            verdict=verdict,
            delay_ms=0,
            reason='{"reason":"no"}',
            name="q",
            inboxes=INBOXES,
            worker=self.worker,
        )
        member.where = "dead" if verdict == "dead" else "ready"
        self.note_end(known)
        assert self.run(command) in (1, 2)
        assert self.run(command) == 0

    @rule(most=st.sampled_from([0, 1, 3]))
    def worker_dies(self, most: int) -> None:
        """With all that it holds, which is dead-lettered at once if one crash is enough."""
        crashed = {id_: count + 1 for id_, count in crashes_of(self.client.hgetall(self.keys.facts)).items() if most}
        if most:
            for key in (self.keys.workers, self.keys.alive):
                self.client.zadd(key, {self.worker: 0}, xx=True)
        command = self.keys.scripts.recover(
            self.keys,
            claimed=self.keys.claimed(self.worker),
            queues=self.queue[1:],
            worker=self.worker,
            max_crashes=most,
            inboxes=INBOXES,
            names=["q"],
        )
        self.run(command)
        self.run(command)
        for known in self.known.values():
            for id_, member in known.members.items():
                if member.where == "held":
                    is_dead = most and crashed.get(id_, 1) >= most
                    member.where = "dead" if is_dead else "ready"
            self.note_end(known)
        self.begin_worker()
        self.claims = 0

    def cancel_job(self, id_: str) -> int:
        queue = self.keys.queue("callbacks" if "then" in id_ else "q")
        command = CANCEL(
            self.keys,
            queue,
            results=[self.keys.result(id_), *self.keys.kept_attempts([id_])],
            ttl_ms=HOUR,
            inboxes=INBOXES,
            request=self.new_request(),
            ids=[id_],
        )
        [answer] = self.twice(command)
        return 1 if answer == 2 else int(answer)

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        found = self.found(pick, "ready", "waiting", "dead", "succeeded", "cancelled")
        if found is None:
            return
        known, id_, member = found
        was_live = member.where in ("ready", "waiting")
        if was_live:
            member.where = "cancelled"
            self.note_end(known)
        assert self.cancel_job(id_) == (1 if was_live else 3)

    @precondition(lambda self: self.found(0, "dead"))
    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        found = self.found(pick, "dead")
        if found is None:
            return
        _, id_, member = found
        command = self.keys.scripts.replay(
            self.keys, self.queue, queue_name="q", request=self.new_request(), jobs=(id_, "", "")
        )
        assert self.twice(command) == 1
        member.where = "ready"

    @precondition(lambda self: self.found(0, "dead"))
    @rule(pick=picks)
    def purge(self, pick: int) -> None:
        found = self.found(pick, "dead")
        if found is None:
            return
        known, id_, member = found
        assert self.twice(
            self.keys.scripts.purge(self.keys, age_ms=0, keep=0, request=self.new_request(), ids=[id_])
        ) == [1, 0]
        member.where = "purged"
        self.note_end(known)

    @precondition(lambda self: self.found(0, "dead"))
    @rule(pick=picks)
    def wait_again(self, pick: int) -> None:
        """What died of a parent is replayed together with it: here while another one is not dead."""
        found = self.found(pick, "dead")
        if found is None or not found[2].parent:
            return
        _, id_, member = found
        command = WAIT_AGAIN(
            self.keys,
            self.queue,
            request=self.new_request(),
            id=id_,
            queue_name="q",
            delay_ms=0,
            name="",
            suffix="",
            even_if="",
            after=[self.parent],
        )
        assert self.twice(command) == 1
        member.where, member.parent = "waiting", self.parent

    @precondition(lambda self: self.found(0, "waiting"))
    @rule()
    def parent_is_cancelled(self) -> None:
        """Those who wait for it die, once they are told; another job takes its place."""
        assert self.cancel_job(self.parent) == 1
        self.pass_on()
        for known in self.known.values():
            for member in known.members.values():
                if member.where == "waiting" and member.parent == self.parent:
                    member.where = "dead"
            self.note_end(known)
        self.begin_parent()
        self.pass_on()

    # The callback is started.

    @rule()
    def pass_on(self) -> None:
        """Whoever does it, and however often."""
        for known in self.known.values():
            if not known.is_news:
                continue
            known.is_news = False
            if known.callback != "waiting" or not known.has_ended:
                continue
            if known.when == "ended" or known.count("succeeded") == len(known.members):
                known.callback = "started"
            elif not known.count("dead"):
                known.callback = "dead"
        names: list[str] = []
        for _ in range(20):
            queues = [self.keys.queue(name) for name in names]
            parts = [part for queue in queues for part in queue[1:]]
            command = RESOLVE_DEPENDENTS(self.keys, queues=parts, inboxes=INBOXES, suffix="", passer="p", names=names)
            left, _, found, work, _ = self.run(command)
            names += [name.decode() for name in found]
            self.follow(work)
            if not left and not found and not work:
                return
        raise AssertionError("it never ends")

    def follow(self, work: list[bytes]) -> None:
        """As the relay does with what other partitions are to know; here all is in one."""
        for kind, parent, child, _ in zip(*[iter(work)] * 4, strict=True):
            if kind == b"follow":
                results = self.keys.results([parent.decode()])
                self.run(FOLLOW(self.keys, results=results, relations=[parent, child]))
            else:
                assert kind == b"forget"
                self.run(FORGET(self.keys, relations=[parent, child]))
            self.run(PASSED_ON(self.keys, relations=[kind, parent, child, 1]))

    @invariant()
    def numbers_are_right(self) -> None:
        for group, known in self.known.items():
            numbers = known.count("succeeded"), known.count("dead"), known.count("cancelled", "purged")
            expected = [known.state.encode(), known.given, len(known.members), *numbers]
            assert self.run(INSPECT_GROUP(self.keys, group=group)) == expected

    @invariant()
    def callbacks_are_where_they_must_be(self) -> None:
        ledger = read_ledger_now(self.client, "model")
        started = [callback_id(group) for group, known in self.known.items() if known.callback == "started"]
        assert sorted(ledger.ready.get("callbacks", [])) == sorted(started)
        waiting = [callback_id(group) for group, known in self.known.items() if known.callback == "waiting"]
        assert sorted(id_ for id_ in ledger.waiting if "then" in id_) == sorted(waiting)
        dead = [callback_id(group) for group, known in self.known.items() if known.callback == "dead"]
        assert sorted(id_ for id_ in ledger.dead if "then" in id_) == sorted(dead)

    @invariant()
    def groups_are_forgotten_only_if_nothing_can_change(self) -> None:
        settled = {group.decode() for group in self.client.zrange(self.keys.settled, 0, -1)}
        due = {group for group, known in self.known.items() if known.has_ended and not known.count("dead")}
        assert settled == due | {group for group, known in self.known.items() if known.keeps == "dropping"}

    @invariant()
    def results_are_those_of_the_members(self) -> None:
        stored = {name.decode() for name in self.client.hkeys(self.keys.groups) if b"~" in name}
        for group, known in self.known.items():
            answer = self.run(GROUP_RESULTS(self.keys, group=group, first=0, most=1_000))
            ended = {id_ for id_, each in known.members.items() if each.where in ("succeeded", "cancelled", "purged")}
            if known.keeps == "kept":
                expected = [part for each in known.members.values() for part in _result(each)]
                assert [part for part in answer[1:] if not part.startswith(b'{"reason"')] == expected
                assert ended <= stored
                stored -= ended
            else:
                assert answer == [-2 if not known.keeps else -3]
                stored -= ended if known.keeps == "dropping" else set()
        assert not stored


def _result(member: Member) -> list[bytes]:
    names = {"ready": "queued", "held": "running", "dead": "failed", "purged": "cancelled"}
    about = [member.result if member.where == "succeeded" else b""]
    return [names.get(member.where, member.where).encode(), *(about if member.where != "dead" else [])]


TestGroupsModel = GroupsModel.TestCase
TestGroupsModel.settings = settings(max_examples=examples(15), stateful_step_count=40, deadline=None)
