"""Another server under a coordinator that a service has at module level, while a test runs."""

from types import TracebackType
from typing import Generic, TypeVar

from inconcert._core.shield import run_shielded
from inconcert._core.stand_in import StandIn
from inconcert._redis.driver.clients import Client
from inconcert._redis.find.sources import ClientSource
from inconcert.coordinator import Coordinator, put_in_place
from inconcert.testing.fake_server import FakeSource
from inconcert.testing.keys import keys_of

CoordinatorT = TypeVar("CoordinatorT", bound=Coordinator)

_TOGETHER = 500  # keys in one command


def override(concert: CoordinatorT, client: Client | None = None) -> "Override[CoordinatorT]":
    """Open a coordinator on another server for the time of a test, and nothing else about it changes.

    `async with override(concert):` opens it, and closes it at the end.  An application that opens it meanwhile, as its
    lifespan does, shares that.  `with override(concert):` only exchanges the server: for an application that opens it
    on an event loop of its own, as under Starlette's `TestClient`.

    Functions of `Coordinator.every` are not run: call them.  Neither `failover_guard` nor `replicas` is demanded of the
    server.

    ```python
    async def shop() -> AsyncGenerator[Coordinator]:  # a fixture
        async with override(concert) as shop:
            yield shop
    ```

    Args:
        concert: Which coordinator; closed.
        client: Leads to the server on which it is opened, which must not have its namespace yet, and does not have it
            afterwards. For a cluster a client of a cluster. None for a fakeredis of its own.

    Raises:
        RuntimeError: It is open or overridden already, or the namespace is not empty; or, at the end, the application
            has not closed it.
        ValueError: One of coordinator and client is for a cluster.
        TypeError: A client is given to `with`: it belongs to one event loop.

    Cost: with a client, a look at each key of its server, before and after.
    """
    return Override(concert, client)


class Override(Generic[CoordinatorT]):
    """An override, to be entered once."""

    def __init__(self, concert: CoordinatorT, client: Client | None) -> None:
        self._concert = concert
        self._client = client
        self._stand_in = StandIn(FakeSource() if client is None else ClientSource(client))

    def __enter__(self) -> CoordinatorT:
        if self._client is not None:
            raise TypeError(
                "a client belongs to one event loop, and `with override(...)` is for an application that has a loop of "
                "its own; leave the client out, or write `async with override(...)`"
            )
        put_in_place(self._concert, self._stand_in)
        return self._concert

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        put_in_place(self._concert, None)

    async def __aenter__(self) -> CoordinatorT:
        put_in_place(self._concert, self._stand_in)
        try:
            if self._client is not None:
                await self._expect_nothing(self._client)
            await self._concert.__aenter__()
        except BaseException:
            put_in_place(self._concert, None)
            raise
        self._stand_in.is_shared = True
        return self._concert

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sharers, self._stand_in.sharers = self._stand_in.sharers, 0
        self._stand_in.is_shared = False
        try:
            await self._concert.__aexit__(None, None, None)
        finally:
            put_in_place(self._concert, None)
        if self._client is not None:
            await run_shielded(self._remove_keys(self._client))
        if sharers and error is None:
            raise RuntimeError(
                f"{self._concert!r} was still open inside the override that ends; close the application before"
            )

    async def _expect_nothing(self, client: Client) -> None:
        async for key in keys_of(self._concert, client):
            raise RuntimeError(
                f"the server has the namespace of {self._concert!r} already, with the key {key!r}; give the test a "
                "server or a database of its own, or delete what an earlier test that was killed has left"
            )

    async def _remove_keys(self, client: Client) -> None:
        keys = [key async for key in keys_of(self._concert, client)]
        for first in range(0, len(keys), _TOGETHER):
            await client.unlink(*keys[first : first + _TOGETHER])
