"""One holder on several servers: its lease on each of them, and the verdict of a majority.

Each server is asked in its own asyncio task, and either answers within its deadline or counts as failed.  A round does
not wait for the slowest server: it is decided as soon as enough have voted, and the other requests end on their own.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from enum import Enum, auto
from typing import NamedTuple

from inconcert._core.lease_state import LeaseState
from inconcert._redis.find.peers import Peer
from inconcert._redis.protocol.scripts import load
from inconcert.errors import InconcertError, QuorumNotReached, Unavailable

_GRAIN = 0.002  # seconds; the server ends leases at whole milliseconds, and the local clock has a resolution too


class QuorumKeys(NamedTuple):
    """The keys of a quorum lock, the same on each server."""

    holder: str  # string: its holder here; the key ends with the lease


_TAKE = load("quorum/take").bind(QuorumKeys)
_RELEASE = load("quorum/release").bind(QuorumKeys)
_INSPECT = load("quorum/inspect").bind(QuorumKeys)


class Vote(Enum):
    """One server's vote in a round."""

    YES = auto()
    NO = auto()
    NOTHING = auto()  # it failed, or its answer does not count


class QuorumRound(asyncio.Future[bool]):
    """One request to all servers, and the future of the majority's verdict; its caller may be cancelled.

    Args:
        name: Which lock it is about.
        servers: How many servers are asked.
        decisive: A majority of either of these decides.
        otherwise: The verdict when neither can have a majority any more.
    """

    __slots__ = ("_counts", "_decisive", "_is_decided", "_name", "_otherwise", "_reasons", "_servers", "asked_at")

    def __init__(self, name: str, servers: int, *, decisive: tuple[Vote, Vote], otherwise: Vote) -> None:
        super().__init__()
        # a moment before the first server was asked, by the local monotonic clock
        self.asked_at = time.monotonic() - _GRAIN
        self._name = name
        self._servers = servers
        self._decisive = decisive
        self._otherwise = otherwise
        self._counts: Counter[Vote] = Counter()
        self._reasons: dict[str, str] = {}
        self._is_decided = False

    def count(self, server: str, vote: Vote, why: str = "") -> None:
        """Count a server's vote, and the reason if it has none."""
        if self._is_decided:
            return
        self._counts[vote] += 1
        if vote is Vote.NOTHING:
            self._reasons[server] = why
        majority = self._servers // 2 + 1
        pending = self._servers - self._counts.total()
        most = max(self._decisive, key=self._counts.__getitem__)
        if self._counts[most] >= majority:
            self._decide(most)
        elif self._counts[most] + pending < majority:
            self._decide(self._otherwise)

    def answered(self, *, is_yes: bool) -> None:
        """Take the verdict."""
        if not self.done():
            self.set_result(is_yes)

    def failed(self, error: InconcertError) -> None:
        """Take the error that replaces a verdict."""
        if not self.done():
            self.set_exception(error)
            self.exception()  # so that asyncio does not warn when no caller awaits this round

    def _decide(self, vote: Vote) -> None:
        self._is_decided = True
        if vote is Vote.NOTHING:
            self.failed(QuorumNotReached(self._name, self._reasons, self._servers))
        else:
            self.answered(is_yes=vote is Vote.YES)


class QuorumHolding:
    """The grants of one holder on the servers."""

    __slots__ = ("_name", "_shares", "_ttl_ms", "holder")

    def __init__(self, name: str, peers: Sequence[Peer], keys: QuorumKeys, ttl_ms: int) -> None:
        self.holder = secrets.token_hex(12)  # new for each attempt: a late release of one must not undo the next
        self._name = name
        self._ttl_ms = ttl_ms
        self._shares = [_Share(peer, keys, self.holder) for peer in peers]

    def take(self) -> QuorumRound:
        """Request it on every server: yes if a majority granted it, no if too many have granted it to others."""
        taking = QuorumRound(self._name, len(self._shares), decisive=(Vote.YES, Vote.NOTHING), otherwise=Vote.NO)
        for share in self._shares:
            share.take(self._ttl_ms, taking, is_first=True)
        return taking

    def renew(self, lease: LeaseState) -> QuorumRound:
        """Make it last a full ttl from now on every server, and report the outcome to `lease`.

        Yes if a majority still had it, no if a majority has granted it to others.
        """
        renewing = _RenewCall(lease, self._name, len(self._shares))
        for share in self._shares:
            share.take(self._ttl_ms, renewing, is_first=False)
        return renewing

    def release(self, lease: LeaseState | None = None) -> QuorumRound:
        """Release everything that was or may have been granted: yes if a majority still had it, no if it did not.

        `lease` is told if there is no majority.
        """
        releasing = _ReleaseCall(lease, self._name, len(self._shares))
        for share in self._shares:
            share.release(releasing)
        return releasing


class _RenewCall(QuorumRound):
    """A renewal under way."""

    __slots__ = ("_lease",)

    def __init__(self, lease: LeaseState, name: str, servers: int) -> None:
        super().__init__(name, servers, decisive=(Vote.YES, Vote.NO), otherwise=Vote.NOTHING)
        self._lease = lease

    def answered(self, *, is_yes: bool) -> None:
        super().answered(is_yes=is_yes)
        self._lease.renewed(is_held=is_yes, asked_at=self.asked_at)

    def failed(self, error: InconcertError) -> None:
        super().failed(error)
        self._lease.renewal_failed(error)


class _ReleaseCall(QuorumRound):
    """A release under way."""

    __slots__ = ("_lease",)

    def __init__(self, lease: LeaseState | None, name: str, servers: int) -> None:
        super().__init__(name, servers, decisive=(Vote.YES, Vote.NO), otherwise=Vote.NOTHING)
        self._lease = lease

    def failed(self, error: InconcertError) -> None:
        super().failed(error)
        if self._lease is not None:
            self._lease.release_failed(error)


class _Share:
    """The grant of one holder on one server."""

    __slots__ = ("_asking", "_holder", "_is_over", "_is_released", "_keys", "_may_be_ours", "_peer")

    def __init__(self, peer: Peer, keys: QuorumKeys, holder: str) -> None:
        self._peer = peer
        self._keys = keys
        self._holder = holder
        self._may_be_ours = False
        self._is_over = False
        self._is_released = False
        self._asking: set[asyncio.Task[None]] = set()  # requests that may still be granted

    def take(self, ttl_ms: int, asking: QuorumRound, *, is_first: bool) -> None:
        """Take it, or renew it: a renewal counts only if the server has held the lease all the time."""
        task = _start(self._take(ttl_ms, asking, is_first=is_first), self._peer)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def release(self, releasing: QuorumRound) -> None:
        """Release it, once all earlier requests are over: a release must not overtake a renewal."""
        self._is_over = True
        _start(self._release(releasing), self._peer)

    async def _take(self, ttl_ms: int, asking: QuorumRound, *, is_first: bool) -> None:
        try:
            answer = await self._peer.run(_TAKE(self._keys, me=self._holder, ttl_ms=ttl_ms), undo=self._undo)
        except InconcertError as error:
            self._may_be_ours |= not isinstance(error, Unavailable)
            asking.count(self._peer.title, Vote.NOTHING, str(error))
        else:
            self._may_be_ours |= answer.reply != 0
            if answer.reply == 0:
                asking.count(self._peer.title, Vote.NO)
            elif is_first or answer == (2, 1):
                asking.count(self._peer.title, Vote.YES)
            else:  # another may have held it meanwhile, so it counts from the next renewal on
                asking.count(self._peer.title, Vote.NOTHING, "did not have the lease, and has it now")

    def _undo(self) -> bytes | None:
        """The command to send after an abandoned request: none while its grant would still be useful."""
        return _RELEASE(self._keys, me=self._holder).pack_with_source() if self._is_over else None

    async def _release(self, releasing: QuorumRound) -> None:
        if self._asking:
            await asyncio.wait(self._asking)
        if self._is_released:  # by an earlier round, which too few servers answered
            releasing.count(self._peer.title, Vote.YES)
            return
        if not self._may_be_ours:
            releasing.count(self._peer.title, Vote.NO)
            return
        try:
            answer = await self._peer.run(_RELEASE(self._keys, me=self._holder))
        except InconcertError as error:
            releasing.count(self._peer.title, Vote.NOTHING, str(error))
        else:
            # If sent twice, it finds nothing the second time.
            self._is_released = bool(answer.reply or answer.sends > 1)
            releasing.count(self._peer.title, Vote.YES if self._is_released else Vote.NO)


async def inspect(name: str, peers: Sequence[Peer], keys: QuorumKeys) -> str | None:
    """The holder that has a majority of the servers; None if there is none.

    Raises:
        QuorumNotReached: Too few servers answered to know.
    """
    answers = await asyncio.gather(*(peer.run(_INSPECT(keys)) for peer in peers), return_exceptions=True)
    reasons: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for peer, answer in zip(peers, answers, strict=True):
        if isinstance(answer, InconcertError):
            reasons[peer.title] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            counts[answer.reply.decode()] += 1
    [(holder, count)] = counts.most_common(1) or [("", 0)]
    majority = len(peers) // 2 + 1
    if count < majority <= count + len(reasons):
        raise QuorumNotReached(name, reasons, len(peers))
    return holder if holder and count >= majority else None


_under_way: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references to tasks


def _start(work: Coroutine[object, object, None], peer: Peer) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=f"inconcert quorum at {peer.title}")
    _under_way.add(task)
    task.add_done_callback(_under_way.discard)
    return task
