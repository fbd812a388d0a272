"""Django's tasks, run by inconcert's workers: a backend for `TASKS`, and the coordinator of its workers.

It is for `django.tasks` of Django 6.0, and for `django_tasks`, its backport, before.
"""

import logging
import math
import re
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from traceback import format_exception
from typing import TYPE_CHECKING, Any, cast

from inconcert._rules.extras import needs_extra
from inconcert.coordinator import Coordinator
from inconcert.errors import InvalidName, JobCancelled, JobFailed, JobNotFound
from inconcert.sync_producer import SyncProducer
from inconcert.tasks.front.task_coordinator import parts_of
from inconcert.tasks.records.status import JobStatus
from inconcert.tasks.running.claimed_job import current_job, state_of
from inconcert.tasks.sending.task import Task

if TYPE_CHECKING:
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskResult as _GenericResult

    from inconcert.integrations._django_outbox import DjangoOutbox

    TaskResult = _GenericResult[Any]  # generic in the backport only
else:
    with needs_extra("django"):
        try:
            from django.tasks.backends.base import BaseTaskBackend
            from django.tasks.base import TaskResult
        except ImportError:
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import TaskResult

__all__ = ["InconcertBackend", "claim", "coordinator"]

_log = logging.getLogger("inconcert.integrations")

# Django has no type hints, and its two packages of tasks differ in their name only.
_package = BaseTaskBackend.__module__.removesuffix(".backends.base")
_tasks: Any = import_module(_package)
_base: Any = import_module(f"{_package}.base")
_errors: Any = import_module(f"{_package}.exceptions")
_signals: Any = import_module(f"{_package}.signals")
_apps: Any = import_module("django.apps").apps
_db: Any = import_module("django.db")
_import_string: Any = import_module("django.utils.module_loading").import_string

# The last error of a traceback, such as `shop.errors.Refused: no stock`; not of a class that a function has made.
_RAISED = re.compile(r"^(?P<path>[A-Za-z_][\w.]*)(?::|$)", re.MULTILINE)
_STATUSES = {
    JobStatus.RUNNING: "RUNNING",
    JobStatus.SUCCEEDED: "SUCCESSFUL",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLED: "FAILED",
}
_ENDED = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.UNKNOWN}


class _Result(TaskResult):
    """A result that keeps, when it is refreshed, what only the process that enqueued it knows."""

    def refresh(self) -> None:
        """Ask for the state of the task now."""
        enqueued_at = self.enqueued_at
        super().refresh()
        object.__setattr__(self, "enqueued_at", self.enqueued_at or enqueued_at)

    async def arefresh(self) -> None:
        """Ask for the state of the task now."""
        enqueued_at = self.enqueued_at
        await super().arefresh()
        object.__setattr__(self, "enqueued_at", self.enqueued_at or enqueued_at)


class InconcertBackend(BaseTaskBackend):
    """A backend of Django's tasks.

    ```text
    TASKS = {
        "default": {
            "BACKEND": "inconcert.integrations.django.InconcertBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"url": "redis://localhost:6379/0", "namespace": "shop"},
        }
    }
    ```

    `OPTIONS` are the arguments of `SyncProducer`, and three more: `on_commit`, True by default, for whether a task is
    enqueued when the transaction of the default database commits; `outbox`, False by default, for whether it is a row
    of that transaction, which `inconcert relay` hands over; and `max_attempts` of its jobs.

    Raises:
        ValueError: An option is out of its range, `outbox` is True together with `on_commit=False`, or the default
            database is neither PostgreSQL nor SQLite.
        ModuleNotFoundError: `outbox` is True, and `inconcert[sql]` is not installed.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        cast("Any", super()).__init__(alias, params)
        options: dict[str, Any] = dict(cast("Any", self).options)
        self._on_commit: bool = options.pop("on_commit", True)
        has_outbox: bool = options.pop("outbox", False)
        self._job_options: dict[str, Any] = {name: options.pop(name) for name in ("max_attempts",) if name in options}
        self.settings = options
        self._producer = SyncProducer(**options)
        if has_outbox and not self._on_commit:
            raise ValueError("outbox is True and on_commit is False; a row is part of the transaction: leave out one")
        self.outbox = _new_outbox(options) if has_outbox else None

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - Django has no type hints
        """Enqueue a task, when the transaction commits if there is one; with `outbox` as a row of it.

        Raises:
            InvalidPayload: An argument is not JSON, or all together are larger than 1 MiB.
            Unavailable: Outside of a transaction: nothing was added.
            OutcomeUnknown: Outside of a transaction: it may have been added.

        Cost: 1 round trip to the server at the commit; with `outbox` 1 statement in the transaction in place of it.
        """
        cast("Any", self).validate_task(task)
        delay = (
            0.0
            if task.run_after is None
            else max(0.0, (task.run_after - datetime.now(task.run_after.tzinfo)).total_seconds())
        )
        path: str = task.module_path
        options: Any = {"queue": task.queue_name, "delay": delay, "priority": _rank(task.priority), **self._job_options}
        if self.outbox is not None:
            job = None
            job_id = self.outbox.enqueue(path, list(args), dict(kwargs), options)
        else:
            job = self._producer.prepare(path, list(args), dict(kwargs), **options)
            job_id = job.id
        result = self.new_result(task, f"{path}@{job_id}", "READY", list(args), dict(kwargs))

        def send() -> None:
            if job is not None:
                job.enqueue()
            object.__setattr__(result, "enqueued_at", datetime.now(UTC))
            _signals.task_enqueued.send(type(self), task_result=result)

        if self._on_commit:
            _db.transaction.on_commit(send)
        else:
            send()
        return result

    def get_result(self, result_id: str) -> Any:  # noqa: ANN401 - Django has no type hints
        """The state of a task now; without its arguments, which the server gives to workers only.

        Raises:
            TaskResultDoesNotExist: There is no such task, or its result is no longer kept.
        """
        path, _, job_id = result_id.rpartition("@")
        try:
            task = _task_at(path)
            status = self._status(job_id)
            result = self.new_result(task, result_id, _STATUSES.get(status, "READY"), [], {})
            if status in _ENDED:
                self._add_outcome(result, job_id)
        except (JobNotFound, LookupError, InvalidName):
            raise _errors.TaskResultDoesNotExist(result_id) from None
        return result

    def _status(self, job_id: str) -> JobStatus:
        status = self._producer.status(job_id)
        if status is not JobStatus.UNKNOWN or self.outbox is None:
            return status
        if self.outbox.has(job_id):
            return JobStatus.QUEUED
        return self._producer.status(job_id)  # it may have been handed over, and have ended, between the two

    def _add_outcome(self, result: Any, job_id: str) -> None:  # noqa: ANN401 - Django has no type hints
        try:
            object.__setattr__(result, "_return_value", self._producer.result(job_id, timeout=0))
        except (JobFailed, JobCancelled) as error:
            text = error.traceback if isinstance(error, JobFailed) and error.traceback else str(error)
            kind = _raised(text) or _path_of(type(error))
            result.errors.append(_base.TaskError(exception_class_path=kind, traceback=text))

    def new_result(self, task: Any, id_: str, status: str, args: list[Any], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """The known facts of a task that was enqueued."""
        return _Result(
            task=task,
            id=id_,
            status=_base.TaskResultStatus(status),
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )


def coordinator(alias: str = "default") -> Coordinator:
    """The coordinator of workers that run the tasks of this backend, for `inconcert worker`.

    Args:
        alias: Which entry of `TASKS`.
    """
    backend: Any = _tasks.task_backends[alias]
    concert = Coordinator(**backend.settings)

    def look_up(path: str) -> Task[..., Any] | None:
        try:
            task = _task_at(path)
        except LookupError as error:
            _log.warning("a job of a task that is not there: %s", error)
            return None
        return concert.task(name=path, queue=task.queue_name)(partial(_run, backend, task))

    # A task may be in any module of an app, so it is found when a job asks for it.
    parts_of(concert).registry.look_up = look_up
    return concert


def claim(alias: str = "default") -> bool:
    """In the body of a task, in `transaction.atomic()`: take its row, so that all writes there are made once.

    Args:
        alias: Which entry of `TASKS`, with `outbox` among its options.

    Returns:
        Whether the effect is to be made; False if an attempt has made it before.

    Raises:
        RuntimeError: The job has no row to claim, no job runs here, no transaction has begun, or the backend has no
            outbox.

    Cost: 1 statement; it waits for another attempt that has claimed it and has not ended.
    """
    outbox: DjangoOutbox | None = _tasks.task_backends[alias].outbox
    if outbox is None:
        raise RuntimeError(f'the backend {alias!r} of TASKS has no outbox; add "outbox": True to its OPTIONS')
    return outbox.claim()


def _new_outbox(settings: dict[str, Any]) -> "DjangoOutbox":
    from inconcert.integrations._django_outbox import DjangoOutbox  # noqa: PLC0415 - another extra

    return DjangoOutbox(Coordinator(**settings))


def _run(backend: InconcertBackend, task: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Django has no type hints
    """Call a task in the thread of its job, and send Django's signals; none of an attempt that will be repeated."""
    job = current_job()
    now = datetime.now(UTC)
    result = backend.new_result(task, f"{task.module_path}@{job.id}", "RUNNING", list(args), kwargs)
    result.worker_ids.extend([""] * job.attempt)
    for name, at in (("enqueued_at", datetime.fromtimestamp(job.enqueued_at, UTC)), ("started_at", now)):
        object.__setattr__(result, name, at)
    _db.close_old_connections()
    try:
        _signals.task_started.send(type(backend), task_result=result)
        context = [_base.TaskContext(task_result=result)] if task.takes_context else []
        try:
            value = task.call(*context, *args, **kwargs)
        except Exception as error:
            if state_of(job).is_last_attempt:
                text = "".join(format_exception(error))
                result.errors.append(_base.TaskError(exception_class_path=_path_of(type(error)), traceback=text))
                _finish(backend, result, "FAILED")
            raise
        object.__setattr__(result, "_return_value", value)
        _finish(backend, result, "SUCCESSFUL")
        return value
    finally:
        _db.close_old_connections()


def _finish(backend: InconcertBackend, result: Any, status: str) -> None:  # noqa: ANN401 - Django has no type hints
    object.__setattr__(result, "finished_at", datetime.now(UTC))
    object.__setattr__(result, "status", _base.TaskResultStatus(status))
    _signals.task_finished.send(type(backend), task_result=result)


def _rank(priority: int) -> int:
    """The number of a job of this priority: from 100 to -100, most urgent first, as Django has it."""
    return 5 - math.ceil(priority / 20) if priority > 0 else 5 + math.ceil(-priority / 25)


def _path_of(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _raised(traceback: str) -> str | None:
    """The path of the class of the error that a traceback ends with; None if it cannot be told."""
    _, _, last = traceback.rpartition("Traceback (most recent call last):\n")
    found = _RAISED.search(last)
    if found is None:
        return None
    path = found["path"]
    return path if "." in path else f"builtins.{path}"


def _task_at(path: str) -> Any:  # noqa: ANN401 - Django has no type hints
    """The task at a path, which must be in an installed app: a result's id may come from anyone."""
    if _apps.get_containing_app_config(path) is None:
        raise LookupError(f"{path!r} is in no app of INSTALLED_APPS, so it is not imported")
    try:
        task = _import_string(path)
    except ImportError as error:
        raise LookupError(f"there is no task {path!r}") from error
    is_task = isinstance(task, _base.Task)
    if not is_task:
        raise LookupError(f"{path!r} is not a task")
    return task
