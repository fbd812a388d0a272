"""The connections behind a coordinator, for tests that look at them or break them: those to one server, if not said."""

from inconcert._cluster.inbox import ShardedInbox
from inconcert._cluster.pubsub import ShardedPubSub
from inconcert._cluster.router import Router
from inconcert._core.session import Session
from inconcert._redis.wire.bells import Bells
from inconcert._redis.wire.channel import Channel
from inconcert._redis.wire.pubsub import PubSub, Topic
from tests.support.eventually import eventually

__all__ = ["at_rest", "bells_of", "broadcasts_of", "bytes_under_way", "channel_of", "topics_of", "wake_ups_of"]


def channel_of(session: Session) -> Channel:
    """The connection for commands."""
    assert isinstance(session.channel, Channel)
    return session.channel


async def at_rest(session: Session) -> None:
    """Return when all that was sent to a cluster is answered and each subscription confirmed, twice in a row."""
    quiet = 0

    def is_at_rest() -> bool:
        nonlocal quiet
        router, inbox = session.channel, session.inbox
        assert isinstance(router, Router)
        assert isinstance(inbox, ShardedInbox)
        assert isinstance(session.broadcasts, ShardedPubSub)
        sharded = session.broadcasts, inbox._sharded
        commands_are = all(
            channel.is_connected and not channel._unanswered and not channel._unsent
            for channel in router._channels.values()
        )
        subscriptions_are = not any(each._homeless for each in sharded) and all(
            shard.is_connected and not shard._unanswered for each in sharded for shard in each._shards.values()
        )
        quiet = quiet + 1 if commands_are and subscriptions_are else 0
        return quiet > 1  # what was answered just now may have something else to ask

    await eventually(is_at_rest)


def bytes_under_way(session: Session) -> int:
    """Of all calls that are not answered yet, on one server or on a cluster."""
    commands = session.channel
    channels = [*commands._channels.values()] if isinstance(commands, Router) else [channel_of(session)]
    return sum(channel._bytes for channel in channels)


def broadcasts_of(session: Session) -> PubSub:
    """The connection for broadcasts."""
    assert isinstance(session.broadcasts, PubSub)
    return session.broadcasts


def topics_of(session: Session) -> list[Topic]:
    """The channels and patterns to which it is subscribed for broadcasts, on one server or on a cluster."""
    broadcasts = session.broadcasts
    if isinstance(broadcasts, ShardedPubSub):
        all_of_them = [*broadcasts._shards.values(), *([broadcasts._patterns] if broadcasts._patterns else [])]
    else:
        all_of_them = [broadcasts_of(session)]
    return [topic for each in all_of_them for topics in (each._channels, each._patterns) for topic in topics.values()]


def bells_of(session: Session) -> Bells:
    """The connection on which idle consumers sleep."""
    assert isinstance(session.bells, Bells)
    return session.bells


def wake_ups_of(session: Session) -> PubSub:
    """The connection for the inbox."""
    assert isinstance(session.inbox._pubsub, PubSub)
    return session.inbox._pubsub
