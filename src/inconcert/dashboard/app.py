"""The dashboard as an ASGI application: its pages, its stream, its actions, and who may use them."""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from inconcert._rules.names import check_name
from inconcert.coordinator import Coordinator
from inconcert.dashboard.actions import (
    ACTIONS,
    Act,
    Site,
    WrongField,
    find_held,
    find_other,
    find_queue,
    refused_as_bad,
)
from inconcert.dashboard.held_view import held_rows, held_view
from inconcert.dashboard.job_view import dead_jobs, ended_jobs, job_rows, job_view, lately_ended
from inconcert.dashboard.live import reference, texts
from inconcert.dashboard.other_view import OTHERS, other_view
from inconcert.dashboard.pages import Pages
from inconcert.dashboard.permissions import Allow, Permission
from inconcert.dashboard.poll import Poll, Seen
from inconcert.dashboard.redaction import Redact, show_all
from inconcert.dashboard.requests import HEADERS, check_origin, read_form
from inconcert.dashboard.rows import limited_tasks, queue_rows, worker_rows
from inconcert.dashboard.schedule_view import schedule_rows
from inconcert.dashboard.streams import Streams
from inconcert.dashboard.task_view import task_rows, task_view
from inconcert.errors import (
    ChatNotFound,
    InconcertError,
    InvalidName,
    InvalidPayload,
    JobNotFound,
    NobodyHolds,
    UnknownSchedule,
    UnreadablePayload,
)
from inconcert.integrations._sse import HEADERS as STREAM_HEADERS
from inconcert.integrations._sse import encode_event
from inconcert.tasks.records.status import JobStatus

_log = logging.getLogger("inconcert.dashboard")

_STREAM = 20.0  # seconds that a stream lasts: a server that stops waits for it; the browser comes back by itself
_COME_BACK = b"retry: 1000\n\n"  # milliseconds
_ASSETS = {"site.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Dashboard:
    """Pages about a namespace, for an operator: an ASGI application to mount in another, or to serve alone.

    It asks the server nothing while nobody looks, and once in 2 s at most for all viewers of a process.  Nothing is
    loaded from elsewhere.

    Args:
        concert: The coordinator, which the application opens and closes.
        allow: Decides of each request whether it may; `read_only`, or your own. It gets the request and a `Permission`,
            and returns the name of the user for the log, or None to refuse.
        queues: Queues to show although there never was a job in them.
        redact: What to show instead of a name, an argument, a result, an error.
        title: What the pages are headed with.

    Raises:
        InvalidName: The name of a queue is empty or longer than 512 bytes.
    """

    def __init__(
        self,
        concert: Coordinator,
        *,
        allow: Allow,
        queues: Sequence[str] = (),
        redact: Redact = show_all,
        title: str = "inconcert",
    ) -> None:
        self._concert = concert
        self._allow = allow
        self._redact = redact
        self._poll = Poll(concert, [check_name("queue", queue) for queue in queues])
        self._site = Site(concert, self._poll, redact)
        self._pages = Pages(title, redact)
        self._streams = Streams()
        pages = {
            "/": self._overview,
            "/queues": self._queues,
            "/jobs": self._jobs,
            "/tasks": self._tasks,
            "/tasks/{key}": self._task,
            "/schedules": self._schedules,
            "/workers": self._workers,
            "/dead": self._dead,
            "/locks": self._locks,
            "/release": self._release,
            "/others": self._others,
            "/other": self._other,
            "/search": self._search,
            "/jobs/{job_id}": self._job,
            "/live": self._live,
        }
        self._app = Starlette(
            routes=[
                Route("/assets/{name}", self._asset),
                *(Route(path, partial(self._view, page)) for path, page in pages.items()),
                *(
                    Route(f"/actions/{permission}", partial(self._act, permission, act), methods=["POST"])
                    for permission, act in ACTIONS.items()
                ),
            ],
            exception_handlers={HTTPException: self._refused, InconcertError: self._failed},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        await self._app(scope, receive, send)

    # Pages.

    async def _view(self, page: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        await self._check(request, Permission.VIEW)
        return await page(request)

    async def _overview(self, request: Request) -> Response:
        return await self._page(request, "overview.html")

    async def _queues(self, request: Request) -> Response:
        return await self._queue_page(request, "queues.html")

    async def _jobs(self, request: Request) -> Response:
        asked = {name: value for name, value in request.query_params.items() if value}
        queue = await find_queue(self._poll, asked["queue"]) if "queue" in asked else None
        state, task, after = asked.get("state"), asked.get("task"), asked.get("after")
        with refused_as_bad():
            jobs, after = await job_rows(self._concert, self._redact, state=state, queue=queue, task=task, after=after)
            ended = await ended_jobs(self._concert, self._redact, task) if task and asked.keys() == {"task"} else []
        fields = {name: asked[name] for name in ("state", "queue", "task") if name in asked}
        seen = await self._poll.latest()
        limits = limited_tasks(seen, queue)
        rows = [reference("q", queue or ""), *(reference("l", task) for task in limits)]
        values = {"jobs": jobs, "after": after, "queue": queue, "fields": fields, "limits": limits, "ended": ended}
        return await self._page(request, "jobs.html", seen=seen, rows=rows, **values)

    async def _tasks(self, request: Request) -> Response:
        sought = _sought(request)
        found = await task_rows(self._concert, self._redact, sought, _page_number(request))
        lately = await lately_ended(self._concert, self._redact)
        return await self._page(request, "tasks.html", found=found, lately=lately, sought=sought)

    async def _task(self, request: Request) -> Response:
        name, task = await task_view(self._concert, self._redact, request.path_params["key"])
        lately = await lately_ended(self._concert, self._redact, name)
        return await self._page(request, "task.html", name=name, task=task, lately=lately)

    async def _schedules(self, request: Request) -> Response:
        found = await schedule_rows(self._concert, self._redact, _page_number(request))
        return await self._page(request, "schedules.html", found=found)

    async def _workers(self, request: Request) -> Response:
        seen = await self._poll.latest()
        found = worker_rows(seen, _page_number(request))
        rows = {reference("w", worker.id) for worker in found.shown}
        return await self._page(request, "workers.html", seen=seen, rows=rows, found=found)

    async def _dead(self, request: Request) -> Response:
        reason = request.query_params.get("reason")
        letters = await dead_jobs(self._concert, self._redact, reason)
        return await self._page(request, "dead.html", letters=letters)

    async def _locks(self, request: Request) -> Response:
        return await self._held_page(request, "locks.html", is_shown=lambda kind: kind not in OTHERS)

    async def _release(self, request: Request) -> Response:
        """Asks whether this is to be released by force."""
        await self._check(request, Permission.RELEASE)
        held = await find_held(self._site, request.query_params.get("held"))
        return await self._page(request, "release.html", held=held)

    async def _others(self, request: Request) -> Response:
        return await self._held_page(request, "others.html", is_shown=OTHERS.__contains__, kinds=OTHERS)

    async def _other(self, request: Request) -> Response:
        kind, name = find_other(self._site, request.query_params)
        view = await other_view(self._concert, self._redact, kind, name)
        inspection = await self._poll.inspection()
        held = held_view(inspection, self._redact, kind, name)
        return await self._page(
            request, "other.html", kind=kind, name=name, view=view, held=held, inspection=inspection
        )

    async def _job(self, request: Request) -> Response:
        return await self._job_page(request, request.path_params["job_id"])

    async def _search(self, request: Request) -> Response:
        """The job of this id, or the queues and tasks that have this in their name."""
        sought = _sought(request)
        with suppress(InvalidName):
            job = self._concert.tasks.job(sought)
            if await job.status() is not JobStatus.UNKNOWN:
                return self._see(request, f"jobs/{job.id}")
        tasks = await task_rows(self._concert, self._redact, sought, 1)
        return await self._queue_page(request, "search.html", tasks=tasks)

    async def _live(self, request: Request) -> Response:
        rows = set(request.query_params.get("rows", "").split(","))
        return self._streams.answer(self._changes(rows), HEADERS | dict(STREAM_HEADERS))

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            raise HTTPException(404, "There is no such page.")
        content = (resources.files("inconcert.dashboard") / "static" / name).read_bytes()
        return Response(content, headers=HEADERS | {"cache-control": "no-cache"}, media_type=_ASSETS[name])

    async def _changes(self, rows: Collection[str]) -> AsyncGenerator[bytes]:
        """All texts of a page with these rows, and then those that have changed, as long as somebody reads them."""
        yield _COME_BACK
        known: dict[str, str] = {}
        until = time.monotonic() + _STREAM
        while time.monotonic() < until:
            try:
                seen = await self._poll.latest()
            except InconcertError as error:
                _log.info("the stream of a viewer ends, and its browser comes back: %s", error)
                return
            current = dict(texts(seen, rows))
            yield encode_event({key: text for key, text in current.items() if known.get(key) != text})
            known = current
            await asyncio.sleep(max(seen.fresh_until - time.monotonic(), 0.0))

    # Actions.

    async def _act(self, permission: Permission, act: Act, request: Request) -> Response:
        check_origin(request)
        user = await self._check(request, permission)
        form = await read_form(request, has_arguments=permission is Permission.EDIT)
        try:
            subject, page = await act(self._site, form)
        except WrongField as error:
            await self._check(request, Permission.VIEW)
            answer = await self._job_page(request, form["job"], form=form, wrong=error)
            answer.status_code = 422
            return answer
        _log.info("%s: %s, by %r", permission, subject, user, extra={"action": str(permission), "user": user})
        self._poll.forget()
        return self._see(request, page)

    # Private.

    async def _job_page(
        self, request: Request, job_id: str, *, form: Mapping[str, str] | None = None, wrong: WrongField | None = None
    ) -> Response:
        """A job; with the input of its form and the fault in it, nothing written is lost."""
        job = await job_view(self._concert, self._poll, self._redact, job_id)
        return await self._page(request, "job.html", job=job, form=form or {}, wrong=wrong)

    async def _held_page(
        self, request: Request, template: str, *, is_shown: Callable[[str], bool], kinds: Sequence[str] = ()
    ) -> Response:
        """The leases and waits of the kinds that are shown, with the text that was searched for in their names."""
        sought = _sought(request)
        inspection = await self._poll.inspection()
        found = held_rows(inspection, self._redact, sought, _page_number(request), is_shown=is_shown)
        return await self._page(request, template, found=found, inspection=inspection, sought=sought, kinds=kinds)

    async def _queue_page(self, request: Request, template: str, **values: object) -> Response:
        """Queues that have what was searched for in their name, as it is shown."""
        sought = _sought(request)
        seen = await self._poll.latest()
        names = [name for name in seen.stats.queues if sought.lower() in self._redact("queue", name).lower()]
        found = queue_rows(seen, names, _page_number(request))
        rows = {reference("q", name) for name, _ in found.shown}
        return await self._page(request, template, seen=seen, rows=rows, found=found, sought=sought, **values)

    async def _check(self, request: Request, permission: Permission) -> str:
        """The name of the user, who may do this.

        Raises:
            HTTPException: 403: they may not.
        """
        answer = self._allow(request, permission)
        user = await answer if inspect.isawaitable(answer) else answer
        if not user:
            raise HTTPException(403, f"You are not allowed to do this: {permission}.")
        return user

    async def _page(
        self,
        request: Request,
        template: str,
        *,
        seen: Seen | None = None,
        rows: Collection[str] = (),
        **values: object,
    ) -> Response:
        """A page with these rows, which were chosen from what was seen, if any."""
        allowed = {permission for permission in ACTIONS if await self._may(request, permission)}
        seen = seen or await self._poll.latest()
        return self._html(self._pages.render(template, request, seen=seen, rows=rows, allowed=allowed, **values))

    async def _may(self, request: Request, permission: Permission) -> bool:
        try:
            return bool(await self._check(request, permission))
        except HTTPException:
            return False

    async def _refused(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException):
            raise error
        page = self._html(self._pages.render_error(request, error.status_code, error.detail), error.status_code)
        page.headers.update(error.headers or {})
        return page

    async def _failed(self, request: Request, error: Exception) -> Response:
        """The page for a refusal of the server, or for its silence."""
        status = 503
        if isinstance(error, UnreadablePayload):
            status = 500
        elif isinstance(error, ChatNotFound | InvalidName | JobNotFound | UnknownSchedule):
            status = 404
        elif isinstance(error, InvalidPayload):
            status = 422
        elif isinstance(error, NobodyHolds):
            status = 409
        return self._html(self._pages.render_error(request, status, str(error)), status)

    def _html(self, text: str, status: int = 200) -> Response:
        return Response(text, status, HEADERS, "text/html")

    def _see(self, request: Request, page: str) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/{page}", 303, HEADERS)


def _sought(request: Request) -> str:
    """The text that was searched for."""
    return request.query_params.get("q", "").strip()


def _page_number(request: Request) -> int:
    number = request.query_params.get("page", "1")
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else 1
