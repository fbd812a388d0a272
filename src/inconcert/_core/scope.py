"""The bodies of work that run here, the innermost last, and the leases that were acquired in each.

They are in a context variable, so that tasks which a body starts are part of it.
"""

from contextvars import Context, ContextVar
from typing import Protocol
from weakref import WeakSet

from msgspec import Struct


class _Lease(Protocol):
    """A lease, as far as it matters here."""

    kind: str
    name: str

    @property
    def is_over(self) -> bool:
        """True if it is released, or lost."""
        ...


class Scope(Struct, eq=False):
    """A body of work, from when `enter` makes this until it is left, possibly in another context.

    Attributes:
        work: As given; None once it was left.
        outer: The one in which it began.
        leases: Those that were acquired in it, and that something still refers to; None before the first.
    """

    work: object | None
    outer: "Scope | None"
    leases: "WeakSet[_Lease] | None" = None

    def leave(self) -> None:
        """End it, in whatever context; that goes on to refer to it, and looks through it."""
        self.work = None
        if self.leases is not None:
            self.leases = None


_last: ContextVar[Scope | None] = ContextVar("inconcert_scope", default=None)


def enter(work: object) -> Scope:
    """Begin a body of work in the current context."""
    outer = _last.get()
    scope = Scope(work, outer if outer is None else innermost())
    _last.set(scope)
    return scope


def innermost(context: Context | None = None) -> Scope | None:
    """The last that began in this context, or in the current one, and was not left."""
    scope = _last.get() if context is None else context.get(_last)
    while scope is not None and scope.work is None:
        scope = scope.outer
    return scope


def note_lease(lease: _Lease) -> None:
    """Note a lease that is acquired here."""
    scope = innermost() if _last.get() is not None else None
    if scope is not None:
        if scope.leases is None:
            scope.leases = WeakSet()
        scope.leases.add(lease)


def leases_here() -> list[_Lease]:
    """The leases that were acquired in the innermost body, and are held."""
    scope = innermost()
    return [] if scope is None or scope.leases is None else [lease for lease in scope.leases if not lease.is_over]
