"""What errors carry, and that it stays with them."""

import copy
import pickle
from pathlib import Path

import pytest

from inconcert import errors
from inconcert._redis.protocol.keys import Subject, channel_subject, subject
from inconcert._redis.protocol.operations import _VERBS, _VERBS_OF_QUEUES, Operation
from inconcert.errors import InconcertError, OutcomeUnknown, Unavailable, WrongState
from tests.support.errors import ALL, OF_CALLS

LUA = Path(__file__).parents[2] / "src/inconcert/_lua"


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_error_that_is_copied_keeps_its_message_and_attributes(error: InconcertError) -> None:
    """Also through pickle, as between processes, and with its notes."""
    error.add_note("a note")
    for copied in copy.copy(error), pickle.loads(pickle.dumps(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert copied.args == error.args
        assert vars(copied) == vars(error)


def test_every_error_is_copied_here() -> None:
    """One that is new is on the list."""
    listed = {type(error).__name__ for error in ALL}
    assert listed == set(errors.__all__) - {"InconcertError"}


@pytest.mark.parametrize("error", OF_CALLS, ids=lambda error: type(error).__name__)
def test_errors_of_calls_say_what_was_called(error: Unavailable | OutcomeUnknown | WrongState) -> None:
    """All three alike."""
    assert (error.operation, error.kind, error.name) == ("o", "k", "n")


@pytest.mark.parametrize(
    ("keys", "about"),
    [
        (["{shop:lock:item:42}:holders"], ("lock", "item:42")),
        (["{shop:lock:a}:b}:holders"], ("lock", "a}:b")),
        (["{shop:lock:a\n}:holders"], ("lock", "a\n")),
        (["{shop:lock:a}:holders", "{shop:lock:b}:holders"], ("locks", "a, b")),
        (["{shop:queue:q}:claimed:1.12"], ("queue", "q")),
        (["{shop:rate_limiter:l}:line"], ("rate limiter", "l")),
        (["{shop:event:2}:chat:c}:value"], ("event", "2}:chat:c")),
        (["{shop:chats:2}:chat:c}d:e:members", "{shop:chats:2}:heads"], ("chat", "c}d:e")),
        (["{shop:chats:2}:user:ann:chats", "{shop:chats:2}:heads"], ("user", "ann")),
        (["{shop:tasks:0}:dead"], ("tasks", None)),
        (["{shop:tasks:0}:bodies", "{shop:tasks:0}:queue:a:b}", "{shop:tasks:0}:result:1.2"], ("task queue", "a:b}")),
        (["{shop:tasks:0}:bodies", "{shop:tasks:0}:queue:a", "{shop:tasks:0}:queue:b"], ("tasks", None)),
        (["{shop:tasks:0}:bodies", "{shop:tasks:0}:result:1.2"], ("job", "1.2")),
        (["{shop:namespace}:layout"], ("namespace", None)),
        (["{shop:session:12}:bell"], ("coordinator", None)),
        (["server"], ("server", None)),
        ([], ("server", None)),
    ],
)
def test_keys_are_read_back_as_what_they_belong_to(keys: list[str], about: tuple[str, str | None]) -> None:
    """A name may hold any characters."""
    assert subject(keys) == about


@pytest.mark.parametrize(
    ("channel", "about"),
    [
        ("shop:0:event:a:b", ("event", "a:b")),
        ("shop:0:signal:deploy.*", ("signal", "deploy.*")),
        ("shop:0:inbox:12", ("coordinator", None)),
    ],
)
def test_channels_are_read_back_as_what_they_belong_to(channel: str, about: tuple[str, str | None]) -> None:
    """Patterns too."""
    assert channel_subject(channel) == about


def test_operation_is_called_as_the_user_calls_it() -> None:
    """Also where a script is shared, or has another name."""
    assert Operation.of("permits/acquire", ["{s:lock:a}:holders"]) == ("acquire", *Subject("lock", "a"))
    assert Operation.of("barriers/arrive", ["{s:barrier:a}:round"]).verb == "wait"
    assert Operation.of("claims/held", ["{s:queue:a}:bodies"]).verb == "explain"
    assert Operation.of("claims/claim", ["{s:tasks:0}:bodies"]).verb == "claim"


def test_only_scripts_that_exist_have_verbs_of_their_own() -> None:
    """One that is renamed would lose its verb."""
    for name in _VERBS | _VERBS_OF_QUEUES:
        assert (LUA / f"{name}.lua").is_file()


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("lock", "with holders()"), ("locks", "lock(name).holders()"), ("quorum lock", "with holder()")],
)
def test_timeout_names_the_method_that_tells_who_has_it(kind: str, hint: str) -> None:
    """Only one that there is on such an object."""
    assert str(errors.AcquireTimeout(kind, "n", 1.0)).endswith(hint)


def test_claim_that_is_over_is_a_lease_that_is_not_held() -> None:
    """A handler of `NotHeld` catches both, and nobody is told to acquire a job."""
    error = errors.NotClaimed("job", "1.2")
    assert isinstance(error, errors.NotHeld)
    assert (error.kind, error.name) == ("job", "1.2")
    assert "presumed dead" in str(error)
    assert "acquire" not in str(error)
