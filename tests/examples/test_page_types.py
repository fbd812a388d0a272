"""The Python on the pages and in docstrings type-checks, with what it takes for granted in application.py."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.pages import IMPORTS, PAGES, ROOT, SOURCES, files, python, title

# The marketplace's are excerpts, which are checked where they are from.
NOT_HERE = {"docs/tutorial/marketplace.md"}
# Of the peers that one may come from, which are not installed; test_migration.py runs them.
THEIRS = {"left.py", "old.py", "old_cron.py", "order_old.py"}
SETTINGS = {
    "typeCheckingMode": "standard",
    "extraPaths": [str(ROOT / "src")],
    "reportPossiblyUnboundVariable": False,  # a block goes on from those above it
    "reportRedeclaration": False,
}


def function(page: str, imports: str) -> str:
    """The blocks of a page as one function, each on the lines that it has on the page."""
    lines = [imports, "async def page() -> object:", "    concert = application.concert"]
    for block in python(page):
        if not block.file:
            lines += [""] * (block.line - 1 - len(lines))
            ends = block.text.replace("while True:", "while application.shop_id:")  # what follows is checked, too
            lines += textwrap.indent(ends, " " * 4).splitlines()
    return "\n".join(lines)


def test_pages_type_check(tmp_path: Path) -> None:
    """Of each page the blocks one after the other, and the whole files as they are."""
    (tmp_path / "pages" / "shop").mkdir(parents=True)
    (tmp_path / "pages" / "shop" / "app.py").write_text("from application import concert as concert\n")
    shutil.copy(Path(__file__).parent / "application.py", tmp_path / "pages")
    names: dict[str, str] = {}
    for page in [*PAGES, *SOURCES]:
        text = page.read_text("utf-8")
        if title(page) not in NOT_HERE and python(text):
            module = tmp_path / "pages" / f"page{len(names)}.py"
            imports = "from application import *; import application"
            module.write_text(function(text, f"{imports}; {IMPORTS}" if page in SOURCES else imports))
            names[str(module)] = title(page)
            for name, whole in files(text).items():
                if name in THEIRS:
                    continue
                (tmp_path / module.stem).mkdir(exist_ok=True)
                (tmp_path / module.stem / name).write_text(whole)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(SETTINGS))

    ended = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    report = json.loads(ended.stdout)
    assert report["summary"]["filesAnalyzed"] > len(names) > 20
    assert [
        f"{names.get(wrong['file'], wrong['file'])}:{wrong['range']['start']['line'] + 1}: {wrong['message']}"
        for wrong in report["generalDiagnostics"]
    ] == []
