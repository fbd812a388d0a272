"""Imports go one way, without circles, the driver is spoken to in one place, and tests share what is in support."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
TESTS = Path(__file__).parents[1]

_LAYERS = (
    {"errors", "_rules", "_lua", "_version"},
    {"_redis"},
    {"_cluster"},
    {"_core"},
    {"_claims"},
    set[str](),  # the primitives and `tasks`: whatever no other layer names
    {"coordinator", "sync_coordinator"},
    {"sql"},
    {"integrations", "dashboard", "cli", "testing", "__main__"},
    {"__init__"},
)
_PRIMITIVES = 5  # index into _LAYERS
_ROOMS = {  # the lowest first
    "_redis": ("protocol", "driver", "wire", "embedded", "find", "blocking", "operate"),
    "tasks": ("records", "durable", "following", "sending", "schedules", "running", "operating", "front"),
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported thing: who imports what, where, and whether only for type checkers."""

    importer: str
    imported: str
    line: int
    for_types: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


_IMPORTS = re.compile(r"\b(?:from\b[^\n]*)?\bimport\b[^(\n]*(?:\([^)]*\))?")  # and some prose


def modules_under(src: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name; a package goes by its own name, without `__init__`."""
    return {
        ".".join(path.relative_to(src).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((src / "inconcert").rglob("*.py"))
    }


@cache
def imports_of(name: str, path: Path) -> list[Import]:
    """All imports in one file, those inside functions too, with relative ones made absolute."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    found: list[Import] = []

    def walk(node: ast.AST, for_types: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(name, alias.name, node.lineno, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [node.module])])
            found.extend(Import(name, f"{base}.{alias.name}", node.lineno, for_types) for alias in node.names)
        elif isinstance(node, ast.expr):  # has no imports in it, and is most of a file
            pass
        elif isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            for statement in node.body:
                walk(statement, for_types=True)
            for statement in node.orelse:
                walk(statement, for_types)
        else:
            for child in ast.iter_child_nodes(node):
                walk(child, for_types)

    walk(ast.parse(path.read_text("utf-8")), for_types=False)
    return found


def layer_of(module: str) -> int:
    """How high a module stands; 0 is the lowest."""
    top = module.split(".")[1] if "." in module else "__init__"
    return next((height for height, names in enumerate(_LAYERS) if top in names), _PRIMITIVES)


def inner_imports(src: Path) -> Iterator[Import]:
    """Imports between modules of the package, each naming a module and not a thing in it."""
    modules = modules_under(src)
    for name, path in modules.items():
        for found in imports_of(name, path):
            imported = found.imported
            while imported and imported not in modules:
                imported = imported.rpartition(".")[0]
            if imported:
                yield Import(name, imported, found.line, found.for_types)


def upward_imports(src: Path) -> list[str]:
    """Imports of a higher layer. One for type hints counts: what a layer knows by type, it leans on."""
    return [str(found) for found in inner_imports(src) if layer_of(found.imported) > layer_of(found.importer)]


def upward_imports_of_rooms(src: Path) -> list[str]:
    """Imports of a higher room of the same package, those for type hints included."""
    found_upward: list[str] = []
    for found in inner_imports(src):
        importer, imported = found.importer.split(".")[1:], found.imported.split(".")[1:]
        if len(importer) > 1 and len(imported) > 1 and importer[0] == imported[0] in _ROOMS:
            rooms = _ROOMS[importer[0]]
            if rooms.index(imported[1]) > rooms.index(importer[1]):
                found_upward.append(str(found))
    return found_upward


def import_circle(src: Path) -> list[str]:
    """The modules of one circle, or nothing. Imports for type hints do not count: they do not run."""
    graph: dict[str, set[str]] = {name: set() for name in modules_under(src)}
    for found in inner_imports(src):
        if not found.for_types:
            graph[found.importer].add(found.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def driver_imports(src: Path) -> list[str]:
    """Imports of `redis` that run, outside `_redis` and outside `testing`, which plays the server."""
    return [
        str(found)
        for name, path in modules_under(src).items()
        if layer_of(name) != layer_of("inconcert._redis") and not name.startswith("inconcert.testing.")
        for found in imports_of(name, path)
        if found.imported.split(".")[0] == "redis" and not found.for_types
    ]


def imported_tests(tests: Path) -> list[str]:
    """Imports of a file of tests: what two of them need belongs in `tests/support`."""
    return [
        str(found)
        for path in sorted(tests.rglob("*.py"))
        if any("test_" in statement for statement in _IMPORTS.findall(path.read_text("utf-8")))  # most need no parser
        for found in imports_of(".".join(path.relative_to(tests.parent).with_suffix("").parts), path)
        if found.imported.startswith("tests.") and any(part.startswith("test_") for part in found.imported.split("."))
    ]


def test_no_module_imports_from_a_layer_above_it() -> None:
    """Every import within the package goes down or sideways."""
    assert any(inner_imports(SRC)), "no imports found: is the package still in src/inconcert?"
    assert upward_imports(SRC) == []


@pytest.mark.parametrize("package", _ROOMS)
def test_rooms_of_a_package_are_all_listed(package: str) -> None:
    """A module is in a room, and each room has its place in the order."""
    here = SRC / "inconcert" / package
    assert {path.parent.name for path in here.glob("*/__init__.py")} == set(_ROOMS[package])
    assert [path.name for path in here.glob("*.py")] == ["__init__.py"]


def test_no_room_imports_from_one_above_it() -> None:
    """Within a package that has rooms, too, every import goes down or sideways."""
    assert upward_imports_of_rooms(SRC) == []


def test_no_import_is_circular() -> None:
    """The modules can be put in an order in which each imports only earlier ones."""
    assert import_circle(SRC) == []


def test_driver_is_imported_in_one_folder() -> None:
    """Outside `_redis/` and `testing/`, `redis` is imported for type hints only."""
    assert driver_imports(SRC) == []


def test_no_module_loops_over_observers() -> None:
    """They are told as one, which logs what one of them raises."""
    loops = [
        f"{name}:{node.iter.lineno}"
        for name, path in modules_under(SRC).items()
        if "observers" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.For | ast.comprehension) and re.search(r"observers\b(?! else)", ast.unparse(node.iter))
    ]
    assert loops == []


def test_no_file_of_tests_is_imported() -> None:
    """A change of one concerns no other."""
    assert imported_tests(TESTS) == []


@pytest.mark.parametrize(
    "text",
    [
        "from tests.contract.test_jobs import status",
        "from tests.contract import test_jobs",
        "import tests.contract.test_jobs",
        "from .test_jobs import status",
        "def late():\n    from . import test_jobs",
    ],
)
def test_import_of_a_file_of_tests_is_found_however_it_is_written(tmp_path: Path, text: str) -> None:
    """Absolute, relative or deferred."""
    folder = tmp_path / "tests/contract"
    folder.mkdir(parents=True)
    (folder / "test_tasks.py").write_text(f"from tests.support.jobs import status\n{text}", "utf-8")

    [found] = imported_tests(tmp_path / "tests")

    assert found.startswith("tests.contract.test_tasks:")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package in which every import is allowed."""
    files = {
        "__init__.py": "from inconcert.lock import Lock",
        "errors.py": "class Broken(Exception): ...",
        "_redis/__init__.py": "",
        "_redis/wire/channel.py": "import redis.asyncio\nfrom ...errors import Broken",
        "lock.py": "from typing import TYPE_CHECKING\nfrom inconcert._redis.wire import channel\n"
        "if TYPE_CHECKING:\n    from redis.asyncio import Redis\nclass Lock: ...",
    }
    for name, text in files.items():
        path = tmp_path / "inconcert" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


def test_allowed_imports_pass(tree: Path) -> None:
    """A tree that keeps the rules is found to keep them."""
    assert (upward_imports(tree), import_circle(tree), driver_imports(tree)) == ([], [], [])


@pytest.mark.parametrize(
    "text",
    [
        "from inconcert.lock import Lock",
        "from .. import lock",
        "from inconcert import Lock",
        "def late():\n    import inconcert.lock",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from inconcert.lock import Lock",
    ],
)
def test_upward_import_is_found_however_it_is_written(tree: Path, text: str) -> None:
    """Absolute, relative, by the package, deferred or for types: an upward import is an upward import."""
    (tree / "inconcert/_redis/keys.py").write_text(text, "utf-8")

    [found] = upward_imports(tree)

    assert found.startswith("inconcert._redis.keys:")


def test_import_of_a_higher_room_is_found(tree: Path) -> None:
    """One for types counts, too."""
    (tree / "inconcert/_redis/driver").mkdir()
    (tree / "inconcert/_redis/driver/clients.py").write_text("from inconcert._redis.wire.channel import x", "utf-8")

    assert upward_imports_of_rooms(tree) == ["inconcert._redis.driver.clients:1 imports inconcert._redis.wire.channel"]


def test_circle_is_found_through_a_deferred_import(tree: Path) -> None:
    """An import inside a function closes a circle as one at the top does."""
    (tree / "inconcert/permit.py").write_text("def late():\n    from inconcert.lock import Lock", "utf-8")
    with (tree / "inconcert/lock.py").open("a", encoding="utf-8") as lock:
        lock.write("\nfrom inconcert import permit")

    assert set(import_circle(tree)) == {"inconcert.lock", "inconcert.permit"}


def test_import_for_types_closes_no_circle(tree: Path) -> None:
    """Two modules of one layer may name each other's types."""
    (tree / "inconcert/permit.py").write_text("from inconcert import lock", "utf-8")
    with (tree / "inconcert/lock.py").open("a", encoding="utf-8") as lock:
        lock.write("\nif TYPE_CHECKING:\n    from inconcert import permit")

    assert import_circle(tree) == []


def test_driver_may_be_imported_where_a_server_is_played(tree: Path) -> None:
    """Fakeredis is a kind of it."""
    (tree / "inconcert/testing").mkdir()
    (tree / "inconcert/testing/world.py").write_text("import redis.exceptions", "utf-8")

    assert driver_imports(tree) == []


def test_driver_is_found_above_its_folder(tree: Path) -> None:
    """A primitive that imports `redis` at run time is named with the line."""
    (tree / "inconcert/permit.py").write_text("\nfrom redis.exceptions import RedisError", "utf-8")

    assert driver_imports(tree) == ["inconcert.permit:2 imports redis.exceptions.RedisError"]
