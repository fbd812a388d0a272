"""The delay before a retry."""


def backoff(failures: int, jitter: float, *, first: float = 0.05, most: float = 2.0) -> float:
    """Exponential backoff with full jitter.

    Args:
        failures: How many attempts have failed in a row, from 1.
        jitter: A random number in [0, 1): spreads out clients that failed together.
        first: The longest wait after one failure, in seconds.
        most: The longest wait after any number of failures, in seconds.

    Returns:
        Seconds to wait: at least a tenth of the longest wait for this count, so that clients never spin.
    """
    longest = min(most, first * 2.0 ** min(failures - 1, 30))
    return longest * (0.1 + 0.9 * jitter)


def retry_delay(failures: int, jitter: float) -> float:
    """The delay of a job before its next attempt: 1 s, 2 s, 4 s ... up to 5 min, each within 25 % of that.

    Args:
        failures: How many attempts have failed, from 1.
        jitter: A random number in [0, 1).

    Returns:
        Seconds to wait.
    """
    return min(300.0, 2.0 ** min(failures - 1, 30)) * (0.75 + 0.5 * jitter)
