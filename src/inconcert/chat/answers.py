"""Answers of the scripts of a chat: it was done, or why not."""

from inconcert._redis.protocol.replies import Reply
from inconcert.errors import ChatNotFound, NotAMember

_DONE, _NOT_A_MEMBER = 1, 0  # the first element of a reply; below 0 if the chat does not exist; then comes the user


def is_refused(reply: Reply) -> bool:
    """True if the user is not a member, or the chat does not exist."""
    outcome, *_ = reply
    return bool(outcome != _DONE)


def check_answer(reply: Reply, chat_id: str) -> None:
    """Raise the error that a refusal stands for.

    Raises:
        NotAMember: The user is not in the chat.
        ChatNotFound: The chat does not exist.
    """
    if is_refused(reply):
        outcome, user = reply
        raise NotAMember(chat_id, user.decode()) if outcome == _NOT_A_MEMBER else ChatNotFound(chat_id)
