"""The answer to an HTTP client when a primitive raises: a problem in JSON, without our names and addresses.

Source: https://www.rfc-editor.org/rfc/rfc9457
"""

import logging
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil

import msgspec

from inconcert.errors import (
    AcquireTimeout,
    ChatNotFound,
    GroupNotFound,
    InconcertError,
    InvalidName,
    InvalidPayload,
    ItemNotFound,
    JobNotFound,
    LeaseLost,
    NotAMember,
    NotConnected,
    OutcomeUnknown,
    QueueFull,
    QueueShutDown,
    RateLimited,
    StaleToken,
    Unavailable,
    UnreadablePayload,
)

_log = logging.getLogger("inconcert.integrations")

_SOON = 1.0  # seconds after which a client may try again, where nobody knows better

_BUSY = HTTPStatus.LOCKED, "others use what this request needs; try again"
_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE, "the service cannot do this now; nothing was done, try again"
_NOT_FOUND = HTTPStatus.NOT_FOUND, "it does not exist, or is no longer kept"
_NOT_SET_UP = HTTPStatus.INTERNAL_SERVER_ERROR, "the service is not set up for this; report it"
_INVALID = HTTPStatus.UNPROCESSABLE_ENTITY, ""  # the message says what is wrong with what the client has sent

_ANSWERS: dict[type[InconcertError], tuple[HTTPStatus, str]] = {
    AcquireTimeout: _BUSY,
    RateLimited: (HTTPStatus.TOO_MANY_REQUESTS, "there were too many requests; try again later"),
    QueueFull: (HTTPStatus.SERVICE_UNAVAILABLE, "there is no room for more; try again later"),
    QueueShutDown: _UNAVAILABLE,
    Unavailable: _UNAVAILABLE,
    NotConnected: _UNAVAILABLE,
    OutcomeUnknown: (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "it may have been done or not; see what was done before you try again",
    ),
    LeaseLost: (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the request was stopped half-way; see what was done before you try again",
    ),
    StaleToken: _UNAVAILABLE,
    JobNotFound: _NOT_FOUND,
    GroupNotFound: _NOT_FOUND,
    ChatNotFound: _NOT_FOUND,
    ItemNotFound: _NOT_FOUND,
    NotAMember: (HTTPStatus.FORBIDDEN, "only members may do that"),
    InvalidName: _INVALID,
    InvalidPayload: _INVALID,
    UnreadablePayload: (HTTPStatus.INTERNAL_SERVER_ERROR, "what is stored here cannot be read; report it"),
}
_WITH_RETRY_AFTER = {HTTPStatus.LOCKED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}

ANSWERED = tuple(_ANSWERS)
"""The errors that are answers; every other one is a fault of the program, and the framework's to answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer to an HTTP request."""

    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case, and values
    body: bytes


def problem(status: int, detail: str, *, error: str | None = None, retry_after: float | None = None) -> Answer:
    """An answer of type application/problem+json; `error` is its name for programs."""
    fields: dict[str, str | int] = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    if error is not None:
        fields["error"] = error
    body = msgspec.json.encode(fields)
    headers = [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    if retry_after is not None:
        headers.append(("retry-after", str(max(1, ceil(retry_after)))))
    return Answer(status, tuple(headers), body)


def answer_to(error: InconcertError) -> Answer | None:
    """The answer to a request whose handler raised this error; None if it is not in `ANSWERED`."""
    found = next((_ANSWERS[base] for base in type(error).__mro__ if base in _ANSWERS), None)
    if found is None:
        return None
    retry_after = _SOON
    if isinstance(error, RateLimited):
        retry_after = error.retry_after
    elif isinstance(error, AcquireTimeout) and error.__cause__ is not None:  # the server did not answer
        found = _UNAVAILABLE
    elif isinstance(error, NotConnected) and error.is_misuse:
        found = _NOT_SET_UP
    status, detail = found
    return problem(
        status,
        detail or str(error),
        error=type(error).__name__,
        retry_after=retry_after if status in _WITH_RETRY_AFTER else None,
    )


def close_code(answer: Answer) -> int:
    """With what a WebSocket is closed in place of this answer: come back later, a fault here, or a refusal."""
    if answer.status in _WITH_RETRY_AFTER:
        return 1013
    return 1011 if answer.status >= 500 else 1008


def answer_request(error: InconcertError, method: str, path: str) -> Answer | None:
    """As `answer_to`; what the client is not told of a 5xx is logged."""
    answer = answer_to(error)
    if answer is not None and answer.status >= 500:
        _log.warning("%s %s is answered with %d: %s", method, path, answer.status, error)
    return answer
