"""Traffic of this process, over all its connections for commands; metrics ask for it."""


class Traffic:
    """Counts that only grow."""

    __slots__ = ("commands",)

    def __init__(self) -> None:
        self.commands = 0  # commands that were written, repetitions included


traffic = Traffic()
