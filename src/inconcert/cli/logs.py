"""The log of a command: its place and its format."""

import logging
from enum import StrEnum
from typing import Annotated

import typer
from pythonjsonlogger.json import JsonFormatter

from inconcert.cli.ends import refuse
from inconcert.cli.output import printable

_LINE = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
_FIELDS = ["levelname", "name", "process", "message"]
_NAMES = {"levelname": "level", "name": "logger", "exc_info": "traceback"}


class LogLevel(StrEnum):
    """A level for `--log-level`."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class LogFormat(StrEnum):
    """A format for `--log-format`."""

    TEXT = "text"
    JSON = "json"


Level = Annotated[
    LogLevel | None,
    typer.Option("--log-level", case_sensitive=False, help="The lowest level that is logged.", show_default="info"),
]
Format = Annotated[
    LogFormat | None,
    typer.Option("--log-format", case_sensitive=False, help="How a line of the log looks.", show_default="text"),
]


def log_to_stderr(level: LogLevel | None = None, log_format: LogFormat | None = None) -> None:
    """Log to stderr. If the user's module has set up logging, only set a given level on inconcert's loggers."""
    if log_format is not None and logging.root.handlers:
        refuse("--log-format has no effect on a module that sets up logging itself; take out one of the two")
    handler = logging.StreamHandler()
    handler.setFormatter(_as_json() if log_format is LogFormat.JSON else _Printable(_LINE))
    logging.basicConfig(level=(level or LogLevel.INFO).upper(), handlers=[handler])
    if level is not None:
        logging.getLogger("inconcert").setLevel(level.upper())


class _Printable(logging.Formatter):
    """A line of text that cannot steer the terminal on which it is read."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _as_json() -> logging.Formatter:
    """One object a line, with the fields of the record, such as `job_id`."""
    return JsonFormatter(_FIELDS, style=",", rename_fields=_NAMES, timestamp="time")
