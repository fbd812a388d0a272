"""The life of a job, as one table: the state it is in, what becomes of it there, and the state it is in then.

    new --------+-----------+          queue    its id is in a queue: it may be claimed
     |          |           |          delayed  it is due later; or a limit holds it back, in whose line it is
     |          v           v          waiting  it runs after others, and some of these have not ended
     |       delayed <-- waiting       claimed  a worker holds it
     |        |   ^         |          dead     it was dead-lettered: it does not run again by itself
     v        v   |         |          gone     nothing of it is there, but perhaps its result
    queue <---+---|---------+
     |   ^        |                    From `queue`, `delayed` and `waiting` it may also be cancelled, and be gone; from
     v   |        |                    `queue` and `waiting` it may expire, and be dead.
    claimed ------+
     |     |                           What is dead goes on as if it were new, or is purged.
     v     v
    gone <- dead                       An item of a queue has the same life, and never waits for others.

A *verdict* says what becomes of it.  Each script that moves jobs names under `MOVES` in its header which verdicts it
carries out, from which states; no job goes from one state to another but by a row of this table:

    -- MOVES  claimed: done cancelled; delayed: admitted

Invariants: what has a body is in exactly one of these states; a verdict on a claim names the claim of
the worker, so a late one changes nothing; what leaves `claimed` frees its places in limits (the hook
`on_release` of plugs); what comes to `gone` or `dead` is told to all who have to do with its end (`on_end`).

Tests hold the scripts to it, and `docs/contributing/job-keys.md` shows it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

State = Literal["new", "queue", "delayed", "waiting", "claimed", "dead", "gone"]

LIFE: Mapping[State, Mapping[str, State]] = MappingProxyType(
    {
        "new": {
            "enqueued": "queue",
            "put_off": "delayed",  # it has a delay, or it is not its turn
            "put_after": "waiting",
            "orphaned": "dead",  # a job that it was to run after has not ended as it must have
        },
        "queue": {
            "claimed": "claimed",
            "held_back": "delayed",  # by a limit
            "expired": "dead",
            "cancelled": "gone",
            "purged": "gone",  # of items
        },
        "delayed": {
            "due": "queue",  # or it expires where a limit holds it back
            "admitted": "queue",  # by the limit that held it back
            "woken": "queue",  # by a message
            "moved": "delayed",
            "undo": "queue",  # it was cancelled, and ends once it is undone
            "cancelled": "gone",
            "purged": "gone",
        },
        "waiting": {
            "ready": "queue",
            "put_off": "delayed",  # it is ready, and has a delay
            "undo": "queue",
            "orphaned": "dead",
            "expired": "dead",
            "cancelled": "gone",
        },
        "claimed": {
            "done": "gone",
            "cancelled": "gone",
            "retry": "delayed",  # the attempt failed, and another comes later
            "later": "delayed",  # this worker could not run it
            "asleep": "delayed",  # it waits for a message, or until an instant
            "again": "queue",  # the attempt failed, and another comes at once
            "back": "queue",  # this is not counted as an attempt
            "crash": "queue",  # its worker ends with it
            "lost": "queue",  # its worker is dead, or retires
            "undo": "queue",  # it ends once it is undone
            "dead": "dead",  # it gave up
            "undone": "dead",  # it gave up, and is undone
            "killed": "dead",  # too many workers died with it
        },
        "dead": {
            "replayed": "queue",
            "put_off": "delayed",  # it is replayed, and has a delay
            "put_after": "waiting",  # it is replayed, and waits for others again
            "purged": "gone",
        },
        "gone": {
            "unsettled": "queue",  # it was acknowledged to be handed out at most once, and never was
        },
    }
)
