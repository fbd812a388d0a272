"""The site, as it is built: what users call, and with what; what its search finds; its index for language models."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import DOCS, ROOT
from tests.support.site_search import SiteSearch

# What only the engine has or gives: the session, the keys of a primitive, the state of a lease or a claim.
_OF_THE_ENGINE = re.compile(
    r"\b(?:ref|SessionRef|(?:Job|Permit|Item)State|StateT|JobKeys|Watches|EnqueueBatcher|Getters)\b"
)
_CONSTANT = re.compile(r"(?:= |default:\s*)[A-Z]+(?:_[A-Z]+)+\b")

DESCRIPTION = "Locks, jobs and messages for asyncio services, on Redis and Valkey"

# What people type, in the words of other libraries and of the field, and the guide that must come first.
WANTED = {
    "how-to/locks.html": "lock, mutex, exclusive, distributed lock, critical section, reentrant",
    "how-to/quorum-locks.html": "redlock, quorum",
    "how-to/semaphores.html": "semaphore, bulkhead",
    "how-to/rate-limits.html": "throttle, rate limit, leaky bucket, 429, quota",
    "how-to/rwlocks.html": "rwlock",
    "how-to/elections.html": "singleton, leader, master election, one instance only",
    "how-to/members.html": "presence, online, service discovery, sharding, consistent hashing",
    "how-to/once.html": "stampede, dogpile, singleflight",
    "how-to/events.html": "barrier, latch",
    "how-to/signals.html": "pub/sub, pubsub, broadcast, notify, event bus",
    "how-to/tasks.html": "priority, urgent, background task, eta, countdown",
    "how-to/jobs.html": (
        "retry, backoff, jitter, dead letter, DLQ, poison, dedup, deduplication, idempotent, exactly once, unique,"
        " debounce, chain, DAG, cancel, custom id"
    ),
    "how-to/groups.html": "chord, canvas, fan-out, map-reduce",
    "how-to/steps.html": "saga, compensation, rollback, workflow, durable execution",
    "how-to/schedules.html": "cron, periodic, beat, scheduler, DST",
    "how-to/limits.html": "tenant, concurrency limit",
    "how-to/strict-order.html": "ordering key, message group",
    "how-to/streams.html": "SSE, websocket, stream, progress stream, EventSource",
    "how-to/agent.html": "llm, agent",
    "how-to/workers.html": "systemd, docker",
    "how-to/queues.html": "fifo, broker",
    "how-to/database.html": "outbox, transaction, commit, SQLAlchemy, postgres",
    "how-to/sync.html": "Jupyter, notebook, Flask, sync, threads",
    "how-to/metrics.html": "prometheus, grafana",
    "how-to/traces.html": "opentelemetry, otel",
    "how-to/testing.html": "pytest, fakeredis",
    "how-to/dashboard.html": "dashboard, flower, admin",
    "how-to/migrate/celery.html": "Celery",
    "how-to/migrate/arq.html": "arq",
    "how-to/migrate/rq.html": "RQ",
    "how-to/migrate/saq.html": "SAQ",
    "how-to/migrate/taskiq.html": "taskiq",
    "how-to/migrate/docket.html": "docket",
    "how-to/migrate/index.html": "Huey, Dramatiq, Temporal",
    "where-it-runs.html": "ElastiCache, MemoryDB, Upstash, Dragonfly, KeyDB, Garnet, Memorystore, Azure, Windows",
    "explanation/threats.html": "security model",
    "explanation/performance.html": "benchmark, performance",
}

pytestmark = pytest.mark.slow  # the site is built


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the built site: that of `make docs`, unless something has changed since."""
    built = ROOT / "site" / "index.html"
    sources = [ROOT / "mkdocs.yml", *DOCS.rglob("*.md"), *DOCS.rglob("*.py"), *(ROOT / "src").rglob("*.py")]
    if built.exists() and built.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return built.parent
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    return site


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, str]:
    """The text of each page of the reference, without what a reader does not see."""
    return {
        page.name: html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))
        for page in (site / "reference").glob("*.html")
    }


def test_no_argument_is_shown_that_users_never_give(pages: dict[str, str]) -> None:
    """The coordinator makes most objects, so what it alone gives to their constructors is not on a page."""
    assert len(pages) == len(list((DOCS / "reference").glob("*.md")))
    assert {name: found for name, text in pages.items() if (found := _OF_THE_ENGINE.findall(text))} == {}


def test_constructor_is_shown_of_what_users_construct(pages: dict[str, str]) -> None:
    """A coordinator, an outbox, a quorum lock, the progress of a job, and what a body raises to come back."""
    shown = {name for text in pages.values() for name in re.findall(r"^\s*([A-Z]\w+)\(", text, re.MULTILINE)}

    assert shown == {"Coordinator", "Outbox", "QuorumLock", "Progress", "Retry", "Snooze"}


def test_defaults_are_shown_as_values(pages: dict[str, str]) -> None:
    """Also where the source names a constant, in a signature and in the list of arguments."""
    assert {name: found for name, text in pages.items() if (found := _CONSTANT.findall(text))} == {}
    assert "ttl: Seconds = 30.0," in pages["coordinator.html"]
    assert re.search(r"ttl\s*\(Seconds, default:\s*86400.0\s*\)", pages["events.html"])


def test_search_finds_the_guide_by_the_words_that_people_type(site: Path) -> None:
    """Each word leads to its page first."""
    search = SiteSearch(site)
    first = {
        (words, page): search.pages(words)[:1] for page, several in WANTED.items() for words in several.split(", ")
    }

    assert len(first) >= 60
    assert {words: found for (words, page), found in first.items() if found != [page]} == {}


def test_index_for_language_models_has_each_page(site: Path) -> None:
    """`llms.txt` links all of the navigation, and says what each page is about."""
    lines = (site / "llms.txt").read_text("utf-8").splitlines()
    entries = dict(
        re.findall(r"^- \[[^\]]+\]\(https://[^)]*?/inconcert/([^)]+)\): (.+)", "\n".join(lines), re.MULTILINE)
    )
    built = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert entries.keys() == built
    assert lines[:3] == ["# inconcert", "", f"> {DESCRIPTION}"]
    assert "old and new releases" in entries["how-to/upgrades.html"]


def test_rules_for_agents_are_beside_the_index(site: Path) -> None:
    """As they are written, so that they can be copied."""
    assert (site / "AGENTS.md").read_bytes() == (DOCS / "agents.md").read_bytes()


def test_search_engines_are_given_the_description_of_each_page(site: Path) -> None:
    """It stands in the head of the page."""
    assert '<meta name="description" content="Run inconcert doctor:' in (site / "how-to/doctor.html").read_text("utf-8")
