"""Waiting for jobs to end: all waiters of this process for the same job share one registration on the server.

Those that follow its stream share a feed, too.
"""

import asyncio
import time
from collections.abc import Iterator

import anyio

from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from inconcert._redis.wire.inbox import InboxReceiver
from inconcert.errors import InconcertError
from inconcert.tasks.following.feed import Feed
from inconcert.tasks.records.store import UNWATCH, JobKeys, JobKeyspace

RECHECK_AFTER = 60.0  # seconds; the server keeps a registration for 180


class Watches:
    """The waits for jobs in this process."""

    def __init__(self, keyspace: JobKeyspace) -> None:
        self._keyspace = keyspace
        self._open: dict[tuple[Session, str], Watch] = {}

    def __iter__(self) -> Iterator["Watch"]:
        return iter(self._open.values())

    def join(self, session: Session, job_id: str) -> "Watch":
        """Wait for this job, together with others; each call is followed by `leave`."""
        watch = self._open.get((session, job_id))
        if watch is None:
            watch = self._open[session, job_id] = Watch(session, self._keyspace.of_id(job_id), job_id)
            session.inbox.register(watch.address, watch)
            session.inbox.follow(watch.keys.watchers, watch.address)
        watch.count += 1
        return watch

    def leave(self, watch: "Watch") -> None:
        """Stop waiting."""
        watch.count -= 1
        if watch.count:
            return
        session = watch.session
        del self._open[session, watch.job_id]
        session.inbox.unregister(watch.address)
        if watch.feed is not None:
            watch.feed.close()
        if watch.is_noted and not session.channel.is_closed:
            command = UNWATCH(watchers=watch.keys.watchers, id=watch.job_id, address=watch.address)
            session.channel.submit(Call(command, must_run=True))


class Watch(InboxReceiver):
    """The waiters of this process for one job."""

    def __init__(self, session: Session, keys: JobKeys, job_id: str) -> None:
        self.session = session
        self.keys = keys
        self.job_id = job_id
        self.address = session.new_address()  # the address to which the server sends that it has ended
        self.since = time.monotonic()  # since when the first waits, by the local monotonic clock
        self.count = 0  # how many there are
        self.changed = asyncio.Event()  # set when it is time to check the job; replaced each time
        self.is_noted = False  # whether the server may have noted the address
        self.feed: Feed | None = None  # the stream of the job, once one of them follows it

    async def follow(self) -> Feed:
        """The stream of the job, subscribed to.

        Raises:
            Unavailable: The server did not confirm in time, or refused.
        """
        if self.feed is None:
            self.feed = Feed(self.session, self.keys, self.job_id, self.address)
        self.is_noted = True
        await self.feed.open()
        return self.feed

    async def woken(self, changed: asyncio.Event, within: float = RECHECK_AFTER) -> None:
        """Return when it is time to check the job.

        Args:
            changed: As it was before the last check, so that nothing is missed that came during it.
            within: Seconds after which it is checked in any case.
        """
        with anyio.move_on_after(within):
            await changed.wait()
        self.raise_if_closed()

    # Called by the inbox.

    def on_message(self, rest: str) -> None:
        """The check finds out how it ended."""
        del rest
        self.recheck()

    def recheck(self) -> None:
        """Check the job: a message may have been missed."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        if self.feed is not None:
            self.feed.recheck()

    def closed(self, error: InconcertError) -> None:
        """Stop waiting, with this error."""
        super().closed(error)
        self.changed.set()
        if self.feed is not None:
            self.feed.closed(error)
