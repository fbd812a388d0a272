"""Traffic of this process, over all its connections for commands; metrics ask for it."""


class Traffic:
    """Counts that only grow.

    Attributes:
        commands: Commands that were written, repetitions included.
    """

    __slots__ = ("commands",)

    def __init__(self) -> None:
        self.commands = 0


traffic = Traffic()
