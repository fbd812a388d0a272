"""Factories of a coordinator, each a line: the class has the parameters and the docstring."""

import inspect
from collections.abc import Callable
from importlib import import_module
from types import FunctionType, MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from inconcert._core.session import SessionRef

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class Makes(Generic[P, T]):
    """A method that makes an object of a class, with the parameters and the docstring of the class.

    The class is imported when the method is used first; from then on there is a plain function in its place.

    Args:
        path: The class, as `module:name`.
        made: Returns the same class, for type checkers. It is never called, so the class may be imported for them
            alone.
    """

    def __init__(self, path: str, made: Callable[[], Callable[Concatenate[SessionRef, P], T]]) -> None:
        self._path = path
        del made

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    @overload
    def __get__(self, instance: None, owner: type[C]) -> Callable[Concatenate[C, P], T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, T]: ...
    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        function = self._function()
        setattr(self._owner, self._name, function)
        return function if instance is None else MethodType(function, instance)

    def _function(self) -> FunctionType:
        module, _, name = self._path.partition(":")
        made = getattr(import_module(module), name)

        def make(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of any class
            return made(self._ref, *args, **kwargs)

        itself, _, *parameters = inspect.signature(made.__init__).parameters.values()
        signature = inspect.Signature([itself, *parameters], return_annotation=made)
        assert isinstance(make, FunctionType)  # noqa: S101 - for type checkers
        make.__name__, make.__qualname__ = self._name, f"{self._owner.__qualname__}.{self._name}"
        make.__module__, make.__doc__ = self._owner.__module__, made.__doc__
        make.__annotations__ = {given.name: given.annotation for given in parameters} | {"return": made}
        setattr(make, "__signature__", signature)  # noqa: B010 - no attribute of the type
        setattr(make, "__wrapped__", made.__init__)  # noqa: B010 - its module resolves the names in annotations
        return make
