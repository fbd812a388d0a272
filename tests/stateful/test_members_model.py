"""The scripts of a group against dictionaries: whoever joins, leaves, dies or is late, each key has one owner."""

from typing import Any

from fakeredis import FakeRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command
from inconcert.members.group import MemberKeys
from tests.support.scripts import command_of
from tests.support.world import examples

KEYS = [f"key.{number}" for number in range(5)]
TTL_MS = 3_600_000

picks = st.integers(0, 1000)
some_keys = st.lists(st.sampled_from(KEYS), unique=True, max_size=4)


class MembersModel(RuleBasedStateMachine):
    """Any number of members, and five keys."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = FakeRedis()
        self.keys = Keyspace("model").of(MemberKeys, "members", "it")
        self.turns: dict[str, int] = {}  # of each live member, the last one
        self.owners: dict[str, str] = {}
        self.tokens: dict[str, int] = {}  # of each key, the last one, whoever had it
        self.late: list[tuple[str, Command]] = []  # claims whose second sending may still come
        self.joined = 0

    def teardown(self) -> None:
        self.client.close()

    def run(self, command: Command) -> Any:
        return self.client.eval(command.script.source, len(command.keys), *command.keys, *command.args)

    def command(self, name: str, **named: Any) -> Command:
        return command_of(f"members/{name}", self.keys, **named, changes="changes")

    # Rules.

    @initialize()
    def begin_with_one(self) -> None:
        self.join()

    @rule()
    def join(self) -> None:
        self.joined += 1
        member = f"member.{self.joined}"
        command = self.command("join", member=member, value="1", ttl_ms=TTL_MS)
        assert self.run(command) == self.run(command)
        self.turns[member] = 0

    @precondition(lambda self: self.turns)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        member = self.any_member(pick)
        for expected in (1, 0):
            assert self.run(self.command("leave", member=member)) == expected
        self.gone(member)

    @precondition(lambda self: self.turns)
    @rule(pick=picks)
    def lapse(self, pick: int) -> None:
        """Its process died, and the next script notices."""
        member = self.any_member(pick)
        self.client.zadd(self.keys.members, {member: 1}, xx=True)
        self.gone(member)

    @precondition(lambda self: self.turns)
    @rule(pick=picks, let_go=some_keys, claim=some_keys)
    def take_a_turn(self, pick: int, let_go: list[str], claim: list[str]) -> None:
        """Let go of some, and claim others: all that nobody has, with larger tokens than ever."""
        member = self.any_member(pick)
        let_go = [key for key in let_go if key not in claim]
        self.turns[member] += 1
        command = self.command(
            "share", member=member, turn=self.turns[member], ttl_ms=TTL_MS, let_go=len(let_go), keys=[*let_go, *claim]
        )
        is_member, *tokens = self.run(command)
        assert is_member == 1
        for key in let_go:
            if self.owners.get(key) == member:
                del self.owners[key]
        for key, token in zip(claim, tokens, strict=True):
            was = self.owners.setdefault(key, member)
            assert bool(token) == (was == member)
            if token and self.tokens.get(key) != token:
                assert token > self.tokens.get(key, 0)
                self.tokens[key] = token
        again = self.run(command)
        assert again == [is_member, *tokens]
        self.late.append((member, command))

    @precondition(lambda self: self.late)
    @rule(pick=picks)
    def come_late(self, pick: int) -> None:
        """A turn comes once more, after later ones, or after its member has gone: it changes nothing."""
        member, command = self.late.pop(pick % len(self.late))
        turn = int(command.args[1])
        answer = self.run(command)
        if member not in self.turns:
            assert answer == [0]
        elif turn < self.turns[member]:
            assert answer == [1]
        else:
            self.late.append((member, command))  # the last one is in force
            self.claimed_again(member, command)

    # What holds after each step.

    @invariant()
    def each_key_has_the_owner_of_the_model(self) -> None:
        claims = {
            key.decode(): owner.decode().partition(" ")[2]
            for key, owner in self.client.hgetall(self.keys.claims).items()
        }
        live = {key: owner for key, owner in claims.items() if owner in self.turns}
        assert live == self.owners

    # Private.

    def any_member(self, pick: int) -> str:
        return list(self.turns)[pick % len(self.turns)]

    def gone(self, member: str) -> None:
        """It is no member any more, and has no keys."""
        del self.turns[member]
        self.owners = {key: owner for key, owner in self.owners.items() if owner != member}

    def claimed_again(self, member: str, command: Command) -> None:
        """The last turn of a member, once more: it claims what others have let go of since."""
        let_go = int(command.args[4])
        for key in command.args[5 + let_go :]:
            owner = self.owners.setdefault(str(key), member)
            if owner == member:
                token = int(self.client.hget(self.keys.claims, key).split()[0])
                assert token >= self.tokens.get(str(key), 0)
                self.tokens[str(key)] = token


TestMembersModel = MembersModel.TestCase
TestMembersModel.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
