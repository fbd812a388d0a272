"""The message on the channel of a signal: `AT_US OPEN PAYLOAD`, as the script that broadcasts writes it."""

import logging
import re
from collections.abc import Callable
from typing import Generic, NamedTuple

from inconcert._rules.codec import T
from inconcert.errors import InvalidPayload

_log = logging.getLogger("inconcert.signals")

_FORM = re.compile(rb"(\d{1,17}) (\d{1,17}) (.*)", re.DOTALL)


class Broadcast(NamedTuple, Generic[T]):
    """One broadcast."""

    at: int  # the server's clock, in microseconds
    is_all: bool  # whether no waiter has an unconfirmed notification, so that this is for every waiter
    payload: bytes
    value: T  # the payload, decoded


def read(text: bytes, decode: Callable[[bytes], T]) -> Broadcast[T] | None:
    """Read a message; None if no `broadcast` sent it, because anyone may publish on a channel.

    Raises:
        UnreadablePayload: It is JSON that does not fit the signal's type.
    """
    found = _FORM.fullmatch(text)
    if found is not None:
        try:
            return Broadcast(int(found[1]), found[2] == b"0", found[3], decode(found[3]))
        except InvalidPayload:
            raise
        except ValueError:
            pass
    _log.warning("a message on the channel of a signal is ignored, because no broadcast() sent it: %r", text[:80])
    return None
