"""The public workflows: they run on each Python that the package names, and publish without a stored secret."""

import re
import tomllib
from typing import Any, cast

from mkdocs.utils import yaml

from tests.support.pages import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def jobs(name: str) -> dict[str, dict[str, Any]]:
    """The jobs of a workflow."""
    found: dict[str, dict[str, Any]] = cast("Any", yaml).yaml_load((WORKFLOWS / name).read_text("utf-8"))["jobs"]
    return found


def test_tests_run_on_each_python_that_the_package_names() -> None:
    """The oldest with all checks, each newer one with the tests."""
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    tests = jobs("ci.yml")
    oldest = tests["all"]["steps"][1]["with"]["python-version"]

    assert [oldest, *tests["pythons"]["strategy"]["matrix"]["python"]] == named
    assert PROJECT["requires-python"] == f">={oldest}"


def test_workflows_run_verbs_that_the_makefile_has() -> None:
    """A verb that is renamed is renamed here, too."""
    verbs = set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = "\n".join(path.read_text("utf-8") for path in WORKFLOWS.glob("*.yml"))
    nightly = jobs("ci.yml")["nightly"]["strategy"]["matrix"]["verb"]

    assert {*re.findall(r"run: make ([a-z]+)", text), *nightly} <= verbs
    assert len(nightly) > 3


def test_only_what_publishes_may_ask_for_an_identity() -> None:
    """Not what builds: a dependency of the build could use it."""
    release = jobs("release.yml")

    assert {name for name, job in release.items() if "id-token" in job.get("permissions", {})} == {
        "attest",
        "publish",
        "site",
    }
    assert release["publish"]["environment"]["name"] == "pypi"
    assert [release[name]["needs"] for name in ("attest", "publish")] == ["build", "attest"]


def test_no_workflow_uses_a_stored_secret_or_may_write_by_default() -> None:
    """What is not stored cannot be stolen."""
    for path in WORKFLOWS.glob("*.yml"):
        text = path.read_text("utf-8")
        assert "secrets." not in text
        assert "\npermissions: { contents: read }\n" in text


def test_tag_is_compared_with_the_version_as_it_is_written() -> None:
    """The expression of the workflow finds it."""
    pattern = re.search(r"sed -n 's/(\^__version__[^/]*)/", (WORKFLOWS / "release.yml").read_text("utf-8"))
    assert pattern
    expression = pattern[1].replace(r"\(", "(").replace(r"\)", ")")

    assert re.search(expression, (ROOT / "src/inconcert/_version.py").read_text("utf-8"), re.MULTILINE)
