"""Suspects, which may kill their worker: such claims are handed out one at a time."""


class Suspects:
    """Entries with which two workers have died: a consumer holds one at a time, in all partitions.

    Attributes:
        held: The ids of those that it holds.
    """

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._asker: object = None  # the worker whose claim may bring one

    def may_take(self, asker: object) -> bool:
        """True if this worker's claim may bring one; then no other's may until it was answered."""
        if self.held or self._asker not in (None, asker):
            return False
        self._asker = asker
        return True

    def answered(self, asker: object) -> None:
        """The claim of this worker was answered, or it claims no more."""
        if self._asker is asker:
            self._asker = None

    def add(self, suspect_id: str) -> None:
        """It is held from now on."""
        self.held.add(suspect_id)

    def remove(self, suspect_id: str) -> bool:
        """It is no longer held; returns whether it was."""
        if suspect_id not in self.held:
            return False
        self.held.remove(suspect_id)
        return True
