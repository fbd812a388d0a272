"""The message on the channel of a signal: `AT_US OPEN PAYLOAD`, as the script that broadcasts writes it."""

import logging
import re
from contextlib import suppress
from typing import NamedTuple

from inconcert._rules.payloads import JSON, decode

__all__ = ["Broadcast", "read"]

_log = logging.getLogger("inconcert.signals")

_FORM = re.compile(rb"(\d{1,17}) (\d{1,17}) (.*)", re.DOTALL)


class Broadcast(NamedTuple):
    """One broadcast."""

    at: int  # the server's clock, in microseconds
    is_all: bool  # whether no waiter has an unconfirmed notification, so that this is for every waiter
    payload: bytes
    value: JSON  # the payload, decoded


def read(text: bytes) -> Broadcast | None:
    """Read a message; None if no `broadcast` sent it, because anyone may publish on a channel."""
    found = _FORM.fullmatch(text)
    if found is not None:
        with suppress(ValueError):
            return Broadcast(int(found[1]), found[2] == b"0", found[3], decode(found[3]))
    _log.warning("a message on the channel of a signal is ignored, because no broadcast() sent it: %r", text[:80])
    return None
