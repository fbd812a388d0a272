"""Questions and acts of tests on leases."""

from contextlib import suppress

from inconcert._core.lease import Lease, state_of
from inconcert._core.permit_state import PermitKeys
from inconcert._core.session import Session
from inconcert._redis.protocol.keys import subject
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import PlainCall
from inconcert.coordinator import Coordinator
from inconcert.errors import LeaseLost
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.testing.keys import client_of, keys_of

_INSPECT = load("permits/inspect").bind(PermitKeys)


async def assert_nothing_held(concert: Coordinator) -> None:
    """Fail if a lock, permit or term of the namespace is held, by this process or another, and say which.

    Raises:
        AssertionError: Something is held.

    Cost: a look at each key of the server, and 1 round trip for each name that is or was held.
    """
    __tracebackhide__ = True
    ref = parts_of(concert).ref
    session = ref.session
    found: list[str] = []
    async for key in keys_of(concert, client_of(concert), ":holders"):
        _, _, *holders = await session.run(_INSPECT(ref.keys.beside(PermitKeys, key)))
        kind, which = subject([key])
        found += [f"  {kind} {which!r}, by {_holder(session, holder.decode())}" for holder in holders]
    if found:
        raise AssertionError("\n".join(["nothing was to be held, and these are:", *sorted(found)]))


async def lapse(lease: Lease) -> None:
    """Let a lease lapse now, as if its process had stood still for its whole ttl.

    Its holder notices at once: a body is cancelled, and `LeaseLost` is raised.  The next in line gets it at once if it
    waits in this process, otherwise when the lease would have ended.

    Args:
        lease: On a lock, semaphore or reader-writer lock; or a term.

    Raises:
        NotHeld: It was released before.
        LeaseLost: It had lapsed before.

    Cost: 2 round trips.
    """
    state = state_of(lease)
    state.check_held()
    permits = [state.holder, *(f"{state.holder}+{number}" for number in range(2, state.permits + 1))]
    scores = [part for permit in permits for part in (0, permit)]
    await state.session.gather([PlainCall("ZADD", state.keys.holders, "XX", *scores, key=state.keys.holders)])
    with suppress(LeaseLost):
        await state.renew()


def _holder(session: Session, holder: str) -> str:
    if not holder.startswith(f"{session.id}."):
        return f"holder {holder!r} of another process"
    if session.renewal.keeps(holder):
        return f"holder {holder!r} of this process"
    return f"holder {holder!r} of this process, which has dropped its lease without a release"
