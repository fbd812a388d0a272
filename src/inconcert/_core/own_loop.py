"""The check that what was acquired is used on the event loop on which it was acquired.

A call from another thread, or in a forked child, would work on connections that are not its own, and wait for a reply
that its loop never sees.
"""

import asyncio

from inconcert.errors import NotConnected


def check_loop(loop: asyncio.AbstractEventLoop, what: object) -> None:
    """Raise `NotConnected` unless the caller runs on this loop, on which `what` was acquired."""
    if asyncio.get_running_loop() is not loop:
        raise NotConnected(
            f"{what} belongs to another event loop, of another thread or of the process that was forked; use it there, "
            "and open a coordinator of its own for this loop"
        )
