"""The parts for FastAPI and Starlette, over real HTTP."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Response, WebSocket
from fastapi.responses import FileResponse, StreamingResponse
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.responses import PlainTextResponse

from inconcert import (
    AcquireTimeout,
    Coordinator,
    InconcertError,
    InvalidName,
    JobFailed,
    JobNotFound,
    Lease,
    NotAMember,
    OutcomeUnknown,
    QueueFull,
    RateLimited,
    Retry,
    Unavailable,
    current_job,
)
from inconcert.integrations import _health, _job_events, _sse
from inconcert.integrations._asgi import stopping
from inconcert.integrations._health import live
from inconcert.integrations.fastapi import (
    Idempotency,
    cancel_on_disconnect,
    chat_stream,
    held,
    install,
    job_stream,
    lifespan,
    limited,
    run_worker,
    while_connected,
)
from tests.support.background import in_background
from tests.support.eventually import eventually
from tests.support.exchanges import InProcess, opened
from tests.support.http import events, served
from tests.support.lines import in_line
from tests.support.raw import raw
from tests.support.servers import RealServer

WITHIN = 5.0  # seconds

ERRORS: dict[str, tuple[InconcertError, int]] = {
    "timeout": (AcquireTimeout("lock", "a", 2.0), 423),
    "limit": (RateLimited("a", 2.0, retry_after=7.0), 429),
    "full": (QueueFull("a", 5), 503),
    "away": (Unavailable("a"), 503),
    "unknown": (OutcomeUnknown("a"), 503),
    "job": (JobNotFound("a"), 404),
    "member": (NotAMember("a", "ann"), 403),
    "name": (InvalidName("a"), 422),
}


async def pass_on(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """A middleware that changes nothing, and puts its own `receive` between."""
    return await call_next(request)


class Shop:
    """An application, with what its handlers have done."""

    def __init__(self, url: str, namespace: str) -> None:
        self.concert = concert = Coordinator(url, namespace=namespace)
        self.app = FastAPI(lifespan=lifespan(concert, self._inner))
        self.log: list[str] = []
        self.runs = Counter[str]()
        self.may_end = asyncio.Event()
        install(self.app, concert)

    @asynccontextmanager
    async def _inner(self, _: FastAPI) -> AsyncGenerator[dict[str, str]]:
        await self.concert.ping()
        self.log.append("opened")
        yield {"color": "red"}
        await self.concert.ping()
        self.log.append("closing")

    async def hold(self) -> None:
        """As a handler does that takes its time."""
        self.log.append("entered")
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise


@pytest.fixture
def shop(server: RealServer, namespace: str) -> Shop:
    """An application that is not started."""
    return Shop(server.url, namespace)


@pytest.fixture(params=["plain", "with middleware"])
def either_shop(request: pytest.FixtureRequest, shop: Shop) -> Shop:
    """An application, and one behind a middleware."""
    if request.param == "with middleware":
        shop.app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
    return shop


async def hung_up(asking: "asyncio.Task[Any]") -> None:
    """End a request as a client does that gives up: its connection is closed."""
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking


async def test_handlers_hold_a_lock_one_after_the_other(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """The dependency's value is the lease, it is released before the answer is sent, and a waiter has its turn."""
    order = Depends(held(concert.lock, "order:{order_id}", timeout=10.0), scope="function")

    @shop.app.post("/orders/{order_id}")
    async def pay(order_id: str, lease: Annotated[Lease, order]) -> str:
        await shop.hold()
        return lease.name

    async with served(shop.app, tmp_path / "socket") as http:
        asked = [asyncio.create_task(http.post("/orders/5")) for _ in range(2)]
        await in_line(concert.lock("order:5"), 1)
        assert shop.log == ["opened", "entered"]
        shop.may_end.set()
        answers = [await answer for answer in asked]
        assert [(answer.status_code, answer.json()) for answer in answers] == [(200, "order:5")] * 2
        for _ in range(20):
            await http.post("/orders/5")
            assert await concert.lock("order:5").holders() == []
    assert shop.log[-1] == "closing"


async def test_client_that_hangs_up_leaves_the_line(either_shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """Within a second, also if it has sent a body that nobody has read; the others stay, and read theirs."""
    shop = either_shop
    order = Depends(held(concert.semaphore, "order:{order_id}", limit=1, timeout=30.0), scope="function")

    @shop.app.post("/orders/{order_id}", dependencies=[order])
    async def pay(request: Request) -> Any:
        return json.loads(await request.body())

    async def read(request: Request) -> str:
        return b"".join([part async for part in request.stream()]).decode()

    @shop.app.post("/streams/{order_id}")
    async def stream(text: Annotated[str, Depends(read)], lease: Annotated[Lease, order]) -> str:
        return text

    line = concert.semaphore("order:5", limit=1)
    async with served(shop.app, tmp_path / "socket") as http:
        async with line:
            gone = asyncio.create_task(http.post("/orders/5", json={"a": 1}))
            stays = asyncio.create_task(http.post("/orders/5", json={"a": 2}))
            streamed = asyncio.create_task(http.post("/streams/5", content="hello"))
            await in_line(line, 3)
            await hung_up(gone)
            async with asyncio.timeout(1.0):
                await in_line(line, 2)
        assert (await stays).json() == {"a": 2}
        assert (await streamed).json() == "hello"


async def test_handler_is_not_cancelled_once_it_has_the_lock(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """What was begun is brought to its end, unless the handler asks for it."""
    order = Depends(held(concert.lock, "order", timeout=10.0), scope="function")
    shop.app.post("/finish", dependencies=[order])(shop.hold)
    shop.app.post("/stop", dependencies=[Depends(cancel_on_disconnect, scope="function")])(shop.hold)

    async with served(shop.app, tmp_path / "socket") as http:
        asked = asyncio.create_task(http.post("/stop"))
        await eventually(lambda: shop.log[-1] == "entered")
        await hung_up(asked)
        await eventually(lambda: shop.log[-1] == "cancelled")

        asked = asyncio.create_task(http.post("/finish"))
        await eventually(lambda: shop.log[-1] == "entered")
        await hung_up(asked)
        assert await concert.lock("order").holders()
        shop.may_end.set()
        await eventually(lambda: is_free(concert, "order"))
    assert shop.log == ["opened", "entered", "cancelled", "entered", "closing"]


async def is_free(concert: Coordinator, name: str) -> bool:
    """Whether nobody has the lock."""
    return not await concert.lock(name).locked()


async def test_starlette_has_the_same(server: RealServer, namespace: str, concert: Coordinator, tmp_path: Path) -> None:
    """With a dependency as a context manager."""
    order = asynccontextmanager(held(concert.lock, "order:{order_id}", timeout=0.0))

    async def pay(request: Request) -> Response:
        async with order(request) as lease, while_connected(request):
            return PlainTextResponse(lease.name + (await request.body()).decode())

    inside = Coordinator(server.url, namespace=namespace)
    app = Starlette(lifespan=lifespan(inside))
    app.add_route("/orders/{order_id:int}", pay, methods=["POST"])
    install(app, inside, health="/checks")
    async with served(app, tmp_path / "socket") as http:
        assert (await http.post("/orders/5", content="!")).text == "order:5!"
        async with concert.lock("order:5"):
            assert (await http.post("/orders/5")).status_code == 423
        assert (await http.get("/checks/ready")).json() == {"status": "ready"}


async def test_errors_are_answered(shop: Shop, tmp_path: Path) -> None:
    """Each with its status, and when to come back; a fault of the program stays one."""

    @shop.app.get("/raise/{name}")
    async def fail(name: str) -> None:
        raise ERRORS[name][0]

    @shop.app.get("/fault")
    async def fault() -> None:
        raise JobFailed("1", "boom", "", 1)

    async with served(shop.app, tmp_path / "socket") as http:
        for name, (error, status) in ERRORS.items():
            answer = await http.get(f"/raise/{name}")
            assert (answer.status_code, answer.json()["error"]) == (status, type(error).__name__)
            assert answer.headers["content-type"] == "application/problem+json"
            expected = {423: "1", 429: "7", 503: "1"}.get(status)
            assert answer.headers.get("retry-after") == expected
        assert (await http.get("/fault")).status_code == 500


async def test_lease_that_is_lost_stops_the_handler(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """It is cancelled, and its client gets 503."""
    order = Depends(held(concert.lock, "order", timeout=10.0, ttl=0.6), scope="function")
    shop.app.post("/", dependencies=[order])(shop.hold)

    async with served(shop.app, tmp_path / "socket") as http:
        asked = asyncio.create_task(http.post("/"))
        await eventually(lambda: shop.log[-1] == "entered")
        await raw(concert).delete(concert.lock("order")._keys.holders)
        answer = await asked
    assert (answer.status_code, answer.json()["error"]) == (503, "LeaseLost")
    assert "cancelled" in shop.log


async def test_limit_is_answered_with_429(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """With the time until there is room; a name may be filled with what the client sends, which then must be there."""
    limit = Depends(limited(concert.rate_limiter, "api:{header.x-user}:{query.a}:{client}", limit=1, period=60.0))
    shop.app.get("/", dependencies=[limit])(lambda: "fine")

    async with served(shop.app, tmp_path / "socket") as http:
        answers = [await http.get("/?a=1", headers={"X-User": user}) for user in ("ann", "bob", "ann")]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 50 <= int(answers[-1].headers["retry-after"]) <= 60
        assert (await http.get("/?a=1")).status_code == 422


async def test_answers_that_pass_say_how_much_of_a_limit_is_left(shop: Shop, tmp_path: Path) -> None:
    """One policy for each limiter, also if the handler fails or makes its answer itself; no others, and no refusals."""
    limit = Depends(limited(shop.concert.rate_limiter, "api:{header.x-user}", limit=4, period=60.0))
    fast = Depends(limited(shop.concert.rate_limiter, "all", limit=10, period=0.5, burst=20))

    shop.app.get("/free")(lambda: "fine")

    @shop.app.get("/{name}", dependencies=[limit, fast])
    async def index(name: str) -> Response:
        if name != "made":
            raise HTTPException(404)
        return PlainTextResponse("made")

    async with served(shop.app, tmp_path / "socket") as http:
        answers = [await http.get(path, headers={"X-User": "ann"}) for path in ("/made", "/none", "/free")]
        answers += [await http.get("/made", headers={"X-User": "ann"}) for _ in range(3)]
    told = [answer.headers.get_list("ratelimit") for answer in answers]
    assert [answer.status_code for answer in answers] == [200, 404, 200, 200, 200, 429]
    assert told[0] == ['"4-per-60-s";r=3;t=15', '"10-per-0.5-s";r=19;t=1']
    assert told[1][0] == '"4-per-60-s";r=2;t=30'
    assert told[4][0] == '"4-per-60-s";r=0;t=60'
    assert told[2] == told[5] == []
    policies = answers[0].headers.get_list("ratelimit-policy")
    assert policies == ['"4-per-60-s";q=4;w=60', '"10-per-0.5-s";q=10']


async def test_answer_that_is_repeated_says_nothing_of_a_limit(shop: Shop, tmp_path: Path) -> None:
    """Because what was left then is not what is left now."""
    limit = Depends(limited(shop.concert.rate_limiter, "api", limit=4, period=60.0))
    shop.app.add_middleware(Idempotency, concert=shop.concert, user=lambda _: "ann")
    shop.app.post("/", dependencies=[limit])(lambda: "fine")
    async with served(shop.app, tmp_path / "socket") as http:
        answers = [await http.post("/", headers={"Idempotency-Key": "1"}) for _ in range(2)]
    assert ["ratelimit" in answer.headers for answer in answers] == [True, False]
    assert answers[1].headers["idempotency-replayed"] == "true"


async def test_clients_may_be_told_nothing_of_a_limit(concert: Coordinator, tmp_path: Path) -> None:
    """By an application that does not want it."""
    closed = Coordinator(concert.url or "", namespace="quiet")
    app = FastAPI(lifespan=lifespan(closed))
    install(app, closed, rate_limit_headers=False)
    app.get("/", dependencies=[Depends(limited(closed.rate_limiter, "api", limit=4, period=60.0))])(lambda: "fine")
    async with served(app, tmp_path / "socket") as http:
        assert not {"ratelimit", "ratelimit-policy"} & {*(await http.get("/")).headers}


async def test_web_socket_is_held_and_limited(shop: Shop, concert: Coordinator) -> None:
    """It is refused with the same answer, or closed where the server or the moment does not allow one."""
    limit = Depends(limited(shop.concert.rate_limiter, "ws:{client}", limit=1, period=60.0))
    order = Depends(held(shop.concert.lock, "order:{header.x-none}", timeout=0))
    shop.app.websocket("/order", dependencies=[order])(shop.hold)
    shop.app.websocket("/stop", dependencies=[Depends(cancel_on_disconnect, scope="function")])(shop.hold)

    @shop.app.websocket("/limit", dependencies=[limit])
    async def greet(socket: WebSocket, lease: Annotated[Lease, Depends(held(shop.concert.lock, "a"))]) -> None:
        await socket.accept()
        await socket.send_text(lease.name)

    @shop.app.websocket("/late")
    async def late(socket: WebSocket) -> None:
        await socket.accept()
        raise AcquireTimeout("lock", "a", 0.0)

    async with shop.concert:
        assert [message["type"] for message in await opened(shop.app, "/limit")] == [
            "websocket.accept",
            "websocket.send",
        ]
        start, _ = await opened(shop.app, "/limit")
        assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
        for path, code in ("/limit", 1013), ("/order", 1008):
            [closed] = await opened(shop.app, path, can_answer=False)
            assert (closed["type"], closed["code"]) == ("websocket.close", code)
        _, closed = await opened(shop.app, "/late")
        assert (closed["type"], closed["code"]) == ("websocket.close", 1013)
        with pytest.raises(TypeError, match="tells its handler itself"):
            await opened(shop.app, "/stop")
        assert await concert.locks_held() == []
    start, _ = await opened(shop.app, "/limit")
    assert start["status"] == 503


async def test_coordinator_that_nobody_opens_is_a_mistake(
    server: RealServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Told when the application starts, and otherwise to each request: it would never be ready by waiting."""
    concert = Coordinator(server.url, namespace=namespace)
    app = FastAPI()
    app.post("/")(concert.lock("a").locked)
    install(app, concert)

    with pytest.raises(RuntimeError, match="is not open, so no request could use it; make the application with"):
        async with app.router.lifespan_context(app):
            pass
    answer = InProcess(app, {}, b"")
    await answer.answered()
    assert (answer.status, "retry-after" in answer.headers) == (500, False)
    assert "POST / is answered with 500: the coordinator is not open; use it inside" in caplog.text
    async with concert:
        pass
    closed = InProcess(app, {}, b"")
    await closed.answered()
    assert (closed.status, closed.headers["retry-after"]) == (503, "1")


async def test_state_of_the_inner_lifespan_is_passed_on(shop: Shop, tmp_path: Path) -> None:
    """As without ours around it."""

    @shop.app.get("/")
    async def color(request: Request) -> str:
        return str(request.state.color)

    async with served(shop.app, tmp_path / "socket") as http:
        assert (await http.get("/")).json() == "red"


async def test_service_is_not_ready_while_its_server_does_not_answer(
    own_server: RealServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But it is alive; and ready again when the server is back."""
    assert _health._LONGEST < 5
    monkeypatch.setattr(_health, "_LONGEST", 0.2)
    shop = Shop(own_server.url, namespace)
    async with served(shop.app, tmp_path / "socket") as http:
        assert (await http.get("/health/ready")).status_code == 200
        own_server.pause()
        away = await http.get("/health/ready")
        assert (away.status_code, away.headers["content-type"]) == (503, "application/problem+json")
        assert (await http.get("/health/live")).json() == {"status": "live"}
        own_server.resume()

        async def is_ready() -> bool:
            return (await http.get("/health/ready")).status_code == 200

        await eventually(is_ready)
        schema = (await http.get("/openapi.json")).json()
        assert "/health/ready" not in schema["paths"]


async def test_worker_beside_the_service_runs_jobs(concert: Coordinator) -> None:
    """Until the body ends; one at a time."""

    @concert.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    with pytest.raises(ValueError, match="queue"):
        await run_worker(concert).__aenter__()
    async with run_worker(concert, "default", concurrency=5):
        assert await (await double.enqueue(4)).result(timeout=10.0) == 8
        with pytest.raises(RuntimeError, match="has a worker beside it already"):
            await run_worker(concert, "default").__aenter__()
        assert live(concert).status == 200


async def test_worker_that_dies_is_noticed(
    concert: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At once in the log and by the check, and at the end as an error."""

    async def die(*queues: str, **options: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(concert, "run_worker", die)
    beside = run_worker(concert, "default")
    await beside.__aenter__()
    await eventually(lambda: live(concert).status == 503)
    assert (await _health.ready(concert)).status == 503
    assert "has ended with an error" in caplog.text
    with pytest.raises(ZeroDivisionError):
        await beside.__aexit__(None, None, None)
    assert live(concert).status == 200


async def test_service_cannot_be_started_where_its_coordinator_is_open(shop: Shop) -> None:
    """As by a worker of `inconcert worker` that starts its own application: it would run a worker in a worker."""
    async with shop.concert:
        with pytest.raises(RuntimeError, match="cannot be opened twice"):
            async with shop.app.router.lifespan_context(shop.app):
                pass


# Requests with a key.


@pytest.fixture
async def paying(either_shop: Shop, tmp_path: Path) -> AsyncIterator[tuple[Shop, httpx.AsyncClient]]:
    """A service with requests that may be repeated."""
    shop = either_shop
    shop.app.add_middleware(Idempotency, shop.concert, user=lambda request: request.headers.get("x-user", ""))
    large = tmp_path / "large"
    large.write_bytes(bytes(600_000))

    @shop.app.post("/pay", status_code=201)
    async def pay(request: Request) -> dict[str, str]:
        shop.runs["pay"] += 1
        await shop.hold()
        return {"paid": (await request.body()).decode()}

    @shop.app.delete("/order", status_code=204)
    async def drop() -> None:
        shop.runs["drop"] += 1

    @shop.app.post("/crash")
    async def crash() -> str:
        shop.runs["crash"] += 1
        if shop.runs["crash"] == 1:
            raise ZeroDivisionError
        return "fine"

    @shop.app.post("/stream", response_model=None)
    async def stream() -> StreamingResponse:
        shop.runs["stream"] += 1
        return StreamingResponse(iter(["a", "b"]))

    @shop.app.post("/large", response_model=None)
    async def send_file() -> FileResponse:
        shop.runs["large"] += 1
        return FileResponse(large)

    async with served(shop.app, tmp_path / "socket") as http:
        yield shop, http


async def test_request_with_a_key_is_handled_once(paying: tuple[Shop, httpx.AsyncClient]) -> None:
    """While the first runs: 409. Then the same answer, but not to another body or user, or without the key."""
    shop, http = paying
    key = {"Idempotency-Key": "k1", "X-User": "ann"}
    first = asyncio.create_task(http.post("/pay", content="5", headers=key))
    await eventually(lambda: shop.runs["pay"])
    early = [await http.post("/pay", content="5", headers=key) for _ in range(3)]
    shop.may_end.set()
    answer = await first
    again = await http.post("/pay", content="5", headers=key)
    other = await http.post("/pay", content="6", headers=key)

    assert [(one.status_code, one.headers["retry-after"]) for one in early] == [(409, "1")] * 3
    assert (answer.status_code, answer.json()) == (201, {"paid": "5"})
    assert (again.status_code, again.content) == (201, answer.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in answer.headers
    assert other.status_code == 422
    assert shop.runs["pay"] == 1
    await http.post("/pay", content="5", headers=key | {"X-User": "bob"})
    await http.post("/pay", content="5", headers={"X-User": "ann"})
    assert shop.runs["pay"] == 3


async def test_client_that_hangs_up_gets_its_answer_later(paying: tuple[Shop, httpx.AsyncClient]) -> None:
    """The handler ends, and a repetition has what it answered."""
    shop, http = paying
    key = {"Idempotency-Key": "k1"}
    first = asyncio.create_task(http.post("/pay", content="5", headers=key))
    await eventually(lambda: shop.runs["pay"])
    await hung_up(first)
    shop.may_end.set()

    async def answer() -> httpx.Response | None:
        again = await http.post("/pay", content="5", headers=key)
        return again if again.status_code != 409 else None

    assert (await eventually(answer)).json() == {"paid": "5"}
    assert shop.runs["pay"] == 1


async def test_answers_of_all_kinds_are_repeated(paying: tuple[Shop, httpx.AsyncClient]) -> None:
    """One without a body, too; one that is too large or a stream is sent once; one that failed is tried again."""
    shop, http = paying
    key = {"Idempotency-Key": "k1"}
    assert [(await http.delete("/order", headers=key)).status_code for _ in range(2)] == [204, 204]
    for path, content in ("/stream", b"ab"), ("/large", bytes(600_000)):
        first = await http.post(path, headers=key)
        assert (first.status_code, first.content) == (200, content)
        assert (await http.post(path, headers=key)).status_code == 409
    assert [(await http.post("/crash", headers=key)).status_code for _ in range(3)] == [500, 200, 200]
    assert shop.runs == {"drop": 1, "stream": 1, "large": 1, "crash": 2}


async def test_body_that_is_streamed_or_too_large_is_refused(paying: tuple[Shop, httpx.AsyncClient]) -> None:
    """Before the handler runs: it cannot be compared with that of a repetition."""
    shop, http = paying

    async def parts() -> AsyncGenerator[bytes]:
        yield b"a"

    key = {"Idempotency-Key": "k1"}
    assert (await http.post("/pay", content=parts(), headers=key)).status_code == 411
    assert (await http.post("/pay", content=bytes(2**20 + 1), headers=key)).status_code == 413
    assert (await http.post("/pay", headers={"Idempotency-Key": "k" * 256})).status_code == 400
    assert shop.runs["pay"] == 0


async def test_answer_outlives_the_service(
    server: RealServer, namespace: str, concert: Coordinator, tmp_path: Path
) -> None:
    """Another process, or the same after a restart, repeats it."""
    answers: list[httpx.Response] = []
    for run in range(2):
        shop = Shop(server.url, namespace)
        shop.app.add_middleware(Idempotency, shop.concert, user=lambda _: "")
        shop.app.post("/")(lambda run=run: run)
        async with served(shop.app, tmp_path / f"socket{run}") as http:
            answers.append(await http.post("/", headers={"Idempotency-Key": "k1"}))
    assert [answer.json() for answer in answers] == [0, 0]


# Streams.


async def test_stream_goes_on_behind_the_last_event(
    either_shop: Shop, concert: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without loss or repetition; what was got counts as read, and nothing else; a quiet stream says that it lives."""
    monkeypatch.setattr(_sse, "KEEP_ALIVE", 0.05)
    shop = either_shop

    @shop.app.get("/chats/{user}", response_model=None)
    async def chats(request: Request, user: str) -> Response:
        return chat_stream(request, shop.concert, user)

    one = await concert.chat.create("ann", ["bob"], "one")
    two = await concert.chat.create("cy", ["bob"], "two")
    async with served(shop.app, tmp_path / "socket") as http:
        async with http.stream("GET", "/chats/bob") as response, aclosing(events(response)) as stream:
            assert response.headers["content-type"].startswith("text/event-stream")
            got = [await anext(stream), await anext(stream)]
            assert {json.loads(event["data"])["chat_id"] for event in got} == {one, two}
            await concert.chat.send(one, "ann", "three")
            got.append(await anext(stream))
            last_id = got[-1]["id"]
            await concert.chat.send(two, "cy", "four\n\ndata: no")
            await anext(stream)  # which is lost with the connection
        assert await concert.chat.unread("bob") == {one: 2, two: 2}

        async with (
            http.stream("GET", "/chats/bob", headers={"Last-Event-ID": last_id}) as response,
            aclosing(events(response)) as stream,
        ):
            batch = json.loads((await anext(stream))["data"])
        assert [message["body"] for message in batch["messages"]] == ["four\n\ndata: no"]
        assert await concert.chat.unread("bob") == {two: 1}

        async with http.stream("GET", "/chats/eve", headers={"Last-Event-ID": f"{one}:9 junk"}) as response:
            lines = response.aiter_lines()
            assert [await anext(lines) for _ in range(4)] == ["retry: 1000", "", ":", ""]
        assert await concert.chat.unread("bob") == {two: 1}


async def test_stream_of_a_job_goes_on_behind_the_last_item(
    either_shop: Shop, concert: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last event says how the job has ended; a restart and a gap are events, too."""
    monkeypatch.setattr(_job_events, "KEEP_ALIVE", 0.05)
    shop, go_on = either_shop, asyncio.Event()

    @shop.app.get("/jobs/{job_id}", response_model=None)
    async def jobs(request: Request, job_id: str) -> Response:
        return job_stream(request, shop.concert, job_id)

    @concert.task(name="write", queue="words", max_attempts=2, backoff=lambda _: 0.0)
    async def write(outcome: str) -> AsyncIterator[str]:
        yield "one\n\ndata: no"
        yield "two"
        await go_on.wait()
        if outcome == "again" and current_job().attempt == 1:
            raise Retry(after=0)
        if outcome == "failed":
            raise ValueError

    async with in_background(concert.run_worker("words")), served(shop.app, tmp_path / "socket") as http:
        job = await write.enqueue("again")
        async with http.stream("GET", f"/jobs/{job.id}") as response, aclosing(events(response)) as stream:
            assert response.headers["content-type"].startswith("text/event-stream")
            first = await anext(stream)
            assert json.loads(first["data"]) == {"value": "one\n\ndata: no", "attempt": 1}
            await anext(stream)  # which is lost with the connection
        headers = {"Last-Event-ID": first["id"]}
        async with (
            http.stream("GET", f"/jobs/{job.id}", headers=headers) as response,
            aclosing(events(response)) as stream,
        ):
            assert json.loads((await anext(stream))["data"])["value"] == "two"
            go_on.set()
            rest = [(event.get("event"), json.loads(event["data"])) async for event in stream]
        assert rest[-1] == ("end", {"status": "succeeded"})
        assert ("restarted", {"attempt": 2}) in rest
        failed, unknown = await write.enqueue("failed"), "0123456789abcdef.1.0"
        for job_id, last_id, status in (
            (failed.id, "", "failed"),
            (job.id, "junk", "succeeded"),
            (unknown, "", "unknown"),
        ):
            headers = {"Last-Event-ID": last_id}
            async with http.stream("GET", f"/jobs/{job_id}", headers=headers) as response:
                last = [event async for event in events(response)][-1]
            assert (last["event"], json.loads(last["data"])) == ("end", {"status": status})


async def test_stream_of_a_job_ends_with_the_service(concert: Coordinator) -> None:
    """Without the last event: its client comes back. A quiet one says that it lives."""

    @concert.task(name="endless", queue="words")
    async def endless() -> AsyncIterator[int]:
        yield 1
        await asyncio.sleep(WITHIN)

    closing = asyncio.Event()
    async with in_background(concert.run_worker("words")):
        job = await endless.enqueue()
        stream = _job_events.job_events(concert.tasks.job(job.id), closing=closing)
        async with aclosing(stream), asyncio.timeout(WITHIN):
            assert await anext(stream) == b"retry: 1000\n\n"
            assert b'"value":1' in await anext(stream)
            closing.set()
            assert [event async for event in stream] == []
        stream = _job_events.job_events(concert.tasks.job(job.id))
        await job.cancel()
        async with aclosing(stream), asyncio.timeout(WITHIN):
            *_, last = [event async for event in stream]
        assert last == b'event: end\ndata: {"status":"cancelled"}\n\n'


async def test_stream_ends_when_the_process_is_told_to_stop(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """By a signal, which the server handles as it did before."""
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        with stopping() as stopped:
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(5):
                await stopped.wait()
        assert seen == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is handle
    finally:
        signal.signal(signal.SIGTERM, before)

    closing = asyncio.Event()
    async with aclosing(_sse.chat_events(concert.chat, "bob", closing=closing)) as stream:
        assert await anext(stream) == b"retry: 1000\n\n"
        closing.set()
        assert [event async for event in stream] == []


async def test_stream_ends_when_the_coordinator_closes(server: RealServer, namespace: str) -> None:
    """Without an error: its client comes back."""
    async with Coordinator(server.url, namespace=namespace) as concert:
        stream = _sse.chat_events(concert.chat, "bob")
        await anext(stream)
        rest = asyncio.ensure_future(anext(stream, None))
        await asyncio.sleep(0)
    assert await rest is None
