"""For language models: `llms.txt`, an index of the pages (https://llmstxt.org), and `AGENTS.md`, to be copied."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page

__all__ = ["index_of"]

_navigation: list[Navigation] = []  # of the build that runs


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keep the navigation until the pages are known."""
    del config, files
    _navigation[:] = [nav]
    return nav


def on_post_build(config: MkDocsConfig) -> None:
    """Write the index beside the pages."""
    [nav] = _navigation
    head = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    text = "\n".join([*head, *index_of(nav.items, str(config.site_url), 2)])
    shutil.copy(Path(config.docs_dir, "agents.md"), Path(config.site_dir, "AGENTS.md"))
    Path(config.site_dir, "llms.txt").write_text(re.sub(r"\n{3,}", "\n\n", text) + "\n", "utf-8")


def index_of(items: Sequence[object], site: str, level: int) -> list[str]:
    """The lines of an index: a heading for each section, an entry for each page."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, Section):
            lines += ["", f"{'#' * level} {item.title}", "", *index_of(item.children, site, level + 1)]
        elif isinstance(item, Page):
            lines.append(f"- [{item.title}]({site}{item.url}): {item.meta['description']}")
    return lines
