"""A Django project that enqueues tasks, runs a worker and looks at the results; it prints what it sees."""

import asyncio
import json
import logging
import sys
from datetime import timedelta
from importlib import import_module
from typing import Any

from tests.integrations.django_shop import PACKAGE

# Django has no type hints.
django: Any = import_module("django")
settings: Any = import_module("django.conf").settings
db: Any = import_module("django.db")
timezone: Any = import_module("django.utils.timezone")
say = print


def set_up(options: dict[str, Any]) -> None:
    """Configure the project, as its settings would."""
    settings.configure(
        INSTALLED_APPS=["tests.integrations.django_shop", *([PACKAGE] if PACKAGE == "django_tasks" else [])],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": options.pop("database")}},
        USE_TZ=True,
        TASKS={
            "default": {
                "BACKEND": "inconcert.integrations.django.InconcertBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {**options, "max_attempts": 1},
            }
        },
    )
    django.setup()


def see(tasks: Any, errors: Any, signals: Any) -> None:
    """Enqueue, and look at what came of it."""

    def state(task: Any, id_: str) -> str:
        try:
            return str(task.get_result(id_).status)
        except errors.TaskResultDoesNotExist:
            return "unknown"

    def refused(**changes: Any) -> str:
        try:
            tasks.add.using(**changes)
        except Exception as error:  # noqa: BLE001 - its name differs
            return type(error).__name__.removesuffix("Error")
        return "accepted"

    with db.connection.cursor() as cursor:
        cursor.execute("CREATE TABLE receipt (id INTEGER)")
    lost = ""
    try:
        with db.transaction.atomic():
            lost = tasks.rows.enqueue().id
            say("in the transaction:", state(tasks.rows, lost))
            raise LookupError
    except LookupError:
        say("after rollback:", state(tasks.rows, lost))
    with db.transaction.atomic():
        with db.connection.cursor() as cursor:
            cursor.execute("INSERT INTO receipt VALUES (17)")
        rows = tasks.rows.enqueue()
    say("after commit:", state(tasks.rows, rows.id))
    foreign = "os.system@" + rows.id.rpartition("@")[2]
    say("foreign path:", state(tasks.rows, foreign))
    say("priority:", refused(priority=101))
    rank: Any = import_module("inconcert.integrations.django")._rank
    say("ranks:", [rank(each) for each in (100, 81, 80, 1, 0, -1, -25, -26, -100)])
    urgent = tasks.add.using(priority=81).enqueue(40, 2)
    say("unknown queue:", refused(queue_name="nowhere"))
    due = tasks.add.using(run_after=timezone.now() + timedelta(hours=1)).enqueue(1, 1)
    say("not due:", state(tasks.add, due.id))
    results: dict[str, Any] = {
        "add": tasks.add.enqueue(2, right=3),
        "attempt": tasks.attempt.enqueue(),
        "later": tasks.later.enqueue("abc"),
        "rows": rows,
        "urgent": urgent,
    }
    failed, refused_by_task = tasks.fails.enqueue(), tasks.refuses.enqueue()
    enqueued_at = failed.enqueued_at
    sent: list[str] = []

    def note(sender: Any, task_result: Any, signal: Any, **_: object) -> None:
        del sender
        verb = "started" if signal is signals.task_started else "finished"
        sent.append(f"{task_result.task.func.__name__} {verb} {task_result.status}")

    for signal in (signals.task_started, signals.task_finished):
        signal.connect(note, weak=False)
    db.connection.close()
    asyncio.run(work())
    for name, result in results.items():
        result.refresh()
        say(f"{name}:", result.status, result.return_value)
    failed.refresh()
    say("fails:", failed.status, failed.errors[0].traceback.strip().splitlines()[-1])
    say("raised:", failed.errors[0].exception_class is ValueError)
    refused_by_task.refresh()
    say("raised by the app:", refused_by_task.errors[0].exception_class is tasks.NoStock)
    say("enqueued as before:", failed.enqueued_at == enqueued_at)
    for line in sorted(sent):
        say("signal:", line)
    asyncio.run(look())


async def work() -> None:
    """Run what there is."""
    concert = import_module("inconcert.integrations.django").coordinator()
    async with concert:
        await concert.run_worker("mail", "default", burst=True)


async def look() -> None:
    """What operators see: each task by its own name, with its own arguments."""
    concert = import_module("inconcert.integrations.django").coordinator()
    async with concert:
        dead = await concert.tasks.dead()
        say("dead:", sorted((job.task.rpartition(".")[2], job.args) for job in dead))
        say("replayed:", await concert.tasks.replay_all(task="tests.integrations.django_shop.tasks.fails"))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    set_up(json.loads(sys.argv[1]))
    see(
        import_module("tests.integrations.django_shop.tasks"),
        import_module(f"{PACKAGE}.exceptions"),
        import_module(f"{PACKAGE}.signals"),
    )
