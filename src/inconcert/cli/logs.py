"""Where a command's log goes."""

import logging
from enum import StrEnum

__all__ = ["LogLevel", "log_to_stderr"]

_LINE = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"


class LogLevel(StrEnum):
    """What `--log-level` takes."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


def log_to_stderr(level: LogLevel | None = None) -> None:
    """Log to stderr. If the user's module has set up logging, only set a given level on inconcert's loggers."""
    logging.basicConfig(level=(level or LogLevel.INFO).upper(), format=_LINE)
    if level is not None:
        logging.getLogger("inconcert").setLevel(level.upper())
