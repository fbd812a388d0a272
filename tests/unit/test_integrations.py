"""What web frameworks have in common: answers to errors, names from a request, event streams."""

import json
from collections.abc import Mapping

import pytest

from inconcert import (
    AcquireTimeout,
    BarrierBroken,
    ChatNotFound,
    GroupNotFound,
    InconcertError,
    InvalidName,
    InvalidPayload,
    ItemNotFound,
    JobFailed,
    JobNotFound,
    LeaseLost,
    NotAMember,
    NotConnected,
    OutcomeUnknown,
    QueueFull,
    QueueShutDown,
    QuorumNotReached,
    RateLimited,
    StaleToken,
    Unavailable,
    UnreadablePayload,
    errors,
)
from inconcert.integrations._answers import answer_to
from inconcert.integrations._names import NameTemplate, RequestValues
from inconcert.integrations._sse import _positions, encode_event


def when_away() -> AcquireTimeout:
    """A wait in vain for a server that did not answer."""
    error = AcquireTimeout("lock", "a", 2.0, why="no reply")
    error.__cause__ = OutcomeUnknown("no reply")
    return error


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (AcquireTimeout("lock", "secret", 2.0), 423, "1"),
        (when_away(), 503, "1"),
        (RateLimited("secret", 0.0, retry_after=2.3), 429, "3"),
        (RateLimited("secret", 0.0, retry_after=0.0), 429, "1"),
        (QueueFull("secret", 5), 503, "1"),
        (QueueShutDown("secret"), 503, "1"),
        (Unavailable("secret"), 503, "1"),
        (OutcomeUnknown("secret"), 503, "1"),
        (QuorumNotReached("secret", {"secret": "off"}, 3), 503, "1"),
        (NotConnected("secret"), 503, "1"),
        (NotConnected("secret", is_misuse=True), 500, None),
        (LeaseLost("lock", "secret"), 503, "1"),
        (StaleToken("secret", 7), 503, "1"),
        (JobNotFound("secret"), 404, None),
        (GroupNotFound("secret"), 404, None),
        (ChatNotFound("secret"), 404, None),
        (ItemNotFound("secret", "1"), 404, None),
        (NotAMember("secret", "ann"), 403, None),
        (InvalidName("empty"), 422, None),
        (InvalidPayload("too deep"), 422, None),
        (UnreadablePayload("the result of job secret does not fit int"), 500, None),
    ],
)
def test_error_is_answered(error: InconcertError, status: int, retry_after: str | None) -> None:
    """With its status and its name, when to come back, and nothing that only we know."""
    answer = answer_to(error)

    assert answer is not None
    headers = dict(answer.headers)
    body = json.loads(answer.body)
    assert (answer.status, body["status"], headers.get("retry-after")) == (status, status, retry_after)
    assert headers["content-type"] == "application/problem+json"
    assert headers["content-length"] == str(len(answer.body))
    assert body["error"] == type(error).__name__
    assert "secret" not in answer.body.decode()
    if status == 422:
        assert body["detail"] == str(error)


def test_what_does_not_exist_is_answered_with_404() -> None:
    """Each kind that can be asked for, also one that is new."""
    not_found = {getattr(errors, name) for name in errors.__all__ if name.endswith("NotFound")}
    found = {error: answer_to(error.__new__(error)) for error in not_found}
    assert {error: answer and answer.status for error, answer in found.items()} == dict.fromkeys(not_found, 404)


@pytest.mark.parametrize("error", [JobFailed("1", "boom", "", 1), BarrierBroken("a", None)])
def test_fault_of_the_program_is_not_answered(error: InconcertError) -> None:
    """It is the framework's to answer, with 500."""
    assert answer_to(error) is None


def values(path: Mapping[str, object]) -> RequestValues:
    """A request with these path parameters."""
    return RequestValues(path, {"page": "2"}, {"x-tenant": "acme"}, "10.0.0.1")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("plain", "plain"),
        ("order:{order_id}", "order:5"),
        ("{header.X-Tenant}:{query.page}:{client}", "acme:2:10.0.0.1"),
        ("{{{order_id}}}", "{5}"),
    ],
)
def test_name_is_filled_from_the_request(template: str, name: str) -> None:
    """Each field from where it says."""
    assert NameTemplate(template).fill(values({"order_id": 5, "client": "no"})) == name


def test_field_takes_nothing_from_elsewhere() -> None:
    """What a client sends as a header or in the query never stands for a path parameter, or for the other."""
    for template in "{query.x-tenant}", "{header.page}":
        with pytest.raises(InvalidName, match="send it"):
            NameTemplate(template).fill(values({}))
    with pytest.raises(LookupError, match="needs the path parameter 'page', and the route has only \\['id'\\]"):
        NameTemplate("{page}").fill(values({"id": 1}))


@pytest.mark.parametrize("template", ["{}", "{0}", "{a.b}", "{query.}", "{a[0]}", "{a!r}", "{a:>5}", "{", "}"])
def test_template_is_checked_when_it_is_made(template: str) -> None:
    """Not only when a request comes."""
    with pytest.raises(ValueError, match=r"has a field|brace|Single|expected"):
        NameTemplate(template)


def test_event_is_one_event_whatever_is_in_it() -> None:
    """A newline in a message does not end it."""
    assert encode_event({"text": "a\n\nid: 9"}, id_="c:1") == b'id: c:1\ndata: {"text":"a\\n\\nid: 9"}\n\n'


@pytest.mark.parametrize(
    ("sent", "positions"),
    [("", {}), ("a:1 b:22", {"a": 1, "b": 22}), ("a:0 b:-1 :3 c d:x e:1e9 f:5", {"f": 5}), ("a:" + "9" * 40, {})],
)
def test_last_event_id_is_read_with_care(sent: str, positions: dict[str, int]) -> None:
    """Anybody may send anything."""
    assert _positions(sent) == positions
    assert len(_positions(" ".join(f"c{number}:1" for number in range(1, 500)))) == 100
