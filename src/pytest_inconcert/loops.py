"""The fixture `concert` for tests of pytest-asyncio: opened on the event loop that the test runs on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Literal

import pytest
import pytest_asyncio

from pytest_inconcert import opened

if TYPE_CHECKING:
    from inconcert import Coordinator

__all__ = ["class_", "function", "module", "package", "session"]

_Scope = Literal["function", "class", "module", "package", "session"]


def _on(loop_scope: _Scope) -> Callable[[pytest.FixtureRequest], AsyncGenerator[Coordinator]]:
    async def fixture(request: pytest.FixtureRequest) -> AsyncGenerator[Coordinator]:
        async for concert in opened(request):
            yield concert

    return pytest_asyncio.fixture(loop_scope=loop_scope, name=f"_inconcert_on_{loop_scope}")(fixture)


function = _on("function")
class_ = _on("class")
module = _on("module")
package = _on("package")
session = _on("session")
