"""The facts that must hold after the demo, and their check."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from examples.marketplace.outside import Mail

Heard = Mapping[str, set[tuple[str, str]]]  # user -> (chat, text)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the customers, the bank, the post office and the server have recorded."""

    wanted: set[str]  # items that a customer has tried to buy
    sold: Counter[str]  # item -> receipts
    charges: Mapping[str, int]  # item -> payments, including refunded ones
    most_payments: int  # inside the bank at once
    mail: Mapping[str, Mail]  # by job
    refused_mail: int  # sent a second time, and recognised
    killed: int  # process
    left_behind: set[str]  # jobs that it held
    recovered_after: float | None  # seconds from its end until they were done
    said: Heard
    heard: Heard
    connections: tuple[int, int]  # of the service at the most: for coordination, and for its own commands
    idle_commands: float  # per second, from all processes together


@dataclass(frozen=True, slots=True)
class Fact:
    primitive: str  # the part of inconcert behind it
    what: str
    found: str
    is_right: bool

    def __str__(self) -> str:
        return f"  {'ok    ' if self.is_right else 'WRONG '} {self.primitive:<13} {self.what:<28} {self.found}"


def facts(seen: Evidence) -> Iterator[Fact]:
    """Check the evidence."""
    sold, wanted = len(seen.sold), len(seen.wanted)
    yield Fact("lock", "items sold", f"{sold} of {wanted}", seen.sold.keys() == seen.wanted)

    double = {item for counts in (seen.sold, seen.charges) for item, count in counts.items() if count > 1}
    yield Fact("lock", "items sold or paid twice", f"{len(double)}", not double)

    most = seen.most_payments
    yield Fact("semaphore", "most payments at once", f"{most}; 5 are allowed", 0 < most <= 5)

    sent, expected = len(seen.mail), 3 * wanted
    subjects = {mail.subject for mail in seen.mail.values()}
    yield Fact("task", "e-mails sent", f"{sent} of {expected}", sent == expected)
    yield Fact("task", "e-mails lost", f"{expected - len(subjects)}", len(subjects) == expected)
    twice = sent - len(subjects)
    yield Fact("task", "e-mails sent twice", f"{twice}; run twice, and sent once: {seen.refused_mail}", not twice)

    rescued = {job for job in seen.left_behind & seen.mail.keys() if seen.mail[job].sent_by != seen.killed}
    after = "never" if seen.recovered_after is None else f"after {seen.recovered_after:.1f} s"
    found = f"{len(seen.left_behind)}; run by the other one: {len(rescued)}, {after}"
    yield Fact("task", "jobs of the killed worker", found, 0 < len(seen.left_behind) == len(rescued))

    late = [mail.sent_at - mail.due_at for mail in seen.mail.values() if mail.due_at is not None]
    waited = f"{_duration(median(late or [0]))} (median), {_duration(max(late, default=0))} (at most)"
    found = f"{len(late)}, none too early; behind more urgent ones {waited}"
    yield Fact("delayed task", "delayed e-mails sent", found, len(late) == wanted and min(late, default=0) >= 0)

    said = sum(map(len, seen.said.values()))
    heard = sum(len(lines & seen.heard.get(user, set())) for user, lines in seen.said.items())
    yield Fact("chat", "chat messages delivered", f"{heard} of {said}", seen.heard == seen.said)

    shared, own = seen.connections
    yield Fact(
        "coordinator",
        "service's connections",
        f"{shared} for all coordination, {own} for its own commands",
        0 < shared <= 3,
    )
    yield Fact("coordinator", "commands while idle", f"{seen.idle_commands:.1f} per second", seen.idle_commands < 5)


def report(found: Iterable[Fact]) -> int:
    """Print the facts, each with the primitive behind it; returns the exit status, 1 if one is wrong."""
    found = list(found)
    print("", "What must be true, and the part of inconcert behind it:", "", *found, "", sep="\n")
    return 0 if all(fact.is_right for fact in found) else 1


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
