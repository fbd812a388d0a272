"""How much this process has sent, over all its connections for commands: asked for by metrics."""

__all__ = ["Traffic", "traffic"]


class Traffic:
    """Counts that only grow.

    Attributes:
        commands: Commands that were written, repetitions included.
    """

    __slots__ = ("commands",)

    def __init__(self) -> None:
        self.commands = 0


traffic = Traffic()
