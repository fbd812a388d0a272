"""What is stored of a job: data only, never code."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inconcert._rules.payloads import JSON, encode
from inconcert.errors import InvalidPayload

__all__ = ["DEFAULT_QUEUE", "MAX_ATTEMPTS", "Envelope", "open_envelope", "seal"]

DEFAULT_QUEUE = "default"
MAX_ATTEMPTS = 5
_VERSION = 1


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of a task, as JSON.

    Attributes:
        name: Which task.
        args: Its positional arguments.
        kwargs: Its named arguments.
        max_attempts: How many attempts may fail before the job is set aside.
        version: Of this format, so that old and new releases can share a server.
    """

    name: str
    args: Sequence[Any] = ()  # JSON; msgspec cannot check a type that refers to itself, and need not
    kwargs: Mapping[str, Any] = {}
    max_attempts: int = MAX_ATTEMPTS
    version: int = _VERSION


def seal(envelope: Envelope) -> bytes:
    """The envelope as it is stored.

    Raises:
        InvalidPayload: An argument is not JSON, or all together are too large.
    """
    what = f"job of task {envelope.name!r}"
    # As they are: msgspec would turn bytes, sets, dates and dataclasses into something that JSON has.
    fields: dict[str, JSON] = {"name": envelope.name}
    if not isinstance(envelope.args, list | tuple) or not isinstance(envelope.kwargs, dict):
        raise InvalidPayload(f"{what}: give args as a list or tuple, and kwargs as a dict")
    if envelope.args:
        fields["args"] = envelope.args
    if envelope.kwargs:
        fields["kwargs"] = envelope.kwargs
    if envelope.max_attempts != MAX_ATTEMPTS:
        fields["max_attempts"] = envelope.max_attempts
    return encode(what, fields)


def open_envelope(text: bytes) -> Envelope:
    """Read what was stored.

    Raises:
        InvalidPayload: It is no envelope, or one of a later release.
    """
    try:
        envelope = msgspec.json.decode(text, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"the envelope of a job cannot be read: {error}") from error
    if envelope.version > _VERSION:
        raise InvalidPayload(f"the envelope has version {envelope.version}, and this release reads up to {_VERSION}")
    return envelope
