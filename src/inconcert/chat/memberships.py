"""Which chats a user is in: one list for each user, which follows what the chats say.

A chat and the lists of its members lie in different slots, so no script changes both.  The chat comes first, and is
right.  It counts its joins.  A list has with each chat the count at which the user was known to be a member: adding
only raises it, and removing works only up to the count at which the user was known to be none.  So steps that come
late or twice never take a membership off the list; a chat that they leave on it by mistake is removed when the user
next fetches.

Source: docs/explanation/chat.md
"""

from inconcert._core.session import Access, Session
from inconcert._redis.channel import Call
from inconcert._redis.replies import Reply
from inconcert._redis.scripts import Script, load
from inconcert.errors import NotConnected

__all__ = ["ChatList", "MemberChange"]

_ADD, _REMOVE, _READ = load("chat_lists/add"), load("chat_lists/remove"), load("chat_lists/read")
_PAGE = 10_000  # chats in one reply, as chat_lists/read has it


class ChatList:
    """The chats of one user.

    Args:
        access: The way to the open session.
        user: Whose list.

    Raises:
        InvalidName: The user's name is none.
    """

    __slots__ = ("_access", "_keys")

    def __init__(self, access: Access, user: str) -> None:
        self._access = access
        self._keys = access.keys.of("user", user, "chats")

    async def read(self) -> list[str]:
        """All of them. Cost: 1 round trip for each 10,000."""
        session = self._access.session
        chats: list[str] = []
        while len(chats) % _PAGE == 0:
            page = await session.run(_READ, self._keys, len(chats))
            if not page:
                break
            chats += [chat.decode() for chat in page]
        return list(dict.fromkeys(chats))  # the list may have changed between two pages

    def addition(self, chat_id: str, joins: int) -> Call:
        """To be submitted when the user was a member at this count; it is sent even if its caller goes."""
        return Call(_ADD, self._keys, (chat_id, joins), must_run=True)

    def removal(self, chat_id: str, joins: int) -> Call:
        """To be submitted when the user was none at this count; it is sent even if its caller goes."""
        return Call(_REMOVE, self._keys, (chat_id, joins), must_run=True)


class MemberChange(Call):
    """Someone joins or leaves a chat.  The reply sends off the change of their list, whether or not the caller waits.

    Args:
        session: The open session.
        script: One that answers {1 if it was done, else less, how many joins the chat had}.
        keys: Its keys.
        user: Who joins or leaves.
        chat_id: Which chat.
        chats: The user's list.
        is_join: Whether the user is a member when it was done.

    Attributes:
        listed: The change of the list, once the reply is here.
    """

    __slots__ = ("_chat_id", "_chats", "_is_join", "_session", "listed")

    def __init__(
        self,
        session: Session,
        script: Script,
        keys: tuple[str, ...],
        user: str,
        *,
        chat_id: str,
        chats: ChatList,
        is_join: bool,
    ) -> None:
        super().__init__(script, keys, (user, session.new_address()))
        self._session = session
        self._chat_id = chat_id
        self._chats = chats
        self._is_join = is_join
        self.listed: Call

    @property
    def is_wanted(self) -> bool:
        """If it may have run, its reply is needed, whether the caller waits or not."""
        return self.sends > 0 or not self.done()

    def answered(self, reply: Reply) -> None:
        """Send the second step at once."""
        done, joins = reply
        change = self._chats.addition if self._is_join and done == 1 else self._chats.removal
        self.listed = change(self._chat_id, joins)
        try:
            self._session.channel.submit(self.listed)
        except NotConnected as error:
            self.listed.failed(error)
        super().answered(reply)
