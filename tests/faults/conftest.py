"""What tests of faults have in common."""

from typing import Any, cast

import pytest

from inconcert import Coordinator
from tests.support.short_lease import with_lease


@pytest.fixture
def short_lease(concert: Coordinator, request: pytest.FixtureRequest) -> None:
    """Workers of `concert` count as dead after the `LEASE` of the test's file."""
    with_lease(concert, cast("Any", request).module.LEASE)
