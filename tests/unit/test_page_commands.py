"""What a page tells its readers to type is understood: commands, extras, options that other libraries have."""

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from inconcert import Coordinator, JobOptions
from inconcert.cli.commands import app
from tests.support.each import each
from tests.support.pages import DOCS, PAGES, title

READ = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names parts of commands, and those that were
HOW_TO = sorted([*DOCS.glob("tutorial/*.md"), *DOCS.glob("how-to/**/*.md")])

# What a page uses of an extra, and how that is seen.
USES = {
    "cli": r"^\$ inconcert ",
    "cron": r'@concert\.cron\("',
    "dashboard": r"^from inconcert\.dashboard",
    "fastapi": r"from inconcert\.integrations\.fastapi",
    "litestar": r"from inconcert\.integrations\.litestar",
    "aiohttp": r"from inconcert\.integrations\.aiohttp|from inconcert\.dashboard\.aiohttp",
    "otel": r"from inconcert\.integrations\.otel",
    "prometheus": r"from inconcert\.integrations\.prometheus|^\$ inconcert worker .*--metrics",
    "testing": r"from inconcert\.testing",
    "embedded": r"(= |with )Coordinator\.embedded\(",
}
# Newer versions of typer bring a click of their own.
USAGE_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
# A command that is named in prose, without what it needs: of other commands one, or an argument.
INCOMPLETE = {"NoArgsIsHelpError", "MissingParameter"}
BRINGS = {"dashboard": {"cli"}, "demo": {"cli", "embedded"}, "examples": {"aiohttp", "fastapi"}}


def commands(text: str) -> Iterator[str]:
    """The arguments of each `inconcert ...` on a page, without what is a pattern of others."""
    lines = re.findall(r"^\s*\$ (?:[A-Z_]+=\S+ )*(?:python -m )?inconcert (.*)$", text, re.MULTILINE)
    for line in [*lines, *re.findall(r"`inconcert ([a-z][^`]*)`", text)]:
        command = re.split(r" \| | &$|  #| > ", line)[0]
        if not re.search(r"\[|MODULE|\.\.\.", command):
            yield command


def refused(command: str) -> str | None:
    """Why the real command line does not read these arguments; nothing is run."""
    try:
        context: Any = typer.main.get_command(app).make_context("inconcert", shlex.split(command))
        while hasattr(context.command, "resolve_command"):
            name, found, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
            context = found.make_context(name, rest, parent=context)
    except typer.Exit:
        return None  # --version and --help
    except USAGE_ERROR as error:
        return None if type(error).__name__ in INCOMPLETE else str(error)
    return f"{context.params['stray']} is left over" if context.params.get("stray") else None


@each("page", READ, ids=title)
def test_command_on_a_page_is_one_that_the_command_line_reads(page: Path) -> None:
    """Each `inconcert ...` line: its command, its options and their values."""
    why = {command: refused(command) for command in commands(page.read_text("utf-8"))}

    assert {command: reason for command, reason in why.items() if reason} == {}


@pytest.mark.parametrize("command", ["worker shop:concert mail", "jobs --stat=dead", "purge --all"])
def test_wrong_command_is_found(command: str) -> None:
    """An argument too many, an option and a command that are not there."""
    assert refused(command)


@each("page", HOW_TO, ids=title)
def test_page_names_the_extras_that_its_code_needs(page: Path) -> None:
    """In a line of pip, so that who follows it has all that it uses."""
    text = page.read_text("utf-8")
    named = {extra for names in re.findall(r"(?:inconcert|\.)\[([a-z,]+)\]", text) for extra in names.split(",")}
    named |= {extra for name in named for extra in BRINGS.get(name, ())}

    assert {extra for extra, use in USES.items() if re.search(use, text, re.MULTILINE)} - named == set()


@each("page", HOW_TO, ids=title)
def test_page_runs_no_example_that_is_not_installed(page: Path) -> None:
    """The examples are in the repository, so a page links to one, or says that it needs a copy of the repository."""
    text = page.read_text("utf-8")

    assert "python -m examples" not in text or "repository" in text or "checkout" in text


def test_tables_of_what_others_have_name_each_option_of_jobs() -> None:
    """Who comes from another library finds what replaces its options."""
    tables = "\n".join(path.read_text("utf-8") for path in (DOCS / "how-to/migrate").glob("*.md"))
    cells = "\n".join(line for line in tables.splitlines() if line.startswith("|"))
    of_tasks = set(inspect.signature(Coordinator.task).parameters) - {"self", "function"}

    assert {name for name in of_tasks | JobOptions.__annotations__.keys() if f"{name}=" not in cells} == set()
