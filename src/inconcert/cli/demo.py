"""`inconcert demo`: a private server and three processes, one of which is killed; it prints what happens."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import anyio
import typer
from rich.console import Console
from rich.text import Text

from inconcert._rules.payloads import JSON
from inconcert.cli import demo_process
from inconcert.cli.demo_process import BEGIN, JOB, NAMESPACE, TURNS, YOU, Kind, Report, reports_of
from inconcert.cli.ends import fail, refuse
from inconcert.cli.forks import SIGNALS
from inconcert.cli.output import say
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError
from inconcert.tasks.following.job import Job

_COLOURS = {"ann": "cyan", "bob": "green", "cy": "magenta"}  # of the processes, by name
_PATIENCE = 30.0  # seconds for what takes 12 at most: the lease of a dead worker lapses, and its job runs again
_GRACE = 5.0  # seconds for a process to end in
_MIDDLE = 0.7  # seconds after which a job is under way
_PAUSE = 0.6  # seconds to read what is announced, before it happens
_TUTORIAL = "https://inconcert.github.io/inconcert/tutorial/first-lock.html"


def demo() -> None:
    """Watch it for 15 s: a killed worker, its job recovered, a lock handed over, a chat. Needs no server."""
    try:
        is_complete = asyncio.run(_run())
    except ImportError as error:  # an extra is missing
        refuse(str(error))
    except TimeoutError:
        fail(f"the demo's processes did nothing for {_PATIENCE:g} s; look for their errors above")
    except InconcertError as error:
        fail(str(error))
    if not is_complete:
        say("\nstopped; nothing is left running")
        raise typer.Exit(130)  # as a shell reports a process that Ctrl-C ended


async def _run() -> bool:
    """True if it came to its end, and was not stopped by a signal."""
    with anyio.CancelScope() as scope:
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, scope.cancel)
        async with Coordinator.embedded(namespace=NAMESPACE) as concert, AsyncExitStack() as stack:
            processes = {name: await stack.enter_async_context(_started(name, concert)) for name in _COLOURS}
            await _Story(concert, processes).tell()
    return not scope.cancel_called


@asynccontextmanager
async def _started(name: str, concert: Coordinator) -> AsyncGenerator[Process]:
    """A process that ends with the block, or with this process, however that ends."""
    orders, pipe = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", demo_process.__name__, name, str(concert.url), str(orders)),
            stdin=subprocess.DEVNULL,
            pass_fds=[orders],
            process_group=0,  # Ctrl-C is for this process only
        )
    except BaseException:
        os.close(pipe)
        raise
    finally:
        os.close(orders)
    try:
        yield process
    finally:
        os.close(pipe)  # the end of its orders, which it obeys
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(_GRACE):
                await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()


class _Story:
    """The work of this process, the reports of the others, and their printing."""

    def __init__(self, concert: Coordinator, processes: Mapping[str, Process]) -> None:
        self._concert = concert
        self._processes = processes
        self._console = Console(highlight=False, soft_wrap=True)
        self._began_at = time.monotonic()

    async def tell(self) -> None:
        """Tell it from its beginning to its end."""
        self._announce("A private server runs. Three Python processes open the same coordinator:")
        for _ in self._processes:
            up = await self._next("up")
            self._print(up.who, up.what)
        victim, killed_at, job = await self._kill()
        await self._hand_over()
        await self._chat(victim)
        await self._recover(victim, killed_at, job)
        self._announce(f"One process was killed, and nothing was lost. Write your own: {_TUTORIAL}")

    async def _kill(self) -> tuple[str, float, Job[JSON]]:
        self._announce("A job is enqueued. Its worker is killed with -9, in the middle of it:")
        job = await self._concert.enqueue(JOB, ["bread"])
        job_report = await self._next("job")
        victim = job_report.who
        self._print(victim, job_report.what)
        await asyncio.sleep(_MIDDLE)
        self._processes[victim].send_signal(signal.SIGKILL)
        await self._processes[victim].wait()
        self._print(victim, "is killed")
        return victim, time.monotonic(), job

    async def _hand_over(self) -> None:
        self._announce("The other two share a printer, one at a time. Who waits sends nothing, and is woken in turn:")
        await asyncio.sleep(_PAUSE)
        await self._concert.event(BEGIN).set()
        ended_at: float | None = None
        for _ in range((len(self._processes) - 1) * TURNS):
            turn = await self._next("turn")
            after = "" if ended_at is None else f", {(turn.began_at - ended_at) * 1000:.1f} ms after the other"
            self._print(turn.who, turn.what + after)
            ended_at = turn.ended_at

    async def _chat(self, victim: str) -> None:
        self._announce("A chat. Messages wait for those who are away:")
        others = set(self._processes) - {victim}
        chat_id = await self._concert.chat.create(YOU, self._processes, "Who is here?")
        with anyio.fail_after(_PATIENCE):
            async with aclosing(self._concert.chat.listen(YOU)) as batches:
                async for batch in batches:
                    for message in batch.messages:
                        self._print(message.sender, str(message.body))
                        others.discard(message.sender)
                    if not others:
                        break
        unread = await self._concert.chat.unread(victim)
        self._print(victim, f"is away; unread: {unread[chat_id]}")

    async def _recover(self, victim: str, killed_at: float, job: Job[JSON]) -> None:
        self._announce(f"{victim} has not been heard of for a while. After 10 s its job goes to another worker:")
        with self._console.status("waiting for that"):
            again = await self._next("job")
            self._print(again.who, again.what)
            by = await job.result(str, timeout=_PATIENCE)
        self._print(by, f"has baked the bread, {time.monotonic() - killed_at:.1f} s after {victim} was killed")

    async def _next(self, kind: Kind) -> Report:
        with anyio.fail_after(_PATIENCE):
            [message] = await self._concert.mailbox(reports_of(kind), Report).fetch(limit=1, timeout=None)
        return message.body

    def _announce(self, text: str) -> None:
        self._console.print(Text(f"\n{text}", "bold"))

    def _print(self, who: str, what: str) -> None:
        seconds = f"{time.monotonic() - self._began_at:5.1f} s  "
        self._console.print(Text.assemble((seconds, "dim"), (f"{who:<4}", _COLOURS.get(who, "")), what))
