"""The pages hold together: their Python compiles, their links lead somewhere, and the site shows them all."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from mkdocs.utils.meta import get_data

import inconcert
from inconcert import durable
from inconcert._redis.operate.rights import _DATA, Server, least_rights, sentinel_rights
from tests.support.each import each
from tests.support.pages import DOCS, PAGES, ROOT, Block, anchors, blocks, links, python, targets, title
from tests.support.public import PUBLIC

URLS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
FILES = f"{URLS['Source']}/blob/main/"
MADE = {"AGENTS.md", "llms.txt"}  # by docs/llms.py
_DIRECTIVE = re.compile(r"^::: (?P<name>[\w.]+)$", re.MULTILINE)


@each("page", PAGES, ids=title)
def test_python_on_a_page_compiles(page: Path) -> None:
    """Every Python block parses, with `await` allowed outside a function."""
    for block in python(page.read_text("utf-8")):
        source = "\n" * (block.line - 1) + block.text  # so that an error names the page's own line
        compile(source, page, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@each("page", PAGES, ids=title)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Every link to another page or within one names a file or folder that is there, and a heading of it."""
    dead: list[str] = []
    for file, anchor in links(page.read_text("utf-8")):
        target = page.parent / file if file else page
        is_picture = anchor in {"only-light", "only-dark"}  # by which the theme knows when to show it
        if not target.exists() or (anchor and not is_picture and anchor not in anchors(target.read_text("utf-8"))):
            dead.append(f"{file}#{anchor}" if anchor else file)

    assert dead == []


def test_readme_links_work_where_it_is_read_alone() -> None:
    """The package index shows the README without the files beside it, so each of its links is a whole address."""
    readme = (ROOT / "README.md").read_text("utf-8")

    assert list(targets(readme))
    assert list(links(readme)) == []


@each("page", PAGES, ids=title)
def test_addresses_of_the_project_lead_somewhere(page: Path) -> None:
    """A whole address on the project's site names a page and a heading of it; one in its repository, a file."""
    dead: list[str] = []
    for target in targets(page.read_text("utf-8")):
        if target.startswith(URLS["Documentation"]):
            name, _, anchor = target.removeprefix(URLS["Documentation"]).partition("#")
            file = (DOCS / (name or "index.html")).with_suffix(".md")
            found = name in MADE or (name[-5:] in {"", ".html"} and file.exists())
            if not found or (anchor and anchor not in anchors(file.read_text("utf-8"))):
                dead.append(target)
        elif target.startswith(FILES) and not (ROOT / target.removeprefix(FILES)).exists():
            dead.append(target)

    assert dead == []


def test_site_is_built_for_the_address_that_the_package_names() -> None:
    """The site's canonical addresses are below the project's documentation address."""
    assert f"\nsite_url: {URLS['Documentation']}\n" in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_every_page_is_in_the_navigation() -> None:
    """The site's menu leads to every page under docs/."""
    _, found, menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")
    listed = re.findall(r"[\w./-]+\.md\b", menu)

    assert found
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


@each("page", sorted(DOCS.rglob("*.md")), ids=title)
def test_page_has_a_description(page: Path) -> None:
    """For results of a search, and for `llms.txt`: a sentence or two, which fit in what a search engine shows."""
    assert 50 <= len(description(page)) <= 160


def test_descriptions_tell_pages_apart() -> None:
    """No two pages have the same."""
    said = Counter(description(page) for page in DOCS.rglob("*.md"))

    assert [text for text, number in said.items() if number > 1] == []


def test_headings_tell_pages_apart() -> None:
    """In a list of search results or bookmarks, a guide and the page that explains it are two things."""
    guides = [*(DOCS / "how-to").rglob("*.md"), *(DOCS / "explanation").glob("*.md")]
    headings = Counter(re.findall(r"^# .*$", page.read_text("utf-8"), re.MULTILINE)[0] for page in guides)

    assert [text for text, number in headings.items() if number > 1] == []


def description(page: Path) -> str:
    """The description in the front matter of a page."""
    _, front = get_data(page.read_text("utf-8"))
    return str(front.get("description", ""))


def test_page_of_servers_names_each_command_that_is_not_about_data() -> None:
    """Who asks whether a service will do must know what it has to allow."""
    text = (DOCS / "where-it-runs.md").read_text("utf-8")
    one = least_rights("shop", server=Server.REDIS_7_2, failover_guard=True, replicas=True, inspect=True)
    cluster = least_rights("shop", cluster=True, inspect=True)
    needed = {rule.removeprefix("+") for rule in [*one, *cluster, *sentinel_rights()] if rule.startswith("+")}

    assert len(needed - set(_DATA)) > 20
    assert {name for name in needed - set(_DATA) if f"`{name.replace('|', ' ').upper()}`" not in text} == set()


def test_only_servers_of_the_tests_are_called_tested() -> None:
    """A claim without a run behind it is an advertisement."""
    servers = (DOCS / "where-it-runs.md").read_text("utf-8").partition("## Servers\n")[2].partition("\n## ")[0]
    runs = (
        (DOCS / "explanation" / "correctness.md").read_text("utf-8").partition("## Servers\n")[2].partition("\n## ")[0]
    )
    tested = set(re.findall(r"^\| ([\w. ]+) \| tested \|", servers, re.MULTILINE))

    assert tested == set(re.findall(r"^\| ((?:Valkey|Redis|fakeredis) [\d.]+) \|", runs, re.MULTILINE))
    assert (
        "| tested |"
        not in (DOCS / "where-it-runs.md").read_text("utf-8").partition("## Managed")[2].partition("## Python")[0]
    )


def test_script_that_contributing_shows_is_one_of_ours() -> None:
    """Whole, so that its header is one that the other tests have checked."""
    (shown,) = [
        block.text for block in blocks((ROOT / "CONTRIBUTING.md").read_text("utf-8")) if block.language == "lua"
    ]
    name = shown.removeprefix("-- ").partition(":")[0]

    assert shown == (ROOT / "src/inconcert/_lua" / f"{name}.lua").read_text("utf-8")


def test_decisions_have_one_form_and_are_listed() -> None:
    """They are numbered without gaps, say why and what follows, and their list has their titles."""
    folder = DOCS / "contributing" / "decisions"
    records = sorted(path for path in folder.glob("*.md") if path.stem != "index")
    table = (folder / "index.md").read_text("utf-8")

    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for number, record in enumerate(records, 1):
        text = record.read_text("utf-8")
        heading = f"\n{text}".partition(f"\n# {number}. ")[2].partition("\n")[0]
        assert f"| [{number}]({record.name}) | {heading} |" in table
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], record.name


def test_reference_has_every_public_name() -> None:
    """Each name that `inconcert` exports has its entry on a reference page, or its whole module has."""
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "reference").rglob("*.md"))
    entries = {entry["name"] for entry in _DIRECTIVE.finditer(text)}
    documented = {
        name
        for name in PUBLIC
        if f"inconcert.{name}" in entries or getattr(getattr(inconcert, name), "__module__", None) in entries
    } | {"durable"}  # a module, of which each name has an entry

    assert entries
    assert {name for name in PUBLIC if not name.startswith("__")} - documented == set()
    assert {f"inconcert.durable.{name}" for name in durable.__all__} - entries == set()


def test_index_of_the_reference_has_each_page() -> None:
    """Nobody has to know the name of a page to find it."""
    linked = {page for page, _ in links((DOCS / "reference" / "index.md").read_text("utf-8"))}

    assert {page.name for page in (DOCS / "reference").glob("*.md")} - {"index.md"} == linked


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/migrate/index.md", "docs/how-to/deploy.md"])
def test_required_redis_is_the_one_that_a_page_names(page: str) -> None:
    """Who has another package that needs redis-py must know before pip refuses."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    (redis,) = [name.replace("[hiredis]", "") for name in needed if name.startswith("redis")]

    assert f"`{redis}`" in (ROOT / page).read_text("utf-8")


@pytest.mark.slow
def test_make_docs_fails_for_a_warning(tmp_path: Path) -> None:
    """The command that builds the site ends with an error if a link names a heading that is not there."""
    verb = re.search(
        r"^docs:.*\n\t.*\$\(BIN\)/mkdocs (?P<arguments>.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    assert verb
    page = tmp_path / "docs" / "index.md"
    page.parent.mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: small\nplugins: []\nvalidation: {links: {anchors: warn}}\n")

    def build(text: str) -> subprocess.CompletedProcess[str]:
        page.write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "mkdocs", *verb["arguments"].split()],
            cwd=tmp_path,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    assert build("# Here\n\n[good](#here)\n").returncode == 0
    broken = build("# Here\n\n[bad](#there)\n")
    assert broken.returncode == 1
    assert "#there" in broken.stderr


def test_hooks_check_what_make_lint_checks() -> None:
    """Each command of `make lint` runs before a commit, on the files of the commit."""
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    hooks = re.findall(
        r"^ +entry: \.venv/bin/(.*)$", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"), re.MULTILINE
    )

    assert lint
    commands = [line.strip().removeprefix("$(BIN)/").removesuffix(" .") for line in lint[1].splitlines()]
    assert [hook.removesuffix(" --force-exclude") for hook in hooks] == commands


def test_broken_python_is_found_with_its_line() -> None:
    """A block that does not parse is reported by its line on the page."""
    text = "# Page\n\n- item\n\n    ```python\n    await one()\n    two(\n    ```\n"

    assert python(text) == [Block(6, "python", "", "await one()\ntwo(\n")]


def test_links_in_code_and_to_the_web_are_left_out() -> None:
    """Only what should be a page of ours is looked for."""
    ours = '[a](x.md#top) ![b](img/y.png "why") [d](#here)\n\n[i]: j.md\n'
    not_ours = "[c](https://z.org/#a) `[e](f.md)`\n\n```\n[g](h.md)\n```\n"

    assert list(links(ours + not_ours)) == [("x.md", "top"), ("img/y.png", ""), ("", "here"), ("j.md", "")]


def test_anchors_are_those_of_the_site() -> None:
    """As mkdocs makes them of headings with code, marks and accents; what is in a block is not a heading."""
    text = "# See `a_b()`, and C++\n\n```sh\n# no heading\n```\n\n## Où [là](x.md) - now\n"

    assert anchors(text) == {"see-a_b-and-c", "ou-la-now"}
