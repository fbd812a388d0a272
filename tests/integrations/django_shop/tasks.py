"""Tasks of the app."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from django.db import connection

from inconcert import current_job
from tests.integrations.django_shop import PACKAGE

task: Callable[..., Callable[[Callable[..., Any]], Any]] = import_module(PACKAGE).task
transaction: Any = import_module("django.db.transaction")


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


@task()
def receive(number: int) -> list[Any]:
    """Write a receipt once, although the first attempt ends before its commit, and the second one fails after it."""
    from inconcert.integrations.django import claim

    attempt = current_job().attempt
    with transaction.atomic():
        is_first = claim()
        if is_first:
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO receipt VALUES (%s)", [number])
        if attempt == 1:
            raise NoStock
    if attempt == 2:
        raise NoStock
    return [attempt, is_first]
