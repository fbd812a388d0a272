"""For the reference: the factories of a coordinator, as the methods that they are."""

from typing import Any

import griffe


class Factories(griffe.Extension):
    """Shows `lock = Makes("inconcert.lock:Lock", ...)` with the parameters and the docstring of the class."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:  # noqa: ANN401
        """Put a method in the place of each factory."""
        coordinator = pkg["coordinator.Coordinator"]
        for name, member in list(coordinator.members.items()):
            call = member.value if member.is_attribute else None
            if isinstance(call, griffe.ExprCall) and str(call.function) == "Makes":
                path = str(call.arguments[0]).strip("'\"")
                method = _method(name, pkg.modules_collection[path.replace(":", ".")], coordinator)
                method.lineno, method.endlineno = member.lineno, member.endlineno
                coordinator.set_member(name, method)


def _method(name: str, made: griffe.Class, coordinator: griffe.Class) -> griffe.Function:
    itself, _ref, *parameters = made["__init__"].parameters
    text = made.docstring
    assert text is not None  # noqa: S101 - public classes have one
    return griffe.Function(
        name,
        parameters=griffe.Parameters(itself, *parameters),
        returns=griffe.ExprName(made.name, parent=coordinator),
        docstring=griffe.Docstring(text.value, parser=text.parser, parser_options=text.parser_options),
    )
