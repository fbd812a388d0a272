"""The dashboard in a real browser: what is clicked happens, what changes is shown, and nothing hostile runs."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from inconcert import Coordinator, LeaseLost
from inconcert.dashboard import Dashboard, Permission
from inconcert.dashboard.actions import ACTIONS
from inconcert.dashboard.live import reference
from tests.support.dashboard import at_work, fill_others, hold, is_held, waiting_for
from tests.support.eventually import eventually
from tests.support.http import served_at_port

pytest.importorskip("playwright.sync_api", reason="playwright is not installed; it comes with inconcert[dev]")

from playwright.sync_api import Locator

from tests.support.browser import Reader, Visit, reader

CHROMIUM = shutil.which("chromium")
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)><svg onload=alert(3)>"
LONG = "warehouse." + "x" * 240

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not installed; on Debian: apt-get install chromium"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Reader]:
    """One browser for all tests."""
    with reader(str(CHROMIUM)) as opened:
        yield opened


def everything(request: Request, permission: Permission) -> str:
    """Everybody may do it."""
    del request, permission
    return "ann"


@pytest.fixture
def dashboard(concert: Coordinator) -> Dashboard:
    """What is looked at."""
    return Dashboard(concert, allow=everything, queues=["mail"])


@pytest.fixture
async def url(dashboard: Dashboard) -> AsyncIterator[str]:
    """Where the dashboard is, mounted in a service."""
    app = FastAPI()
    app.mount("/ops", dashboard)
    async with served_at_port(app) as root:
        yield f"{root}ops/"


async def bury(concert: Coordinator, reason: str, *args: str, queue: str = "mail", task: str = "send") -> str:
    """A dead-lettered job."""
    job = await concert.enqueue(task, [*args], queue=queue)
    async with concert.consume(queue) as jobs:
        [claimed] = await jobs.try_claim(1)
        await claimed.bury(ValueError(reason))
    return job.id


async def filled(concert: Coordinator, text: str) -> list[str]:
    """The pages of a namespace in which this text is in every place where users write; a worker that runs one job."""
    dead = await bury(concert, text, text, queue=text, task=text)
    failed = await bury(concert, "boom")
    done = await concert.enqueue(text, [text], queue="mail")
    async with concert.consume("mail") as jobs:
        [claimed] = await jobs.try_claim(1)
        claimed.result = {text: [text]}
        await claimed.ack()
    await concert.enqueue(text, [text], queue=text)
    later = await concert.enqueue(text, [text], queue=text, delay=3600)
    task = concert.task(name=text, queue=text)(print)
    await concert.schedules.put(f"s{text}"[:100].replace(" ", "-"), task.call(text), every=86_400)
    kinds = await fill_others(concert, text)
    chat_id = await concert.chat.create(text, [f"2 {text}"], text)
    return [
        "",
        "others",
        *("other?" + urlencode({"kind": kind, "name": text}) for kind in kinds),
        "other?" + urlencode({"kind": "chat", "name": chat_id}),
        "queues",
        "jobs",
        "tasks",
        f"tasks/{reference('t', text)}",
        "locks",
        "schedules",
        "workers",
        "dead",
        *(f"jobs/{job_id}" for job_id in (dead, failed, done.id, later.id)),
    ]


@pytest.mark.parametrize("width", [1280, 375])
async def test_pages_load_whatever_is_in_them(
    concert: Coordinator, browser: Reader, url: str, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """Text stays text: no script runs, nothing comes from elsewhere, no console complains, nothing is too wide."""
    monkeypatch.setattr(socket, "gethostname", lambda: HOSTILE)
    pages = await filled(concert, HOSTILE)
    await bury(concert, LONG, LONG, queue=LONG, task=LONG)
    await concert.enqueue(LONG, queue=LONG)
    await concert.schedules.put(LONG, concert.task(name=LONG, queue=LONG)(print).call(LONG), cron="0 3 * * MON-FRI")

    def look(visit: Visit) -> dict[str, int]:
        widths: dict[str, int] = {}
        for path in [*pages, "search?q=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(4)%3E", "dead?reason=%3Cscript%3E"]:
            visit.go(path)
            assert visit.page.locator("main h1").count() == 1, path
            assert visit.page.locator("main img, main script, main svg:not(.spark)").count() == 0, path
            widths[path] = visit.page.evaluate("document.documentElement.scrollWidth")
        return widths

    async with concert.consume(HOSTILE) as jobs:
        [claimed] = await jobs.try_claim(1)
        await claimed.progress(0.5, HOSTILE)
        pages.append(f"jobs/{claimed.id}")
        async with (
            at_work(concert, HOSTILE + LONG) as job,
            concert.lock(HOSTILE, label=HOSTILE),
            concert.lock(LONG, label=LONG),
            waiting_for(concert, HOSTILE),
            browser.visit(url, width=width) as visit,
        ):
            pages += [f"jobs/{id_}" for id_ in (job.id, *await job.dependants())]
            widths = await visit.do(look)

    assert {path: found for path, found in widths.items() if found > width} == {}


@pytest.mark.parametrize("width", [1280, 375])
async def test_schedule_that_has_run_is_readable(concert: Coordinator, browser: Reader, url: str, width: int) -> None:
    """The name of its task is at most two lines high, on a telephone, too."""
    task = concert.task(name="shop.jobs.tidy_up")(print)
    concert.cron(every=1)(task)
    await concert.schedules.put("nightly", task.call("all"), every=1)
    worker = asyncio.create_task(concert.run_worker("default"))

    async def have_run() -> bool:
        found = await concert.schedules.list()
        return len(found) == 2 and all(status.last_at is not None for status in found)

    def look(visit: Visit) -> tuple[int, list[float]]:
        visit.go("schedules")
        boxes = [cell.bounding_box() for cell in visit.page.locator("td[data-label=Task]").all()]
        return visit.page.evaluate("document.documentElement.scrollWidth"), [box["height"] for box in boxes if box]

    await eventually(have_run)
    async with browser.visit(url, width=width) as visit:
        page, heights = await visit.do(look)
    worker.cancel()
    await asyncio.wait([worker])

    assert page == width
    assert len(heights) == 2
    assert max(heights) < 70


async def test_each_action_is_clicked(concert: Coordinator, dashboard: Dashboard, browser: Reader, url: str) -> None:
    """And its effect is on the server, and then on the page."""
    dead = [await bury(concert, "boom", f"user {n}") for n in range(3)]
    many = [await concert.enqueue("bake", queue="bread", delay=3600) for _ in range(3)]
    late = await concert.enqueue("send", queue="mail", delay=3600)
    clicked: set[str] = set()

    def press_here(visit: Visit, scope: Locator, button: str) -> str:
        with visit.page.expect_request(lambda request: request.method == "POST") as sent:
            scope.get_by_role("button", name=button, exact=True).click()
        visit.page.wait_for_load_state("load")
        clicked.add(sent.value.url.rpartition("/")[2])
        return visit.page.locator("main").inner_text()

    def press(path: str, button: str, *, row: str = "", due_in: str = "", args: str = "") -> Callable[[Visit], str]:
        """Click it, confirm where a question is asked, and return the page that follows."""

        def act(visit: Visit) -> str:
            visit.go(path)
            scope = visit.page.locator("tr", has_text=row) if row else visit.page.locator("main")
            question = scope.locator("summary", has_text=f"{button}…")
            if question.count():
                question.click()
            if args:
                scope.get_by_text("Edit and replay").click()
                scope.get_by_label("Positional").fill(args)
            if due_in:
                scope.get_by_label("Due in").fill(due_in)
            return press_here(visit, scope, button)

        return act

    def release(visit: Visit) -> str:
        """Say that it is meant, on a page of its own."""
        visit.go("locks")
        visit.page.get_by_role("link", name="Release").click()
        visit.page.get_by_label("I am sure").check()
        return press_here(visit, visit.page.locator("main"), "Release by force")

    def nothing_is_held(visit: Visit) -> bool:
        visit.go("locks")
        return "Nothing is held" in visit.page.locator("main").inner_text()

    async with browser.visit(url) as visit:
        assert "paused" in await visit.do(press("queues", "Pause", row="mail"))
        assert (await concert.tasks.stats("mail")).queues["mail"].is_paused
        assert "paused" not in await visit.do(press("queues", "Resume", row="mail"))
        assert not (await concert.tasks.stats("mail")).queues["mail"].is_paused

        await concert.queue("parcels").put(1)
        assert "Next items" not in await visit.do(press("other?kind=items&name=parcels", "Purge"))
        assert await concert.queue("parcels").size() == 0
        await concert.mailbox("ann").send(1)
        await visit.do(press("other?kind=mailbox&name=ann", "Purge"))
        assert await concert.mailbox("ann").unread() == 0

        assert "delayed" in await visit.do(press(f"jobs/{late.id}", "Reschedule", due_in="7200"))
        assert "cancelled" in await visit.do(press(f"jobs/{late.id}", "Cancel"))
        assert await late.status() == "cancelled"

        assert dead[0] not in await visit.do(press("dead", "Replay", row=dead[0]))
        assert await concert.tasks.job(dead[0]).status() == "queued"
        assert dead[1] not in await visit.do(press("dead", "Purge", row=dead[1]))
        assert [job.id for job in await concert.tasks.dead()] == [dead[2]]
        assert "No job was dead-lettered" in await visit.do(press("dead", "Replay all"))
        assert await concert.tasks.job(dead[2]).status() == "queued"
        edited = await bury(concert, "boom", "bob", queue="oven")
        assert "not a list" in await visit.do(press(f"jobs/{edited}", "Replay with these", args="12"))
        assert "queued" in await visit.do(press(f"jobs/{edited}", "Replay with these", args="[12]"))
        assert [job.args for job in (await concert.tasks.jobs(queue="oven")).jobs] == [[12]]
        await bury(concert, "bang", queue="bowl")
        assert "No job was dead-lettered" in await visit.do(press("dead", "Purge all"))
        assert await concert.tasks.dead() == []

        assert "No job." in await visit.do(press("jobs?state=delayed&task=bake", "Run all now"))
        assert [await job.status() for job in many] == ["queued"] * 3
        await visit.do(press("jobs?task=bake", "Cancel all"))
        assert [await job.status() for job in many] == ["cancelled"] * 3
        await visit.do(press("queues", "Drain", row="mail"))
        assert (await concert.tasks.stats("mail")).queues["mail"].ready == 0

        await concert.schedules.put("nightly", concert.task(name="report", queue="mail")(print).call(), every=86_400)
        assert "paused" in await visit.do(press("schedules", "Pause", row="nightly"))
        assert "paused" not in await visit.do(press("schedules", "Resume", row="nightly"))
        assert "queued" in await visit.do(press("schedules", "Run now", row="nightly"))

        holding = asyncio.ensure_future(hold(concert, "stock:1"))
        await eventually(lambda: is_held(concert))
        dashboard._poll.forget()  # processes were asked for the page of a job, before it was held
        await visit.do(release)
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(holding, 10)
        await eventually(lambda: visit.do(nothing_is_held))

    assert clicked == set(ACTIONS)


async def test_changes_are_shown_without_a_reload(concert: Coordinator, browser: Reader, url: str) -> None:
    """Numbers change in place; a queue that comes is told, and shown when asked for."""
    await concert.enqueue("send", queue="mail")

    def first(visit: Visit) -> None:
        visit.go("queues")
        visit.page.evaluate("document.title = 'not reloaded'")
        visit.page.locator("tr", has_text="mail").get_by_text("1", exact=True).first.wait_for()

    def then(visit: Visit) -> None:
        visit.page.locator("tr", has_text="mail").get_by_text("2", exact=True).wait_for()
        visit.page.get_by_role("status").wait_for()
        assert visit.page.title() == "not reloaded"
        visit.page.get_by_role("link", name="Show it").click()
        visit.page.locator("tr", has_text="bread").wait_for()
        assert visit.page.title() != "not reloaded"

    async with browser.visit(url) as visit:
        await visit.do(first)
        await concert.enqueue("send", queue="mail")
        await concert.enqueue("bake", queue="bread")
        await visit.do(then)


async def test_hidden_page_lets_its_stream_go(
    concert: Coordinator, browser: Reader, dashboard: Dashboard, url: str
) -> None:
    """So that nothing is asked of the server; it comes back with the reader."""

    def hide(is_hidden: str) -> Callable[[Visit], None]:
        def act(visit: Visit) -> None:
            visit.page.evaluate(
                f"Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}});"
                "document.dispatchEvent(new Event('visibilitychange'))"
            )

        return act

    async with browser.visit(url) as visit:
        await visit.do(lambda visit: visit.go())
        await eventually(lambda: dashboard._streams.open == 1)
        await visit.do(hide("true"))
        await eventually(lambda: dashboard._streams.open == 0)
        await concert.enqueue("send", queue="mail")
        await visit.do(hide("false"))
        await visit.do(lambda visit: visit.page.locator("[data-live=ready]", has_text="1").wait_for())
    await eventually(lambda: dashboard._streams.open == 0)
