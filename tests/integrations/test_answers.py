"""Every error and form of answer, with and without a key, in every part of every framework: nothing is done twice.

Two right things together are where services lose money: an answer that means "try again" and is stored, a background
task that fails after its answer, a client that goes away at the wrong moment.  So each of the small tables here is
crossed with the frameworks.  What must hold: an answer is sent when it is complete, whatever happens after it; what
means "try again" is not stored; a handler that has answered does not run again for its key; no answer follows another.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiohttp import web
from fastapi import Depends, FastAPI
from fastapi.responses import FileResponse, StreamingResponse
from litestar import Litestar, Request, Response, post
from litestar.background_tasks import BackgroundTask
from litestar.di import NamedDependency, Provide
from litestar.middleware import DefineMiddleware
from litestar.response import File, Stream
from starlette import background, responses

from inconcert import Coordinator, InconcertError, LeaseLost, NotConnected, errors
from inconcert.integrations import _answers, aiohttp, fastapi, litestar
from tests.support.errors import ALL
from tests.support.eventually import eventually
from tests.support.exchanges import Exchange, InProcess, OverSocket
from tests.support.lines import in_line
from tests.support.servers import RealServer

LARGE = bytes(600_000)
AROUND = ["nothing", "held", "limited", "while_connected"]


@dataclass
class Work:
    """What a handler is to do, and what it has done.

    Attributes:
        concert: The coordinator, open.
        file: A file that it may send.
        form: How it answers.
        around: Which part of the integration is around it.
        fails_with: What it raises in place of its answer.
        status: Of its answer.
        is_slow: Whether it waits for `may_end`, before its answer or, where that has two parts, between them.
        patience: How long it waits for a lock, in seconds.
        limit: How often it may run in a minute, where it is limited.
        runs: How often it ran.
        log: What has happened.
    """

    concert: Coordinator
    file: Path
    form: str = "plain"
    around: str = "nothing"
    fails_with: Exception | None = None
    status: int = 200
    is_slow: bool = False
    patience: float = 5.0
    limit: int = 100
    runs: int = 0
    log: list[str] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """As far as all forms are the same."""
        self.runs += 1
        self.log.append("begun")
        if self.is_slow and self.form == "plain":
            await self._wait()
        if self.fails_with is not None:
            raise self.fails_with

    async def parts(self) -> AsyncGenerator[bytes]:
        """The parts of a streamed answer."""
        yield b"one"
        if self.is_slow and self.form == "stream":
            await self._wait()
        if self.form == "stream that fails":
            raise ZeroDivisionError
        if self.form == "stream that loses a lease":
            raise LeaseLost("lock", "a")
        yield b"two"

    async def _wait(self) -> None:
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise

    async def go_on(self) -> None:
        """After the answer."""
        await self.may_end.wait()
        self.log.append("after")
        if self.form.endswith("that fails"):
            raise ZeroDivisionError

    async def behind(self) -> AsyncGenerator[None]:
        """A dependency, which goes on behind its yield."""
        yield
        if self.form.startswith("dependency"):
            await self.go_on()


class Ask(Protocol):
    """Sends a request to the service."""

    def __call__(self, headers: Mapping[str, str], body: bytes | None) -> Exchange: ...


Around = Callable[[web.Request], AbstractAsyncContextManager[object]]


@asynccontextmanager
async def in_fastapi(work: Work, _: Path) -> AsyncGenerator[Ask]:
    """The service in FastAPI."""

    async def handle() -> responses.Response:
        await work.run()
        match work.form:
            case "empty":
                return responses.Response(status_code=204)
            case "file":
                return FileResponse(work.file)
            case "large":
                return responses.Response(LARGE)
            case "background" | "background that fails":
                return responses.Response("done", background=background.BackgroundTask(work.go_on))
            case form if form.startswith("stream"):
                return StreamingResponse(work.parts())
            case _:
                return responses.Response("done", work.status)

    limiter = fastapi.limited(work.concert.rate_limiter, "api:{header.x-who}", limit=work.limit, period=60.0)
    around: dict[str, Any] = {
        "held": fastapi.held(work.concert.lock, "order", timeout=work.patience),
        "limited": limiter,
        "while_connected": fastapi.cancel_on_disconnect,
    }
    parts = [Depends(work.behind)]
    if work.around in around:
        scope: Any = None if work.around == "limited" else "function"
        parts.append(Depends(around[work.around], scope=scope))
    app = FastAPI()
    fastapi.install(app, work.concert)
    app.add_middleware(fastapi.Idempotency, work.concert, user=_user)
    app.post("/", dependencies=parts, response_model=None)(handle)
    yield partial(InProcess, app)


def _user(_: object) -> str:
    return "ann"


@asynccontextmanager
async def in_litestar(work: Work, _: Path) -> AsyncGenerator[Ask]:
    """The service in Litestar."""

    async def around(request: Request[Any, Any, Any]) -> AbstractAsyncContextManager[object]:
        if work.around == "held":
            order = litestar.held(work.concert.lock, "order", timeout=work.patience)
            return await order(request)  # type: ignore[return-value]
        if work.around == "limited":
            await litestar.limited(work.concert.rate_limiter, "api:{header.x-who}", limit=work.limit, period=60.0)(
                request
            )
        return litestar.while_connected(request) if work.around == "while_connected" else nullcontext()

    @post("/", status_code=200, dependencies={"around": Provide(around), "behind": Provide(work.behind)})
    async def handle(around: NamedDependency[Any], behind: NamedDependency[None]) -> Response[Any]:
        del behind
        async with around:
            await work.run()
        match work.form:
            case "empty":
                return Response(b"", status_code=204)
            case "file":
                return File(work.file, status_code=200)
            case "large":
                return Response(LARGE, status_code=200)
            case "background" | "background that fails":
                return Response(b"done", status_code=200, background=BackgroundTask(work.go_on))
            case form if form.startswith("stream"):
                return Stream(work.parts(), status_code=200)
            case _:
                return Response(b"done", status_code=work.status)

    app = Litestar(
        [handle],
        plugins=[litestar.InconcertPlugin(work.concert)],
        middleware=[DefineMiddleware(litestar.Idempotency, concert=work.concert, user=_user)],
        logging_config=None,
    )
    yield partial(InProcess, app)


@asynccontextmanager
async def in_aiohttp(work: Work, folder: Path) -> AsyncGenerator[Ask]:
    """The service in aiohttp, whose handlers send streams themselves, and may go on after them."""
    limited = aiohttp.limited(work.concert.rate_limiter, "api:{header.x-who}", limit=work.limit, period=60.0)
    parts: dict[str, Around] = {
        "held": aiohttp.held(work.concert.lock, "order", timeout=work.patience),
        "while_connected": aiohttp.while_connected,
    }
    around = parts.get(work.around)

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        if work.around == "limited":
            await limited(request)
        async with nullcontext() if around is None else around(request):
            await work.run()
            response = await _answer_of(work, request)
        if work.form.startswith("background"):
            await work.go_on()
        return response

    app = web.Application()
    aiohttp.install(app, work.concert)
    app.middlewares.append(aiohttp.Idempotency(work.concert, user=_user))
    app.router.add_post("/", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "socket")).start()
        yield partial(OverSocket, folder / "socket")
    finally:
        await runner.cleanup()


async def _answer_of(work: Work, request: web.Request) -> web.StreamResponse:
    match work.form:
        case "empty":
            raise web.HTTPNoContent
        case "file":
            return web.FileResponse(work.file)
        case "large":
            return web.Response(body=LARGE)
        case form if form.startswith(("stream", "background")):
            response = web.StreamResponse()
            await response.prepare(request)
            async for part in work.parts():
                await response.write(part)
            await response.write_eof()
            return response
        case _:
            return web.Response(body=b"done", status=work.status)


FRAMEWORKS = {"fastapi": in_fastapi, "litestar": in_litestar, "aiohttp": in_aiohttp}

# Form -> the status of the answer, whether all of it comes, and what its repetition gets.
FORMS: dict[str, tuple[int, bool, str]] = {
    "plain": (200, True, "the same"),
    "empty": (204, True, "the same"),
    "file": (200, True, "the same"),
    "large": (200, True, "409"),
    "stream": (200, True, "409"),
    "stream that fails": (200, False, "409"),
    "stream that loses a lease": (200, False, "409"),
    "background": (200, True, "the same"),
    "background that fails": (200, True, "the same"),
    "dependency": (200, True, "the same"),
    "dependency that fails": (200, True, "the same"),
}
OTHERWISE = {("aiohttp", form): "409" for form in ("file", "background", "background that fails")}
CROSSED = [
    (framework, form)
    for framework in FRAMEWORKS
    for form in FORMS
    # aiohttp has no dependencies, and Litestar goes on behind their yield before it answers: see below.
    if framework == "fastapi" or not form.startswith("dependency")
]


@pytest.fixture
def work(server: RealServer, namespace: str, tmp_path: Path) -> Work:
    """What a handler is to do; its coordinator is opened with the service."""
    file = tmp_path / "file"
    file.write_bytes(b"done")
    return Work(Coordinator(server.url, namespace=namespace), file)


class Service:
    """A service, and what its clients have got.

    Args:
        ask: Sends a request.
    """

    def __init__(self, ask: Ask) -> None:
        self.who = "ann"  # whom a rate limiter counts
        self._ask = ask
        self.exchanges: list[Exchange] = []

    def begin(self, key: str | None = "k1", body: bytes | None = b"5") -> Exchange:
        """Send a request; with a key unless there is none."""
        headers = {"x-who": self.who} | ({} if key is None else {"idempotency-key": key})
        exchange = self._ask(headers, body)
        self.exchanges.append(exchange)
        return exchange

    async def ask_when_ended(self) -> Exchange | None:
        """The answer to a repetition; None while the first request has not ended."""
        answer = await self.ask()
        return None if answer.status == 409 and "retry-after" in answer.headers else answer

    async def ask(self, key: str | None = "k1") -> Exchange:
        """Send a request, and wait for its whole answer; what the application does then may go on."""
        exchange = self.begin(key)
        await exchange.answered()
        return exchange


@asynccontextmanager
async def served(framework: str, work: Work, folder: Path) -> AsyncGenerator[Service]:
    """The service, until all that it does has ended; no answer has followed another."""
    opened = nullcontext() if framework == "aiohttp" else work.concert
    async with opened, FRAMEWORKS[framework](work, folder) as ask:
        service = Service(ask)
        try:
            yield service
        finally:
            work.may_end.set()
        for exchange in service.exchanges:
            await exchange.ended()
        assert {exchange.heads for exchange in service.exchanges} <= {0, 1}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize(("framework", "form"), CROSSED)
async def test_form_of_answer(framework: str, form: str, around: str, work: Work, tmp_path: Path) -> None:
    """With a key it is what it is without; a repetition runs nothing, whatever happens after the answer."""
    work.form, work.around = form, around
    status, is_complete, repeated = FORMS[form]
    repeated = OTHERWISE.get((framework, form), repeated)
    async with served(framework, work, tmp_path) as service:
        plain, first = await service.ask(None), await service.ask()
        assert (plain.status, plain.is_complete) == (first.status, first.is_complete) == (status, is_complete)
        assert "after" not in work.log
        for _ in "while it goes on", "when it has ended":
            again = await service.ask()
            if repeated == "409":
                assert (again.status, again.is_replayed) == (409, False)
            else:
                assert (again.status, again.body, again.is_replayed) == (first.status, first.body, True)
            work.may_end.set()
            await first.ended()
        assert work.runs == 2
        goes_on = form.startswith(("background", "dependency"))
        assert work.log.count("after") == (2 if goes_on else 0)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("form", ["dependency", "dependency that fails"])
async def test_dependency_of_litestar_ends_before_the_answer(
    form: str, around: str, work: Work, tmp_path: Path
) -> None:
    """So a failure behind its yield is the answer, with a key and without, and a repetition runs the handler again."""
    work.form, work.around = form, around
    work.may_end.set()
    fails = form.endswith("that fails")
    async with served("litestar", work, tmp_path) as service:
        plain, first, again = [await service.ask(None), await service.ask(), await service.ask()]
        assert {exchange.status for exchange in (plain, first, again)} == {500 if fails else 200}
        assert [exchange.is_replayed for exchange in (plain, first, again)] == [False, False, not fails]
        assert work.runs == work.log.count("after") == (3 if fails else 2)


# Error -> the status of its answer; 500 is the framework's own if it is not one of ours.
ERRORS: dict[str, int] = {
    "AcquireTimeout": 423,
    "BarrierBroken": 500,
    "ChatNotFound": 404,
    "GroupClosed": 500,
    "GroupNotFound": 404,
    "GroupResultsGone": 500,
    "InconcertError": 500,
    "InvalidName": 422,
    "InvalidPayload": 422,
    "ItemNotFound": 404,
    "JobCancelled": 500,
    "JobExpired": 500,
    "JobFailed": 500,
    "JobNotFound": 404,
    "LeaseLost": 503,
    "MessageRefused": 500,
    "NotAMember": 403,
    "NobodyHolds": 500,
    "NotClaimed": 500,
    "NotConnected": 500,  # here that of a mistake; the other is below
    "NotHeld": 500,
    "OutcomeUnknown": 503,
    "QueueFull": 503,
    "QueueShutDown": 503,
    "QuorumNotReached": 503,
    "RateLimited": 429,
    "StaleToken": 503,
    "StepChanged": 500,
    "StepRefused": 500,
    "Unavailable": 503,
    "UnknownSchedule": 500,
    "UnknownTask": 500,
    "UnreadablePayload": 500,
    "WrongLayout": 500,
    "WrongState": 500,
}
RAISED = [
    *((error, ERRORS.get(type(error).__name__, 0)) for error in [*ALL, InconcertError("m")]),
    (NotConnected("m"), 503),
    (ZeroDivisionError(), 500),
]
# Status -> whether it is an answer that is stored.
STATUSES: dict[int, bool] = {
    **dict.fromkeys([200, 201, 202, 301, 400, 401, 403, 404, 410, 411, 413, 415, 422], True),
    **dict.fromkeys([408, 409, 423, 425, 429, 499, 500, 501, 502, 503, 504], False),
}


def test_each_error_and_status_of_ours_is_crossed() -> None:
    """One that is new is not in the tables, until somebody has thought of what a repetition gets."""
    assert sorted(ERRORS) == sorted(errors.__all__)
    assert {type(error).__name__ for error, _ in RAISED} == {*errors.__all__, "ZeroDivisionError"}
    sources = "".join(path.read_text("utf-8") for path in sorted(Path(_answers.__file__).parent.glob("*.py")))
    made = re.findall(r"(?:problem\(|HTTPException\(|status_code ?= ?|status=)(\d{3})\b", sources)
    named = {status.value for status, _ in _answers._ANSWERS.values()}
    assert {int(status) for status in made} | named | {status for _, status in RAISED} <= STATUSES.keys()


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_error_in_place_of_an_answer(framework: str, work: Work, tmp_path: Path) -> None:
    """Each has the same status with a key and without; what means "try again" runs again, and nothing else."""
    async with served(framework, work, tmp_path) as service:
        for number, (error, status) in enumerate(RAISED):
            work.fails_with, work.runs = error, 0
            found = [await service.ask(key) for key in (None, f"k{number}", f"k{number}")]
            assert [answer.status for answer in found] == [status] * 3, error
            assert found[2].is_replayed == STATUSES[status]
            assert work.runs == (2 if STATUSES[status] else 3)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_status_of_an_answer(framework: str, work: Work, tmp_path: Path) -> None:
    """What the application itself answers is stored, unless it means "try again"."""
    async with served(framework, work, tmp_path) as service:
        for status, is_stored in STATUSES.items():
            work.status, work.runs = status, 0
            first, again = [await service.ask(f"k{status}") for _ in range(2)]
            assert (first.status, again.status) == (status, status)
            assert (again.is_replayed, work.runs) == (is_stored, 1 if is_stored else 2), status


# Where its client goes away -> the form, what is around, and how often the handler has run after a repetition, which
# gets this status.
GONE: dict[str, tuple[str, str, int, int]] = {
    "before its body has come": ("plain", "nothing", 1, 200),
    "in line": ("plain", "held", 1, 200),
    "while it works": ("plain", "nothing", 1, 200),
    "while it works under a lock": ("plain", "held", 1, 200),
    "while it works for its client alone": ("plain", "while_connected", 2, 200),
    "in the middle of a stream": ("stream", "nothing", 1, 409),
    "after its answer": ("background", "nothing", 1, 200),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("where", GONE)
async def test_client_that_goes(framework: str, where: str, work: Work, concert: Coordinator, tmp_path: Path) -> None:
    """Its repetition gets the answer, and the handler has done its work once; twice if it was stopped."""
    work.form, work.around, runs, status = GONE[where]
    work.is_slow = where != "in line"
    if (framework, work.form) in OTHERWISE:
        status = 409
    async with served(framework, work, tmp_path) as service:
        async with concert.lock("order") if where == "in line" else nullcontext():
            first = service.begin(body=None if where == "before its body has come" else b"5")
            await first.sent.wait()
            match where:
                case "before its body has come":
                    pass
                case "in line":
                    await in_line(concert.lock("order"), 1)
                case "in the middle of a stream":
                    await first.answered(at_least=3)
                case "after its answer":
                    await first.answered()
                case _:
                    await eventually(lambda: work.log)
            first.hang_up()
            if where == "in line":
                await in_line(concert.lock("order"), 0)
        if where == "while it works for its client alone":
            await eventually(lambda: work.log[-1] == "cancelled")
        work.may_end.set()
        again = await eventually(service.ask_when_ended)
        assert (again.status, work.runs) == (status, runs)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("form", "status", "runs"), [("plain", 503, 2), ("stream", 200, 1)])
async def test_lock_of_a_request_that_is_lost(
    framework: str, form: str, status: int, runs: int, *, work: Work, concert: Coordinator, tmp_path: Path
) -> None:
    """Before its answer the handler is stopped, and runs again; a stream that has begun is cut short."""
    work.form, work.is_slow = form, True
    async with served(framework, work, tmp_path) as service:
        first = service.begin()
        await eventually(lambda: work.log)
        await (first.answered(at_least=3) if form == "stream" else first.sent.wait())
        [lock] = await concert.locks_held()
        await concert.release_by_force("lock", lock.name)
        await first.ended()
        assert (first.status, first.heads, work.log[-1]) == (status, 1, "cancelled")
        work.may_end.set()
        again = await service.ask()
        assert (again.status, work.runs) == (409 if form == "stream" else 200, runs)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("around", "status"), [("held", 423), ("limited", 429)])
async def test_refusal_by_what_is_around(
    framework: str, around: str, status: int, work: Work, concert: Coordinator, *, tmp_path: Path
) -> None:
    """A lock that another has, and a limit that is reached: the refusal is not stored, and the handler runs later."""
    work.around, work.patience, work.limit = around, 0.0, 1
    async with served(framework, work, tmp_path) as service:
        async with concert.lock("order"):
            if around == "limited":
                await service.ask(None)
            refused = [await service.ask() for _ in range(2)]
        assert [(answer.status, answer.is_replayed) for answer in refused] == [(status, False)] * 2
        service.who = "bob"
        granted = [await service.ask() for _ in range(2)]
        assert [(answer.status, answer.is_replayed) for answer in granted] == [(200, False), (200, True)]
