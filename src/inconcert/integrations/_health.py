"""Health checks: this process works, and can do its work now."""

import asyncio

import msgspec

from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.integrations._answers import Answer, answer_to, problem
from inconcert.integrations._worker import dead_worker

_LONGEST = 4.0  # seconds until a server that does not answer counts as away; probes give up after 5 or 10


def live(concert: Coordinator) -> Answer:
    """200 while the process works: also while the server is away, because a restart would not bring it back.

    503 once a worker beside the service has ended with an error: then a restart helps.
    """
    dead = dead_worker(concert)
    if dead is not None:
        return problem(503, "the worker of this process has ended with an error", error=type(dead).__name__)
    return _fine("live")


async def ready(concert: Coordinator) -> Answer:
    """200 if the server answers, over the connection that everything uses; 503 after 4 s at most."""
    try:
        async with asyncio.timeout(_LONGEST):
            await concert.ping()
    except TimeoutError:
        return problem(503, f"the server has not answered within {_LONGEST:g} s", retry_after=_LONGEST)
    except InconcertError as error:
        return answer_to(error) or problem(503, "the server refuses to serve", error=type(error).__name__)
    dead = dead_worker(concert)
    return _fine("ready") if dead is None else live(concert)


def _fine(status: str) -> Answer:
    body = msgspec.json.encode({"status": status})
    return Answer(200, (("content-type", "application/json"), ("content-length", str(len(body)))), body)
