"""A member of a group, as joining returns it."""

from collections.abc import AsyncGenerator, Iterable

from inconcert._core.channel_subscription import Gap
from inconcert._core.lease import HeldLease
from inconcert._rules.names import check_name
from inconcert._rules.payloads import JSON
from inconcert.members.changes import MemberChange
from inconcert.members.group import encode_value, read_group
from inconcert.members.member_state import MemberState
from inconcert.members.shares import Shares
from inconcert.members.watch import watch


class Member(HeldLease[MemberState]):
    """A membership of a group, until it is released, or lost.

    It is renewed in the background as long as it is referenced.  If the server cannot be reached, it is lost at its
    deadline by the local clock, which comes before others find it lost and share out its keys.

    Made by `async with concert.members(...)` and `Members.join`.
    """

    __slots__ = ()

    @property
    def id(self) -> str:
        """Its id in the group, unique every time that it joins; the same as `holder`."""
        return self._state.holder

    async def list(self) -> dict[str, JSON]:
        """The members of the group now, with their values: member id -> value. See `Members.list`."""
        self._check_loop()
        return await read_group(self._state.roster.session, self._state.roster.group)

    async def update(self, value: JSON) -> None:
        """Change its own value; watchers get `Changed`.

        Raises:
            LeaseLost: The membership has lapsed.
            NotHeld: It was released before.
            InvalidPayload: The value is not JSON, or longer than 4,096 bytes.

        Cost: 1 round trip, and 1 message to each process of the group.
        """
        self._check_loop()
        await self._state.update(encode_value(self._state.name, value))

    def watch(self) -> AsyncGenerator[MemberChange | Gap, None]:
        """Yield who is in the group, each as `Joined`, and then each change, as `Members.watch` does.

        Raises:
            LeaseLost: The membership has lapsed.
            NotHeld: It was released.
            Unavailable: The server could not be reached at the beginning, or refused the subscription later.
            OutcomeUnknown: The server did not answer at the beginning.

        Cost: 0 round trips, and 1 message for each change to all watchers of the process; its renewals see whether one
            was missed.
        """
        return watch(self._state.roster, self._state)

    def owns(self, key: str) -> bool:
        """True if a key is this member's, among the members that this process knows now; asks nobody.

        Each process gives the same answer when it knows the same members: while a change is on its way, two may take a
        key for their own.  Use it to spread work that may be done twice; `shares` hands a key to one at a time.

        Cost: no round trip; O(N), N members.
        """
        check_name("key", key)
        return not self._state.is_over and self._state.roster.owner(key) == self._state.holder

    def shares(self, keys: Iterable[str]) -> AsyncGenerator[dict[str, int], None]:
        """Yield this member's keys, at first and whenever they change: each key has one owner at a time.

        Asking for the next set says that the work on all keys that are not in this one has stopped: only then another
        member gets them.  So let the loop stop and start work, and not do it:

        ```python
        async with concert.members("crawlers") as me:
            async for sites in me.shares(all_sites):
                await crawl_only(sites)  # starts and stops other tasks
        ```

        The first set comes at once, and may be empty or lack keys that others have not let go of yet.  When the loop
        ends, or the wait for the next set is cancelled, all keys of this member are let go of.

        Args:
            keys: All keys of the group, 1 to 512 bytes each: the same in all members. A key that is missing in the list
                of its owner is handed to nobody.

        Yields:
            Key -> fencing token, which rises each time the key changes hands: pass it to the resource, which must
            refuse a lower one.

        Raises:
            ValueError: `keys` is empty, or a string.
            RuntimeError: Another loop over `shares` of this member runs.
            LeaseLost: The membership has lapsed; its keys go to others.
            NotHeld: It was released.
            Unavailable: The server refused the subscription to changes.

        Cost: 1 round trip for each 500 keys that it gets or lets go of, and 1 message to each process for those that it
            lets go of; 0 while nothing changes. When the connection was lost, 1 for each 500 of all keys. While the
            server cannot be reached it tries again, with pauses of up to 2 s and a warning in the log for each attempt.
        """
        if isinstance(keys, str):
            raise ValueError(f"keys of members {self.name!r} is the string {keys!r}; give a list of keys")  # noqa: TRY004
        known = frozenset(check_name("key", key) for key in keys)
        if not known:
            raise ValueError(f"keys of members {self.name!r} is empty; give at least one key")
        return Shares(self._state).sets(known)
