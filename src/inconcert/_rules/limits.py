"""Caps given by users: counts as whole numbers, and how long things are kept."""

from inconcert._rules.durations import Seconds, milliseconds, ttl


def whole(parameter: str, value: int, *, least: int = 1, most: int | None = None) -> int:
    """Check a count; an error names the parameter and the range. `most` is None if there is no upper limit."""
    if type(value) is not int or value < least or (most is not None and value > most):
        limit = "" if most is None else f" to {most:,}"
        raise ValueError(f"{parameter} is {value!r}; give a whole number from {least:,}{limit}")
    return value


def age_ms(max_age: Seconds | None) -> int:
    """Check an age: in milliseconds, 0 for any age."""
    try:
        return 0 if max_age is None else milliseconds(ttl(max_age))
    except ValueError as error:
        raise ValueError(f"max_age is {max_age!r}; give at least 0.001 s, or None for any age") from error
