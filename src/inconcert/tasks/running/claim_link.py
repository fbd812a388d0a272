"""The way from a claimed job to the server: what its body keeps while it runs goes through this."""

from typing import NamedTuple

from inconcert._core.session import Session
from inconcert.tasks.records.store import JobKeys
from inconcert.tasks.running.effects import Effects


class ClaimLink(NamedTuple):
    """One for all jobs that a worker holds."""

    session: Session
    keys: JobKeys
    worker: str  # the id under which the server knows it
    claimed: str  # the key of what it has claimed
    effects: Effects  # sends again what may not have arrived
