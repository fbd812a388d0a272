"""A service as a user writes it, whose workers the tests run from the command line."""

import asyncio
import logging
import multiprocessing
import os
import socket
import sys
import time

import anyio

from inconcert import Coordinator, current_job
from tests.support.processes import tell

concert = Coordinator.from_env()


@concert.task(name="wait")
async def wait(seconds: float) -> None:
    """Tell when it starts, and where."""
    job = current_job()
    logging.getLogger("shop").info("waits")
    tell("started", pid=os.getpid(), id=job.id, attempt=job.attempt)
    await anyio.sleep(seconds)


@concert.task(name="fail", max_attempts=1)
async def fail() -> None:
    """Fail, for good."""
    raise ValueError("no")


@concert.task(name="exit")
async def exit_in_a_task() -> None:
    """End the process, from where no worker can prevent it."""

    async def end() -> None:
        sys.exit(2)

    await asyncio.create_task(end())


@concert.task(name="block")
def block(seconds: float) -> None:
    """In a thread, which nobody can stop."""
    tell("blocking")
    time.sleep(seconds)


@concert.task(name="fork", max_attempts=1)
def fork() -> None:
    """Fork a process and end it, as a `multiprocessing.Pool` does."""
    child = multiprocessing.get_context("fork").Process(target=_forked)
    child.start()
    os.read(_pipe[0], 1)
    child.terminate()
    child.join()
    tell("ended", code=child.exitcode)


_pipe = os.pipe()  # on which a fork says that it runs


def _forked() -> None:
    names: list[str] = []
    for descriptor in range(3, 256):
        try:
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                names.append(str(connection.getpeername()))
        except OSError:
            pass
    tell("forked", sockets=[name for name in names if name])
    os.write(_pipe[1], b"!")
    time.sleep(60)
