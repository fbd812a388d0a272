"""The connections behind a coordinator to one server, for tests that look at them or break them."""

from inconcert._core.session import Session
from inconcert._redis.bells import Bells
from inconcert._redis.channel import Channel
from inconcert._redis.pubsub import PubSub

__all__ = ["bells_of", "broadcasts_of", "channel_of", "wake_ups_of"]


def channel_of(session: Session) -> Channel:
    """The connection for commands."""
    assert isinstance(session.channel, Channel)
    return session.channel


def broadcasts_of(session: Session) -> PubSub:
    """The connection for broadcasts."""
    assert isinstance(session.broadcasts, PubSub)
    return session.broadcasts


def bells_of(session: Session) -> Bells:
    """The connection on which idle consumers sleep."""
    assert isinstance(session.bells, Bells)
    return session.bells


def wake_ups_of(session: Session) -> PubSub:
    """The connection for the inbox."""
    assert isinstance(session.inbox._pubsub, PubSub)
    return session.inbox._pubsub
