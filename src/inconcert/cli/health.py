"""`inconcert health module:attr`: could a worker claim jobs now?"""

import asyncio
import json
import logging
import sys
import time
from dataclasses import asdict
from typing import Annotated

import anyio
import typer

from inconcert.cli.ends import FAILED, refuse
from inconcert.cli.logs import log_to_stderr
from inconcert.cli.output import say
from inconcert.cli.target import Target, load_or_refuse, names_in
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError

_NOBODYS_QUEUE = "inconcert health"


def health(
    target: Target,
    *,
    queues: Annotated[
        str | None, typer.Option(help="Separated by commas: also report how much work these have.", show_default="none")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the server may take to answer.")] = 5.0,
) -> None:
    """Exit with 0 if a worker could claim jobs now, otherwise with 1, and print the state as a line of JSON."""
    concert = load_or_refuse(target, Coordinator)
    log_to_stderr()
    names = names_in(queues) if queues is not None else []
    try:
        concert.consume(_NOBODYS_QUEUE, *names)
    except ValueError as error:
        refuse(str(error))
    logging.getLogger("inconcert").setLevel(logging.CRITICAL)  # the line of JSON has it
    started_at = time.monotonic()
    state: dict[str, object] = {"status": "ok"}
    try:
        state |= asyncio.run(_claim_nothing(concert, names, timeout))
    except ImportError as error:  # an extra is missing
        refuse(str(error))
    except TimeoutError:
        state = {"status": "failed", "error": f"no answer in {timeout:g} s"}
    except InconcertError as error:
        state = {"status": "failed", "error": str(error)}
    say(json.dumps(state | {"seconds": round(time.monotonic() - started_at, 3)}))
    sys.exit(0 if state["status"] == "ok" else FAILED)


async def _claim_nothing(concert: Coordinator, queues: list[str], timeout: float) -> dict[str, object]:
    """Be a worker for a moment: send a heartbeat and a claim, which any worker needs. Returns the stats."""
    with anyio.fail_after(timeout):
        async with concert:
            async with concert.consume(_NOBODYS_QUEUE) as jobs:
                await jobs.try_claim(1)
            return asdict(await concert.tasks.stats(*queues)) if queues else {}
