"""A group of members: who takes part, with what, and which keys are whose, among all processes on one server.

The server keeps the members, each under a lease, and the claims of their keys.  Each process keeps a roster of the
group, and is told of each change by one message.

    members  zset    member -> lease end, server ms
    values   hash    member -> its value, JSON
    state    hash    version of the group; turns of claims
    claims   hash    key -> token and member that has it
    look     string  the member that looks when the next lease ends

Source: docs/explanation/members.md
"""

from collections.abc import AsyncGenerator

from inconcert._core.async_with import AsyncWith
from inconcert._core.caller import note
from inconcert._core.channel_subscription import Gap
from inconcert._core.session import SessionRef
from inconcert._rules import durations
from inconcert._rules.defaults import MEMBER_TTL
from inconcert._rules.durations import Seconds
from inconcert._rules.payloads import JSON
from inconcert.members.changes import MemberChange
from inconcert.members.group import Group, encode_value, read_group
from inconcert.members.member import Member
from inconcert.members.member_state import KIND, Joining, MemberState
from inconcert.members.roster import Rosters
from inconcert.members.watch import watch


class Members(AsyncWith[MemberState, Member]):
    """A group of processes that know each other, with a value each, and that share out keys among themselves.

    `async with` joins for as long as its body runs; if the lease is lost, the body is cancelled and `LeaseLost` raised,
    like that of a lock.  `list` and `watch` need no membership.

    Use it for work that is long and divided by keys: sites to crawl, sockets to keep open, partitions to read.  For
    single jobs use tasks, and an election for work that one process does for all.

    Made by `Coordinator.members`:

    ```python
    async with concert.members("crawlers", value={"host": "a"}) as me:
        async for sites in me.shares(all_sites):
            await crawl_only(sites)
    ```

    Args:
        name: Which group. The same name in the same namespace is the same group, on any machine.
        value: What others see of this member, at most 4,096 bytes as JSON.
        ttl: Life of a membership between renewals, in seconds: the longest time until others notice a death.

    Raises:
        ValueError: `ttl` is not above 0.
        InvalidPayload: `value` is not JSON, or longer than 4,096 bytes.
    """

    def __init__(
        self, ref: SessionRef, rosters: Rosters, name: str, *, value: JSON = None, ttl: Seconds = MEMBER_TTL
    ) -> None:
        super().__init__(KIND, name, Member)
        self._ref = ref
        self._rosters = rosters
        self._group = Group.of(ref, name)
        self._value = encode_value(name, value)
        self._ttl = durations.ttl(ttl)

    async def join(self) -> Member:
        """Become a member, until `release`: for a service that does not end with a block of code.

        Raises:
            Unavailable: The server could not be asked; nobody joined.
            OutcomeUnknown: The server did not answer; a membership that it may have begun ends or lapses.

        Cost: 1 round trip, and 1 message to each process of the group; 2 more for the first one of a process in the
            group. While it lasts, 1 renewal every third of `ttl`.
        """
        return self._face(await self._obtain())

    async def list(self) -> dict[str, JSON]:
        """The members of the group now, with their values: member id -> value. No need to join.

        Cost: 1 round trip for about each 1,000 members, and 1 for each 100 that it finds to have lapsed.
        """
        return await read_group(self._ref.session, self._group)

    def watch(self) -> AsyncGenerator[MemberChange | Gap, None]:
        """Yield who is in the group, each as `Joined`, and then each change. No need to join.

        A `Gap` says that changes were missed: forget what came before; then comes the whole group again, each member as
        `Joined`.  That is so after the connection was cut, if anything has changed meanwhile, and for a watcher that
        falls behind by more than 1,000 changes.  Nothing comes while the server cannot be reached.

        Raises:
            Unavailable: The server could not be reached at the beginning, or refused the subscription later.
            OutcomeUnknown: The server did not answer at the beginning.

        Cost: 2 round trips, 0 if this process watches or takes part already; 1 message for each change to all watchers
            of the process; 1 round trip when a lease would end, or every 30 s.
        """
        return watch(self._rosters.of(self._group), None)

    # Private.

    async def _obtain(self) -> MemberState:
        session = self._ref.session
        joining = Joining(self._value, self._ttl, note())
        return await MemberState.join(self._rosters.of(self._group), session.new_address(), joining)
