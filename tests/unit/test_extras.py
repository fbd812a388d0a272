"""A module whose extra is not installed says which one it is."""

import json
import subprocess
import sys

EXTRAS = {
    "inconcert.integrations.fastapi": ("starlette", "fastapi"),
    "inconcert.integrations.aiohttp": ("aiohttp", "aiohttp"),
    "inconcert.integrations.litestar": ("litestar", "litestar"),
    "inconcert.integrations.prometheus": ("prometheus_client", "prometheus"),
    "inconcert.integrations.otel": ("opentelemetry", "otel"),
    "inconcert.integrations.django": ("django_tasks", "django"),
    "inconcert.dashboard": ("starlette", "dashboard"),
    "inconcert.dashboard.aiohttp": ("starlette", "dashboard"),
    "inconcert.testing": ("fakeredis", "testing"),
    "inconcert.sql": ("sqlalchemy", "sql"),
}
CODE = """
import json, sys
from importlib import import_module

modules, missing = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(missing)
said = {}
for module in modules:
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        said[module] = str(error)
print(json.dumps(said))
"""


def test_missing_extra_is_named() -> None:
    """Each integration, the dashboard and the testing tools, where none of their libraries is there."""
    missing = [*{library for library, _ in EXTRAS.values()}, "django"]
    ended = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps([list(EXTRAS), missing])],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = json.loads(ended.stdout)
    assert said.keys() == EXTRAS.keys()
    for module, (library, extra) in EXTRAS.items():
        assert f"needs {library}, which is not installed; run  pip install 'inconcert[{extra}]'" in said[module]
        assert module.startswith(said[module].partition(" ")[0])
