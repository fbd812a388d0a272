"""For the site: the version that it describes, at the foot of each page."""

import runpy
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

_VERSION = Path(__file__).parents[1] / "src" / "inconcert" / "_version.py"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Say the version where the theme shows the copyright."""
    config.copyright = f"inconcert {runpy.run_path(str(_VERSION))['__version__']}, MIT licensed"
    return config
