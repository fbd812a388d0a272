"""The envelope of a job, as it is stored: data only, never code."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inconcert._rules.defaults import MAX_ATTEMPTS, MAX_CRASHES, PRIORITY, RESULT_TTL
from inconcert._rules.payloads import encode
from inconcert._rules.signing import KeyRing
from inconcert.errors import InvalidPayload, UnreadablePayload

JOB = "job"  # the kind as which an envelope is signed

_VERSION = 1


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of an envelope that differs between the jobs of a task."""

    name: str  # which task
    args: Sequence[Any] = ()  # JSON; msgspec cannot check a recursive type, and need not
    kwargs: Mapping[str, Any] = {}  # its keyword arguments
    # what limits it, `/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT.../eEXPIRES_MS`, or of a key in strict order
    # `/o:KEY` or `/g:KEY`; empty for nothing. See `limits.py`
    limits: str = ""
    # the instant of the schedule that enqueued it, or that was given `at=`, in seconds since 1970; None for no
    # instant
    scheduled_at: float | None = None


class Envelope(Call, frozen=True, omit_defaults=True):
    """One call of a task and its terms, as JSON."""

    priority: int = PRIORITY  # before which jobs of its queue it comes, 0 to 9
    max_attempts: int = MAX_ATTEMPTS  # how many attempts may fail before the job is dead-lettered
    max_crashes: int = MAX_CRASHES  # how many workers may die with it before it is dead-lettered
    result_ttl: float = RESULT_TTL  # how long its result is kept, in seconds
    expires: float | None = None  # seconds after which it is no longer started; None for never
    stops: bool = False  # whether an attempt that runs when it expires is stopped, as the last one
    time_limit: float | None = None  # seconds after which an attempt is stopped; None for never
    unique: str = ""  # the name that no two live jobs may have, until it is done or started; None for no name
    unique_until_started: bool = False  # whether it gives up that name when it starts
    after: tuple[str, ...] = ()  # the ids of the jobs that it runs after
    even_if: str = ""  # further ways in which these may have ended; empty if each must have succeeded
    delay: float = 0.0  # seconds from when it was enqueued until it was to run
    headers: Mapping[str, str] = {}  # small strings that travel with it
    debounced: bool = False  # whether a later call with its unique name replaces it while it waits
    history: int = 0  # how many of the last ends of its task are kept, if its own is to be among them; 0 otherwise
    history_arguments: bool = False  # whether its end is kept there with its arguments
    # the task of which a job says so if it is dead-lettered, and the queue of that; empty for none
    on_dead: tuple[str, ...] = ()
    # the names of options that its caller gave as they are by default, so that its task's do not count
    given: tuple[str, ...] = ()
    trace: str = ""  # the trace context in which it was enqueued, as a W3C `traceparent`; empty for none
    version: int = _VERSION  # the version of this format, so that old and new releases can share a server


_decode = msgspec.json.Decoder(Envelope).decode
_PLAIN = Envelope("")


def terms_of(envelope: Envelope) -> bytes:
    """The part after the call in the stored form of an envelope: the same for all jobs with the same options.

    Args:
        envelope: Without a call: its name is empty.
    """
    said = {name: getattr(envelope, name) for name in envelope.__struct_fields__}
    said = {name: value for name, value in said.items() if value != getattr(_PLAIN, name)}  # equal, not the same object
    return msgspec.json.encode({"name": ""} | said).removeprefix(b'{"name":""')


def seal(call: Call, terms: bytes = b"}") -> bytes:
    """The stored form of an envelope; or of a call on these terms.

    Raises:
        InvalidPayload: An argument is not JSON, or all together are too large.
    """
    what = f"job of task {call.name!r}"
    if not isinstance(call.args, list | tuple) or not isinstance(call.kwargs, dict):
        raise InvalidPayload(f"{what}: give args as a list or tuple, and kwargs as a dict")
    # Users' values are checked: msgspec would convert bytes, sets, dates and dataclasses to JSON.
    text = encode(what, [call.args, call.kwargs], inside=call)
    return text[:-1] + terms


def marks_of(
    max_crashes: int, limits: str = "", *, history: str = "", priority: int = PRIORITY, debounced: bool = False
) -> bytes:
    """The part of a job that scripts read, before its envelope; `history` is a `history_note`. Empty for nothing."""
    rank = "" if priority == PRIORITY else f"!{priority}"
    note = f"#{history}{rank}{'~' if debounced else ''} " if history or rank or debounced else ""
    return f"{max_crashes}{limits} {note}".encode() if note or limits or max_crashes != MAX_CRASHES else b""


def with_trace(text: bytes, trace: str) -> bytes:
    """A sealed envelope that is enqueued in this trace context."""
    return b'%s,"trace":"%s"}' % (text[:-1], trace.encode())


def open_envelope(text: bytes) -> Envelope:
    """Read a stored envelope; raises `UnreadablePayload` if it is not an envelope, or is of a later release."""
    try:
        envelope = _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadablePayload(f"the envelope of a job cannot be read: {error}") from error
    if envelope.version > _VERSION:
        raise UnreadablePayload(f"the envelope has version {envelope.version}, and this release reads up to {_VERSION}")
    return envelope


def verify_envelope(key_ring: KeyRing, job_id: str, text: bytes) -> Envelope:
    """Read the envelope of a job; of one that tells of a death it is made here.

    Raises:
        UnreadablePayload: See `open_envelope`; or it has no valid signature.
    """
    if not text.startswith(b"dead "):
        return open_envelope(key_ring.verify(JOB, job_id, text))
    from inconcert.tasks.records.deaths import Death  # noqa: PLC0415 - few jobs are such

    death = Death.read(job_id, text)
    dead = open_envelope(key_ring.verify(JOB, death.id, death.text))
    if not dead.on_dead:
        raise UnreadablePayload(f"job {job_id} tells of a death that no task of job {death.id} is to know of")
    argument = death.told(dead.name, dead.args, dead.kwargs)
    return Envelope(dead.on_dead[0], (argument,), headers=dead.headers, given=("queue",), trace=dead.trace)


def read_envelope(key_ring: KeyRing, job_id: str, text: bytes) -> Envelope:
    """The envelope of a job; one without arguments, of the task `?`, if it cannot be read."""
    try:
        return verify_envelope(key_ring, job_id, text)
    except InvalidPayload:
        return Envelope("?")
