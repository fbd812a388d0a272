"""The command line `inconcert`, in a process of its own or in this one."""

import asyncio
import os
import pkgutil
import signal
import sys
from importlib import import_module
from pathlib import Path

from typer.testing import CliRunner, Result

from inconcert import Coordinator, cli
from inconcert.cli import main
from inconcert.cli.commands import app
from tests.support.processes import Child, spawn

__all__ = ["ROOT", "SERVICE", "here", "run", "run_as_pid_1", "run_under_nohup", "start", "variables_of"]

for module in pkgutil.iter_modules(cli.__path__):  # each command imports its own, and a fork need not
    import_module(f"inconcert.cli.{module.name}")
import_module("pydantic.types")  # typer imports it for each command, where it is installed

SERVICE = "tests.support.service:concert"
ROOT = Path(__file__).parents[2]


def run(url: str, namespace: str, folder: str, *args: str) -> None:
    """In a child: be `inconcert`, in this folder."""
    os.environ |= variables_of(url, namespace)
    os.chdir(folder)
    sys.argv = ["inconcert", *args]
    main()


def variables_of(url: str, namespace: str) -> dict[str, str]:
    """Of a command: its environment."""
    return {"INCONCERT_URL": url, "INCONCERT_NAMESPACE": namespace, "TERM": "dumb"}


def run_as_pid_1(url: str, namespace: str, folder: str, *args: str) -> None:
    """The same, as the command of a container."""
    os.getpid = lambda: 1
    run(url, namespace, folder, *args)


def run_under_nohup(url: str, namespace: str, folder: str, *args: str) -> None:
    """The same, as `nohup` starts it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    run(url, namespace, folder, *args)


def start(concert: Coordinator, *args: str, folder: Path = ROOT, how: str = "run", fresh: bool = False) -> Child:
    """Run `inconcert` with these arguments."""
    assert concert.url is not None
    return spawn(
        f"tests.support.command_line:{how}", concert.url, concert._ref.keys.namespace, str(folder), *args, fresh=fresh
    )


async def here(concert: Coordinator, *args: str) -> Result:
    """Be `inconcert` in this process, in another thread: a process of its own takes a second to start."""
    assert concert.url is not None
    env = variables_of(concert.url, concert._ref.keys.namespace)
    return await asyncio.to_thread(CliRunner().invoke, app, args, env=env)
