"""Each benchmark can be imported without the peers, and understands what it is called with."""

import re
from argparse import Namespace
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import plot
from benchmarks.contestants import contestant
from benchmarks.figures import Table, percentile, ratio
from benchmarks.results import Results, load, save

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if path.stem != "__init__")
BENCHMARKS = [name for name in MODULES if hasattr(import_module(f"benchmarks.{name}"), "measure")]


def test_make_runs_each_benchmark() -> None:
    """`make bench` measures everything that can be measured."""
    found = re.search(r"^BENCH \?= (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)

    assert found
    assert sorted(found[1].split()) == BENCHMARKS


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_understands_its_arguments(name: str) -> None:
    """All of them have a short run, and write a file."""
    parse = import_module(f"benchmarks.{name}").parse

    assert (parse([]).quick, parse([]).json) == (False, None)
    assert parse(["--quick"]).quick is True
    assert parse(["--json", "locks.json"]).json == Path("locks.json")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("bare_message", ["redis://h", "60"], {"url": "redis://h", "rounds": 60}),
        ("cluster", ["take-turns", "redis://h", "100"], {"process": "take-turns", "url": "redis://h", "rounds": 100}),
        ("elections", ["candidate", "grelmicro", "redis://h"], {"process": "candidate", "name": "grelmicro"}),
        ("locks", ["take-turns", "redis-py", "redis://h", "100"], {"process": "take-turns", "rounds": 100}),
        ("signals", ["wait", "redis://h", "250", "30"], {"process": "wait", "waiters": 250, "rounds": 30}),
        ("tasks", ["--only", "saq", "lists", "--patience", "5"], {"only": ["saq", "lists"], "patience": 5.0}),
    ],
)
def test_process_of_a_benchmark_understands_its_arguments(
    name: str, arguments: list[str], expected: dict[str, object]
) -> None:
    """What one module starts another with is read as it was meant."""
    parse: Callable[[list[str]], Namespace] = import_module(f"benchmarks.{name}").parse
    options = vars(parse(arguments))

    assert expected.items() <= options.items()


def test_contestant_understands_its_arguments() -> None:
    """A task that it does not have is refused."""
    options = contestant.parse(["redis://h", "enqueue", "noop", "100", "--at-once", "0"])

    assert (options.command, options.task, options.count, options.at_once) == ("enqueue", "noop", 100, 0)
    with pytest.raises(SystemExit):
        contestant.parse(["redis://h", "enqueue", "noap", "100"])


def test_table_is_printed_as_it_grows(capsys: pytest.CaptureFixture[str]) -> None:
    """Its head first; figures are rounded, none of them to 0, and what cannot be measured is a dash."""
    table = Table("ours", "to the floor", width=8)
    assert capsys.readouterr().out.split() == ["ours", "to", "the", "floor"]

    table.row("rate", 12_345.6, ratio(1.0, 3.0))
    table.row("time", 0.5, ratio(1.0, 0.0))
    table.row("share", 0.5, 0.0034)
    assert capsys.readouterr().out.splitlines() == [
        "rate          12,346          0.33",
        "time            0.50             -",
        "share           0.50         0.003",
    ]


def test_percentile_is_a_value_that_was_measured() -> None:
    """In whatever order they came."""
    assert [percentile([5.0, 1.0, 4.0, 2.0, 3.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 3.0, 5.0]


def test_what_was_measured_is_kept_in_a_file(tmp_path: Path) -> None:
    """With its titles, versions and figures; what cannot be measured has none."""
    table = Table("inconcert", "other", "ratio")
    table.versions["server"] = "valkey 9.1.2"
    table.row("rate", 12_345.6, ratio(1.0, 0.0), 0.5)
    save(tmp_path / "locks.json", "locks", table)
    results = load(tmp_path / "locks.json")

    assert (results.columns, results.rows) == (["inconcert", "other", "ratio"], {"rate": [12_345.6, None, 0.5]})
    assert results.versions["server"] == "valkey 9.1.2"
    assert results.command.startswith("python -m benchmarks.locks")
    save(None, "locks", table)


def test_page_on_performance_has_what_was_measured() -> None:
    """Its tables and pictures are those that the files of results make."""
    measured = plot.all_measured()
    page = plot.PAGE.read_text("utf-8")

    assert plot.rewritten(page, measured) == page
    for comparison in plot.COMPARISONS:
        picture = (plot.PICTURES / f"measured-{comparison.name}.svg").read_text("utf-8")
        assert picture == plot.drawn(comparison, measured[comparison.name])


def test_more_than_one_is_in_our_favour() -> None:
    """For rates and for times; a bar for what is worse goes to the left, and what is 0 has none."""
    figures = plot.Figure("rate", "rate"), plot.Figure("time", "time", less_is_better=True)
    comparison = plot.Comparison("locks", "A & B", figures)
    results = Results(
        command="",
        measured_on="2026-11-23",
        machine="",
        versions={},
        columns=["inconcert", "slow", "fast", "none", "ratio"],
        rows={"rate": [100, 10, 400, None, 10], "time": [2, 20, 0.5, 0, 0.1]},
    )
    picture = plot.drawn(comparison, results)

    assert [plot.factor(figure, results, "slow") for figure in figures] == [10, 10]
    assert [plot.factor(figure, results, "fast") for figure in figures] == [0.25, 0.25]
    assert [picture.count(f'class="{kind}"') for kind in ("better", "worse", "equal")] == [2, 2, 2]
    assert [picture.count(f">{text}</text>") for text in ("10", "0.25", "-")] == [2, 2, 2]
    assert "A &amp; B</title>" in picture
