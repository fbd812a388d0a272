"""Releasing by force what other processes hold, for operators.

A permit is taken on the server, and its holder is told to look at once: it finds its lease lost, as if it had lapsed.

Source: docs/explanation/permits.md
"""

import logging
import os
import socket
from typing import Literal, get_args

from inconcert._core.permit_state import PermitKeys
from inconcert._core.session import SessionRef
from inconcert._core.shield import run_shielded
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert._rules.names import check_name
from inconcert.errors import NobodyHolds
from inconcert.reports.reporter import ReportKeys, report_keys

_log = logging.getLogger("inconcert.reports")

_INSPECT = load("permits/inspect").bind(PermitKeys)
_EVICT = load("permits/evict").bind(PermitKeys)
_EVICTED = load("reports/evicted").bind(ReportKeys)
_VACATE = load("elections/vacate").bind(PermitKeys)

Forcible = Literal["lock", "semaphore", "rwlock", "election"]
"""What can be released by force."""


async def release_by_force(ref: SessionRef, kind: Forcible, name: str, holder: str | None) -> list[str]:
    """Take the permits of this name from their holders, or from this one; see `Coordinator.release_by_force`."""
    if kind not in get_args(Forcible):
        raise ValueError(f"kind is {kind!r}; give {', '.join(map(repr, get_args(Forcible)))}")
    keys = ref.keys.of(PermitKeys, kind, check_name(kind, name))
    session = ref.session
    _, _, *found = await session.run(_INSPECT(keys))
    holders = [each.decode() for each in found]
    if holder is not None:
        holders = [each for each in holders if each == holder]
    if not holders:
        raise NobodyHolds(kind, name)
    evicted: dict[str, None] = {}
    await run_shielded(_evict(ref, keys, (kind, name), holders, evicted))  # it ends, once begun: they must be told
    if not evicted:
        raise NobodyHolds(kind, name)
    return list(evicted)


async def _evict(
    ref: SessionRef, keys: PermitKeys, thing: tuple[Forcible, str], holders: list[str], evicted: dict[str, None]
) -> None:
    """Do it, and note from whom."""
    session, (kind, name) = ref.session, thing
    command = _EVICT(keys, inboxes=session.inboxes(keys.holders), evicted=holders)
    retry_ms = 1
    while retry_ms == 1:  # the line is long, and begins with many who have gone
        call = Call(command, must_run=True)
        session.channel.submit(call)
        retry_ms, *held = await call
        was_sent_before = call.sends > 1  # then the first sending may have taken them
        evicted |= {each: None for each, was_held in zip(holders, held, strict=True) if was_held or was_sent_before}
    if not evicted:
        return
    _log.warning(
        "%s %r was released by force from %s (pid %d) on %s; holders: %s",
        kind,
        name,
        session.id,
        os.getpid(),
        socket.gethostname(),
        ", ".join(evicted),
        extra={kind: name},
    )
    asked = report_keys(ref.keys)  # a key on which scripts find every process, also on a cluster
    await session.run(_EVICTED(asked, inboxes=session.inboxes(asked.asked), holders=evicted))
    if kind == "election":
        [record] = ref.keys.parts(kind, name, "record")
        for each in evicted:
            await session.run(_VACATE(keys, record=record, holder=each, changes=ref.keys.channel(record, kind, name)))
