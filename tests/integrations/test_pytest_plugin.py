"""The fixture `concert` of the pytest plugin: on each server, and with each plugin that runs asynchronous tests."""

import pytest

PLUGINS = ("-p", "pytest_inconcert", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:xdist")

# A test that leaves something; run twice, it sees whether it was given something that another has used.
TEST = """
import pytest

@pytest.mark.parametrize("time", [1, 2])
{mark}
async def test_it(concert, time):
    assert concert.url {url}
    assert not await concert.event("e").is_set()
    await concert.event("e").set()
    async with concert.lock("x"):
        assert await concert.lock("x").try_acquire() is None
    concert.cron(every=60)(concert.task(print))
    await concert.enqueue("a")
"""
ANYIO = "@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio', 'trio'])"
FAKE, REAL = "is None", ".startswith('unix:')"


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    """Run a file with tests, in this process."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n")
    pytester.makepyfile(text)
    return pytester.runpytest_inprocess(*PLUGINS, "-q", *arguments)


@pytest.mark.parametrize("scope", ["function", "module", "session"])
@pytest.mark.parametrize("url", [FAKE, REAL], ids=["fakeredis", "embedded"])
def test_test_of_pytest_asyncio_gets_it(pytester: pytest.Pytester, scope: str, url: str) -> None:
    """On the loop that the test runs on, also if others run on it."""
    server = "embedded" if url == REAL else "fakeredis"
    ended = run(
        pytester,
        TEST.format(mark=f"@pytest.mark.asyncio(loop_scope={scope!r})", url=url),
        "-o",
        f"inconcert_server={server}",
    )
    ended.assert_outcomes(passed=2)


def test_test_of_pytest_asyncio_needs_no_mark_in_its_auto_mode(pytester: pytest.Pytester) -> None:
    """On the loop of the scope that the configuration names."""
    arguments = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=module")
    run(pytester, TEST.format(mark="", url=FAKE), *arguments).assert_outcomes(passed=2)


@pytest.mark.parametrize("others", [(), ("-p", "no:asyncio")], ids=["both", "alone"])
def test_test_of_anyio_gets_it_on_asyncio(pytester: pytest.Pytester, others: tuple[str, ...]) -> None:
    """Whether pytest-asyncio is there or not; on trio it is told what to do."""
    pytester.makepyfile(TEST.format(mark=ANYIO, url=FAKE))
    if not others:
        others = ("-o", "asyncio_default_fixture_loop_scope=function")
    ended = pytester.runpytest_inprocess(*PLUGINS, "-q", *others)
    ended.assert_outcomes(passed=2, errors=2)
    ended.stdout.fnmatch_lines("*needs asyncio, and this test runs on trio; let the fixture `anyio_backend` return*")


def test_mark_chooses_the_server_of_one_test(pytester: pytest.Pytester) -> None:
    """Whatever the configuration says."""
    mark = "@pytest.mark.asyncio\n@pytest.mark.inconcert_server('embedded')"
    run(pytester, TEST.format(mark=mark, url=REAL), "--strict-markers").assert_outcomes(passed=2)


def test_unknown_server_is_refused(pytester: pytest.Pytester) -> None:
    """It says which there are."""
    ended = run(pytester, TEST.format(mark="@pytest.mark.asyncio", url=FAKE), "-o", "inconcert_server=redis")
    ended.assert_outcomes(errors=2)
    ended.stdout.fnmatch_lines("inconcert_server is 'redis'; give 'fakeredis' or 'embedded'")


def test_synchronous_test_is_told_what_to_write(pytester: pytest.Pytester) -> None:
    """It could not await anything."""
    ended = run(pytester, "def test_it(concert): ...")
    ended.assert_outcomes(errors=1)
    ended.stdout.fnmatch_lines("*is for asynchronous tests;*write `with override(...)` of inconcert.testing")


def test_plugin_imports_nothing_for_tests_that_do_not_use_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither inconcert nor redis, fakeredis or asyncio's plugin if that is not there."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what else is installed may import anything
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    assert 'pytest_inconcert' in sys.modules\n"
        "    assert not {'inconcert', 'redis', 'fakeredis', 'anyio', 'pytest_asyncio'} & set(sys.modules)\n"
    )
    pytester.runpytest_subprocess("-p", "pytest_inconcert", "-q").assert_outcomes(passed=1)


def test_fixture_says_that_the_plugin_is_missing(pytester: pytest.Pytester) -> None:
    """Without pytest-asyncio nothing could run the test."""
    pytester.makepyfile("import pytest\n\n@pytest.mark.asyncio\nasync def test_it(concert):\n    pass\n")
    result = pytester.runpytest_subprocess(*PLUGINS, "-q", "-p", "no:asyncio")
    result.stdout.fnmatch_lines(["*`concert` needs a plugin that runs asynchronous tests*pip install pytest-asyncio*"])
    result.stdout.no_fnmatch_line("*getini*")
