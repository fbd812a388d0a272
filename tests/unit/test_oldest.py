"""The oldest versions that may be installed are those that `make oldest` tests."""

import tomllib
from pathlib import Path
from typing import Any

PYPROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))


def test_oldest_versions_are_those_that_are_allowed() -> None:
    """Each dependency has a lower bound, which is what is installed."""
    allowed: list[str] = PYPROJECT["project"]["dependencies"]
    installed: list[str] = PYPROJECT["dependency-groups"]["oldest"]

    assert [name.partition(",")[0].replace(">=", "==") for name in allowed] == installed
