"""What measurements come to: percentiles, ratios, and a table that is printed as it grows."""

import math
from collections.abc import Sequence

__all__ = ["Table", "as_text", "percentile", "ratio"]

_WIDTH = 12  # of a column


class Table:
    """A table of figures; its head is printed at once, and each row when it is known.

    Args:
        columns: The titles of the columns.
        width: Width of the rows' titles.

    Attributes:
        columns: The titles of the columns.
        rows: What was printed so far: title -> figures.
        versions: Of what was measured, by name; `measure` fills it.
    """

    def __init__(self, *columns: str, width: int = 40) -> None:
        self.columns = columns
        self.rows: dict[str, tuple[float, ...]] = {}
        self.versions: dict[str, str] = {}
        self._widths = [max(_WIDTH, len(column) + 2) for column in columns]
        self._width = width
        self._print("", columns)

    def row(self, title: str, *figures: float) -> None:
        """Print a row; nan is for what cannot be measured."""
        self.rows[title] = figures
        self._print(title, [as_text(figure) for figure in figures])

    def _print(self, title: str, cells: Sequence[str]) -> None:
        line = "".join(cell.rjust(width) for cell, width in zip(cells, self._widths, strict=False))
        print(f"{title:{self._width}}{line}", flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies."""
    return sorted(values)[int(len(values) * share)]


def ratio(ours: float, other: float) -> float:
    """Ours divided by the other; nan if one of them is 0 or missing."""
    return ours / other if ours and other else math.nan


def as_text(figure: float) -> str:
    """Rounded, but not to 0; a dash for nan."""
    if math.isnan(figure):
        return "-"
    if 0 < abs(figure) < 0.01:
        return f"{figure:.1g}"
    return f"{figure:,.0f}" if abs(figure) >= 100 or figure == int(figure) else f"{figure:,.2f}"
