"""Services whose workers have a lifespan, run from the command line by tests; they tell what happens."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from inconcert import Coordinator, current_job
from tests.support.processes import tell


def service(start: str) -> Coordinator:
    """One whose lifespan starts in this way; its value is the process id."""
    concert = Coordinator.from_env()

    @concert.lifespan
    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[int]:
        tell("begins", pid=os.getpid())
        try:
            if start == "breaks":
                raise LookupError("no model")
            if start == "hangs":
                await anyio.sleep(60)
            yield os.getpid()
        finally:
            tell("ends", pid=os.getpid())

    @concert.task(name="wait")
    async def wait(seconds: float) -> None:
        tell("started", pid=os.getpid(), state=current_job().state)
        try:
            await anyio.sleep(seconds)
        finally:
            tell("left", pid=os.getpid())

    return concert


working, breaking, hanging = map(service, ("works", "breaks", "hangs"))
