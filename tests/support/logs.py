"""What is logged, as if nobody had set up logging yet; and afterwards as before."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["as_at_first"]


@contextmanager
def as_at_first() -> Iterator[None]:
    """What is set up inside, such as levels, ends with it."""
    root = logging.getLogger()
    names = [name for name in root.manager.loggerDict if name.startswith("inconcert")]
    levels = {logger: logger.level for logger in [root, *map(logging.getLogger, names)]}
    handlers, root.handlers = root.handlers, []
    for logger in levels:
        logger.setLevel(logging.WARNING if logger is root else logging.NOTSET)
    last, logging.lastResort = logging.lastResort, logging.NullHandler()
    try:
        yield
    finally:
        logging.lastResort = last
        root.handlers = handlers
        for logger, level in levels.items():
            logger.setLevel(level)
