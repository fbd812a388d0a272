"""The stream of a job as server-sent events, which a browser continues by itself where they broke off.

The id of an event is that of its item, and a client that comes back sends the last one as `Last-Event-ID`.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from inconcert._core.channel_subscription import Gap
from inconcert._rules.payloads import JSON
from inconcert.errors import InconcertError, InvalidPayload, JobCancelled, JobFailed, JobNotFound
from inconcert.integrations._sse import COME_BACK, KEEP_ALIVE, SILENCE, encode_event
from inconcert.integrations._until_closed import until_closed
from inconcert.tasks.following.job import Job
from inconcert.tasks.following.stream import Restarted, Stream, StreamItem
from inconcert.tasks.records.status import JobStatus

_log = logging.getLogger("inconcert.integrations")


async def job_events(
    job: Job[JSON], *, last_event_id: str = "", closing: asyncio.Event | None = None
) -> AsyncGenerator[bytes]:
    """The items of a job's stream, one event each, until it has ended or the service closes."""
    yield COME_BACK
    status = JobStatus.SUCCEEDED
    try:
        async with aclosing(until_closed(_stream(job, last_event_id), closing=closing, silence=KEEP_ALIVE)) as items:
            async for item in items:
                yield SILENCE if item is None else _event(item)
    except JobFailed:
        status = JobStatus.FAILED  # why, is not for the client
    except JobCancelled:
        status = JobStatus.CANCELLED
    except (JobNotFound, InvalidPayload) as error:
        _log.info("the stream of job %s cannot be shown: %s", job.id, error)
        status = JobStatus.UNKNOWN
    except InconcertError as error:  # a connection that ends makes its client come back
        _log.info("the stream of job %s ends, and its client comes back: %s", job.id, error)
        return
    if closing is None or not closing.is_set():
        yield encode_event({"status": status}, event="end")


def _stream(job: Job[JSON], last_event_id: str) -> Stream[JSON]:
    try:
        return job.stream(after=last_event_id or None)
    except ValueError:  # anybody may send anything
        return job.stream()


def _event(item: StreamItem[JSON] | Restarted | Gap) -> bytes:
    if isinstance(item, StreamItem):
        return encode_event({"value": item.value, "attempt": item.attempt}, id_=item.id)
    if isinstance(item, Restarted):
        return encode_event({"attempt": item.attempt}, event="restarted")
    return encode_event({"missed": item.missed}, event="gap")
