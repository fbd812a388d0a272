"""The parts for aiohttp, over real HTTP."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from inconcert import AcquireTimeout, Coordinator, JobFailed, JobNotFound, Unavailable
from inconcert.integrations import _health
from inconcert.integrations import aiohttp as integration
from inconcert.integrations.aiohttp import (
    COORDINATOR,
    Idempotency,
    chat_socket,
    chat_stream,
    held,
    install,
    job_stream,
    limited,
    run_worker,
    while_connected,
)
from tests.support.eventually import eventually
from tests.support.lines import in_line
from tests.support.servers import RealServer


class Shop:
    """An application, with what its handlers have done."""

    def __init__(self, url: str, namespace: str) -> None:
        self.concert = Coordinator(url, namespace=namespace)
        self.app = web.Application()
        self.log: list[str] = []
        self.runs = Counter[str]()
        self.may_end = asyncio.Event()
        install(self.app, self.concert)
        self.app.cleanup_ctx.append(self._inner)

    async def _inner(self, app: web.Application) -> AsyncIterator[None]:
        await app[COORDINATOR].ping()
        self.log.append("opened")
        yield
        await app[COORDINATOR].ping()
        self.log.append("closing")

    async def hold(self) -> None:
        """As a handler does that takes its time."""
        self.log.append("entered")
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise

    def at(self, path: str) -> Callable[[Callable[[web.Request], Any]], None]:
        """Handle requests of any method."""
        return lambda handler: void(self.app.router.add_route("*", path, handler))


def void(_: object) -> None:
    """Nothing."""


@pytest.fixture
def shop(server: RealServer, namespace: str) -> Shop:
    """An application that is not started."""
    return Shop(server.url, namespace)


@asynccontextmanager
async def served(app: web.Application, socket: Path, **options: Any) -> AsyncGenerator[aiohttp.ClientSession]:
    """An application on aiohttp's own server, and a client of it."""
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        connector = aiohttp.UnixConnector(str(socket))
        async with aiohttp.ClientSession("http://shop", connector=connector) as http:
            yield http
    finally:
        await runner.cleanup()


async def ask(http: aiohttp.ClientSession, path: str, **options: Any) -> tuple[int, Any]:
    """The status of an answer, and its text or what it says in JSON."""
    async with http.post(path, **options) as answer:
        is_json = answer.content_type.endswith("json")
        return answer.status, await (answer.json(content_type=None) if is_json else answer.text())


async def hung_up(asking: "asyncio.Task[Any]") -> None:
    """End a request as a client does that gives up: its connection is closed."""
    asking.cancel()
    await asyncio.wait([asking])


async def test_handlers_hold_a_lock_one_after_the_other(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """The lease is there, and released before the answer is sent; a waiter has its turn; errors have their status."""
    order = held(concert.lock, "order:{order_id}", timeout=10.0)
    at_once = held(concert.lock, "order:{order_id}", timeout=0.0)

    @shop.at("/orders/{order_id}")
    async def pay(request: web.Request) -> web.Response:
        async with order(request) as lease:
            await shop.hold()
            return web.json_response(lease.name)

    @shop.at("/at-once/{order_id}")
    async def pay_at_once(request: web.Request) -> web.Response:
        async with at_once(request) as lease:
            return web.json_response(lease.name)

    async with served(shop.app, tmp_path / "socket") as http:
        asked = [asyncio.create_task(ask(http, "/orders/5")) for _ in range(2)]
        await in_line(concert.lock("order:5"), 1)
        assert shop.log == ["opened", "entered"]
        status, problem = await ask(http, "/at-once/5")
        assert (status, problem["error"]) == (423, "AcquireTimeout")
        shop.may_end.set()
        assert [await answer for answer in asked] == [(200, "order:5")] * 2
        for _ in range(20):
            assert await ask(http, "/at-once/5") == (200, "order:5")
            assert await concert.lock("order:5").holders() == []
    assert shop.log[-1] == "closing"


@pytest.mark.parametrize("cancelling", [False, True])
async def test_client_that_hangs_up_leaves_the_line(
    cancelling: bool, shop: Shop, concert: Coordinator, tmp_path: Path
) -> None:
    """At once, also with a body that nobody has read, on a connection used before; the others stay, and read theirs."""
    order = held(concert.semaphore, "order:{order_id}", limit=1, timeout=30.0)

    @shop.at("/orders/{order_id}")
    async def pay(request: web.Request) -> web.Response:
        async with order(request):
            return web.json_response(await request.json())

    @shop.at("/")
    async def index(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    line = concert.semaphore("order:5", limit=1)
    async with served(shop.app, tmp_path / "socket", handler_cancellation=cancelling) as http:
        await asyncio.gather(*(ask(http, "/orders/5", json=number) for number in range(3)))
        async with line:
            gone = asyncio.create_task(ask(http, "/orders/5", json={"a": 1}))
            stays = asyncio.create_task(ask(http, "/orders/5", json={"a": 2}))
            await in_line(line, 2)
            await hung_up(gone)
            async with asyncio.timeout(1.0):
                await in_line(line, 1)
            assert await ask(http, "/") == (200, "/")
        assert await stays == (200, {"a": 2})
        assert await line.holders() == []


async def test_handler_is_not_cancelled_once_it_has_the_lock(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """What was begun is brought to its end, unless the handler asks for it; one that hung up before enters nothing."""
    order = held(concert.lock, "order", timeout=10.0)

    @shop.at("/finish")
    async def finish(request: web.Request) -> web.Response:
        async with order(request):
            await shop.hold()
        async with while_connected(request):
            shop.log.append("never")
        return web.Response()

    @shop.at("/stop")
    async def stop(request: web.Request) -> web.Response:
        async with while_connected(request), while_connected(request):
            await shop.hold()
        return web.Response()

    async with served(shop.app, tmp_path / "socket") as http:
        asked = asyncio.create_task(ask(http, "/stop"))
        await eventually(lambda: shop.log[-1] == "entered")
        await hung_up(asked)
        await eventually(lambda: shop.log[-1] == "cancelled")

        asked = asyncio.create_task(ask(http, "/finish"))
        await eventually(lambda: shop.log[-1] == "entered")
        await hung_up(asked)
        assert await ask(http, "/none") == (404, "404: Not Found")
        assert await concert.lock("order").locked()
        shop.may_end.set()
        await in_line(concert.lock("order"), 0)

        async def is_free() -> bool:
            return not await concert.lock("order").locked()

        await eventually(is_free)
    assert shop.log == ["opened", "entered", "cancelled", "entered", "closing"]


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (AcquireTimeout("lock", "a", 2.0), (423, "1")),
        (Unavailable("a"), (503, "1")),
        (JobNotFound("a"), (404, None)),
        (JobFailed("1", "boom", "", 1), (500, None)),
        (web.HTTPConflict(), (409, None)),
    ],
)
async def test_error_is_answered(
    error: Exception, answered: tuple[int, str | None], shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each with its status, also of an application inside; what is 503 is logged; a fault of the program stays one."""
    inside = web.Application()

    async def fail(_: web.Request) -> web.Response:
        raise error

    inside.router.add_get("/", fail)
    shop.app.add_subapp("/inside/", inside)
    async with served(shop.app, tmp_path / "socket") as http, http.get("/inside/") as answer:
        assert (answer.status, answer.headers.get("Retry-After")) == answered
        if answer.status not in {409, 500}:
            assert answer.content_type == "application/problem+json"
            assert (await answer.json(content_type=None))["error"] == type(error).__name__
    assert ("GET /inside/ is answered with 503" in caplog.text) == (answered[0] == 503)


async def test_limit_is_answered_with_429(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """With the time until there is room; a name may be filled with what the client sends, which then must be there."""
    limit = limited(concert.rate_limiter, "api:{header.x-user}:{query.a}:{client}", limit=1, period=60.0)

    @shop.at("/")
    async def index(request: web.Request) -> web.Response:
        return web.json_response((await limit(request)).remaining)

    async with served(shop.app, tmp_path / "socket") as http:
        answers = [await ask(http, "/?a=1", headers={"X-User": user}) for user in ("ann", "bob", "ann")]
        assert [status for status, _ in answers] == [200, 200, 429]
        assert [(await ask(http, "/?a=1"))[0], (await ask(http, "/", headers={"X-User": "ann"}))[0]] == [422, 422]


@pytest.mark.parametrize("is_told", [True, False])
async def test_answers_that_pass_say_how_much_of_a_limit_is_left(
    server: RealServer, namespace: str, tmp_path: Path, is_told: bool
) -> None:
    """Also those that are refused for another reason, and streams; none that has not asked, or is refused."""
    concert = Coordinator(server.url, namespace=namespace)
    app = web.Application()
    install(app, concert, rate_limit_headers=is_told)
    limit = limited(concert.rate_limiter, "api:{header.x-user}", limit=4, period=60.0)

    async def index(request: web.Request) -> web.StreamResponse:
        await limit(request)
        if request.match_info["name"] == "none":
            raise web.HTTPNotFound
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write_eof(b"made")
        return answer

    app.router.add_get("/{name}", index)
    async with served(app, tmp_path / "socket") as http:
        answers: list[tuple[int, str | None, str | None]] = []
        for path in ("/made", "/none", "/made", "/made", "/made", "/health/live"):
            async with http.get(path, headers={"X-User": "ann"}) as answer:
                headers = answer.headers
                answers.append((answer.status, headers.get("RateLimit-Policy"), headers.get("RateLimit")))
    assert [status for status, *_ in answers] == [200, 404, 200, 200, 429, 200]
    policy = '"4-per-60-s";q=4;w=60'
    left = ['"4-per-60-s";r=3;t=15', '"4-per-60-s";r=2;t=30', '"4-per-60-s";r=1;t=45', '"4-per-60-s";r=0;t=60']
    told = [(policy, each) for each in left] if is_told else [(None, None)] * 4
    assert [tuple(rest) for _, *rest in answers] == [*told, (None, None), (None, None)]


async def test_service_is_not_ready_while_its_server_does_not_answer(
    own_server: RealServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But it is alive; and ready again when the server is back."""
    monkeypatch.setattr(_health, "_LONGEST", 0.2)
    shop = Shop(own_server.url, namespace)

    async with served(shop.app, tmp_path / "socket") as http:

        async def status(check: str) -> int:
            async with http.get(f"/health/{check}") as answer:
                return answer.status

        assert await status("ready") == 200
        own_server.pause()
        assert (await status("ready"), await status("live")) == (503, 200)
        own_server.resume()

        async def is_ready() -> bool:
            return await status("ready") == 200

        await eventually(is_ready)


async def test_application_may_be_ended_by_another_task(shop: Shop, tmp_path: Path) -> None:
    """As test fixtures do; with a worker beside the service."""

    @shop.concert.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    async def with_worker(_: web.Application) -> AsyncIterator[None]:
        async with run_worker(shop.concert, "default"):
            yield

    shop.app.cleanup_ctx.append(with_worker)
    runner = web.AppRunner(shop.app)
    await asyncio.create_task(runner.setup())
    assert await (await double.enqueue(4)).result(timeout=10.0) == 8
    await asyncio.create_task(runner.cleanup())
    assert shop.log == ["opened", "closing"]


# Requests with a key.


@pytest.fixture
async def paying(shop: Shop, tmp_path: Path) -> AsyncIterator[tuple[Shop, aiohttp.ClientSession]]:
    """A service with requests that may be repeated."""
    shop.app.middlewares.append(Idempotency(shop.concert, user=lambda request: request.headers.get("X-User", "")))
    large = tmp_path / "large"
    large.write_bytes(bytes(600_000))

    @shop.at("/pay")
    async def pay(request: web.Request) -> web.Response:
        shop.runs["pay"] += 1
        await shop.hold()
        response = web.json_response({"paid": await request.text()}, status=201, headers={"X-Order": "5"})
        response.set_cookie("order", "5")
        return response

    @shop.at("/drop")
    async def drop(_: web.Request) -> web.Response:
        shop.runs["drop"] += 1
        raise web.HTTPNoContent

    @shop.at("/busy")
    async def busy(_: web.Request) -> web.Response:
        shop.runs["busy"] += 1
        raise AcquireTimeout("lock", "a", 2.0) if shop.runs["busy"] == 1 else JobNotFound("a")

    @shop.at("/crash")
    async def crash(_: web.Request) -> web.Response:
        shop.runs["crash"] += 1
        if shop.runs["crash"] == 1:
            raise ZeroDivisionError
        return web.Response(text="fine")

    @shop.at("/stream")
    async def stream(request: web.Request) -> web.StreamResponse:
        shop.runs["stream"] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"ab")
        return response

    @shop.at("/large")
    async def send_file(_: web.Request) -> web.StreamResponse:
        shop.runs["large"] += 1
        return web.FileResponse(large) if shop.runs["large"] == 1 else web.Response(body=bytes(600_000))

    async with served(shop.app, tmp_path / "socket") as http:
        yield shop, http


async def test_request_with_a_key_is_handled_once(paying: tuple[Shop, aiohttp.ClientSession]) -> None:
    """While the first runs: 409. Then the same answer, but not to another body or user, or without the key."""
    shop, http = paying
    key = {"Idempotency-Key": "k1", "X-User": "ann"}
    first = asyncio.create_task(ask(http, "/pay", data="5", headers=key))
    await eventually(lambda: shop.runs["pay"])
    early = await ask(http, "/pay", data="5", headers=key)
    shop.may_end.set()

    assert early[0] == 409
    assert await first == (201, {"paid": "5"})
    async with http.post("/pay", data="5", headers=key) as again:
        assert (again.status, await again.json()) == (201, {"paid": "5"})
        assert again.headers["Idempotency-Replayed"] == "true"
        assert (again.headers["X-Order"], again.cookies["order"].value) == ("5", "5")
    assert (await ask(http, "/pay", data="6", headers=key))[0] == 422
    assert shop.runs["pay"] == 1
    await ask(http, "/pay", data="5", headers=key | {"X-User": "bob"})
    await ask(http, "/pay", data="5", headers={"X-User": "ann"})
    assert shop.runs["pay"] == 3


async def test_client_that_hangs_up_gets_its_answer_later(paying: tuple[Shop, aiohttp.ClientSession]) -> None:
    """The handler ends, and a repetition has what it answered."""
    shop, http = paying
    key = {"Idempotency-Key": "k1"}
    first = asyncio.create_task(ask(http, "/pay", data="5", headers=key))
    await eventually(lambda: shop.runs["pay"])
    await hung_up(first)
    shop.may_end.set()

    async def answer() -> Any:
        status, said = await ask(http, "/pay", data="5", headers=key)
        return said if status != 409 else None

    assert await eventually(answer) == {"paid": "5"}
    assert shop.runs["pay"] == 1


async def test_answers_of_all_kinds_are_repeated(paying: tuple[Shop, aiohttp.ClientSession]) -> None:
    """One that is raised, too; one that is too large or a stream is sent once; one that failed is tried again."""
    shop, http = paying
    key = {"Idempotency-Key": "k1"}
    assert [await ask(http, "/drop", headers=key) for _ in range(2)] == [(204, "")] * 2
    assert [(await ask(http, "/busy", headers=key))[0] for _ in range(3)] == [423, 404, 404]
    assert [(await ask(http, "/crash", headers=key))[0] for _ in range(3)] == [500, 200, 200]
    assert await ask(http, "/stream", headers=key) == (200, "ab")
    assert (await ask(http, "/stream", headers=key))[0] == 409
    for number in "1", "2":
        status, content = await ask(http, "/large", headers={"Idempotency-Key": number})
        assert (status, len(content)) == (200, 600_000)
        assert (await ask(http, "/large", headers={"Idempotency-Key": number}))[0] == 409
    assert shop.runs == {"drop": 1, "busy": 2, "crash": 2, "stream": 1, "large": 2}


async def test_body_that_cannot_be_compared_is_refused(
    paying: tuple[Shop, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the handler runs."""
    monkeypatch.setattr(integration, "LARGEST_BODY", 10)  # aiohttp itself reads what is left of a larger one
    shop, http = paying

    async def parts() -> AsyncGenerator[bytes]:
        yield b"a"

    key = {"Idempotency-Key": "k1"}
    multipart = {"Content-Type": "multipart/form-data; boundary=x"}
    assert (await ask(http, "/pay", data=parts(), headers=key))[0] == 411
    assert (await ask(http, "/pay", data=bytes(11), headers=key))[0] == 413
    assert (await ask(http, "/pay", data="--x--", headers=key | multipart))[0] == 415
    assert (await ask(http, "/pay", headers={"Idempotency-Key": "k" * 256}))[0] == 400
    assert shop.runs["pay"] == 0


# Chats.


async def events(answer: aiohttp.ClientResponse, number: int) -> list[dict[str, str]]:
    """So many events of a stream, each with its fields."""
    found: list[dict[str, str]] = []
    event: dict[str, str] = {}
    while len(found) < number:
        line = (await answer.content.readline()).decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif "data" in event:
            found.append(event)
            event = {}
    return found


@pytest.fixture
def chatting(shop: Shop) -> Shop:
    """A service with chats, by events and by WebSocket."""

    @shop.at("/events/{user}")
    async def stream(request: web.Request) -> web.StreamResponse:
        try:
            return await chat_stream(request, shop.concert, request.match_info["user"])
        finally:
            shop.log.append("ended")

    @shop.at("/socket/{user}")
    async def socket(request: web.Request) -> web.StreamResponse:
        try:
            return await chat_socket(request, shop.concert, request.match_info["user"])
        finally:
            shop.log.append("ended")

    return shop


async def test_stream_of_a_job_ends_with_it(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """And goes on behind the last item."""

    @shop.at("/jobs/{job_id}")
    async def stream(request: web.Request) -> web.StreamResponse:
        return await job_stream(request, shop.concert, request.match_info["job_id"])

    @concert.task(name="write", queue="words")
    async def write() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    job = await write.enqueue()
    await concert.run_worker("words", burst=True)
    async with served(shop.app, tmp_path / "socket") as http:
        async with http.get(f"/jobs/{job.id}") as answer:
            first, second, end = await events(answer, 3)
        assert json.loads(end["data"]) == {"status": "succeeded"}
        async with http.get(f"/jobs/{job.id}", headers={"Last-Event-ID": first["id"]}) as answer:
            assert [event["data"] for event in await events(answer, 2)] == [second["data"], end["data"]]


async def test_stream_goes_on_behind_the_last_event(chatting: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """Without loss or repetition; it ends when its client hangs up, and what was got counts as read later."""
    chat = await concert.chat.create("ann", ["bob"], "one")
    async with served(chatting.app, tmp_path / "socket") as http:
        async with http.get("/events/bob") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            [first] = await events(answer, 1)
            await concert.chat.send(chat, "ann", "two")
            await events(answer, 1)  # which is lost with the connection
            answer.close()
        await eventually(lambda: chatting.log[-1] == "ended")
        assert await concert.chat.unread("bob") == {chat: 2}
        async with http.get("/events/bob", headers={"Last-Event-ID": first["id"]}) as answer:
            [again] = await events(answer, 1)
        assert [message["body"] for message in json.loads(again["data"])["messages"]] == ["two"]
        assert await concert.chat.unread("bob") == {chat: 1}


async def test_socket_marks_as_read_what_its_client_has_seen(
    chatting: Shop, concert: Coordinator, tmp_path: Path
) -> None:
    """The rest comes again; what is not understood closes it, and so does the client."""
    chat = await concert.chat.create("ann", ["bob"], "one")
    async with served(chatting.app, tmp_path / "socket") as http:
        async with http.ws_connect("/socket/bob") as socket:
            batch = await socket.receive_json()
            await concert.chat.send(chat, "ann", "two")
            await socket.receive_json()
            await socket.send_json({"chat_id": "none", "last_id": 1})
            await socket.send_json({"chat_id": chat, "last_id": batch["last_id"]})

            async def is_seen() -> bool:
                return await concert.chat.unread("bob") == {chat: 1}

            await eventually(is_seen)
        await eventually(lambda: chatting.log[-1] == "ended")
        for wrong in '{"chat_id": "a", "last_id": 0}', "[]", '{"chat_id": "", "last_id": 1}', "\N{SNOWMAN}":
            async with http.ws_connect("/socket/bob") as socket:
                again = await socket.receive_json()
                assert [message["body"] for message in again["messages"]] == ["two"]
                await socket.send_str(wrong)
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
                assert socket.close_code == 1007
        async with http.ws_connect("/socket/bob") as socket:
            await socket.send_bytes(bytes(5000))
            async for _ in socket:
                pass  # what was not seen
            assert socket.close_code == 1009


async def test_socket_whose_client_has_gone_is_no_error(
    shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before it was accepted."""
    requests: list[web.Request] = []

    @shop.at("/late")
    async def late(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        await shop.may_end.wait()
        try:
            return await chat_socket(request, shop.concert, "bob")
        finally:
            shop.log.append("ended")

    lines = ["GET /late HTTP/1.1", "Host: shop", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", ""]
    async with served(shop.app, tmp_path / "socket"):
        _, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
        writer.write("\r\n".join(lines).encode())
        await eventually(lambda: requests)
        writer.transport.abort()
        await eventually(lambda: requests[0].transport is None)
        shop.may_end.set()
        await eventually(lambda: shop.log[-1] == "ended")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_streams_end_when_the_application_is_shut_down(
    chatting: Shop, concert: Coordinator, tmp_path: Path
) -> None:
    """Before the server waits for open connections, and as a whole answer does."""
    await concert.chat.create("ann", ["bob"], "one")
    runner = web.AppRunner(chatting.app, access_log=None)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "socket")).start()
    connector = aiohttp.UnixConnector(str(tmp_path / "socket"))
    async with aiohttp.ClientSession("http://shop", connector=connector) as http:
        async with http.get("/events/bob") as answer, http.ws_connect("/socket/bob") as socket:
            await events(answer, 1)
            await socket.receive_json()
            ending = asyncio.create_task(runner.cleanup())
            assert await answer.content.read() == b""
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert socket.close_code == aiohttp.WSCloseCode.GOING_AWAY
        async with asyncio.timeout(10):
            await ending
    assert chatting.log == ["opened", "ended", "ended", "closing"]
