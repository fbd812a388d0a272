"""A Django project whose tasks are rows of its transactions; it prints what it sees."""

import asyncio
import json
import logging
import sys
from importlib import import_module
from typing import Any

from tests.integrations.django_shop import PACKAGE

django: Any = import_module("django")  # has no type hints
settings: Any = import_module("django.conf").settings
db: Any = import_module("django.db")
say = print


def set_up(database: dict[str, Any], options: dict[str, Any]) -> None:
    """Configure the project, as its settings would."""
    settings.configure(
        INSTALLED_APPS=["tests.integrations.django_shop", *([PACKAGE] if PACKAGE == "django_tasks" else [])],
        DATABASES={"default": database},
        USE_TZ=True,
        TASKS={
            "default": {
                "BACKEND": "inconcert.integrations.django.InconcertBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {**options, "outbox": True, "max_attempts": 3},
            }
        },
    )
    django.setup()


def see(engine_url: str, tasks: Any, errors: Any) -> None:
    """Enqueue, and look at what came of it."""
    from sqlalchemy.ext.asyncio import create_async_engine

    from inconcert.integrations.django import coordinator
    from inconcert.sql import Outbox

    def state(task: Any, id_: str) -> str:
        try:
            return str(task.get_result(id_).status)
        except errors.TaskResultDoesNotExist:
            return "unknown"

    def count(table: str) -> int:
        with db.connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {table}")
            return int(cursor.fetchone()[0])

    concert, engine = coordinator(), create_async_engine(engine_url)
    outbox = Outbox(concert, engine)
    with db.connection.cursor() as cursor:
        for statement in outbox.ddl().split(";\n\n"):
            cursor.execute(statement)
        cursor.execute("CREATE TABLE receipt (id INTEGER)")

    lost = ""
    try:
        with db.transaction.atomic():
            lost = tasks.receive.enqueue(1).id
            say("rows in the transaction:", count("inconcert_outbox"))
            raise LookupError
    except LookupError:
        say("after rollback:", state(tasks.receive, lost), count("inconcert_outbox"))
    with db.transaction.atomic():
        receipt = tasks.receive.enqueue(17)
    added = tasks.add.enqueue(2, right=3)
    say("after commit:", state(tasks.receive, receipt.id), receipt.enqueued_at is not None)
    say("outside of a transaction:", state(tasks.add, added.id), count("inconcert_outbox"))
    see_refusals()

    async def work() -> None:
        async with concert, outbox.relay():
            worker = asyncio.create_task(concert.run_worker("default"))
            for result in (receipt, added):
                await outbox.job(result.id.rpartition("@")[2]).result(timeout=20)
            worker.cancel()
            await asyncio.wait([worker])
        await engine.dispose()

    db.connection.close()
    asyncio.run(work())
    for name, result in (("receive", receipt), ("add", added)):
        result.refresh()
        say(f"{name}:", result.status, result.return_value)
    say("receipts:", count("receipt"))


def see_refusals() -> None:
    """Ask for what cannot be."""
    from inconcert.integrations.django import InconcertBackend, claim

    try:
        claim()
    except RuntimeError as error:
        say("claim:", error)
    options = {**settings.TASKS["default"]["OPTIONS"], "on_commit": False}
    try:
        InconcertBackend("default", {"QUEUES": [], "OPTIONS": options})
    except ValueError as error:
        say("at once:", error)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    given = json.loads(sys.argv[1])
    set_up(given["database"], given["options"])
    see(
        given["engine"],
        import_module("tests.integrations.django_shop.tasks"),
        import_module(f"{PACKAGE}.exceptions"),
    )
