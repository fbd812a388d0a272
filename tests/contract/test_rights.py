"""The user with the least rights may do everything that is done here, and is told at once if it may not."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inconcert import Coordinator, Unavailable
from inconcert._redis.operate.rights import Server, least_rights
from inconcert.cli.commands import app
from tests.support.servers import RealServer

ROOT = Path(__file__).parents[2]
LUA = ROOT / "src/inconcert/_lua"
PAGE = ROOT / "docs/how-to/deploy.md"

# What is sent outside scripts, or by a script with its second word.
SENT = {
    "eval", "evalsha", "publish", "subscribe", "psubscribe", "unsubscribe", "punsubscribe", "blpop",
    "client|setname", "client|setinfo", "select", "wait", "ping", "pubsub|channels", "pubsub|numsub",
    "asking", "cluster|slots", "ssubscribe", "sunsubscribe", "spublish", "pubsub|shardchannels", "pubsub|shardnumsub",
}  # fmt: skip

# Words in capitals in the scripts that are no commands, or the first or second word of one.
ARGUMENTS = {
    "ch", "channels", "count", "gt", "keepttl", "limit", "lt", "match", "numsub", "nx", "pubsub", "px", "pxat",
    "shardchannels",
    "shardnumsub", "weights", "withscores", "xx",
}  # fmt: skip


def test_rights_are_those_of_what_is_sent() -> None:
    """Each command is one of a script or of a connection, and each of theirs is there."""
    code = "\n".join(re.sub(r"--[^\n]*", "", path.read_text()) for path in LUA.rglob("*.lua"))
    used = {word.lower() for word in re.findall(r"'([A-Z]{2,})'", code)} - ARGUMENTS
    options = {"failover_guard": True, "replicas": True, "inspect": True}
    rights = [
        rule
        for cluster in (False, True)
        for rule in least_rights("shop", server=Server.VALKEY, cluster=cluster, **options)
    ]
    commands = {rule[1:] for rule in rights if rule.startswith("+")}

    assert commands - SENT - used == set(), "take these out of src/inconcert/_redis/operate/rights.py"
    assert (SENT | used) - commands == set(), "add these to src/inconcert/_redis/operate/rights.py"


def test_only_one_server_is_asked_to_block() -> None:
    """Idle consumers on a cluster wait for messages."""
    assert set(least_rights("shop")) - set(least_rights("shop", cluster=True)) == {"+blpop"}


def test_page_shows_the_rights_that_are_printed() -> None:
    """Those for Redis 7, in the order in which `inconcert acl` prints them."""
    [shown] = re.findall(r"^ACL SETUSER shop (?:.*\n)*?(?=```)", PAGE.read_text("utf-8"), re.MULTILINE)

    assert shlex.split(shown) == ["ACL", "SETUSER", "shop", "on", *least_rights("shop")]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--user", "bob", "--cluster", "--failover-guard", "--replicas"],
        ["--server", "valkey-9.1", "--database", "0"],
    ],
)
def test_command_prints_what_the_server_takes(options: list[str]) -> None:
    """One line, with what a shell would change in quotes; the environment may name the namespace."""
    printed = CliRunner().invoke(app, ["acl", *options], env={"INCONCERT_NAMESPACE": "a*"})

    [line] = printed.stdout.splitlines()
    assert printed.exit_code == 0
    assert "'~{a\\*:*' resetchannels '&a\\*:*'" in line
    with RealServer("valkey") as server:
        assert server.command(*shlex.split(line)) == "OK"
        assert ("bob" if "bob" in options else "a*") in server.command("ACL", "USERS")


def test_command_refuses_what_the_server_cannot_check() -> None:
    """With the exit code of wrong options."""
    printed = CliRunner().invoke(app, ["acl", "--cluster", "--server", "redis-6.2"])

    assert printed.exit_code == 2
    assert "Redis 7.0" in printed.stderr


@pytest.mark.parametrize(("namespace", "other"), [("shop", "shop2"), ("a*", "ab"), ("a[b]?\\", "abc")])
async def test_user_of_a_namespace_has_no_other(own_server: RealServer, namespace: str, other: str) -> None:
    """Characters that mean something in a glob are escaped."""
    own_server.command("ACL", "SETUSER", "shop", "on", ">secret", *least_rights(namespace, server=own_server.version))
    url = own_server.url_of(0).replace("unix://", "unix://shop:secret@")
    async with Coordinator(url, namespace=namespace) as concert:
        await concert.lock("a").try_acquire()
    with pytest.raises(Unavailable, match=r"(?i)key|publish"):
        async with Coordinator(url, namespace=other):
            pass


def test_server_without_such_rules_is_refused() -> None:
    """A cluster needs sharded channels, and only one server has rules for databases."""
    with pytest.raises(ValueError, match=r"Redis 7\.0"):
        least_rights("shop", server=Server.REDIS_6_2, cluster=True)
    with pytest.raises(ValueError, match=r"Valkey 9\.1"):
        least_rights("shop", server=Server.VALKEY, database=0)


async def test_user_of_a_database_selects_no_other() -> None:
    """Valkey 9.1 has rules for databases."""
    rules = least_rights("shop", server=Server.VALKEY_9_1, database=0)
    with RealServer("valkey") as server:
        server.command("ACL", "SETUSER", "shop", "on", ">secret", *rules)
        url = server.url_of(0).replace("unix://", "unix://shop:secret@")
        async with Coordinator(url, namespace="shop") as concert:
            await concert.lock("a").try_acquire()
        with pytest.raises(Unavailable, match="database"):
            await Coordinator(f"{url}?db=1", namespace="shop").__aenter__()


def as_user(server: RealServer, *rules: str) -> str:
    """The URL of a user who may run all commands, and has these rules."""
    server.command("ACL", "SETUSER", "shop", "reset", "on", ">secret", "+@all", "resetchannels", *rules)
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
