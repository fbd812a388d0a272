"""Waiters of a process that act on nothing they hear."""

from inconcert._core.session import Session
from inconcert._redis.wire.inbox import InboxReceiver

__all__ = ["wait_as"]


def wait_as(session: Session, *addresses: str) -> None:
    """Have someone wait under each of these; otherwise the session leaves for them when they are sent for."""
    for address in addresses:
        session.inbox.register(address, InboxReceiver())
