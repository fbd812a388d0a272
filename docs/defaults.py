"""For the reference: the values of defaults, where the source names constants."""

from typing import Any

import griffe


class Defaults(griffe.Extension):
    """Shows `ttl=30.0` where a signature has `ttl=LOCK_TTL`."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:  # noqa: ANN401
        """Give each parameter the value of the constant that is its default."""
        _resolve(pkg)


def _resolve(scope: griffe.Module | griffe.Class) -> None:
    for member in scope.members.values():
        if isinstance(member, griffe.Module | griffe.Class):
            _resolve(member)
        elif isinstance(member, griffe.Function):
            for function in [member, *(member.overloads or ())]:
                for parameter in function.parameters:
                    if isinstance(parameter.default, griffe.ExprName):
                        parameter.default = _value(scope, parameter.default)


def _value(scope: griffe.Module | griffe.Class, name: griffe.ExprName) -> griffe.Expr | str:
    path = scope.resolve(name.name)
    if not path.startswith("inconcert."):  # of another package, by its name
        return name
    constant = scope.modules_collection[path]
    return constant.value if constant.is_attribute else name
