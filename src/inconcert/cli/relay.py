"""`inconcert relay module:outbox`: hand over the rows of an outbox until a signal."""

import asyncio
import logging
from typing import Annotated

import typer

from inconcert.cli.ends import fail, refuse
from inconcert.cli.logs import Format, Level, log_to_stderr
from inconcert.cli.serving import serve
from inconcert.cli.target import load_or_refuse
from inconcert.errors import InconcertError

_log = logging.getLogger("inconcert.cli")

_EXAMPLE = "shop.app:outbox"


def relay(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:ATTR", help=f"Location of the Outbox, for example {_EXAMPLE}.")
    ],
    *,
    log_level: Level = None,
    log_format: Format = None,
) -> None:
    """Hand over the rows of an outbox, beside a SQL database, until SIGTERM or Ctrl-C."""
    try:
        from inconcert.sql.outbox import Outbox, coordinator_of, dispose_engine  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        refuse(str(error))
    outbox = load_or_refuse(target, Outbox, _EXAMPLE)
    log_to_stderr(log_level, log_format)

    async def run(stop: asyncio.Event) -> None:
        try:
            async with outbox.relay():
                _log.info("the relay of %r starts", outbox)
                await stop.wait()
                _log.info("the relay of %r stops", outbox)
        finally:
            await dispose_engine(outbox)

    try:
        asyncio.run(serve(coordinator_of(outbox), run, parent=None))
    except ImportError as error:  # an extra of the coordinator is missing
        refuse(str(error))
    except InconcertError as error:
        fail(str(error))
