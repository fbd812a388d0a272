"""Records `inconcert demo` as the picture of the home page, `assets/demo.svg`: `python -m docs.demo_picture`.

Each line appears when it did in the demo, from the first event on; with reduced motion, and in print, all are there at
once.
"""

import re
import subprocess
import sys
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent / "assets" / "demo.svg"
_ROW, _LEFT, _COLUMN = 17, 16, 7.3  # pixels
_TIME = re.compile(r" *(\d+\.\d) s ")
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
text {{ font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dbe0; white-space: pre }}
.command {{ fill: #8bd5a0 }} .heading {{ fill: #ffffff; font-weight: bold }} .killed {{ fill: #ff8f80 }}
@media screen and (prefers-reduced-motion: no-preference) {{
text {{ opacity: 0; animation: come 0.2s forwards }} @keyframes come {{ to {{ opacity: 1 }} }}
}}
</style>
<rect width="100%" height="100%" rx="8" fill="#1d2127"/>
"""


def drawn(lines: list[str]) -> str:
    """Draw the lines of a terminal, each with the second at which it came."""
    seconds = [float(found[1]) if (found := _TIME.match(line)) else None for line in lines]
    for number in reversed(range(len(lines) - 1)):  # a heading comes with the line under it
        if seconds[number] is None:
            seconds[number] = seconds[number + 1]
    rows: list[str] = []
    first = latest = next(second for second in seconds if second is not None)
    for number, (line, second) in enumerate(zip(lines, seconds, strict=True), 1):
        latest = latest if second is None else second
        kind = "command" if line.startswith("$") else "heading"
        if line.startswith(" "):
            kind = "killed" if line.endswith(" is killed") else "event"
        if line:
            place = f'x="{_LEFT}" y="{number * _ROW + 8}" class="{kind}"'
            rows.append(f'<text {place} style="animation-delay: {latest - first:.1f}s">{escape(line)}</text>')
    width = int(2 * _LEFT + _COLUMN * max(map(len, lines)))
    head = _HEAD.format(width=width, height=(len(lines) + 1) * _ROW)
    return "\n".join([head, *rows, "</svg>\n"])


def main() -> None:
    """Run the demo, and draw what it prints."""
    command = [sys.executable, "-m", "inconcert", "demo"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout  # noqa: S603 - our own
    *lines, last = printed.strip().splitlines()
    PICTURE.write_text(drawn(["$ inconcert demo", "", *lines, last.partition(" Write your own")[0]]), "utf-8")


if __name__ == "__main__":
    main()
