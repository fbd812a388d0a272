"""Says who is in a group of members, and which of them have not been heard of."""

from collections.abc import Awaitable, Callable

from inconcert._core.session import SessionRef
from inconcert.members.group import Group, read_group
from inconcert.reports.explanation import Explanation, Reason
from inconcert.reports.report import Inspection, ago, whereabouts

_MOST = 20  # members that are told of


async def explain_members(ref: SessionRef, name: str, ask: Callable[[], Awaitable[Inspection | Reason]]) -> Explanation:
    """Explain a group by its members."""
    # The server first: what a process that answers later does not have any more was left in between.
    joined = await read_group(ref.session, Group.of(ref, name))
    asked = await ask()
    seen = asked if isinstance(asked, Inspection) else Inspection((), ())
    members = [held for held in seen.locks() if held.kind == "members" and held.holder in joined]
    answered = {process.id for process in seen.processes if not process.more}
    told = {member.holder for member in members}
    others = sorted(each for each in joined if each not in told and each.partition(".")[0] not in answered)
    reasons: list[Reason] = []
    if isinstance(asked, Reason):
        reasons, others = [asked], []
    for member in members[:_MOST]:
        left = f"lost in {max(0.0, member.remaining):.0f} s unless renewed"
        text = f"member {member.holder} for {ago(member.since)}: {whereabouts(member)}; {left}"
        reasons.append(Reason("member", text))
    for other in others[:_MOST]:
        is_silent = other.partition(".")[0] in seen.silent
        why = "its process did not answer" if is_silent else "its process is dead or cut off, or does not report"
        code = "silent_member" if is_silent else "dead_member"
        reasons.append(Reason(code, f"member {other}: {why}; its keys move when its lease lapses"))
    if len(joined) > len(members[:_MOST]) + len(others[:_MOST]):
        reasons.append(Reason("member", f"{len(joined):,} members in all"))
    if not joined:
        reasons.append(Reason("empty", "nobody is in the group; is the name right?"))
    return Explanation(
        kind="members",
        name=name,
        state="present" if joined else "absent",
        reasons=tuple(reasons),
        holders=tuple(members),
        silent=seen.silent,
    )
