"""Every script is run twice by a test: one whose reply was lost is sent again.

A test is marked with the scripts that it runs twice, and is held to it: `@pytest.mark.twice("queues/put")`.
"""

from importlib import import_module
from pathlib import Path

from tests.support.lua_files import FILES, title
from tests.support.twice import names_of_module

TESTS = Path(__file__).parents[1]


def test_every_script_is_run_twice() -> None:
    """As its TWICE line says, by a test that is marked with its name; and no mark names another."""
    scripts = set(map(title, FILES))
    marked: set[str] = set()
    for path in sorted(TESTS.glob("contract/test_*.py")) + sorted(TESTS.glob("faults/test_*.py")):
        marked |= names_of_module(import_module(f"tests.{path.parent.name}.{path.stem}"))
    assert scripts - marked == set(), "not run twice by any test"
    assert marked - scripts == set(), "marked, and no script has this name"
