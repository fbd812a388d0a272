"""Requests that a client may repeat: the handler runs once, and a repeated request gets the stored answer.

A lock covers the handler until it has answered, and the answer is kept before the lock is released.  So the caller
that holds the lock and finds no answer runs the handler, and no other does.  If its process dies, the lock lapses, and
the next repetition runs the handler again: its work up to then is done twice, unless the handler itself guards
against that.  What happens after the answer, such as a background task, is outside of the lock: the answer does not
wait for it, and its failure changes nothing.

Source: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from inconcert._core.lease import Lease
from inconcert._core.session import Session, SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._rules import durations
from inconcert._rules.durations import Seconds, milliseconds
from inconcert.coordinator import Coordinator, session_ref_of
from inconcert.errors import AcquireTimeout, InconcertError
from inconcert.integrations._answers import Answer, problem
from inconcert.integrations._holding import RATE_NAMES

_log = logging.getLogger("inconcert.integrations")

ANSWER_TTL = 86_400.0  # seconds; a day
LARGEST_BODY = 2**20  # bytes of a request
LARGEST_ANSWER = 2**19  # bytes; a client gets a larger one, and a repetition of it 409
METHODS = frozenset({"POST", "PATCH", "PUT", "DELETE"})

_LOCK_TTL = 30.0  # seconds; how long a process that died half-way holds up its request
_LONGEST_KEY = 255  # characters
_KEY_AGAIN = 1.0  # seconds after which a client may ask again whether the first request has ended
_TRANSIENT = frozenset({408, 409, 423, 425, 429, 499})  # and 5xx: "try again" is not an answer to keep


class _Keys(NamedTuple):
    answer: str  # string: what is kept; ttl_ms


_FIND = load("idempotency/find").bind(_Keys)
_KEEP = load("idempotency/keep").bind(_Keys)


class _Record(msgspec.Struct):
    """A stored answer, or the note that there was one which is not kept."""

    body_digest: str
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """The request that a key is bound to."""

    key: str  # the `Idempotency-Key` of the client
    method: str  # such as POST
    path: str  # with its query
    user: str  # who asks; another user with the same key asks something else
    body: bytes

    @property
    def name(self) -> str:
        """The same for repetitions alone, whatever their bodies."""
        bound = [self.key, self.method, self.path, self.user]
        return hashlib.sha256(msgspec.json.encode(bound)).hexdigest()


class StoredAnswers:
    """The answers of a namespace to requests with a key."""

    def __init__(self, concert: Coordinator, *, ttl: Seconds = ANSWER_TTL) -> None:
        self._concert = concert
        self._ref: SessionRef = session_ref_of(concert)
        self._ttl_ms = milliseconds(durations.ttl(ttl))

    async def answer(self, request: IdempotentRequest, handle: Callable[["Turn"], Awaitable[None]]) -> Answer | None:
        """The stored answer to the request, or None after the handler has run and answered.

        Args:
            request: The request.
            handle: Runs the handler, which keeps and sends its answer and may go on after that.

        Raises:
            LeaseLost: The handler was cancelled before it had answered, because another may run it by now.
            OutcomeUnknown: The server did not answer; nothing was done.

        Cost: 1 round trip for a stored answer; otherwise 5.
        """
        if not request.key or len(request.key) > _LONGEST_KEY:
            return problem(400, f"the idempotency key must have 1 to {_LONGEST_KEY} characters")
        digest = hashlib.sha256(request.body).hexdigest()
        keys = self._ref.keys.of(_Keys, "idempotency", request.name)
        found = await self._find(keys)
        if found is not None:
            return _repeated(found, digest)
        async with AsyncExitStack() as stack:
            try:
                lock = self._concert.lock(f"idempotency:{request.name}", ttl=_LOCK_TTL, timeout=0)
                lease = await stack.enter_async_context(lock)
            except AcquireTimeout:
                detail = "the first request with this idempotency key has not ended yet"
                return problem(409, detail, retry_after=_KEY_AGAIN)
            found = await self._find(keys)
            if found is not None:
                return _repeated(found, digest)
            await handle(Turn(self._ref.session, keys, digest, self._ttl_ms, lease))
        return None

    # Private.

    async def _find(self, keys: _Keys) -> _Record | None:
        text: bytes = await self._ref.session.run(_FIND(keys))
        return msgspec.json.decode(text, type=_Record) if text else None


class Turn:
    """The turn of a request to be handled; its repetitions are held off until its answer is kept."""

    def __init__(self, session: Session, keys: _Keys, digest: str, ttl_ms: int, lease: Lease) -> None:
        self._session = session
        self._keys = keys
        self._digest = digest
        self._ttl_ms = ttl_ms
        self._lease = lease

    async def keep(self, answer: Answer, *, is_whole: bool = True) -> None:
        """Keep an answer before it is sent, unless it means "try again"; also if the caller is cancelled.

        If that fails, the client gets the answer nevertheless: without one it would repeat the request.

        Args:
            answer: The answer.
            is_whole: Whether it can be repeated; otherwise only its status and headers are known.
        """
        if _means_try_again(answer):
            return
        record = _Record(self._digest)
        if is_whole:
            headers = tuple(field for field in answer.headers if field[0] not in RATE_NAMES)  # true of that moment
            record = _Record(self._digest, answer.status, headers, answer.body)
        try:
            await run_shielded(self._send(record))
        except InconcertError as error:
            _log.warning("an answer could not be kept, so a repetition of its request may run the handler: %s", error)

    async def end(self) -> None:
        """End the turn once its answer is kept: what goes on after that is not stopped by the loss of a lease."""
        try:
            await self._lease.release()
        except InconcertError as error:
            _log.warning("the lock of a request that was answered lapses by itself: %s", error)

    # Private.

    async def _send(self, record: _Record) -> None:
        call = Call(_KEEP(self._keys, text=msgspec.json.encode(record), ttl_ms=self._ttl_ms), must_run=True)
        self._session.channel.submit(call)
        if not await call:
            _log.warning("an answer was not kept, because another was: the handler of its request has run twice")


def _means_try_again(answer: Answer) -> bool:
    """True if the client is to repeat its request, and the handler to run then."""
    if answer.status >= 500 or answer.status in _TRANSIENT:
        return True
    return answer.status >= 400 and any(name == "retry-after" for name, _ in answer.headers)


def _repeated(record: _Record, digest: str) -> Answer:
    if record.body_digest != digest:
        return problem(422, "this idempotency key was used with another body; use a new one")
    if not record.status:
        return problem(409, "the first request was handled, and its answer was too large to be kept")
    return Answer(record.status, (*record.headers, ("idempotency-replayed", "true")), record.body)
