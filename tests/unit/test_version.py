"""The version is one fact: the package, the command line and the installed distribution agree on it."""

import subprocess
import sys
from importlib.metadata import version

import inconcert


def test_distribution_has_the_version_of_the_package() -> None:
    """What pip says is what `inconcert.__version__` says."""
    assert version("inconcert") == inconcert.__version__


def test_command_line_prints_the_version() -> None:
    """`inconcert --version` prints it with the name, and nothing else."""
    done = subprocess.run([sys.executable, "-m", "inconcert", "--version"], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == (f"inconcert {inconcert.__version__}\n", "")
