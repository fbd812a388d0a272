"""Numbers, times and values as a dashboard writes them: exact where that fits."""

import time

import msgspec

DASH = "\N{EN DASH}"  # stands for what is not known
_LONGEST = 20_000  # characters of one value


def count(number: int) -> str:
    """1234567 as `1,234,567`."""
    return f"{number:,}"


def duration(seconds: float | None) -> str:
    """`4.1 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`; a dash for None."""
    if seconds is None:
        return DASH
    if seconds < 60:
        return f"{max(seconds, 0.0):.1f} s"
    whole = int(seconds)
    for unit, smaller, big, small in (("min", "s", 60, 1), ("h", "min", 3600, 60), ("d", "h", 86_400, 3600)):
        if whole < big * (24 if unit == "h" else 60) or unit == "d":
            return f"{whole // big:,} {unit} {whole % big // small} {smaller}"
    raise AssertionError(seconds)


def ago(at: float | None) -> str:
    """Say how long ago an instant was, by this machine's clock."""
    return duration(None if at is None else max(time.time() - at, 0.0))


def ahead(at: float) -> str:
    """`in 4.1 s`, or `now` once the instant is over, by this machine's clock."""
    left = at - time.time()
    return f"in {duration(left)}" if left > 0 else "now"


def when(at: float) -> str:
    """An instant in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def rate(per_second: float | None) -> str:
    """Jobs in a second, or in a minute if they are few."""
    if per_second is None:
        return DASH
    return f"{per_second:,.1f}/s" if per_second >= 1 or per_second == 0 else f"{per_second * 60:,.1f}/min"


def size(bytes_: int) -> str:
    """`812 B`, `1.5 MiB`."""
    if bytes_ < 1024:
        return f"{bytes_} B"
    number = float(bytes_)
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:,.1f} {unit}"
    return f"{number / 1024:,.1f} TiB"


def as_json(value: object, *, longest: int = _LONGEST, in_one_line: bool = False) -> str:
    """A value as JSON, cut where it is too long to be read."""
    return shortened(msgspec.json.format(msgspec.json.encode(value), indent=0 if in_one_line else 2).decode(), longest)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """A text, cut where it is too long to be read; then it says how much is missing."""
    return text if len(text) <= longest else f"{text[:longest]} … {len(text) - longest:,} more characters"
