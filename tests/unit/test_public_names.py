"""What `inconcert` exports is what it says, documented, with errors in one tree."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

import inconcert
from inconcert import errors

SRC = Path(__file__).parents[2] / "src"


def exported() -> list[str]:
    """Public names, without those that Python knows by itself, such as `__version__`."""
    return [name for name in inconcert.__all__ if not name.startswith("__")]


def source_of(module: str) -> Path:
    """The file of a module of the package."""
    path = SRC.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def docstring_of(name: str, module: str = "inconcert") -> str | None:
    """A name's own docstring, from the file that defines it: no inherited one, and none made by a decorator.

    An alias or a constant has its docstring as a string on the lines after it.
    """
    body = ast.parse(source_of(module).read_text("utf-8")).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.ImportFrom(module=str(origin), level=0):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return docstring_of(alias.name, origin)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if statement.name == name:
                return ast.get_docstring(statement)
            case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)):
                if target == name:
                    match following:
                        case ast.Expr(value=ast.Constant(value=str(text))):
                            return text
                        case _:
                            return None
            case _:
                pass
    return None


def test_all_lists_every_public_name() -> None:
    """`__all__` is exactly what can be imported from `inconcert` without an underscore, in order and once."""
    public = {
        name
        for name, value in vars(inconcert).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert public == set(exported())
    assert len(inconcert.__all__) == len(set(inconcert.__all__))


def test_every_public_name_has_a_docstring_of_its_own() -> None:
    """Whoever asks for help on an exported name gets an answer about that name."""
    assert exported()
    assert [name for name in exported() if not docstring_of(name)] == []


def test_every_error_is_exported() -> None:
    """What `inconcert.errors` defines can be caught by a name from `inconcert`."""
    assert set(errors.__all__) <= set(inconcert.__all__)


def test_every_exported_error_derives_from_one_base() -> None:
    """`except InconcertError` catches all that the package raises of its own."""
    raised = [value for value in vars(inconcert).values() if isinstance(value, type) and issubclass(value, Exception)]
    raised.remove(inconcert.Retry)  # which users raise

    assert raised
    assert [error for error in raised if not issubclass(error, errors.InconcertError)] == []


# What users may use of what they hold; what the engine does with it is not there to be seen.
CLAIMED = "attempt bury ack give_back id is_over nack outcome queue"
MEMBERS: dict[type, str] = {
    inconcert.ClaimedJob: f"{CLAIMED} after args enqueued_at is_cancelled kwargs name parent_results progress result "
    "scheduled_at time_limit",
    inconcert.Delivery: f"{CLAIMED} item put_at",
}


@pytest.mark.parametrize("public", MEMBERS, ids=lambda public: str(public.__name__))
def test_public_class_has_the_members_that_users_may_use(public: type) -> None:
    """A new one is added here, and an engine's lever is not."""
    assert sorted(name for name in dir(public) if not name.startswith("_")) == sorted(MEMBERS[public].split())
