"""An attribute that is made when it is used first."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class MadeOnce(Generic[T]):
    """Decorates a method that makes the attribute, as `functools.cached_property` does.

    Of several threads that use it first at once, all get the same object, so none registers something in another.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Self | T:
        if instance is None:
            return self
        made: T = vars(instance).setdefault(self._name, self._make(instance))
        return made

    def among(self, instance: object) -> T | None:
        """The attribute of this object, if it was made."""
        return vars(instance).get(self._name)
