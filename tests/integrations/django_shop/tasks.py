"""Tasks of the app."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.db import connection

from tests.integrations.django_shop import PACKAGE

task: Callable[..., Callable[[Callable[..., Any]], Any]] = import_module(PACKAGE).task


@task()
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@task(queue_name="mail", takes_context=True)
def attempt(context: Any) -> int:
    """Which attempt this is."""
    number: int = context.attempt
    return number


@task()
async def later(text: str) -> str:
    """A coroutine function."""
    return text.upper()


class NoStock(Exception):
    """There is none left."""


@task()
def fails() -> None:
    """Fail."""
    raise ValueError("on purpose")


@task()
def refuses() -> None:
    """Fail with an error of this app, after another."""
    try:
        raise KeyError("shelf")
    except KeyError:
        raise NoStock("two\nlines: of text") from None


@task()
def rows() -> int:
    """Count receipts in the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM receipt")
        count: int = cursor.fetchone()[0]
        return count
