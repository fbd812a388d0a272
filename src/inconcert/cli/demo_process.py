"""One of the processes of `inconcert demo`: it works, takes its turns at the printer, and answers in the chat.

It reports its work to the demo's mailboxes.
"""

import asyncio
import logging
import os
import sys
import time
from typing import Literal

import msgspec

from inconcert._rules.defaults import DEFAULT_QUEUE
from inconcert.cli.serving import serve
from inconcert.coordinator import Coordinator
from inconcert.tasks.running.claimed_job import current_job

NAMESPACE = "demo"
BEGIN = "begin"  # the event that opens the printer
JOB = "bake"  # the task
YOU = "you"  # who asks in the chat
TURNS = 3  # of each process at the printer

_PRINTING = 0.4  # seconds for each turn
_BAKING = 2.0  # seconds for a job


Kind = Literal["up", "job", "turn"]


class Report(msgspec.Struct):
    """A span of work of a process, by this machine's clock."""

    who: str
    what: str
    began_at: float
    ended_at: float


def reports_of(kind: Kind) -> str:
    """The name of the demo's mailbox for reports of one kind."""
    return f"reports:{kind}"


async def run(name: str, url: str, parent: int) -> None:
    """Take part until the parent process says otherwise, or is dead."""
    concert = Coordinator(url, namespace=NAMESPACE)

    async def report(kind: Kind, what: str, began_at: float, ended_at: float) -> None:
        await concert.mailbox(reports_of(kind), Report).send(Report(name, what, began_at, ended_at))

    @concert.task(name=JOB)
    async def bake(what: str) -> str:
        now = time.time()
        await report("job", f"begins to bake the {what}, attempt {current_job().attempt}", now, now)
        await asyncio.sleep(_BAKING)
        return name

    async def take_turns() -> None:
        await concert.event(BEGIN).wait()
        for _ in range(TURNS):
            async with concert.lock("printer") as lease:
                began_at = time.time()
                await asyncio.sleep(_PRINTING)
                ended_at = time.time()
            await report("turn", f"printed, with fencing token {lease.fencing_token}", began_at, ended_at)

    async def answer() -> None:
        async for batch in concert.chat.listen(name):
            if any(message.sender == YOU for message in batch.messages):
                await concert.chat.send(batch.chat_id, name, f"I am here, in process {os.getpid()}")

    async def take_part(stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(take_turns()), group.create_task(answer())]
            now = time.time()
            await report("up", f"is up, process {os.getpid()}", now, now)
            await concert.run_worker(DEFAULT_QUEUE, stop=stop, grace=0)
            for other in others:
                other.cancel()

    await serve(concert, take_part, parent=parent)


if __name__ == "__main__":
    logging.getLogger("inconcert").setLevel(logging.ERROR)  # the demo itself says that a worker is dead
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
