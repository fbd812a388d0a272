"""The one exit for all text of the commands: nothing that it prints can steer a terminal.

Names, arguments and errors come from users and from their input, so they may hold control sequences, which would set
the clipboard or the title of an operator's terminal, or hide rows (CWE-150). Here they are shown as escapes.
"""

import re

import typer
from rich.console import Console
from rich.text import Text

# Control characters but for the end of a line and the tab, marks that turn the direction of text, and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WIDE = 100_000  # columns: no row is longer
_SHORT = 0x100  # characters below it are escaped by two digits


def say(text: str, *, to_stderr: bool = False) -> None:
    """Print it as a line, or as several."""
    typer.echo(printable(text), err=to_stderr)


def styled(text: str, style: str = "") -> Text:
    """The text for `console()`, in a style of rich."""
    return Text(printable(text), style=style)


def printable(text: str) -> str:
    r"""The text with its control characters shown as escapes, such as `\x1b`."""
    return _UNPRINTABLE.sub(_escaped, text)


def json_text(document: str) -> str:
    r"""A JSON document with its control characters as JSON writes them, such as `\u009b`."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def console() -> Console:
    """The standard output for tables and styles: a row is broken into lines on a terminal only, never in a pipe."""
    output = Console(highlight=False, markup=False)
    return output if output.is_terminal else Console(highlight=False, markup=False, width=_WIDE)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < _SHORT else f"\\u{code:04x}"
