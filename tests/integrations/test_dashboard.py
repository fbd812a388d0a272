"""The dashboard over real HTTP: its pages, who may use them, and what a hostile name or page can do."""

import asyncio
import html
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path
from typing import get_args

import anyio
import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import Route

from inconcert import Coordinator, InvalidName, JobStatus, Lease, LeaseLost, Limit
from inconcert.dashboard import Dashboard, Permission, charts, formats, read_only, streams
from inconcert.dashboard.actions import ACTIONS
from inconcert.dashboard.live import reference
from inconcert.dashboard.redaction import Part
from inconcert.testing.keys import client_of
from tests.support.background import in_background
from tests.support.dashboard import (
    OURS,
    PAGES,
    at_work,
    bury,
    fill_others,
    hold,
    is_held,
    reference_in,
    waiting_for,
    waits_of,
)
from tests.support.eventually import eventually
from tests.support.http import events, served
from tests.support.processes import Leashed

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


class Host:
    """An application that has a dashboard, and a user who may do some things."""

    def __init__(self, concert: Coordinator) -> None:
        self.may: set[Permission] = set(Permission)
        self.asked: list[Permission] = []
        self.secret: set[Part] = set()
        self.dashboard = Dashboard(
            concert, allow=self.allow, queues=["mail", HOSTILE], redact=self.redact, title="the shop"
        )
        self.app = FastAPI()
        self.app.mount("/ops", self.dashboard)

    async def allow(self, request: Request, permission: Permission) -> str | None:
        """As a host's hook, which may wait."""
        self.asked.append(permission)
        return request.headers.get("x-user", "ann") if permission in self.may else None

    def redact(self, part: Part, text: str) -> str:
        """Hide what is secret."""
        return "hidden" if part in self.secret else text


@pytest.fixture
def host(concert: Coordinator) -> Host:
    """The application."""
    return Host(concert)


@pytest.fixture
async def client(host: Host, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A browser, below the dashboard's root."""
    async with served(host.app, tmp_path / "s") as client:
        client.base_url = httpx.URL("http://shop/ops")
        yield client


def held_in(page: str) -> str:
    """What stands for the first holder of which the page says that it can be released."""
    found = re.search(r"release\?held=(\w+)", page)
    assert found is not None
    return found[1]


# Pages.


async def test_pages_show_what_there_is(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """Counts of queues, workers and what they run, dead letters with their reason, and the server."""
    dead = await bury(concert, "no such user", "bob")
    await concert.enqueue("send", ["ann"], queue="mail")
    running = await concert.enqueue("bake", queue="bread")
    async with concert.consume("bread") as jobs:
        await jobs.try_claim(1)
        overview = (await client.get("/")).text
        workers = (await client.get("/workers")).text
        queues = (await client.get("/queues")).text
    letters = (await client.get("/dead")).text
    one = (await client.get(f"/jobs/{dead}")).text

    assert re.search(r'data-live="ready">1<', overview)
    assert re.search(r'data-live="dead">1<', overview)
    assert "no worker serves <b>mail</b>" in overview
    assert "noeviction" in overview
    assert running.id in workers
    assert "bake" in workers
    assert "bread" in queues
    assert "nobody serves it" in queues
    assert dead in letters
    assert "no such user" in letters
    assert "no such user" in one
    assert "bob" in one
    assert "</html>" in one


async def test_job_page_shows_each_state(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """And offers what can be done in it."""
    queued = await concert.enqueue("send", queue="mail")
    page = (await client.get(f"/jobs/{queued.id}")).text
    assert "state-queued" in page
    assert "Why it waits" in page
    assert "no worker serves queue &#39;mail&#39;" in page
    assert "actions/cancel" in page
    assert "actions/reschedule" not in page
    async with concert.consume("mail") as jobs:
        [claimed] = await jobs.try_claim(1)
        await claimed.progress(0.25, "a quarter")
        running = (await client.get(f"/jobs/{queued.id}")).text
        claimed.result = {"sent": 1}
        await claimed.ack()
    assert "25 % a quarter" in running
    assert re.search(r"What it does.*attempt 1 of task &#39;send&#39; has run for", running, re.DOTALL)
    done = (await client.get(f"/jobs/{queued.id}")).text
    assert "&#34;sent&#34;: 1" in done
    assert "actions/" not in done
    assert "no longer kept" in (await client.get("/jobs/0123456789abcdef.1.0")).text


async def test_job_page_shows_what_belongs_to_it(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """Its steps, items and group, the jobs before and after it, and links to these."""
    async with at_work(concert, "rye") as job:
        page = (await client.get(f"/jobs/{job.id}")).text
        [child] = await job.dependants()
        after = (await client.get(f"/jobs/{child}")).text
        [callback] = re.findall(r"/ops/jobs/([^\"]*~then[^\"]*)", page)
        of_callback = (await client.get(f"/jobs/{callback}")).text

    assert re.search(r"rye</th>.*knead.*&#34;rye, kneaded&#34;", page)
    assert len(re.findall(r"<code>&#34;rye&#34;</code>", page)) == 2
    assert "0 of 2 have ended" in page
    assert re.search(rf"Runs before.*/ops/jobs/{child}\".*rye.*waiting", page, re.DOTALL)
    assert re.search(rf"Runs after.*/ops/jobs/{job.id}\".*rye.*running", after, re.DOTALL)
    assert "0 of 2 have ended" in of_callback
    assert "~then" not in of_callback.partition("Group")[2]


async def test_history_of_a_task_is_shown(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """If it keeps one, when its jobs are searched for: how they ended, and why; not among those of a state."""

    @concert.task(name="bake", queue="bread", history=10, max_attempts=1)
    async def bake(kind: str) -> None:
        if kind != "rye":
            raise ValueError(f"no {kind} today")

    jobs = await concert.enqueue_many([bake.call("rye"), bake.call("<b>corn</b>")])
    await concert.run_worker("bread", burst=True)
    page = (await client.get("/jobs", params={"task": "bake"})).text
    ended = page.partition("<h2>Ended")[2]
    assert all(job.id in ended for job in jobs)
    assert "state-succeeded" in ended
    assert "no &lt;b&gt;corn&lt;/b&gt; today" in ended
    assert "<h2>Ended" not in (await client.get("/jobs", params={"task": "bake", "state": "failed"})).text
    host.secret.add("error")
    assert "corn" not in (await client.get("/jobs", params={"task": "bake"})).text.partition("<h2>Ended")[2]


async def test_arguments_in_a_history_are_shown_and_redacted(
    concert: Coordinator, host: Host, client: httpx.AsyncClient
) -> None:
    """As those of a job that waits, if its task keeps them; of a job that is too long it is said."""

    @concert.task(name="bake", queue="bread", history=10, history_arguments=True)
    async def bake(kind: str) -> None: ...

    await concert.enqueue_many([bake.call("<b>corn</b>"), bake.call("x" * 5000)])
    await concert.run_worker("bread", burst=True)

    async def ended() -> str:
        return (await client.get("/jobs", params={"task": "bake"})).text.partition("<h2>Ended")[2]

    page = await ended()
    assert "&lt;b&gt;corn&lt;/b&gt;" in page
    assert "longer than 4 KiB, and not kept" in page
    host.secret.add("arguments")
    page = await ended()
    assert "state-succeeded" in page
    assert "corn" not in page


async def test_tasks_are_shown_with_what_ended(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """Also to those who look later: by task, by hour of two weeks, and the last jobs; secret names are hidden."""

    @concert.task(name="bake", queue="bread", max_attempts=1)
    async def bake(kind: str) -> None:
        if kind == "stone":
            raise ValueError(kind)

    assert "No worker has counted" in (await client.get("/tasks")).text
    jobs = [await bake.enqueue(kind) for kind in ("rye", "stone")]
    await concert.run_worker("bread", burst=True)
    tasks = (await client.get("/tasks")).text
    one = (await client.get(f"/tasks/{reference('t', 'bake')}")).text
    host.secret = {"task"}
    hidden = (await client.get("/tasks")).text + (await client.get(f"/tasks/{reference('t', 'bake')}")).text

    for page in tasks, one:
        assert "bake" in page
        assert "50.0%" in page
        assert all(job.id in page for job in jobs)
    assert 'href="/ops/jobs?task=bake"' in one
    assert one.count("<polyline") == 2
    assert "bake" not in hidden
    assert (await client.get("/tasks/t0")).status_code == 404


async def test_job_that_is_tried_again_shows_why_it_failed(
    concert: Coordinator, host: Host, client: httpx.AsyncClient
) -> None:
    """In the list and on its page; not where errors are secret."""
    job = await concert.enqueue("bake", queue="bread")
    async with concert.consume("bread") as jobs:
        async with await anext(jobs):
            raise ValueError("no <b>corn</b>")
        assert await job.status() is JobStatus.DELAYED
    pages = [(await client.get(path)).text for path in ("/jobs", f"/jobs/{job.id}")]
    assert all("ValueError: no &lt;b&gt;corn&lt;/b&gt;" in page for page in pages)
    assert "Attempts that failed" in pages[1]
    assert "Traceback (most recent call last)" in pages[1]
    host.secret.add("error")
    pages = [(await client.get(path)).text for path in ("/jobs", f"/jobs/{job.id}")]
    assert not any("corn" in page for page in pages)
    assert "attempt 2 is due" in pages[1]
    assert "Traceback" not in pages[1]


async def test_what_is_not_signed_is_not_shown(concert: Coordinator, namespace: str, tmp_path: Path) -> None:
    """Of a job and its steps and items; and a job does not say itself what runs after another."""
    source = Coordinator.from_client(client_of(concert), namespace=namespace, signing_keys={"1": b"k" * 32})
    async with source as signing:
        app = Dashboard(signing, allow=read_only)
        mine = await signing.enqueue("sell", queue="mail")
        forged = await concert.enqueue("forged", ["forged"], queue="mail", after=[mine.id])
        async with served(app, tmp_path / "s") as client, at_work(concert, "forged") as job:
            pages = [(await client.get(f"/jobs/{one.id}")).text for one in (mine, forged, job)]

    assert "Runs before" not in pages[0]
    assert "cannot be read" in pages[1]
    assert "They are not shown" in pages[2]
    assert "It is not shown" in pages[2]
    assert [page for page in pages if "forged" in page] == []


async def test_search_leads_to_a_job_or_to_queues(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """By its id, or by a part of their name."""
    job = await concert.enqueue("send", queue="mail")
    found = await client.get("/search", params={"q": f" {job.id} "})
    queues = (await client.get("/search", params={"q": "MAI"})).text

    assert (found.status_code, found.headers["location"]) == (303, f"/ops/jobs/{job.id}")
    assert ">mail</a>" in queues
    assert ">default</a>" not in queues


async def test_search_finds_tasks(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """By a part of their name as it is shown, beside queues; the page of tasks is searched as well."""
    for name in "mail.send", "mail.drop", "bake<b>":
        task = concert.task(name=name, queue="bread")(print)
        await task.enqueue()
    await concert.run_worker("bread", burst=True)

    async def found(path: str, sought: str) -> set[str]:
        page = (await client.get(path, params={"q": sought})).text
        return set(re.findall(r'href="/ops/(?:tasks/|jobs\?queue=)(\w+)">', page.partition("<h2>Ended lately")[0]))

    mail, send, drop = reference("q", "mail"), reference("t", "mail.send"), reference("t", "mail.drop")
    assert await found("/search", " MAIL") == {mail, send, drop}
    assert await found("/search", "il.Send") == {send}
    assert await found("/tasks", "MAIL ") == {send, drop}
    assert await found("/search", "bake<b>") == {reference("t", "bake<b>")}
    nothing = (await client.get("/search", params={"q": "knead & co"})).text
    assert "No queue." in nothing
    assert 'href="/ops/jobs?task=knead+%26+co"' in nothing
    host.secret = {"task"}
    assert await found("/search", "mail.") == set()


async def test_found_tasks_are_shown_a_page_at_a_time(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """The next page has those of this name as well."""
    for n in range(51):
        await concert.task(name=f"send-{n:02}", queue="bread")(print).enqueue()
    await concert.task(name="bake", queue="bread")(print).enqueue()
    await concert.run_worker("bread", burst=True)

    first = (await client.get("/search", params={"q": "send-"})).text
    [after] = re.findall(r'rel="next" href="([^"]*)"', first)
    second = (await client.get(html.unescape(after).removeprefix("/ops"))).text

    shown = [re.findall(r'href="/ops/tasks/\w+">(send-\d\d|bake)</a></th>', page) for page in (first, second)]
    assert [len(names) for names in shown] == [50, 1]
    assert sorted(shown[0] + shown[1]) == [f"send-{n:02}" for n in range(51)]


async def test_stream_tells_what_changes(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """First everything, then what differs; the charts with it."""
    row = reference("q", "mail")
    async with client.stream("GET", f"/live?rows={row}") as response, aclosing(events(response)) as stream:
        first = json.loads((await anext(stream))["data"])
        await concert.enqueue("send", queue="mail")
        second = json.loads((await anext(stream))["data"])

    assert response.headers["content-type"].startswith("text/event-stream")
    assert (first["ready"], second["ready"]) == ("0", "1")
    assert (first[f"{row}.ready"], second[f"{row}.ready"]) == ("0", "1")
    assert "finished" not in second
    assert {key.partition(".")[0] for key in first if key[0] == "q"} == {row}
    assert second["chart.backlog"].count(",") == 2


async def test_viewers_have_so_many_streams(
    host: Host, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more is told when to come back, and comes in when another goes."""
    monkeypatch.setattr(streams, "_MOST", 1)
    async with client.stream("GET", "/live") as first, aclosing(events(first)) as stream:
        await anext(stream)
        refused = await client.get("/live")
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "20")
    assert "viewers" in refused.text
    await eventually(lambda: host.dashboard._streams.open == 0)
    async with client.stream("GET", "/live") as second:
        assert second.status_code == 200


async def test_many_queues_are_shown_a_page_at_a_time(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """First those that nobody serves; the others by how long their jobs wait, and then the paused ones."""
    names = [f"queue-{n:03}" for n in range(120)]
    await asyncio.gather(*(concert.enqueue("send", queue=name) for name in names))
    async with concert.consume(*names[1:], "mail", HOSTILE, "default"):
        await concert.tasks.pause("mail")
        pages = [await client.get("/queues", params={"page": number}) for number in ("1", "3", "99", "x")]
        found = await client.get("/queues", params={"q": "E-01"})

    rows = [re.findall(r"jobs\?queue=\w+\">([^<]*)<", page.text) for page in pages]
    assert rows[0][0] == "queue-000"
    assert [len(some) for some in rows] == [50, 23, 23, 50]
    assert rows[1][-3] == "mail"
    assert rows[0] == rows[3]
    assert max(len(page.content) for page in pages) < 100 * 1024
    assert sorted(re.findall(r"jobs\?queue=\w+\">([^<]*)<", found.text)) == [f"queue-01{n}" for n in range(10)]


async def is_waited_for(concert: Coordinator) -> bool:
    """Whether a process says that it waits."""
    return any(process.waits for process in (await concert.inspect()).processes)


async def test_locks_are_shown_with_who_waits(
    concert: Coordinator, elsewhere: Coordinator, client: httpx.AsyncClient
) -> None:
    """From which line, under which label; what is waited for comes first, and names are searched."""
    async with concert.lock("stock:1", label="order 7") as lease, concert.semaphore("ovens", limit=2):
        waiting = asyncio.ensure_future(elsewhere.lock("stock:1", label="order 8").acquire())
        await eventually(lambda: is_waited_for(concert))
        page = (await client.get("/locks")).text
        found = (await client.get("/locks?q=OVEN")).text
        waiting.cancel()
        await asyncio.wait([waiting])

    assert page.index("stock:1") < page.index("ovens")
    assert "order 7" in page
    assert "order 8" in page
    assert "<b>1.</b>" in page
    assert f"token {lease.fencing_token}" in page
    assert "test_dashboard.py:" in page
    assert "What 2 processes said" in page
    assert "stock:1" not in found


async def test_first_in_line_are_shown_whatever_process_they_are_in(
    concert: Coordinator, elsewhere: Coordinator, client: httpx.AsyncClient
) -> None:
    """Of many; and how many there are."""
    async with concert.lock("stock:1"):
        waiting: list[asyncio.Task[Lease]] = []
        for process in elsewhere, concert:
            waiting += [asyncio.create_task(process.lock("stock:1").acquire()) for _ in range(15)]
            await eventually(partial(waits_of, concert, len(waiting)))
        page = (await client.get("/locks")).text
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    assert re.findall(r"<b>(\d+)\.</b>", page) == [str(n) for n in range(1, 21)]
    assert "20 of 30" in page


async def test_many_locks_are_shown_a_page_at_a_time(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """And the page stays small."""
    async with AsyncExitStack() as held:
        for n in range(120):
            await held.enter_async_context(concert.lock(f"stock:{n:03}"))
        pages = [await client.get("/locks", params={"page": number}) for number in (1, 3)]

    assert [len(re.findall(r"stock:\d+ <span", page.text)) for page in pages] == [50, 20]
    assert max(len(page.content) for page in pages) < 100 * 1024


async def test_limits_are_shown_of_their_queue(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """How many of the places are taken, and how many jobs wait for one; the stream tells when that changes."""
    may_end = asyncio.Event()

    @concert.task(queue="imports", limit=Limit(2))
    async def load(number: int) -> None:
        await may_end.wait()

    @concert.task(queue="imports", limit=concert.limit("api", 3))
    async def publish() -> None: ...

    for number in range(5):
        await load.enqueue(number)
    key = reference("q", "imports")
    row = reference("l", load.name)
    async with in_background(concert.run_worker("imports", concurrency=5)):
        await eventually(partial(is_held_back, concert, 3))
        host.dashboard._poll.forget()
        queues = (await client.get("/queues")).text
        page = (await client.get("/jobs", params={"queue": key})).text
        await concert.enqueue("sell", queue="mail", delay=3600)
        later = (await client.get("/jobs", params={"queue": reference("q", "mail"), "state": "delayed"})).text
        other = (await client.get("/jobs", params={"queue": reference("q", "mail")})).text
        async with client.stream("GET", f"/live?rows={row},{key}") as response, aclosing(events(response)) as stream:
            texts = json.loads((await anext(stream))["data"])
            may_end.set()
            while (texts[f"{key}.held"], texts[f"{row}.used"]) != ("0", "0 of 2"):
                texts |= json.loads((await anext(stream))["data"])

    assert f'data-live="{key}.held">3</span> wait for a limit' in queues
    assert f'data-live="{key}.held">3<' in page
    assert page.count("<small>held back</small>") == 3
    assert re.search(r"delayed</span> <small>in (1 h 0 min|59 min \d+ s)</small>", later)
    assert re.search(rf'load</dt><dd><span data-live="{row}.used">2 of 2<', page)
    assert "0 of 3</span> places of the limit api, which tasks share, are taken" in page
    assert "limit" not in other


async def is_held_back(concert: Coordinator, number: int) -> bool:
    """Whether so many jobs wait for a limit."""
    return (await concert.tasks.stats("imports")).queues["imports"].held_back == number


async def test_others_are_shown_with_who_waits(
    concert: Coordinator, elsewhere: Coordinator, client: httpx.AsyncClient
) -> None:
    """From which line; their names are links to what is kept of them."""
    await concert.rate_limiter("api", 1, period=1000.0).acquire()

    async def fetch() -> None:
        await elsewhere.mailbox("ann").fetch(timeout=None)

    async def wait() -> None:
        await elsewhere.signal("deploy").wait()

    async def call() -> None:
        await elsewhere.rate_limiter("api", 1, period=1000.0).acquire()

    waiting = [asyncio.ensure_future(body()) for body in (fetch, wait, call)]
    await eventually(partial(waits_of, concert, 3))
    subscription = elsewhere.signal("deploy").subscribe()
    await subscription.__aenter__()
    page = (await client.get("/others")).text
    locks = (await client.get("/locks")).text
    one = {
        kind: (await client.get("/other", params={"kind": kind, "name": name})).text
        for kind, name in {"mailbox": "ann", "signal": "deploy", "rate limiter": "api"}.items()
    }
    await subscription.__aexit__(None, None, None)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)

    for kind, name in ("mailbox", "ann"), ("signal", "deploy"), ("rate+limiter", "api"):
        assert f'href="/ops/other?kind={kind}&amp;name={name}"' in page.replace("%20", "+")
    assert "Nothing is held or waited for" in locks
    for shown in one.values():
        assert "test_dashboard.py:" in shown
    assert ["subscribed</span>" in shown for shown in one.values()] == [False, True, False]
    assert "Waiting</dt><dd>1</dd>" in one["rate limiter"]
    assert re.search(r"back in</dt><dd>33 min", one["rate limiter"])


async def test_queue_of_items_is_shown(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """How much is in it, what comes next, and what was dead-lettered."""
    queue = concert.queue("parcels", max_attempts=1)
    for n in range(3):
        await queue.put({"parcel": n})
    await queue.put("later", delay=3600)
    async with await queue.get():
        raise ZeroDivisionError("dropped it")
    delivery = await queue.get()
    page = (await client.get("/other?kind=items&name=parcels")).text
    await delivery.ack()

    facts = dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", page))
    assert {name: facts[name] for name in ("Ready", "Delayed", "Claimed", "Dead")} == {
        "Ready": "1",
        "Delayed": "1",
        "Claimed": "1",
        "Dead": "1",
    }
    assert "<code>{&#34;parcel&#34;: 2}</code>" in page
    assert "dropped it" in page


async def test_consumers_of_a_queue_of_items_are_shown(
    concert: Coordinator, elsewhere: Coordinator, client: httpx.AsyncClient
) -> None:
    """Who holds which item, who waits for the next, and who until all are done; and that it was shut down."""
    await concert.queue("parcels").put(1, id="parcel-1")

    async def take() -> None:
        async for delivery in elsewhere.queue("parcels"):
            async with delivery:
                await anyio.sleep_forever()

    async def wait() -> None:
        await elsewhere.queue("letters").get()

    working = [asyncio.ensure_future(body()) for body in (take, wait, elsewhere.queue("parcels").join)]
    await eventually(partial(takes_and_waits, concert))
    await eventually(partial(waits_of, concert, 1))
    page = (await client.get("/others")).text
    one = (await client.get("/other?kind=items&name=parcels")).text
    other = (await client.get("/other?kind=items&name=letters")).text
    await concert.queue("parcels").shutdown()
    shut = (await client.get("/other?kind=items&name=parcels")).text
    for task in working:
        task.cancel()
    await asyncio.wait(working)

    assert "name=parcels" in page
    assert "name=letters" in page
    assert re.search(r"Held by</h2>.*parcel-1.*test_dashboard.py:\d+.*Waited for by</h2>.*\bjoin\b", one, re.DOTALL)
    assert re.search(r"Waited for by</h2>.*test_dashboard.py:\d+", other, re.DOTALL)
    assert ("shut down" in one, "shut down" in shut) == (False, True)


async def takes_and_waits(concert: Coordinator) -> bool:
    """Whether processes hold an item of a queue, and wait for one of another."""
    consumers = [each for process in (await concert.inspect()).processes for each in process.consumers]
    return sorted((len(each.holds), each.waiting) for each in consumers) == [(0, 1), (1, 0)]


async def test_chat_is_shown_with_its_slowest_readers(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """Who is furthest behind comes first."""
    chat_id = await concert.chat.create("ann", ["bob", "eve"], "hello")
    for _ in range(2):
        await concert.chat.send(chat_id, "ann", "is there anybody?")
    [batch] = await concert.chat.fetch("eve")
    page = (await client.get("/other", params={"kind": "chat", "name": chat_id})).text
    gone = await client.get("/other", params={"kind": "chat", "name": "nobody's"})

    assert "Members</dt><dd>3<" in page
    assert re.findall(r"(\w+)</th><td[^>]*>(\d)<", page) == [("bob", "3"), ("ann", "0"), ("eve", "0")]
    assert len(batch.messages) == 3
    assert gone.status_code == 404


async def test_mailbox_and_queue_of_items_are_purged(
    concert: Coordinator, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody has claimed of the queue, and all of the mailbox; the log says how much."""
    caplog.set_level(logging.INFO, "inconcert.dashboard")
    queue, mailbox = concert.queue("parcels"), concert.mailbox("ann")
    for n in range(3):
        await queue.put(n)
        await mailbox.send(n)
    delivery = await queue.get()
    assert "Unread</dt><dd>3<" in (await client.get("/other?kind=mailbox&name=ann")).text
    done = [
        await client.post("/actions/purge-items", data={"name": "parcels"}, headers=OURS),
        await client.post("/actions/purge-mailbox", data={"name": "ann"}, headers=OURS),
    ]
    counts = await queue.counts()
    await delivery.ack()

    assert [answer.headers["location"] for answer in done] == [
        "/ops/other?kind=items&name=parcels",
        "/ops/other?kind=mailbox&name=ann",
    ]
    assert (counts.ready, counts.claimed, await mailbox.unread()) == (0, 1, 0)
    assert [record.getMessage() for record in caplog.records if record.name == "inconcert.dashboard"] == [
        "purge-items: queue of items 'parcels', 2 items, by 'ann'",
        "purge-mailbox: mailbox 'ann', 3 messages, by 'ann'",
    ]
    for page in done:
        assert "actions/purge-" not in (await client.get(page.headers["location"].removeprefix("/ops"))).text


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"kind": "lock", "name": "a"}, 404),
        ({"name": "a"}, 404),
        ({"kind": "items"}, 404),
        ({"kind": "items", "name": "a" * 513}, 404),
        ({"kind": "signal", "name": "\x00"}, 200),
    ],
)
async def test_only_what_there_may_be_is_looked_up(
    client: httpx.AsyncClient, asked: dict[str, str], status: int
) -> None:
    """By its kind and a name."""
    assert (await client.get("/other", params=asked)).status_code == status


async def test_hidden_names_are_not_looked_up(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """By guessing one could learn that they are there."""
    await concert.queue("parcels").put(1)
    host.secret = {"lock"}
    page = await client.get("/other?kind=items&name=parcels")
    purged = await client.post("/actions/purge-items", data={"name": "parcels"}, headers=OURS)

    assert (page.status_code, purged.status_code) == (404, 404)
    assert await concert.queue("parcels").size() == 1


async def test_jobs_are_searched(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """By state, queue and task, and a page at a time."""
    await concert.enqueue("bake", ["bread"], queue="bread", delay=3600)
    dead = await bury(concert)
    for n in range(51):
        await concert.enqueue("send", [n], queue="mail")
    key = reference_in((await client.get("/queues")).text, "mail")

    def ids(page: httpx.Response) -> set[str]:
        return set(re.findall(r"<code>([^<]*)</code>", page.text))

    assert "bread" in (await client.get("/jobs", params={"state": "delayed", "task": "bake", "queue": ""})).text
    assert ids(await client.get("/jobs?state=failed")) == {dead}
    first = await client.get("/jobs", params={"state": "queued", "queue": key})
    after = re.search(r'rel="next" href="([^"]*)"', first.text)
    assert after is not None
    second = await client.get(after[1].replace("&amp;", "&").removeprefix("/ops"))
    assert (len(ids(first)), len(ids(second)), ids(first) & ids(second)) == (50, 1, set())
    assert "No job." in (await client.get("/jobs?task=nobody")).text
    wrong = [await client.get("/jobs", params=asked) for asked in ({"state": "lost"}, {"after": "x"}, {"queue": "x"})]
    assert [page.status_code for page in wrong] == [400, 400, 404]


async def test_viewers_share_what_is_asked(
    host: Host, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten pages and a stream ask the server once; and when nobody looks, nothing is asked."""
    looks = 0
    look = host.dashboard._poll._look

    async def counted() -> object:
        nonlocal looks
        looks += 1
        return await look()

    monkeypatch.setattr(host.dashboard._poll, "_look", counted)
    async with client.stream("GET", "/live") as response, aclosing(events(response)) as stream:
        await asyncio.gather(anext(stream), *(client.get("/") for _ in range(10)))
    assert looks == 1
    tasks = [task for task in asyncio.all_tasks() if "dashboard" in repr(task.get_coro())]
    await eventually(lambda: all(task.done() for task in tasks))


async def test_pages_stay_small(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """At most 200 KiB, however much there is to show."""
    text = "<" * 30_000
    for _ in range(60):
        await bury(concert, text, text)

    sizes = {page: len((await client.get(f"/{page}")).content) for page in ("dead", "queues", "")}
    assert max(sizes.values()) < 200 * 1024, sizes


async def test_closed_coordinator_is_answered_for(server: object, tmp_path: Path) -> None:
    """With 503 and the reason, and not with a traceback."""
    app = Dashboard(Coordinator("redis://localhost:1/0"), allow=read_only)
    async with served(app, tmp_path / "s") as client:
        page = await client.get("/queues")

    assert page.status_code == 503
    assert "is not open" in page.text


# Who may do what.


def mutating_routes(dashboard: Dashboard) -> dict[str, set[str]]:
    """Every route that takes more than a look."""
    routes = [route for route in dashboard._app.routes if isinstance(route, Route)]
    return {
        route.path: set(route.methods or ()) - {"GET", "HEAD"}
        for route in routes
        if set(route.methods or ()) - {"GET", "HEAD"}
    }


def test_each_change_has_a_permission_of_its_own(host: Host) -> None:
    """No route changes anything beside those, and none is forgotten."""
    assert mutating_routes(host.dashboard) == {
        f"/actions/{permission}": {"POST"} for permission in set(Permission) - {Permission.VIEW}
    }


@pytest.mark.each_case
@pytest.mark.parametrize("permission", ACTIONS)
async def test_change_without_permission_is_refused(
    concert: Coordinator, host: Host, client: httpx.AsyncClient, permission: Permission
) -> None:
    """By the server, whatever the page shows; all the other permissions do not help."""
    dead = await bury(concert)
    page = (await client.get("/queues")).text
    host.may.discard(permission)
    await concert.queue("parcels").put(1)
    form = {"queue": reference_in(page, "mail"), "job": dead, "delay": "0", "args": "[]", "kwargs": "{}"}
    form["name"] = "parcels"

    refused = await client.post(f"/actions/{permission}", data=form, headers=OURS)

    assert refused.status_code == 403
    assert host.asked[-1] == permission
    assert f'actions/{permission}"' not in "".join(
        [(await client.get(f"/{page}")).text for page in ("queues", "dead", "other?kind=items&name=parcels")]
    )
    assert [job.id for job in await concert.tasks.dead()] == [dead]
    assert not (await concert.tasks.stats("mail")).queues["mail"].is_paused
    assert await concert.queue("parcels").size() == 1


@pytest.mark.each_case
@pytest.mark.parametrize("page", [*PAGES, "tasks/t0"])
async def test_nothing_is_shown_without_permission(host: Host, client: httpx.AsyncClient, page: str) -> None:
    """Every page asks."""
    host.may.clear()

    refused = await client.get(f"/{page}")

    assert refused.status_code == 403
    assert "the shop" not in refused.text


@pytest.mark.parametrize("permission", ACTIONS)
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://shop"},
        {"sec-fetch-site": "none"},
        {"origin": "http://evil"},
        {"origin": "null"},
        {},
    ],
    ids=str,
)
async def test_change_from_elsewhere_is_refused(
    host: Host, client: httpx.AsyncClient, permission: Permission, headers: dict[str, str]
) -> None:
    """Before anybody is asked for a permission."""
    refused = await client.post(f"/actions/{permission}", data={"job": "0123456789abcdef.1.0"}, headers=headers)

    assert refused.status_code == 403
    assert host.asked == []


async def test_old_browser_is_known_by_its_origin(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """One that sends no `Sec-Fetch-Site`, such as over plain HTTP."""
    dead = await bury(concert)

    done = await client.post("/actions/purge", data={"job": dead}, headers={"origin": "http://shop"})

    assert done.status_code == 303


async def test_read_only_lets_nobody_change_anything(concert: Coordinator, tmp_path: Path) -> None:
    """And shows no button."""
    dead = await bury(concert)
    async with served(Dashboard(concert, allow=read_only), tmp_path / "s") as client:
        pages = [(await client.get(f"/{page}")).text for page in ("queues", "dead", "jobs", f"jobs/{dead}")]
        refused = [await client.post(f"/actions/{name}", data={"job": dead}, headers=OURS) for name in ACTIONS]

    assert all("actions/" not in page for page in pages)
    assert {answer.status_code for answer in refused} == {403}


# Actions.


async def test_queue_is_paused_and_resumed(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """By what stands for it in the page."""
    form = {"queue": reference_in((await client.get("/queues")).text, "mail")}

    await client.post("/actions/pause", data=form, headers=OURS)
    paused = (await client.get("/queues")).text
    assert (await concert.tasks.stats("mail")).queues["mail"].is_paused
    await client.post("/actions/resume", data=form, headers=OURS)

    assert not (await concert.tasks.stats("mail")).queues["mail"].is_paused
    assert '<span class="tag">paused</span>' in paused


async def test_schedules_are_shown_paused_resumed_and_run(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """With their rules and instants; by what stands for them in the page."""
    assert "No schedule." in (await client.get("/schedules")).text
    await concert.schedules.put("nightly", concert.task(name="report", queue="mail")(print).call("all"), every=86_400)
    form = {"schedule": reference("s", "nightly")}

    shown = (await client.get("/schedules")).text
    await client.post("/actions/pause-schedule", data=form, headers=OURS)
    paused = (await client.get("/schedules")).text
    assert (await concert.schedules.list())[0].is_paused
    ran = await client.post("/actions/trigger-schedule", data=form, headers=OURS)
    await client.post("/actions/resume-schedule", data=form, headers=OURS)

    for text in ("nightly", "every 86400 s", "report", "mail", "all", "once"):
        assert text in shown
    assert ("actions/resume-schedule" in shown, "actions/resume-schedule" in paused) == (False, True)
    assert '<span class="tag">paused</span>' in paused
    assert not (await concert.schedules.list())[0].is_paused
    [job] = (await concert.tasks.jobs(queue="mail")).jobs
    assert (ran.status_code, ran.headers["location"].endswith(f"jobs/{job.id}")) == (303, True)


async def test_lock_is_released_by_force(
    concert: Coordinator, elsewhere: Coordinator, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Once somebody says that it is meant: the holder's body is stopped, the log says who."""
    caplog.set_level(logging.INFO, "inconcert.dashboard")
    holding = asyncio.ensure_future(hold(elsewhere, "stock:1", label="order 7"))
    await eventually(lambda: is_held(concert))
    [holder] = [held.holder for process in (await concert.inspect()).processes for held in process.holds]
    key = held_in((await client.get("/locks")).text)
    asked = await client.get(f"/release?held={key}")
    unsure = await client.post("/actions/release", data={"held": key}, headers=OURS)
    assert not holding.done()
    done = await client.post("/actions/release", data={"held": key, "sure": "yes"}, headers=OURS)
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(holding, 10)
    again = await client.post("/actions/release", data={"held": key, "sure": "yes"}, headers=OURS)

    assert "order 7" in asked.text
    assert [answer.status_code for answer in (asked, unsure, done, again)] == [200, 400, 303, 404]
    assert done.headers["location"] == "/ops/locks"
    assert [record.getMessage() for record in caplog.records if record.name == "inconcert.dashboard"] == [
        f"release: lock 'stock:1' from {holder}, by 'ann'"
    ]
    async with concert.lock("stock:1", timeout=1):
        pass


async def test_lock_is_not_offered_for_release_without_permission(
    concert: Coordinator, host: Host, client: httpx.AsyncClient
) -> None:
    """Neither on the page of locks, nor on its own."""
    async with concert.lock("stock:1"):
        key = held_in((await client.get("/locks")).text)
        host.may.discard(Permission.RELEASE)
        page, refused = await client.get("/locks"), await client.get(f"/release?held={key}")

    assert "stock:1" in page.text
    assert "release" not in page.text
    assert refused.status_code == 403


async def test_dead_job_is_replayed_or_purged(
    concert: Coordinator, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Each by itself or all at once, and each leaves a line with the user in the log."""
    caplog.set_level(logging.INFO, "inconcert.dashboard")
    first, second, _ = [await bury(concert) for _ in range(3)]
    await client.post("/actions/replay", data={"job": first}, headers=OURS | {"x-user": "eve"})
    await client.post("/actions/purge", data={"job": second}, headers=OURS)
    assert (await concert.tasks.stats("mail")).dead == 1
    await client.post("/actions/purge-all", headers=OURS)

    assert (await concert.tasks.stats("mail")).dead == 0
    assert (await concert.tasks.stats("mail")).queues["mail"].ready == 1
    assert [record.getMessage() for record in caplog.records if record.name == "inconcert.dashboard"] == [
        f"replay: job {first}, by 'eve'",
        f"purge: job {second}, by 'ann'",
        "purge-all: 1 dead letters, by 'ann'",
    ]


async def test_dead_job_that_stops_its_key_says_so(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """And purging it lets the key go on."""

    @concert.task(name="ordered", key=lambda: "a", key_order="strict", max_attempts=1)
    async def ordered() -> None:
        raise ValueError

    first, *_ = [await ordered.enqueue() for _ in range(3)]
    await concert.run_worker("default", burst=True)
    assert "Its key stops here: 2 wait for its replay or purge." in (await client.get("/dead")).text
    await client.post("/actions/purge", data={"job": first.id}, headers=OURS)
    await concert.run_worker("default", burst=True)
    assert "Its key stops here: 1 wait for its replay or purge." in (await client.get("/dead")).text


async def test_many_jobs_are_changed_at_once(
    concert: Coordinator, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of a queue, a task, a state or a reason, and no others; the log says which, and how many."""
    caplog.set_level(logging.INFO, "inconcert.dashboard")
    jobs = [await concert.enqueue(task, queue="mail", delay=3600) for task in ("send", "send", "bake")]
    other = await concert.enqueue("send", queue="bread")
    boom, bang = await bury(concert, "boom", "1"), await bury(concert, "bang")
    key = reference_in((await client.get("/queues")).text, "mail")

    reasons = [job.error for job in await concert.tasks.dead()]

    def reason_of(text: str) -> str:
        [reason] = [reason for reason in reasons if text in reason]
        return reference("r", reason)

    async def do(action: str, **form: str) -> str:
        done = await client.post(f"/actions/{action}", data=form, headers=OURS)
        assert done.status_code == 303, done.text
        return done.headers["location"]

    page = await do("promote-all", queue=key, task="send", state="delayed")
    assert page == f"/ops/jobs?state=delayed&queue={key}&task=send"
    assert [await job.status() for job in jobs] == ["queued", "queued", "delayed"]
    await do("cancel-all", queue=key, task="send", state="queued")
    assert [await job.status() for job in jobs] == ["cancelled", "cancelled", "delayed"]
    await do("replay-all", reason=reason_of("boom"))
    assert [job.id for job in await concert.tasks.dead()] == [bang]
    await do("drain", queue=key)
    assert await concert.tasks.job(boom).status() == "cancelled"
    await do("purge-all", reason=reason_of("bang"))
    assert await concert.tasks.dead() == []
    assert await other.status() == "queued"
    assert [record.getMessage() for record in caplog.records if record.name == "inconcert.dashboard"] == [
        "promote-all: 2 delayed jobs, queue 'mail', task 'send', by 'ann'",
        "cancel-all: 2 jobs, state 'queued', queue 'mail', task 'send', by 'ann'",
        f"replay-all: 1 dead letters, reason {reasons[1]!r}, by 'ann'",
        "drain: queue 'mail', 2 jobs, by 'ann'",
        f"purge-all: 1 dead letters, reason {reasons[0]!r}, by 'ann'",
    ]


async def test_dead_job_is_edited_and_replayed(
    concert: Coordinator, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """With other arguments, which the log does not tell."""
    caplog.set_level(logging.INFO, "inconcert.dashboard")
    dead = await bury(concert, "boom", "bob")
    assert "Replay with these" in (await client.get(f"/jobs/{dead}")).text
    form = {"job": dead, "args": '["ann", 2]', "kwargs": '{"fast": true}'}

    done = await client.post("/actions/edit", data=form, headers=OURS)

    assert (done.status_code, done.headers["location"]) == (303, f"/ops/jobs/{dead}")
    [job] = (await concert.tasks.jobs(state="queued")).jobs
    assert (job.id, job.args, job.kwargs) == (dead, ["ann", 2], {"fast": True})
    assert f"edit: job {dead}, with other arguments, by 'ann'" in caplog.text
    gone = await client.post("/actions/edit", data=form, headers=OURS)
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("args", '["ann"', "not a JSON value"),
        ("args", '{"to": "ann"}', "not a list"),
        ("args", "", "not a JSON value"),
        ("kwargs", "[1]", "not an object"),
        ("kwargs", "</textarea><script>alert(1)</script>", "not a JSON value"),
        ("args", "[" * 2000, "nested too deeply"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_beside_their_field(
    concert: Coordinator, client: httpx.AsyncClient, field: str, text: str, message: str
) -> None:
    """And what was written is still there."""
    dead = await bury(concert, "boom", "bob")
    form = {"job": dead, "args": '["what was written"]', "kwargs": '{"also": "written"}'} | {field: text}

    refused = await client.post("/actions/edit", data=form, headers=OURS)

    assert refused.status_code == 422
    assert re.search(rf'name="{field}"[^>]*aria-invalid="true"', refused.text)
    assert message in refused.text
    assert "<script>alert" not in refused.text
    for name in {"args", "kwargs"} - {field}:
        assert html.escape(form[name]).replace("&quot;", "&#34;") in refused.text
    assert [job.id for job in await concert.tasks.dead()] == [dead]


async def test_hidden_arguments_cannot_be_edited(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """What stands in their place would be what the job runs with; nor can those that are too long."""
    dead = await bury(concert, "boom", "bob")
    long = await bury(concert, "boom", "x" * 70_000)
    assert "Replay with these" not in (await client.get(f"/jobs/{long}")).text
    host.secret = {"arguments"}
    assert "Replay with these" not in (await client.get(f"/jobs/{dead}")).text


async def test_job_is_rescheduled_or_cancelled(concert: Coordinator, client: httpx.AsyncClient) -> None:
    """One that is due later; one that ran already is too late."""
    job = await concert.enqueue("send", queue="mail", delay=3600)
    moved = await client.post("/actions/reschedule", data={"job": job.id, "delay": "7200"}, headers=OURS)
    wrong = await client.post("/actions/reschedule", data={"job": job.id, "delay": "soon"}, headers=OURS)
    await client.post("/actions/cancel", data={"job": job.id}, headers=OURS)
    late = await client.post("/actions/reschedule", data={"job": job.id, "delay": "1"}, headers=OURS)

    assert (moved.status_code, wrong.status_code, late.status_code) == (303, 400, 409)
    assert await job.status() == "cancelled"


@pytest.mark.parametrize(
    ("action", "form", "status"),
    [
        ("pause", {"queue": "nobody's"}, 404),
        ("pause", {}, 404),
        ("pause-schedule", {"schedule": "nobody's"}, 404),
        ("trigger-schedule", {}, 404),
        ("purge", {}, 404),
        ("purge", {"job": "../../etc"}, 404),
        ("replay", {"job": "0123456789abcdef.1.0"}, 404),
        ("replay", {"job": "x" * 5000}, 413),
        ("cancel-all", {"state": "failed"}, 400),
        ("cancel-all", {"queue": "nobody's"}, 404),
        ("replay-all", {"reason": "nobody's"}, 404),
        ("release", {"held": "nobody's", "sure": "yes"}, 404),
        ("release", {}, 404),
        ("nothing", {}, 404),
    ],
)
async def test_form_that_means_nothing_is_refused(
    client: httpx.AsyncClient, action: str, form: dict[str, str], status: int
) -> None:
    """With the reason."""
    assert (await client.post(f"/actions/{action}", data=form, headers=OURS)).status_code == status


async def test_form_that_is_not_text_is_refused(client: httpx.AsyncClient) -> None:
    """Bytes, broken UTF-8, or too many fields."""
    for content in b"\xff\xfe", b"job=%ff", b"&".join(b"a=1" for _ in range(20)):
        refused = await client.post("/actions/purge", content=content, headers=OURS)
        assert refused.status_code == 400


# Hostile content.


async def test_names_and_payloads_are_escaped(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """Of queues, tasks, arguments, results, reasons, progress, and of what was searched for."""
    await concert.enqueue(HOSTILE, [HOSTILE], queue=HOSTILE)
    done = await concert.enqueue("send", queue="mail")
    async with concert.consume("mail") as jobs:
        [claimed] = await jobs.try_claim(1)
        await claimed.progress(0.5, HOSTILE)
        pages = [(await client.get(f"/jobs/{done.id}")).text]
        claimed.result = HOSTILE
        await claimed.ack()
    dead = await bury(concert, HOSTILE, HOSTILE)
    later = await concert.enqueue(HOSTILE, queue=HOSTILE, headers={HOSTILE: HOSTILE}, delay=3600)
    pages.append((await client.get(f"/jobs/{later.id}")).text)
    assert "<h2>Headers" in pages[-1]
    async with concert.consume(HOSTILE) as jobs:
        await jobs.try_claim(1)
        pages.append((await client.get("/workers")).text)
    async with at_work(concert, HOSTILE) as job:
        pages.append((await client.get(f"/jobs/{job.id}")).text)
        pages += [(await client.get(f"/jobs/{child}")).text for child in await job.dependants()]
    hostile = concert.task(name=f"{HOSTILE} report", queue=HOSTILE)(print)
    await concert.schedules.put("".join(HOSTILE.split()), hostile.call(HOSTILE), every=86_400)
    pages.append((await client.get("/schedules")).text)
    host.dashboard._poll.forget()
    async with concert.lock(HOSTILE, label=HOSTILE):
        pages.append((await client.get("/locks")).text)
        pages.append((await client.get(f"/release?held={held_in(pages[-1])}")).text)
    for kind in await fill_others(concert, HOSTILE):
        pages.append((await client.get("/other", params={"kind": kind, "name": HOSTILE})).text)
    pages.append((await client.get("/other", params={"kind": HOSTILE, "name": HOSTILE})).text)
    host.dashboard._poll.forget()
    async with waiting_for(concert, HOSTILE):
        pages.append((await client.get("/others")).text)
    paths = ("", "queues", "jobs", "locks", "dead", f"jobs/{dead}", f"jobs/{done.id}")
    pages += [(await client.get(f"/{path}")).text for path in paths]
    pages.append((await client.get("/search", params={"q": HOSTILE})).text)
    pages.append((await client.get("/dead", params={"reason": HOSTILE})).text)
    pages.append((await client.get("/jobs", params={"task": HOSTILE})).text)
    pages.append((await client.get("/jobs", params={"state": HOSTILE})).text)
    pages.append((await client.get(f"/jobs/{HOSTILE}")).text)

    for page in pages:
        assert "onerror" in page or "Overview" in page
        assert "<img" not in page
        assert "<script>" not in page
        assert page.count("<script") <= 1
    assert sum("onerror" in page for page in pages) >= 7


async def test_secret_is_in_no_page(concert: Coordinator, host: Host, client: httpx.AsyncClient) -> None:
    """Neither in its text nor in its forms, links and stream."""
    host.secret = set(get_args(Part))
    dead = await bury(concert, "topsecret reason", "topsecret argument")
    await concert.enqueue("topsecret.task", queue="topsecret", headers={"topsecret": "topsecret"})
    async with concert.consume("topsecret") as jobs:
        [claimed] = await jobs.try_claim(1)
        await claimed.progress(0.5, "topsecret")
        pages = [
            (await client.get(f"/{page}")).text for page in ("", "queues", "jobs", "workers", f"jobs/{claimed.id}")
        ]
        claimed.result = "topsecret"
        await claimed.ack()
    pages += [(await client.get(f"/{page}")).text for page in ("dead", f"jobs/{dead}", f"jobs/{claimed.id}")]
    async with at_work(concert, "topsecret") as job:
        pages += [(await client.get(f"/jobs/{id_}")).text for id_ in (job.id, *await job.dependants())]
    secret = concert.task(name="topsecret.report", queue="topsecret")(print)
    await concert.schedules.put("topsecret", secret.call("topsecret"), every=86_400)
    pages.append((await client.get("/schedules")).text)
    host.dashboard._poll.forget()
    async with concert.lock("topsecret", label="topsecret"):
        pages.append((await client.get("/locks")).text)
        assert "hidden" in pages[-1]
        assert "release" not in pages[-1]
    await fill_others(concert, "topsecret")
    chat_id = await concert.chat.create("topsecret", ["topsecret-too"], "topsecret")
    host.dashboard._poll.forget()
    async with waiting_for(concert, "topsecret"):
        pages.append((await client.get("/others")).text)
    host.secret.discard("lock")
    await concert.queue("parcels").put("topsecret", id="topsecret")
    delivery = await concert.queue("parcels").get()
    await concert.queue("parcels").put("topsecret")
    for kind, name in ("items", "parcels"), ("chat", chat_id):
        pages.append((await client.get("/other", params={"kind": kind, "name": name})).text)
    await delivery.ack()
    host.secret.add("lock")
    async with client.stream("GET", "/live") as response, aclosing(events(response)) as stream:
        pages.append((await anext(stream))["data"])

    assert [page for page in pages if "topsecret" in page] == []


@pytest.mark.parametrize("page", [*PAGES, "assets/site.css", "assets/live.js", "nowhere", "jobs/%00"])
async def test_every_answer_has_the_headers(client: httpx.AsyncClient, page: str) -> None:
    """No script or style but ours, in no frame, in no cache."""
    async with client.stream("GET", f"/{page}") as answer:
        policy = answer.headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"].startswith("no-")


async def test_files_outside_are_not_served(client: httpx.AsyncClient) -> None:
    """Three assets, and nothing by a path."""
    for name in "../app.py", "..%2fapp.py", "%2e%2e/app.py", "app.py":
        assert (await client.get(f"/assets/{name}")).status_code == 404


def test_nothing_is_inline_or_from_elsewhere() -> None:
    """Templates have no script, style or handler of their own, and nothing names another host."""
    folder = ROOT / "src" / "inconcert" / "dashboard"
    files = [*folder.glob("templates/*"), *folder.glob("static/*")]

    assert len(files) > 8
    for file in files:
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://|style=|<style|\son\w+=|javascript:|innerHTML|insertAdjacent|\|\s*safe", text
        ), file.name


def test_bad_queue_is_refused_at_once() -> None:
    """Before anything is served."""
    with pytest.raises(InvalidName, match="queue"):
        Dashboard(Coordinator(), allow=read_only, queues=[""])


# Numbers.


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (192, "3 min 12 s"),
        (3600, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (86_399, "23 h 59 min"),
        (273_600, "3 d 4 h"),
    ],
)
def test_duration_is_written(seconds: float | None, text: str) -> None:
    """In two units at most."""
    assert formats.duration(seconds) == text


def test_sizes_and_rates_are_written() -> None:
    """In the unit that a person would choose."""
    assert [formats.size(number) for number in (812, 1536, 3 << 20, 5 << 40)] == [
        "812 B",
        "1.5 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]
    assert [formats.rate(number) for number in (None, 0.0, 0.5, 1234.56)] == [
        "\N{EN DASH}",
        "0.0/s",
        "30.0/min",
        "1,234.6/s",
    ]


def test_chart_has_its_highest_value_at_the_top() -> None:
    """And needs two points."""
    assert charts.points([1.0]) == ""
    assert charts.points([0, 0]) == "0.0,46.5 240.0,46.5"
    assert charts.points([0, 5, 10]) == "0.0,46.5 120.0,24.0 240.0,1.5"


async def test_command_answers_from_when_it_says_where(concert: Coordinator, namespace: str, tmp_path: Path) -> None:
    """The first page, read-only; a signal ends it."""
    assert concert.url is not None
    command = [
        sys.executable,
        "-m",
        "inconcert",
        "dashboard",
        "--port=0",
        "--url",
        concert.url,
        "--namespace",
        namespace,
    ]
    with (tmp_path / "errors").open("wb") as errors:
        serving = Leashed(command, stdout=subprocess.PIPE, stderr=errors, env=dict(os.environ))
    try:
        assert serving.process.stdout is not None
        said = await asyncio.to_thread(serving.process.stdout.readline)
        async with httpx.AsyncClient(base_url=said.split()[0].decode(), timeout=20.0) as http:
            page = await http.get("/")
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            refused = await http.post("/actions/pause", headers={"Sec-Fetch-Site": "same-origin"})
            assert refused.status_code == 403
    finally:
        serving.terminate()
        if serving.process.stdout is not None:
            serving.process.stdout.close()
