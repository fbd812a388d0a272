"""A job that is not ready yet: it comes back later, and no attempt is counted."""

from inconcert._rules import durations
from inconcert._rules.durations import Seconds
from inconcert.tasks.durable.body_exits import Asleep


class Snooze(Asleep):
    """Raise it in the body of a task: the job comes back after `delay`, and no attempt is counted.

    For a job that finds that it is too early, such as one that polls: `raise Snooze(60)`. Meanwhile it has no place in
    the worker, and none in a limit; it keeps its unique name, and expires if it has `expires=`. It may snooze any
    number of times. It passes `except Exception`, as a cancellation does. To go on where the body was, use
    `durable.sleep()`.

    Of a job that is delivered at most once nothing comes back: it ended before its body began.

    Args:
        delay: Seconds until it may run again, or a timedelta; 0 for at once, behind the others of its queue.

    Raises:
        ValueError: `delay` is negative, or not a number.

    Cost: 1 round trip, that of any end of an attempt.
    """

    def __init__(self, delay: Seconds) -> None:
        super().__init__(durations.delay(delay))
