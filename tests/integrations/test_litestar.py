"""The parts for Litestar, over real HTTP; what it shares with FastAPI is tested there."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from litestar import Litestar, Request, Response, WebSocket, get, post, websocket
from litestar.di import NamedDependency, Provide
from litestar.exceptions import NotFoundException
from litestar.middleware import DefineMiddleware
from litestar.params import FromPath, JSONBody

from inconcert import AcquireTimeout, Coordinator, JobFailed, JobNotFound, Lease, RateDecision, Unavailable
from inconcert.integrations.litestar import (
    Idempotency,
    InconcertPlugin,
    chat_stream,
    held,
    job_stream,
    limited,
    run_worker,
    while_connected,
)
from tests.support.eventually import eventually
from tests.support.exchanges import opened
from tests.support.http import events, served
from tests.support.lines import in_line
from tests.support.raw import raw
from tests.support.servers import RealServer

ERRORS: dict[str, tuple[Exception, int, str | None]] = {
    "busy": (AcquireTimeout("lock", "a", 2.0), 423, "1"),
    "away": (Unavailable("a"), 503, "1"),
    "job": (JobNotFound("a"), 404, None),
    "fault": (JobFailed("1", "boom", "", 1), 500, None),
}

AnyRequest = Request[Any, Any, Any]
AnySocket = WebSocket[Any, Any, Any]
Order: TypeAlias = NamedDependency[AbstractAsyncContextManager[Lease]]


class Shop:
    """An application, with what its handlers have done."""

    def __init__(self, url: str, namespace: str) -> None:
        self.concert = Coordinator(url, namespace=namespace)
        self.log: list[str] = []
        self.runs = Counter[str]()
        self.may_end = asyncio.Event()

    def app(self, *handlers: Any, **options: Any) -> Litestar:
        """An application with these handlers."""
        plugins = [InconcertPlugin(self.concert)]
        return Litestar(handlers, plugins=plugins, lifespan=[self._inner], logging_config=None, **options)

    @asynccontextmanager
    async def _inner(self, _: Litestar) -> AsyncGenerator[None]:
        await self.concert.ping()
        self.log.append("opened")
        yield
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
    """What an application is made of."""
    return Shop(server.url, namespace)


async def hung_up(asking: "asyncio.Task[Any]") -> None:
    """End a request as a client does that gives up: its connection is closed."""
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking


async def test_client_that_hangs_up_leaves_the_line(
    shop: Shop, concert: Coordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others stay, read their bodies, and have their turn; two locks and a limit do not hinder each other."""
    line = concert.semaphore("order:5", limit=1)

    @post(
        "/orders/{order_id:str}",
        dependencies={
            "order": Provide(held(concert.semaphore, "order:{order_id}", limit=1, timeout=30.0)),
            "cart": Provide(held(concert.lock, "cart:{order_id}:{query.a}", timeout=30.0)),
            "limit": Provide(limited(concert.rate_limiter, "api:{header.x-user}:{client}", limit=2, period=60.0)),
        },
    )
    async def pay(request: AnyRequest, order: Order, cart: Order, limit: NamedDependency[RateDecision]) -> Any:
        async with order as lease, cart:
            shop.log.append(lease.name)
            return [lease.name, limit.remaining, await request.json()]

    async with served(shop.app(pay), tmp_path / "socket") as http:
        async with line:
            ask: dict[str, Any] = {"headers": {"X-User": "ann"}, "json": {"a": 1}}
            gone = asyncio.create_task(http.post("/orders/5?a=1", **ask))
            await in_line(line, 1)
            stays = asyncio.create_task(http.post("/orders/5?a=2", **ask))
            await in_line(line, 2)
            refused = await http.post("/orders/5?a=3", **ask)
            assert (refused.status_code, refused.json()["error"]) == (429, "RateLimited")
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            await hung_up(gone)
            async with asyncio.timeout(1.0):
                await in_line(line, 1)
        assert (await stays).json() == ["order:5", 0, {"a": 1}]
        assert (await http.post("/orders/5?a=1")).status_code == 422
        assert await line.holders() == await concert.lock("cart:5:2").holders() == []
    assert shop.log == ["opened", "order:5", "closing"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_answers_that_pass_say_how_much_of_a_limit_is_left(shop: Shop, tmp_path: Path) -> None:
    """Also those that are refused for another reason; none that has not asked, or is refused."""
    limit = Provide(limited(shop.concert.rate_limiter, "api:{header.x-user}", limit=2, period=60.0))

    @get("/{name:str}", dependencies={"limit": limit})
    async def index(name: FromPath[str], limit: NamedDependency[RateDecision]) -> int:
        if name == "none":
            raise NotFoundException
        return limit.remaining

    async with served(shop.app(index), tmp_path / "socket") as http:
        answers = [await http.get(path, headers={"X-User": "ann"}) for path in ("/a", "/none", "/a", "/health/live")]
    assert [answer.status_code for answer in answers] == [200, 404, 429, 200]
    told = [(answer.headers.get("ratelimit-policy"), answer.headers.get("ratelimit")) for answer in answers]
    policy = '"2-per-60-s";q=2;w=60'
    assert told == [(policy, '"2-per-60-s";r=1;t=30'), (policy, '"2-per-60-s";r=0;t=60'), (None, None), (None, None)]


async def test_handler_is_cancelled_only_where_it_asks_for_it(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """What was begun under a lock is brought to its end; unless the lease is lost, which is answered with 503."""
    order_lock = Provide(held(concert.lock, "order", timeout=10.0, ttl=0.6))

    @post("/finish", dependencies={"order": order_lock})
    async def finish(order: Order) -> None:
        async with order:
            await shop.hold()

    @post("/stop")
    async def stop(request: AnyRequest) -> None:
        async with while_connected(request):
            await shop.hold()

    async with served(shop.app(finish, stop), tmp_path / "socket") as http:
        asked = asyncio.create_task(http.post("/stop"))
        await eventually(lambda: shop.log[-1] == "entered")
        await hung_up(asked)
        await eventually(lambda: shop.log[-1] == "cancelled")

        lost = asyncio.create_task(http.post("/finish"))
        await eventually(lambda: shop.log[-1] == "entered")
        await raw(concert).delete(concert.lock("order")._keys.holders)
        answer = await lost
        assert (answer.status_code, answer.json()["error"]) == (503, "LeaseLost")

        asked = asyncio.create_task(http.post("/finish"))
        await eventually(lambda: shop.log[-1] == "entered")
        await hung_up(asked)
        assert await concert.lock("order").locked()
        shop.may_end.set()

        async def is_free() -> bool:
            return not await concert.lock("order").locked()

        await eventually(is_free)
    assert shop.log == ["opened", "entered", "cancelled", "entered", "cancelled", "entered", "closing"]


async def test_errors_are_answered(shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each with its status; a fault of the program stays one; the application's own handler comes first."""

    @get("/raise/{name:str}")
    async def fail(name: FromPath[str]) -> None:
        raise ERRORS[name][0]

    def own(_: AnyRequest, __: Exception) -> Response[str]:
        return Response("mine", status_code=418)

    async with served(shop.app(fail), tmp_path / "socket") as http:
        for name, (error, status, retry_after) in ERRORS.items():
            answer = await http.get(f"/raise/{name}")
            assert (answer.status_code, answer.headers.get("retry-after")) == (status, retry_after)
            if status != 500:
                assert answer.json()["error"] == type(error).__name__
                assert answer.headers["content-type"] == "application/problem+json"
        checks = [(await http.get(f"/health/{check}")).json() for check in ("live", "ready")]
        assert checks == [{"status": "live"}, {"status": "ready"}]
    assert "GET /raise/away is answered with 503" in caplog.text
    mine = shop.app(fail, exception_handlers={JobNotFound: own})
    async with served(mine, tmp_path / "mine") as http:
        assert (await http.get("/raise/job")).status_code == 418


async def test_web_socket_is_held_and_limited(shop: Shop, concert: Coordinator) -> None:
    """It is closed with a code that says when to come back, and otherwise released."""
    limit = Provide(limited(shop.concert.rate_limiter, "ws:{client}", limit=1, period=60.0))
    order = Provide(held(shop.concert.lock, "order", timeout=0))

    @websocket("/limit", dependencies={"limit": limit})
    async def greet(socket: AnySocket, limit: NamedDependency[RateDecision]) -> None:
        await socket.accept()

    @websocket("/order", dependencies={"order": order})
    async def pay(socket: AnySocket, order: Order) -> None:
        async with order as lease:
            await socket.accept()
            await socket.send_text(lease.name)

    app = shop.app(greet, pay)
    async with shop.concert:
        assert [message["type"] for message in await opened(app, "/limit")] == ["websocket.accept"]
        assert len(await opened(app, "/order")) == 2
        async with concert.lock("order"):
            for path in "/limit", "/order":
                [closed] = await opened(app, path)
                assert (closed["type"], closed["code"]) == ("websocket.close", 1013)


async def test_request_with_a_key_is_handled_once(shop: Shop, tmp_path: Path) -> None:
    """A repetition gets the stored answer; one that was refused for now runs again; a worker runs beside."""

    @shop.concert.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    @post("/pay")
    async def pay(data: JSONBody[dict[str, int]]) -> int:
        shop.runs["pay"] += 1
        if shop.runs["pay"] == 1:
            raise AcquireTimeout("lock", "a", 2.0)
        async with run_worker(shop.concert, "default"):
            result: int = await (await double.enqueue(data["a"])).result(timeout=10.0)
            return result

    def user(request: AnyRequest) -> str:
        return request.headers.get("x-user", "")

    app = shop.app(pay, middleware=[DefineMiddleware(Idempotency, concert=shop.concert, user=user)])
    key = {"Idempotency-Key": "k1", "X-User": "ann"}
    async with served(app, tmp_path / "socket") as http:
        answers = [await http.post("/pay", json={"a": 4}, headers=key) for _ in range(3)]
        assert [(answer.status_code, answer.text) for answer in answers[1:]] == [(201, "8")] * 2
        assert answers[0].status_code == 423
        assert "idempotency-replayed" in answers[2].headers
        assert (await http.post("/pay", json={"a": 5}, headers=key)).status_code == 422
        await http.post("/pay", json={"a": 4}, headers=key | {"X-User": "bob"})
        await http.post("/pay", json={"a": 4})
    assert shop.runs["pay"] == 4


async def test_stream_of_a_job_ends_with_it(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """And goes on behind the last item."""

    @get("/jobs/{job_id:str}")
    async def stream(request: AnyRequest, job_id: FromPath[str]) -> Response[bytes]:
        return job_stream(request, shop.concert, job_id)

    @concert.task(name="write", queue="words")
    async def write() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    job = await write.enqueue()
    await concert.run_worker("words", burst=True)
    async with served(shop.app(stream), tmp_path / "socket") as http:
        async with http.stream("GET", f"/jobs/{job.id}") as response:
            first, second, end = [event async for event in events(response)]
        assert json.loads(end["data"]) == {"status": "succeeded"}
        headers = {"Last-Event-ID": first["id"]}
        async with http.stream("GET", f"/jobs/{job.id}", headers=headers) as response:
            assert [event["data"] async for event in events(response)] == [second["data"], end["data"]]


async def test_stream_goes_on_behind_the_last_event(shop: Shop, concert: Coordinator, tmp_path: Path) -> None:
    """Without loss or repetition; what was got counts as read, and nothing else."""

    @get("/chats/{user:str}")
    async def chats(request: AnyRequest, user: FromPath[str]) -> Response[bytes]:
        return chat_stream(request, shop.concert, user)

    chat = await concert.chat.create("ann", ["bob"], "one")
    async with served(shop.app(chats), tmp_path / "socket") as http:
        async with http.stream("GET", "/chats/bob") as response, aclosing(events(response)) as stream:
            assert response.headers["content-type"].startswith("text/event-stream")
            last_id = (await anext(stream))["id"]
            await concert.chat.send(chat, "ann", "two")
            await anext(stream)  # which is lost with the connection
        assert await concert.chat.unread("bob") == {chat: 2}
        headers = {"Last-Event-ID": last_id}
        async with (
            http.stream("GET", "/chats/bob", headers=headers) as response,
            aclosing(events(response)) as stream,
        ):
            batch = json.loads((await anext(stream))["data"])
        assert [message["body"] for message in batch["messages"]] == ["two"]
        assert await concert.chat.unread("bob") == {chat: 1}
