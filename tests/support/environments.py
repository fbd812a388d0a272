"""New environments with packages of their own."""

import os
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["Environment"]


class Environment:
    """A new environment, with nothing of this checkout on its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "env" / "bin" / "python"
        venv.create(folder / "env")

    def run(self, *args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run its Python to the end."""
        return _run([str(self.python), *args], cwd or self.folder, self.variables)

    def pip(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run pip for it; this test run's own, as installing pip would take longer than all the rest."""
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
        return _run([*pip, *args, "--quiet"], self.folder, self.variables)

    def install(self, *requirements: str) -> None:
        """Install them with all that they need."""
        ended = self.pip("install", "--no-compile", *requirements)
        assert ended.returncode == 0, ended.stderr

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables, without those that lead to this checkout or to its test run."""
        return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=800, check=False)
