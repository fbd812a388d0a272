"""What `inconcert` exports is what it says, documented, with errors in one tree."""

import ast
import inspect
import pydoc
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType

import pytest

import inconcert
from inconcert import errors
from tests.support.each import each
from tests.support.public import PUBLIC

SRC = Path(__file__).parents[2] / "src"

MODULES = {"durable"}  # whose functions are used by the name of the module

# All that users see of each class: what they may use, and nothing of its engine.
FACES = {
    "Barrier": "abort n_waiting parties reset wait",
    "Batch": "chat_id last_id messages missed unfit",
    "Blocked": "holds waiter",
    "Changed": "member value",
    "Chats": "ack add create fetch history join leave listen members of remove send unread",
    "ClaimedJob": (
        "ack after args attempt bury emit enqueue_on_success enqueued_at give_back group headers id is_cancelled "
        "is_over kwargs nack name outcome parent_results progress queue result scheduled_at state "
        "time_limit"
    ),
    "Consumer": "claim stop try_claim",
    "Coordinator": (
        "add_enqueue_middleware add_middleware barrier chat close consume cron election embedded enqueue "
        "enqueue_many event every explain from_client from_env group index inspect latch lifespan limit lock locks "
        "locks_held mailbox members once open ping queue rate rate_limiter rate_limiters redis redis_cluster "
        "release_by_force run_worker rwlock schedules semaphore signal signals task tasks url"
    ),
    "DeadItem": "attempts died_at id item reason traceback",
    "DeadJob": "args attempts id kwargs reason task",
    "Deadlock": "id tasks things",
    "Delivery": "ack attempt bury give_back id is_over item nack outcome put_at queue",
    "Draft": "limits name options pattern text",
    "EndCounts": "cancelled dead failed failure_rate retried succeeded",
    "EndedJob": "args attempts began_at ended_at enqueued_at error is_too_long job_id kwargs outcome task",
    "DurationSpread": "count p50 p95",
    "Election": "acquire candidate holders leader locked record resign run terms try_acquire waiters watch",
    "ElectionRecord": "candidate number since",
    "EnqueuedJob": "created id",
    "Event": "clear is_set set wait",
    "Explanation": "deadlocks holders kind name reasons silent state waiters",
    "FailedAttempt": "began_at ended_at error failure host number pid traceback worker",
    "Gap": "missed",
    "Group": "add callback cancel close id member progress results",
    "GroupProgress": "cancelled failed is_closed is_done left succeeded total",
    "HealthReport": "capacity is_ok oldest_job oldest_seconds reason running state",
    "HealthServer": "url",
    "HeldEntry": (
        "fencing_token holder is_redacted job_id kind label line mode name permits remaining since task task_id "
        "trace_id"
    ),
    "Hit": "id score",
    "Index": "add clear remove search size suggest",
    "HeldItem": "id line task",
    "HeldLock": (
        "fencing_token holder host is_redacted job_id kind label line mode name permits pid process remaining since "
        "task task_id trace_id waiters"
    ),
    "Inspection": "deadlocks locks processes silent waiters",
    "ItemConsumer": "holds is_redacted line name task waiting",
    "Job": "attempts cancel created dependants id items progress reschedule result send status steps stream",
    "JobInfo": (
        "after args attempts claimed_at debounce died_at due_at enqueued_at error headers id kwargs priority queue "
        "status task traceback unique worker"
    ),
    "JobPage": "after jobs",
    "Joined": "member value",
    "Latch": "count_down remaining wait",
    "Lease": "fencing_token holder is_lost kind lost name previous_lost release remaining renew",
    "Leases": "fencing_tokens get is_lost items keys lost release remaining renew values",
    "Left": "member",
    "Limit": "jobs name",
    "LimitStats": "in_use name places queue",
    "Lock": "acquire holders locked try_acquire waiters",
    "Locks": "acquire try_acquire",
    "Lost": "member",
    "Mailbox": "ack fetch purge send send_many unread",
    "MailboxMessage": "attempt body claim id missed time",
    "Member": "holder id is_lost kind list lost name owns release remaining renew shares update watch",
    "MemberResult": "exception id number result status",
    "Members": "join list watch",
    "Message": "body id sender time",
    "PreparedJob": "enqueue id",
    "ProcessReport": "consumers holds host id label listeners more opened_at pid told waits",
    "Progress": "fraction text",
    "Queue": "counts dead get get_many join oldest_age peek purge purge_dead put put_many reopen replay shutdown size",
    "QueueCounts": "claimed dead delayed is_shut_down ready",
    "QueueStats": "consumers delayed finished held_back is_paused oldest_age ready running waiting",
    "QuorumLease": "holder is_lost kind lost name release remaining renew",
    "QuorumLock": "acquire holders locked try_acquire",
    "RWLock": "read write",
    "RateDecision": "is_allowed remaining retry_after",
    "Rate": "burst jobs key name per",
    "RateLimiter": "acquire inspect refund reserve reset try_acquire",
    "RateLimiters": "acquire reserve try_acquire",
    "RateStatus": "full_in remaining waiting",
    "ReadLock": "acquire holders locked try_acquire waiters",
    "Reason": "code text",
    "Reservation": "cost settle",
    "Restarted": "attempt",
    "Retrying": "attempts backoff retry_on",
    "RunningJob": "attempt claimed_at id queue task",
    "ScheduleStatus": "args id is_in_code is_paused kwargs last_at missed next_at overlap problem queue rule task",
    "Schedules": "delete list pause put resume trigger",
    "Semaphore": "acquire holders locked try_acquire waiters",
    "Signal": "broadcast notify subscribe wait",
    "SignalListener": "is_pattern is_redacted line name since",
    "Signalled": "name payload",
    "Signals": "subscribe",
    "StoppedKey": "job_id waiting",
    "StreamItem": "attempt id value",
    "Subscription": "next",
    "StepRecord": "function is_awaited name value",
    "SyncCoordinator": (
        "attempts close enqueue held lock prepare put rate_limiter result semaphore send send_to_job status"
    ),
    "SyncLease": "fencing_token holder is_lost kind name previous_lost release remaining renew",
    "SyncPermits": "acquire holders locked try_acquire waiters",
    "SyncRateLimiter": "acquire inspect reset try_acquire",
    "SyncProducer": "attempts close enqueue prepare put result send send_to_job status",
    "Task": "call enqueue history options",
    "TaskCounts": "hours run since task total wait",
    "TaskStats": "dead limits queues unserved workers",
    "Tasks": (
        "cancel_all counts dead describe drain group history job jobs lately pause promote_all purge purge_all queues "
        "replay replay_all resume stats stopped_keys workers"
    ),
    "Term": "candidate fencing_token holder is_lost kind lost name number previous_lost release remaining renew",
    "Undo": "later",
    "WaitEntry": (
        "holder is_redacted job_id kind label line mode name permits position since task task_id ticket trace_id"
    ),
    "Waiter": (
        "holder host is_redacted job_id kind label line mode name permits pid position process since task task_id "
        "ticket trace_id"
    ),
    "WorkerHealth": "live ready serve",
    "WorkerStatus": "capacity heard_at host id is_alive pid queues running",
    "WriteLease": "downgrade fencing_token holder is_lost kind lost name previous_lost release remaining renew",
    "WriteLock": "acquire holders locked try_acquire waiters",
}


def exported() -> list[str]:
    """Public names, without those that Python knows by itself, such as `__version__`."""
    return [name for name in PUBLIC if not name.startswith("__")]


def source_of(module: str) -> Path:
    """The file of a module of the package."""
    path = SRC.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def docstring_of(name: str, module: str = "inconcert") -> str | None:
    """A name's own docstring, from the file that defines it: no inherited one, and none made by a decorator.

    An alias or a constant has its docstring as a string on the lines after it.
    """
    body = ast.parse(source_of(module).read_text("utf-8")).body
    body += [inner for statement in body if isinstance(statement, ast.If) for inner in statement.body]
    for statement, following in zip(body, [*body[1:], None], strict=True):
        match statement:
            case ast.ImportFrom(module=str(origin), level=0):
                for alias in statement.names:
                    if (alias.asname or alias.name) == name:
                        return docstring_of(alias.name, origin)
            case ast.AsyncFunctionDef(decorator_list=[ast.Name("overload")]):
                pass  # the function itself comes last
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


def test_each_public_name_is_where_checkers_and_python_look() -> None:
    """The imports for type checkers and the table by which Python finds a name say the same."""
    [checked] = [
        statement.body
        for statement in ast.parse(source_of("inconcert").read_text("utf-8")).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    homes = {
        alias.name: statement.module.removeprefix("inconcert.")
        for statement in checked
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    assert {name: home for name, home in homes.items() if name not in MODULES} == inconcert._HOMES
    assert homes.keys() == set(exported())
    assert len(PUBLIC) == len(set(PUBLIC))


def test_public_names_are_seen_before_they_are_used() -> None:
    """By `dir`, by `help`, by `from inconcert import *`, and by whoever walks the members; nothing else is."""
    modules = {"durable", "errors"}
    of_its_own = {"TYPE_CHECKING", "import_module"}
    members = {name: value for name, value in inspect.getmembers(inconcert) if not name.startswith("_")}
    starred: dict[str, object] = {}
    exec("from inconcert import *", starred)

    assert {*dir(inconcert)} >= {*PUBLIC} | modules
    public = {name for name, value in members.items() if name in modules or not isinstance(value, ModuleType)}
    assert public == {*exported()} | modules | of_its_own
    assert starred.keys() >= {*PUBLIC}
    text = pydoc.plain(pydoc.render_doc(inconcert))
    assert "class Coordinator(" in text
    assert "current_job()" in text


def test_unknown_name_is_refused() -> None:
    """As a module without it does."""
    with pytest.raises(AttributeError, match="module 'inconcert' has no attribute 'Cordinator'"):
        inconcert.Cordinator  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Cordinator' from 'inconcert'"):
        from inconcert import Cordinator  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: F401


def test_names_are_imported_when_they_are_used() -> None:
    """An import of the package loads none of its modules, also where threads ask for the same name at once."""
    code = """
import sys, threading
import inconcert
print(sorted(name for name in sys.modules if name.startswith("inconcert.")))
found = []
barrier = threading.Barrier(8)
def ask():
    barrier.wait()
    found.append(inconcert.Lock)
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), set(found) == {sys.modules["inconcert.lock"].Lock})
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["['inconcert._version']", "8 True"]


def test_every_public_name_has_a_docstring_of_its_own() -> None:
    """Whoever asks for help on an exported name gets an answer about that name."""
    assert exported()
    assert [name for name in exported() if name not in MODULES and not docstring_of(name)] == []
    assert all(getattr(inconcert, name).__doc__ for name in MODULES)


def test_every_error_is_exported() -> None:
    """What `inconcert.errors` defines can be caught by a name from `inconcert`."""
    assert set(errors.__all__) <= set(PUBLIC)


def test_every_exported_error_derives_from_one_base() -> None:
    """`except InconcertError` catches all that the package raises of its own."""
    raised = [
        value
        for name in exported()
        if isinstance(value := getattr(inconcert, name), type) and issubclass(value, Exception)
    ]
    raised.remove(inconcert.Retry)  # which users raise

    assert raised
    assert [error for error in raised if not issubclass(error, errors.InconcertError)] == []


@each("name", FACES)
def test_class_shows_what_users_may_use(name: str) -> None:
    """Its public names are those of the list, in order."""
    public = [attribute for attribute in dir(getattr(inconcert, name)) if not attribute.startswith("_")]
    assert public == FACES[name].split()


def test_every_exported_class_is_listed() -> None:
    """All but errors, enumerations and dictionaries, which show what Python gives them."""
    classes = {name for name in exported() if isinstance(getattr(inconcert, name), type)}
    given = {name for name in classes if issubclass(getattr(inconcert, name), BaseException | Enum | str | dict)}
    assert classes - given == set(FACES)


@pytest.mark.parametrize("name", ["Term", "WriteLease"])
def test_special_leases_are_leases(name: str) -> None:
    """What takes a `Lease` takes these, too."""
    assert issubclass(getattr(inconcert, name), inconcert.Lease)
