"""The health of a worker, for probes: judged by its latest signs of life, from any thread, without I/O."""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

from inconcert._claims.signs import ConsumerSigns
from inconcert.tasks.running.health_server import Answer, HealthServer

HealthState = Literal["live", "ready", "busy", "starting", "draining", "stuck", "blocked", "ended"]
"""What a worker does, in one word; see `HealthReport`."""

_TURNS_WITHIN = 10.0  # seconds in which the event loop turns; the watchdog asks it every second
_CLAIMS_WITHIN = 10.0  # seconds in which a claim is answered; an idle worker claims every 2 to 5 s
_ENDS_WITHIN = 10.0  # seconds in which a job ends that has reached its time limit
_GOES_ON_WITHIN = 10.0  # seconds since the last unexpected error in the background
_WAITS_WITHIN = 8.0  # seconds in which the wait for a bell is answered, which ends by itself after 5 s


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The answer of a worker to a probe.

    Attributes:
        is_ok: Whether the probe succeeds.
        state: `live`: its event loop turns. `ready`: it claims jobs. `busy`: all its places are taken, so it claims
            none. `starting`: no claim was answered yet. `draining`: it was told to stop. `stuck`: it should claim jobs,
            and does not. `blocked`: its event loop stands still. `ended`: it runs no more.
        reason: Why, in one line; empty if there is nothing to say.
        running: How many jobs it runs.
        capacity: How many it runs at once at most; 0 before it begins.
        oldest_job: The job that has run longest, as log lines name it; None if none runs.
        oldest_seconds: For how long, in seconds; None if none runs.
    """

    is_ok: bool
    state: HealthState
    reason: str = ""
    running: int = 0
    capacity: int = 0
    oldest_job: str | None = None
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerSigns:
    """Signs of a worker's latest acts. Instants are by the monotonic clock."""

    consumer: ConsumerSigns | None  # what its consumer did last; None before it is open
    claims_since: float  # since when it has a free place, so that it claims
    is_draining: bool  # whether it was told to stop
    running: int  # how many jobs it runs
    capacity: int  # how many it runs at once at most
    # the jobs that it runs, as log lines name them, since when, and the time limit of each; the oldest first
    jobs: Sequence[tuple[str, float, float | None]] = ()


class WorkerHealth:
    """Answers the probes of a supervisor for one worker: `live()` and `ready()`, from any thread and without I/O.

    What counts is that claims are answered, so a worker that is alive, connected and consumes nothing is found out:

    ```python
    health = WorkerHealth()
    with health.serve("127.0.0.1", 8081):  # GET /livez and /readyz
        await concert.run_worker("mail", health=health)
    ```

    Source: docs/explanation/health.md
    """

    def __init__(self) -> None:
        self._watched = _Watched()

    def live(self) -> HealthReport:
        """True if the event loop has turned within 10 s; if it has not, a restart helps.

        It does not depend on the server, which a restart would not bring back. A worker that has ended with an error is
        not alive. Before a worker runs, and when it has ended in good order, a restart would mend nothing.
        """
        watched = self._watched
        if watched.signs is None:
            return HealthReport(is_ok=True, state="starting", reason="no worker runs yet")
        if watched.has_ended:
            return HealthReport(is_ok=watched.error is None, state="ended", reason=watched.end)
        return judge_live(watched.signs(), time.monotonic())

    def ready(self) -> HealthReport:
        """True if the worker consumes: a claim was answered within 10 s, or all its places are busy.

        It is not ready while it starts or drains, while its event loop stands still, and while the server is away.
        """
        watched = self._watched
        if watched.signs is None:
            return HealthReport(is_ok=False, state="starting", reason="no worker runs yet")
        if watched.has_ended:
            return HealthReport(is_ok=False, state="ended", reason=watched.end)
        return judge_ready(watched.signs(), time.monotonic())

    def serve(self, host: str, port: int) -> HealthServer:
        """Answer `/livez` and `/readyz` over HTTP, from a thread, while the body of `with` runs.

        Args:
            host: The address to listen on.
            port: The port; 0 for any that is free.
        """
        return HealthServer(
            host, port, {"/livez": lambda: _answer(self.live()), "/readyz": lambda: _answer(self.ready())}
        )


@dataclass(slots=True)
class _Watched:
    """The worker that a `WorkerHealth` answers for."""

    signs: Callable[[], WorkerSigns] | None = None
    has_ended: bool = False
    error: Exception | None = None

    @property
    def end(self) -> str:
        return "the worker has ended" + ("" if self.error is None else f" with {self.error!r}")


@contextmanager
def watched(health: WorkerHealth | None, signs: Callable[[], WorkerSigns]) -> Generator[None]:
    """Have this object answer for the worker that runs in the body, and gives these signs.

    Raises:
        RuntimeError: It answers for another worker, which still runs.
    """
    of = health._watched if health is not None else _Watched()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if of.signs is not None and not of.has_ended:
        raise RuntimeError("this WorkerHealth answers for another worker; make one for each")
    of.signs, of.has_ended, of.error = signs, False, None
    try:
        yield
    except Exception as error:
        of.error = error
        raise
    finally:
        of.has_ended = True


def judge_live(signs: WorkerSigns, now: float) -> HealthReport:
    """The answer of a worker with these signs about whether it lives."""
    consumer = signs.consumer
    if consumer is None:
        return _report(signs, now, state="starting", is_ok=True, reason="the worker opens")
    if not consumer.is_watched:
        return _report(signs, now, state="blocked", reason="the thread that watches the event loop has ended")
    silent = now - consumer.turned_at
    if silent > _TURNS_WITHIN:
        return _report(signs, now, state="blocked", reason=f"the event loop has stood still for {silent:.1f} s")
    return _report(signs, now, state="live", is_ok=True)


def judge_ready(signs: WorkerSigns, now: float) -> HealthReport:
    """The answer of a worker with these signs about whether it consumes."""
    alive, consumer = judge_live(signs, now), signs.consumer
    if not alive.is_ok:
        return alive
    if signs.is_draining:
        return _report(signs, now, state="draining", reason="the worker was told to stop")
    if consumer is None or consumer.claimed_at is None:
        return _report(signs, now, state="starting", reason="no claim was answered yet")
    is_busy = signs.running >= signs.capacity
    obstacle = _why_nothing_ends(signs, consumer, now) if is_busy else _why_nothing_comes(signs, consumer, now)
    obstacle = obstacle or _what_has_failed(consumer, now)
    if obstacle:
        return _report(signs, now, state="stuck", reason=obstacle)
    return _report(signs, now, state="busy" if is_busy else "ready", is_ok=True)


def _why_nothing_ends(signs: WorkerSigns, consumer: ConsumerSigns, now: float) -> str:
    if not consumer.is_held:
        return "no heartbeat was answered in time"
    if all(limit is not None and now - since > limit + _ENDS_WITHIN for _, since, limit in signs.jobs):
        return "all places are taken by jobs that run past their time limit, and cannot be stopped"
    return ""


def _why_nothing_comes(signs: WorkerSigns, consumer: ConsumerSigns, now: float) -> str:
    claimed_at = consumer.claimed_at or 0.0
    # Places that are free because the heartbeat has lapsed give it no time.
    silent = now - (max(claimed_at, signs.claims_since) if consumer.is_held else claimed_at)
    if silent > _CLAIMS_WITHIN:
        return f"no claim was answered for {silent:.1f} s"
    silent = 0.0 if consumer.waits_since is None else now - consumer.waits_since
    if silent > _WAITS_WITHIN:
        return f"the connection that waits for jobs has not answered for {silent:.1f} s"
    return ""


def _what_has_failed(consumer: ConsumerSigns, now: float) -> str:
    failure = consumer.failure
    if failure is None or now - failure.at > _GOES_ON_WITHIN:
        return ""
    return f"{failure.what} failed with {failure.error} {now - failure.at:.1f} s ago, and is tried again"


def _report(
    signs: WorkerSigns, now: float, *, state: HealthState, is_ok: bool = False, reason: str = ""
) -> HealthReport:
    job, seconds = None, None
    if signs.jobs:
        job, since, _ = signs.jobs[0]
        seconds = round(now - since, 3)
    return HealthReport(is_ok, state, reason, signs.running, signs.capacity, job, seconds)


def _answer(report: HealthReport) -> Answer:
    return report.is_ok, asdict(report)
