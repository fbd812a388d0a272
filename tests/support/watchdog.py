"""The watchdog threads of this process, and the leases that they guard."""

import threading

from inconcert._claims.worker_lease import WorkerLease
from inconcert.tasks.running.consumer import Consumer
from inconcert.tasks.running.job_state import JobState

__all__ = ["life_of", "threads"]


def threads() -> list[threading.Thread]:
    """The watchdogs of this process."""
    return [thread for thread in threading.enumerate() if thread.name == "inconcert watchdog"]


def life_of(consumer: Consumer) -> WorkerLease[JobState]:
    """What it has claimed with."""
    assert consumer._opened is not None
    assert consumer._opened._partitions[0].worker is not None
    return consumer._opened._partitions[0].worker
