"""One term, as its leader holds it."""

from types import TracebackType
from typing import Self

from inconcert._core.lease import Lease
from inconcert._core.permit_state import PermitState
from inconcert.errors import LeaseLost


class Term(Lease):
    """The right to lead until it is released, resigned or lost.

    It is renewed in the background: a live leader stays.  `async with term` runs a body that is cancelled when the term
    is lost or resigned, and then ends quietly: check `is_lost`.  After the body the next in line leads.

    Made by `Election.terms`, `Election.acquire` and `async with election`.
    """

    __slots__ = ("_candidate",)

    def __init__(self, state: PermitState, candidate: str) -> None:
        super().__init__(state)
        self._candidate = candidate

    @property
    def number(self) -> int:
        """Larger than that of any earlier term. Pass it to the resource, which must refuse a lower one."""
        return self.fencing_token

    @property
    def candidate(self) -> str:
        """The leader, as the others see it."""
        return self._candidate

    async def __aenter__(self) -> Self:
        self._check_loop()
        self._state.enter()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            await self._state.exit(error)
        except LeaseLost:
            return True
        return False
