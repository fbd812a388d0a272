"""Each private package says what belongs in it, what does not, and where to begin reading."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PACKAGES = sorted(
    path.parent
    for path in [
        *(ROOT / "src" / "inconcert").glob("_*/__init__.py"),
        *(ROOT / "src" / "inconcert").glob("_redis/*/__init__.py"),
    ]
)


def test_packages_are_found() -> None:
    """All four of them, and the rooms of one."""
    assert {path.name for path in PACKAGES} >= {"_claims", "_core", "_redis", "_rules", "wire"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_package_has_a_doorplate(package: Path) -> None:
    """Its docstring has 2 to 12 lines, and the files that it names exist."""
    doorplate = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    named = re.findall(r"`((?:\w+/)?\w+\.py)`", doorplate)

    assert 2 <= len(doorplate.splitlines()) <= 12
    assert named != []
    assert [name for name in named if not (package / name).is_file()] == []
