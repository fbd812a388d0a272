"""The server that an operator's command is about, and what its errors look like."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from inconcert.cli.ends import fail, refuse
from inconcert.coordinator import Coordinator
from inconcert.errors import InconcertError

T = TypeVar("T")

Url = Annotated[
    str | None, typer.Option(help="The server's, instead of INCONCERT_URL's.", metavar="URL", show_default=False)
]
Namespace = Annotated[
    str | None, typer.Option(help="Instead of INCONCERT_NAMESPACE's.", metavar="NAME", show_default="inconcert")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def ask(url: str | None, namespace: str | None, question: Callable[[Coordinator], Awaitable[T]]) -> T:
    """The answer to a question that is asked of an open coordinator; if there is none, the command ends and says why.

    The coordinator is that of the environment, as `Coordinator.from_env` makes it, with these two instead.
    """

    async def answer(concert: Coordinator) -> T:
        async with concert:
            return await question(concert)

    return ask_unopened(url, namespace, answer)


def ask_unopened(url: str | None, namespace: str | None, question: Callable[[Coordinator], Awaitable[T]]) -> T:
    """The same for a question that opens the coordinator itself."""
    if url is not None:
        os.environ["INCONCERT_URL"] = url
    if namespace is not None:
        os.environ["INCONCERT_NAMESPACE"] = namespace

    async def answer(concert: Coordinator) -> T:
        return await question(concert)

    try:
        concert = Coordinator.from_env()
    except ValueError as error:
        refuse(f"{error}; or give --url" if url is None and "nor REDIS_URL" in str(error) else str(error))
    try:
        return asyncio.run(answer(concert))
    except ImportError as error:  # an extra is missing
        refuse(str(error))
    except ValueError as error:
        refuse(str(error))
    except InconcertError as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None  # as a shell reports a process that Ctrl-C ended
