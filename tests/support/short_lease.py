"""Workers that count as dead sooner, so that a test need not wait for it."""

from inconcert import Coordinator

__all__ = ["with_lease"]


def with_lease(concert: Coordinator, seconds: float) -> Coordinator:
    """This coordinator, after its workers' heartbeats were given a lease of so many seconds."""
    concert._heartbeat_lease = seconds
    return concert
