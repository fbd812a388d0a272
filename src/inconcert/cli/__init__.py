"""The command line: `inconcert worker module:attr`, `inconcert health module:attr`, `inconcert acl`.

It needs `inconcert[cli]`.
"""

import sys

_LIBRARIES = {"pythonjsonlogger", "rich", "typer"}  # what the extra brings


def main() -> None:
    """Run the command that the arguments of this process ask for."""
    try:
        from inconcert.cli.commands import app  # noqa: PLC0415 - so that a missing extra can be reported

        app()
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _LIBRARIES:
            raise
        print(f"inconcert: the command line needs {library}; run  pip install 'inconcert[cli]'", file=sys.stderr)  # noqa: T201
        sys.exit(2)  # as for every error that a restart does not mend
