"""The user that the docs print may do everything that is done here, and is told at once if it may not."""

import re
from pathlib import Path

import pytest

from inconcert import Coordinator, Unavailable
from tests.support.servers import RealServer
from tests.support.world import documented_rules

LUA = Path(__file__).parents[2] / "src/inconcert/_lua"

# What is sent outside scripts; what every connection may do is in @connection.
SENT = {
    "eval", "evalsha", "script|load", "publish", "subscribe", "psubscribe", "unsubscribe", "punsubscribe", "blpop",
    "client|setname", "select", "@connection",
}  # fmt: skip

# What is sent on a cluster only.
ON_A_CLUSTER = {"spublish", "shardnumsub"}

# Words in capitals in the scripts that are no commands.
ARGUMENTS = {"count", "gt", "keepttl", "limit", "lt", "match", "numsub", "nx", "px", "withscores", "xx"}


def test_documented_user_has_no_right_that_is_not_used() -> None:
    """Each command is one of a script or of a connection, and each of theirs is there."""
    code = "\n".join(re.sub(r"--[^\n]*", "", path.read_text()) for path in LUA.rglob("*.lua"))
    used = {word.lower() for word in re.findall(r"'([A-Z]{2,})'", code)}
    commands = {rule[1:].replace("pubsub|numsub", "pubsub") for rule in documented_rules() if rule.startswith("+")}

    assert commands - SENT - used == set(), "take these out of the user in docs/how-to/deploy.md"
    used -= ARGUMENTS | ON_A_CLUSTER
    assert (SENT | used) - commands == set(), "add these to the user in docs/how-to/deploy.md"


def as_user(server: RealServer, *rules: str) -> str:
    """The URL of a user who may run all commands, and has these rules."""
    server.command("ACL", "SETUSER", "shop", "reset", "on", ">secret", "+@all", *rules)
    return server.url_of(0).replace("unix://", "unix://shop:secret@")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (["~*", "&*", "-evalsha", "-eval"], "NOPERM.*eval"),
        (["~{other:*", "&*"], "NOPERM.*key"),
        (["~{shop:*", "resetchannels"], "publish.*channel.*deploy.md"),
        (["~{shop:*", "resetchannels", "&shop:0:inbox:*"], "publish.*channel.*deploy.md"),
    ],
)
async def test_user_with_too_few_rights_is_told_when_opening(
    own_server: RealServer, rules: list[str], reason: str
) -> None:
    """Before anything is changed, and with the server's reason."""
    with pytest.raises(Unavailable, match=f"(?is){reason}"):
        async with Coordinator(as_user(own_server, *rules), namespace="shop"):
            pass


async def test_pattern_names_the_rule_that_it_needs(own_server: RealServer) -> None:
    """The server compares a pattern to the rules letter by letter."""
    rules = ["~{shop:*", "resetchannels", "&shop:*"]
    async with Coordinator(as_user(own_server, *rules), namespace="shop") as concert:
        with pytest.raises(Unavailable, match=r"a rule of its own in the user's ACL: &shop:0:signal:deploy\.\*"):
            await concert.signals("deploy.*").subscribe().__aenter__()
        own_server.command("ACL", "SETUSER", "shop", "&shop:0:signal:deploy.*")
        async with concert.signals("deploy.*").subscribe():
            assert await concert.signal("deploy.web").broadcast() == 1


async def test_chat_changes_nothing_for_a_user_who_may_not_publish(own_server: RealServer) -> None:
    """Also when the right is taken away later: a call that is refused leaves the chat as it was."""
    url = as_user(own_server, "~{shop:*", "&shop:*")
    async with Coordinator(url, namespace="shop") as concert:
        chat_id = await concert.chat.create("ann", ["bob"], "hello")
        before = dump(own_server)
        own_server.command("ACL", "SETUSER", "shop", "resetchannels", "&shop:0:inbox:*")
        for refused in (
            concert.chat.create("ann", ["cy"], "hi"),
            concert.chat.send(chat_id, "ann", "more"),
            concert.chat.join(chat_id, "dee"),
            concert.chat.leave(chat_id, "bob"),
        ):
            with pytest.raises(Exception, match=r"(?i)publish|channel|NOPERM"):
                await refused
        assert dump(own_server) == before


def dump(server: RealServer) -> dict[str, object]:
    """All keys with what they hold."""
    return {key: server.command("DEBUG", "DIGEST-VALUE", key) for key in sorted(server.command("KEYS", "*"))}
