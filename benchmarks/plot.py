"""Draws what was measured, and writes it into the page on performance.

    python -m benchmarks.plot

Reads `results/*.json`, which `--json` of the benchmarks writes, and writes a table of each between its marks in
docs/explanation/performance.md. Of those with contestants it draws a picture into docs/assets, too. Others are shown by
the ratio of two figures of one run; more than 1 is always in our favour, whether a figure is better large or small.
"""

import math
from dataclasses import dataclass
from html import escape

from benchmarks.figures import as_text
from benchmarks.processes import ROOT
from benchmarks.results import FOLDER, Results, load

__all__ = [
    "ALONE",
    "COMPARISONS",
    "PAGE",
    "PICTURES",
    "Comparison",
    "Figure",
    "all_measured",
    "drawn",
    "factor",
    "rewritten",
]

PAGE = ROOT / "docs" / "explanation" / "performance.md"
PICTURES = ROOT / "docs" / "assets"

_OURS = "inconcert"
_TIMES = "\N{MULTIPLICATION SIGN}"
_WIDTH, _LEFT, _RIGHT = 420, 80, 370  # of a picture, and where its bars may begin and end
_TOP, _HEAD, _BAR, _GAP = 26, 20, 18, 12  # heights: the scale, the title of a figure, a bar, the space below a figure


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of a run's table.

    Attributes:
        row: Its title there.
        title: Its title on the page.
        less_is_better: Whether it is a time or a cost, not a rate.
    """

    row: str
    title: str
    less_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the page shows of one benchmark.

    Attributes:
        name: The benchmark's module, its file of results, and the mark on the page.
        title: What the picture shows, in words, as a screen reader says it.
        figures: In the order of the page.
        leave_out: Columns that are not contestants.
    """

    name: str
    title: str
    figures: tuple[Figure, ...]
    leave_out: tuple[str, ...] = ("ratio", "to the best", "to the floor")


COMPARISONS = (
    Comparison(
        "locks",
        "How many times better a lock is than redis-py's",
        (
            Figure("pairs/s, 1 coroutine", "acquire and release, 1 coroutine, per second"),
            Figure("pairs/s, 100 coroutines on 100 names", "the same, 100 coroutines, 100 names"),
            Figure("connections, 100 coroutines", "connections for them", less_is_better=True),
            Figure("hand-off between processes, p50 ms", "hand-off between processes, ms, p50", less_is_better=True),
            Figure("hand-off between processes, p99 ms", "hand-off between processes, ms, p99", less_is_better=True),
            Figure("50 wait: commands/s", "commands per second while 50 wait", less_is_better=True),
            Figure("50 in line: inversions of 1,225", "of 1,225 pairs of waiters, in wrong order", less_is_better=True),
        ),
    ),
    Comparison(
        "tasks",
        "How many times better tasks are than those of other libraries",
        (
            Figure("enqueue/s, one by one", "jobs enqueued one by one, per second"),
            Figure("enqueue/s, 100 at a time", "jobs enqueued by 100 coroutines, per second"),
            Figure("drain/s, nothing to do", "jobs run that do nothing, per second"),
            Figure("drain/s, jobs of 10 ms", "jobs run that take 10 ms, per second"),
            Figure(
                "pick-up by an idle worker, p50 ms", "until an idle worker starts a job, ms, p50", less_is_better=True
            ),
            Figure("a delayed job is late, p99 ms", "a delayed job is late, ms, p99", less_is_better=True),
            Figure("commands for each job, 100 at a time", "commands for each job", less_is_better=True),
            Figure("bytes for each queued job", "bytes for each queued job", less_is_better=True),
            Figure("kill -9, 50 in flight: jobs of 200 done", "jobs of 200 done, 30 s after kill -9"),
        ),
    ),
    Comparison(
        "elections",
        "How many times better an election is than grelmicro's",
        (
            Figure("fail-over after kill -9, p50 ms", "next leader after kill -9, ms, p50", less_is_better=True),
            Figure(
                "hand-over after a clean exit, p50 ms", "next leader after a clean exit, ms, p50", less_is_better=True
            ),
        ),
    ),
    Comparison(
        "chat",
        "How many times better a chat is than the textbook's recipe",
        (
            Figure("messages/s, 100 members, 1 at a time", "messages sent by one, per second"),
            Figure("messages/s, 100 members, 25 at a time", "messages sent by 25 at once, per second"),
            Figure("a member fetches 1,000 messages, ms", "1,000 messages fetched, ms", less_is_better=True),
            Figure(
                "a member of 1,000 chats fetches one new message, ms",
                "1 fetched, of 1,000 chats, ms",
                less_is_better=True,
            ),
            Figure("bytes for each message", "bytes for each message", less_is_better=True),
        ),
    ),
)

ALONE = ("work", "plain_jobs", "outbox", "fleet", "members", "jobs", "dashboard")
"""Benchmarks without contestants, of which the page has the table as it was printed."""


# What the figures come to.


def others(comparison: Comparison, results: Results) -> list[str]:
    """Beside whom we were measured."""
    return [name for name in results.columns if name != _OURS and name not in comparison.leave_out]


def factor(figure: Figure, results: Results, other: str) -> float:
    """How many times better ours is; nan if one of the two is 0 or missing."""
    row = dict(zip(results.columns, results.rows[figure.row], strict=True))
    ours, theirs = row[_OURS] or math.nan, row[other] or math.nan
    return theirs / ours if figure.less_is_better else ours / theirs


def as_factor(value: float) -> str:
    """With two digits; a dash for nan."""
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"


# The page.


def told(comparison: Comparison, results: Results) -> str:
    """The table: ours, and how many times better that is than each of the others."""
    names = others(comparison, results)
    lines = [
        "| | here | " + " | ".join(f"{name} {_TIMES}" for name in names) + " |",
        "| --- " * (2 + len(names)) + "|",
    ]
    for figure in comparison.figures:
        ours = results.rows[figure.row][results.columns.index(_OURS)]
        factors = [as_factor(factor(figure, results, name)) for name in names]
        lines.append(f"| {figure.title} | {as_text(math.nan if ours is None else ours)} | {' | '.join(factors)} |")
    return "\n".join(lines)


def told_alone(results: Results) -> str:
    """The table as it was printed."""
    lines = ["| | " + " | ".join(results.columns) + " |", "| --- " * (1 + len(results.columns)) + "|"]
    for title, figures in results.rows.items():
        cells = [as_text(math.nan if figure is None else figure) for figure in figures]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def conditions(results: Results) -> list[str]:
    """The machine and the versions."""
    return [results.machine, *(f"{name} {version}" for name, version in results.versions.items())]


def how(results: Results, shared: list[str]) -> str:
    """When and by which command it was measured, and on what else than all."""
    more = "".join(f", {each}" for each in conditions(results) if each not in shared)
    return f"Measured on {results.measured_on} by `{results.command}`{more}."


def rewritten(page: str, measured: dict[str, Results]) -> str:
    """The page, with what was measured between its marks."""
    runs = [conditions(results) for results in measured.values()]
    shared = [each for each in runs[0] if all(each in run for run in runs)]
    tables = {comparison.name: told(comparison, measured[comparison.name]) for comparison in COMPARISONS}
    tables |= {name: told_alone(measured[name]) for name in ALONE}
    tables = {name: f"{table}\n\n{how(measured[name], shared)}" for name, table in tables.items()}
    tables["shared"] = f"All on {', '.join(shared)}."
    for name, table in tables.items():
        begin, end = f"<!-- measured: {name} -->\n", "\n<!-- end -->"
        before, found, rest = page.partition(begin)
        assert found, f"the page has no {begin}"
        page = f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"
    return page


# The pictures.

_STYLE = """  <style>
    .diagram { color: #1f2328; font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
    @media (prefers-color-scheme: dark) { .diagram { color: #e6edf3 } }
    .diagram text { fill: currentColor }
    .plot text { font-size: 13px }
    .diagram .name { font-weight: 600 }
    .diagram .quiet { opacity: .7 }
    .plot .equal { stroke: currentColor; stroke-opacity: .6 }
    .plot .tick { stroke: currentColor; stroke-opacity: .15 }
    .plot .better { fill: #2da44e; fill-opacity: .85 }
    .plot .worse { fill: #bf8700; fill-opacity: .85 }
  </style>"""


@dataclass(frozen=True, slots=True)
class Scale:
    """Logarithmic, so that twice and half are equally far from 1."""

    least: float
    most: float

    def x(self, value: float) -> float:
        """Where a factor is."""
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def ticks(self) -> list[float]:
        """Its powers of ten."""
        powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        return [10.0**power for power in powers if self.least <= 10.0**power <= self.most]


def drawn(comparison: Comparison, results: Results) -> str:
    """A bar for each figure and contestant: to the right where ours is better, to the left where theirs is."""
    names = others(comparison, results)
    factors = {figure: [factor(figure, results, name) for name in names] for figure in comparison.figures}
    factors = {figure: values for figure, values in factors.items() if not all(map(math.isnan, values))}
    known = [value for values in factors.values() for value in values if not math.isnan(value)]
    scale = Scale(min([0.5, *known]), max([2.0, *known]))
    named = f'aria-labelledby="measured-{comparison.name}"'
    bottom = _TOP + sum(_HEAD + _BAR * len(values) + _GAP for values in factors.values())
    lines = [
        f'<svg class="diagram plot" viewBox="0 0 {_WIDTH} {bottom}" role="img" {named} xmlns="http://www.w3.org/2000/svg">',
        f'  <title id="measured-{comparison.name}">{escape(comparison.title)}</title>',
        _STYLE,
    ]
    lines += [
        f'  <text class="quiet" x="{scale.x(tick):g}" y="12" text-anchor="middle">{tick:g} {_TIMES}</text>'
        for tick in scale.ticks()
    ]
    y = _TOP
    for figure, values in factors.items():
        lines.append(f'  <text class="name" x="0" y="{y + 13}">{escape(figure.title)}</text>')
        y += _HEAD
        for tick in scale.ticks():
            kind = "equal" if tick == 1 else "tick"
            lines.append(f'  <path class="{kind}" d="M{scale.x(tick):g} {y}v{_BAR * len(values)}"/>')
        for name, value in zip(names, values, strict=True):
            lines += _bar(name, value, scale, y)
            y += _BAR
        y += _GAP
    return "\n".join([*lines, "</svg>"]) + "\n"


def _bar(name: str, value: float, scale: Scale, y: int) -> list[str]:
    """The contestant, the bar from 1, and the factor."""
    label = f'  <text class="quiet" x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
    if math.isnan(value):
        return [label, f'  <text x="{scale.x(1) + 6:g}" y="{y + 13}">-</text>']
    left, right = sorted((scale.x(1), scale.x(value)))
    kind = "better" if value >= 1 else "worse"
    return [
        label,
        f'  <rect class="{kind}" x="{left:g}" y="{y + 3}" width="{right - left:.1f}" height="{_BAR - 6}" rx="2"/>',
        f'  <text x="{right + 6:g}" y="{y + 13}">{as_factor(value)}</text>',
    ]


def all_measured() -> dict[str, Results]:
    """The last run of each benchmark on the page."""
    return {name: load(FOLDER / f"{name}.json") for name in (*(each.name for each in COMPARISONS), *ALONE)}


def main() -> None:
    measured = all_measured()
    for comparison in COMPARISONS:
        picture = drawn(comparison, measured[comparison.name])
        (PICTURES / f"measured-{comparison.name}.svg").write_text(picture, "utf-8")
    PAGE.write_text(rewritten(PAGE.read_text("utf-8"), measured), "utf-8")


if __name__ == "__main__":
    main()
