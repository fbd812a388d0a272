"""Scripts are put together from their includes, and called by the names in their headers."""

from typing import Any, NamedTuple

import pytest

from inconcert._redis.protocol import scripts as scripts_module
from inconcert._redis.protocol.commands import Argument, pack, pack_parts
from inconcert._redis.protocol.keys import Keyspace
from inconcert._redis.protocol.scripts import Command, Script, assemble, load
from tests.support.lua_files import FORMS

TAKE = Script(
    "things/take",
    """\
-- things/take: take some.
--
-- KEYS  holders bell
-- ARGV  holder  string
-- ARGV  limit   number > 0
""",
)
TAKE_MANY = Script(
    "things/take_many",
    """\
-- things/take_many: take from several.
--
-- KEYS  holders bells..
-- ARGV  holder   string
-- ARGV  names..  of each queue
""",
)


class Holders(NamedTuple):
    """A bundle with one of the keys."""

    holders: str
    waiters: str


class Queue:
    """A bundle with the other, and with a method that has the name of a key."""

    bell: str = "bell of q"

    def holders(self) -> int:
        """Not a key."""
        return 0


HOLDERS = Holders("holders of l", "waiters of l")


class Lazy(type):
    """Makes annotations when they are asked for, as Python does from 3.14 on: no class has them in its dictionary."""

    def __getattribute__(cls, name: str) -> Any:
        """Those of a queue."""
        return {"bell": str} if name == "__annotations__" else super().__getattribute__(name)


class LazyQueue(metaclass=Lazy):
    """The bundle of a queue there."""

    bell = "bell of q"


def test_keys_come_from_bundles_and_arguments_from_keywords() -> None:
    """In the order of the header, however they are given."""
    command = TAKE.bind(Queue, Holders)(Queue(), HOLDERS, limit=3, holder="s.1")

    assert command == Command(TAKE, ("holders of l", "bell of q"), ("s.1", 3))
    assert TAKE.bind(LazyQueue, Holders)(LazyQueue(), HOLDERS, limit=3, holder="s.1") == command
    taken = TAKE.bind(Holders)(HOLDERS, bell="b", holder="s.1", limit=3)
    assert taken == Command(TAKE, ("holders of l", "b"), ("s.1", 3))


def test_what_has_any_length_is_given_flat() -> None:
    """Keys and arguments alike, none included."""
    take_many = TAKE_MANY.bind(Holders)
    command = take_many(HOLDERS, bells=["a", "b"], holder="s.1", names=(name for name in "ab"))

    assert command == Command(TAKE_MANY, ("holders of l", "a", "b"), ("s.1", "a", "b"))
    assert take_many(HOLDERS, bells=(), holder="s.1", names=()).keys == ("holders of l",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"holder": "s.1"}, "missing .* 'limit'"),
        ({"holder": "s.1", "limits": 3}, "unexpected keyword argument 'limits'"),
        ({"holder": "s.1", "limit": 3, "bell": "another"}, "unexpected keyword argument 'bell'"),
    ],
)
def test_wrong_argument_is_told(given: dict[str, object], message: str) -> None:
    """One that is missing, misspelt or not of this script; and a key that a bundle has."""
    with pytest.raises(TypeError, match=message):
        TAKE.bind(Holders, Queue)(HOLDERS, Queue(), **given)


def test_missing_key_is_told() -> None:
    """By its name in the header: a method of that name is not a key."""
    with pytest.raises(TypeError, match=r"missing .* 'holders'"):
        TAKE.bind(Queue)(Queue(), holder="s.1", limit=3)


def test_comment_does_not_make_another_script() -> None:
    """Of any place: the server would keep both. The names in the header are known all the same."""
    plain, commented = "local a = 'a'\nreturn a\n", "local a = 'a'  -- why\n\n  -- why\nreturn a\n"
    script = Script("things/take", f"-- things/take: take some.\n--\n-- KEYS  bell\n{commented}")

    assert script.source == plain
    assert script.sha == Script("things/take", plain).sha != Script("things/take", "local a = 'b'\nreturn a\n").sha
    assert script.bind(Queue)(Queue()) == Command(script, ("bell of q",), ())


def test_every_script_of_the_package_has_its_includes() -> None:
    """None is missing, none is there twice, and they go in no circle."""
    assert len(FORMS) > 100
    for name in FORMS:
        source = load(name).source
        functions = [line.split("(")[0] for line in source.splitlines() if line.startswith("local function ")]

        assert "@include" not in source
        assert len(set(functions)) == len(functions)


def test_include_brings_its_own_includes_once_and_first() -> None:
    """A function stands before the first that calls it, whichever file asked for it."""
    files = {
        "things/take": "-- @include ring\n-- @include serve\nserve() ring()",
        "include/serve": "-- @include ring\nlocal function serve() ring() end\n",
        "include/ring": "local function ring() end\n",
    }
    swapped = files | {"things/take": "-- @include serve\n-- @include ring\nserve() ring()"}
    for text in (assemble("things/take", files.__getitem__), assemble("things/take", swapped.__getitem__)):
        assert text.count("local function ring") == 1
        assert text.index("local function ring") < text.index("local function serve") < text.index("serve() ring()\n")


def test_what_the_code_uses_is_a_local_of_its_name() -> None:
    """A number or a flag where the header says so; of those of any length where they begin; nothing that is unused."""
    text = "-- KEYS  holders bell others..\n-- ARGV  limit  number\n-- ARGV  waits  flag\n-- ARGV  names..  text\n"
    code = "f(holders, limit, waits, KEYS[OTHERS], 'bell', keys.bell)  -- names\n"
    serve = "local function serve(keys) keys.holders() end"
    files = {"things/take": f"{text}-- @include serve\n{code}", "include/serve": serve}
    table = "{bell = KEYS[2], holders = KEYS[1]}"

    assert assemble("things/take", files.__getitem__).splitlines()[-2:] == [
        f"local holders, OTHERS, limit, waits, keys = KEYS[1], 3, tonumber(ARGV[1]), ARGV[2] == '1', {table}",
        code.rstrip(),
    ]


def test_guard_is_a_command_on_that_type() -> None:
    """Also right below the header, and of what is in a table."""
    text = "-- KEYS  queue delayed\n-- @guard queue:list keys.delayed:zset\n"

    assert assemble("things/take", {"things/take": text}.__getitem__).splitlines()[1:] == [
        "local queue, keys = KEYS[1], {delayed = KEYS[2]}",
        "redis.call('LLEN', queue) redis.call('ZCARD', keys.delayed)",
    ]


def test_guard_of_an_include_is_a_command_too() -> None:
    """It stops the script that includes it."""
    files = {
        "things/take": "-- KEYS  queue\n-- @include look\nlook({queue = queue})\n",
        "include/look": "local function look(keys)\n  -- @guard keys.queue:list\nend\n",
    }

    assert "  redis.call('LLEN', keys.queue)" in assemble("things/take", files.__getitem__).splitlines()


def test_circle_of_includes_is_refused() -> None:
    """With the way around it."""
    files = {
        "things/take": "-- @include ring",
        "include/ring": "-- @include serve",
        "include/serve": "-- @include ring",
    }

    with pytest.raises(ValueError, match="things/take includes include/ring includes include/serve includes"):
        assemble("things/take", files.__getitem__)


def test_missing_script_fails_when_it_is_loaded() -> None:
    """That is at import: scripts are loaded at the head of modules."""
    with pytest.raises(FileNotFoundError, match=r"nothing\.lua"):
        load("permits/nothing")


def test_script_is_put_together_when_it_is_needed_first() -> None:
    """To bind its names takes its header alone: what a process never calls costs it no includes."""
    script = Script("things/take", "-- ARGV  limit  integer\n-- @include nothing\n")

    assert script.bind()(limit=3).args == (3,)
    with pytest.raises(FileNotFoundError, match=r"nothing\.lua"):
        script.source  # noqa: B018 - reading it puts it together


def test_bundle_is_filled_by_the_names_of_its_fields() -> None:
    """Under the tag of the object; also from one of its keys."""
    keys = Keyspace("shop").of(Holders, "lock", "door")

    assert keys == Holders("{shop:lock:door}:holders", "{shop:lock:door}:waiters")
    assert Keyspace.beside(Holders, keys.waiters) == keys


def test_keys_are_packed_for_later_when_they_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come once are packed with the rest of their command; its bytes are the same each time."""
    packed = list[object]()

    def counted(parts: tuple[Argument, ...]) -> bytes:
        packed.append(parts)
        return pack_parts(parts)

    monkeypatch.setattr(scripts_module, "pack_parts", counted)
    monkeypatch.setattr(scripts_module, "pack", lambda *parts: counted(parts))
    keys = Keyspace("test", 0).of(Holders, "lock", "which no other test has")
    whole = pack("EVALSHA", TAKE.sha, 2, keys.holders, "bell", "me", 3)
    counts = list[int]()
    for _ in range(4):
        packed.clear()
        assert TAKE.bind(Holders)(keys, bell="bell", holder="me", limit=3).pack() == whole
        counts.append(len(packed))
    assert counts == [1, 2, 1, 1]
