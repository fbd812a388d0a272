"""The lines of small charts, in the coordinates of their SVG."""

from collections.abc import Sequence

WIDTH, HEIGHT = 240, 48
_STROKE = 1.5


def points(values: Sequence[float], top: float = 0.0) -> str:
    """The `points` of a polyline from left to right, 0 at the bottom and the highest value, or `top`, at the top."""
    if len(values) < 2:
        return ""
    top = max(*values, top, 1e-9)
    step = WIDTH / (len(values) - 1)
    reach = HEIGHT - 2 * _STROKE
    return " ".join(f"{n * step:.1f},{HEIGHT - _STROKE - value / top * reach:.1f}" for n, value in enumerate(values))
