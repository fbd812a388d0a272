"""One error of each kind that the library raises."""

from inconcert import errors
from inconcert.errors import OutcomeUnknown, Unavailable, WrongState

__all__ = ["ALL", "OF_CALLS"]

OF_CALLS = [
    error_type("m", operation="o", kind="k", name="n") for error_type in (Unavailable, OutcomeUnknown, WrongState)
]
ALL = [
    *OF_CALLS,
    errors.NotConnected("m", is_misuse=True),
    errors.WrongLayout("n", "partitions", 1, 8),
    errors.WrongLayout("n", "format", 1, 2),
    errors.InvalidName("m"),
    errors.InvalidPayload("m"),
    errors.UnreadablePayload("m"),
    errors.QuorumNotReached("n", {"a:1": "down"}, 3),
    errors.AcquireTimeout("lock", "n", 1.0),
    errors.RateLimited("n", 1.0, retry_after=2.0),
    errors.LeaseLost("lock", "n", 7),
    errors.StaleToken("shop:lock:n", 7),
    errors.NotHeld("lock", "n"),
    errors.NobodyHolds("lock", "n"),
    errors.NotClaimed("job", "n"),
    errors.UnknownTask("n"),
    errors.UnknownSchedule("n"),
    errors.NotAMember("c", "u"),
    errors.BarrierBroken("n", "h"),
    errors.JobFailed("1", "reason", "traceback", 3),
    errors.JobCancelled("1"),
    errors.JobExpired("1", 2.0),
    errors.JobNotFound("1"),
    errors.GroupClosed("1.0"),
    errors.GroupNotFound("1.0"),
    errors.GroupResultsGone("1.0", were_kept=True),
    errors.StepChanged("1", "s", "ran a()", "runs b()"),
    errors.StepRefused("1", "s", "why"),
    errors.MessageRefused("1", "n"),
    errors.ChatNotFound("c"),
    errors.QueueFull("n", 3, 1.0),
    errors.QueueShutDown("n"),
    errors.ItemNotFound("n", "1"),
]
