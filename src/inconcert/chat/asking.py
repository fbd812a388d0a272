"""How the parts of chat ask the server, and what they make of its answers."""

from collections.abc import Sequence

from inconcert._core.session import Session, SessionRef
from inconcert._redis.call import Call
from inconcert._redis.replies import Reply
from inconcert.chat.places import Places
from inconcert.errors import ChatNotFound, NotAMember

__all__ = ["DONE", "Asking", "check", "together"]

DONE = 1  # what scripts answer first
_NO_MEMBER = 0  # or less, if there is no such chat; the user follows


class Asking:
    """What all verbs of chat need.

    Args:
        ref: The way to the open session.
    """

    def __init__(self, ref: SessionRef) -> None:
        self._ref = ref
        self._places = Places(ref.keys)


async def together(session: Session, calls: Sequence[Call]) -> list[Reply]:
    """Send these together, and wait for all replies."""
    for call in calls:
        await session.channel.has_room(call)
        session.channel.submit(call)
    return [await call for call in calls]


def check(reply: Reply, chat_id: str) -> None:
    """Raise the error that a script's first word stands for."""
    if reply[0] == _NO_MEMBER:
        raise NotAMember(chat_id, reply[1].decode())
    if reply[0] != DONE:
        raise ChatNotFound(chat_id)
