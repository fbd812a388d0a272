"""Traces for OpenTelemetry: from the enqueueing of a job to each of its attempts. Needs `inconcert[otel]`."""

import time
from collections.abc import Mapping, Sequence

from inconcert._rules.extras import needs_extra

with needs_extra("otel"):
    from opentelemetry import context as contexts
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from inconcert._core.observer import Enqueueing, ObservedJob, ObservedLease, Observer, StepOutcome
from inconcert._version import __version__
from inconcert.coordinator import Coordinator, session_ref_of
from inconcert.sync_producer import SyncProducer, observers_of

__all__ = ["instrument"]

_NAME = "inconcert"
_FORMAT = TraceContextTextMapPropagator()

Attributes = Mapping[str, str | int | float]


def instrument(
    target: Coordinator | SyncProducer,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> None:
    """Trace what this coordinator or producer does with jobs, from now on.

    Enqueueing makes a span `enqueue QUEUE`, and its context travels with the job if it is sampled.  Each attempt makes
    a span `run TASK`, the root of a trace of its own that links to the first; it is the current span in the body.
    A durable step that runs is a span `step NAME` of its own, current in its function.  Acquiring a lock or a permit is
    an event of the current span, and so is leaving the worker for a durable sleep or wait.  Without an SDK nothing is
    recorded.

    Args:
        target: The object to trace. Call this once for each, at module level.
        tracer_provider: Where spans go; None for the global one.
        meter_provider: Where durations go; None for the global one.
    """
    tracer = trace.get_tracer(_NAME, __version__, tracer_provider)
    meter = metrics.get_meter(_NAME, __version__, meter_provider)
    observers = session_ref_of(target).observers if isinstance(target, Coordinator) else observers_of(target)
    observers.append(_Tracing(tracer, meter))


class _Tracing(Observer):
    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter) -> None:
        self._tracer = tracer
        self._sending = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long it took to enqueue jobs."
        )
        self._processing = meter.create_histogram("messaging.process.duration", "s", "How long attempts ran.")
        self._running: dict[int, _Attempt] = {}  # by the id() of its job, which lives as long
        self._steps: dict[tuple[int, str], _Body] = {}  # by the same, and its name

    def enqueue_begins(self, task: str, queue: str, count: int) -> Enqueueing | None:
        attributes = _attributes("enqueue", "send", queue)
        span = self._tracer.start_span(f"enqueue {queue}", kind=SpanKind.PRODUCER, attributes=attributes)
        if span.is_recording():
            span.set_attribute("inconcert.task", task)
            if count > 1:
                span.set_attribute("messaging.batch.message_count", count)
        return _Sending(span, self._sending, attributes)

    def job_started(self, job: ObservedJob) -> None:
        attributes = {**_attributes("run", "process", job.queue), "inconcert.task": job.task}
        sender = _sender(job.trace)
        span = self._tracer.start_span(
            f"run {job.task}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes={**attributes, "messaging.message.id": job.id, "inconcert.attempt": job.attempt},
            links=[] if sender is None else [Link(sender)],
        )
        self._running[id(job)] = _Attempt(span, attributes)

    def job_left(self, job: ObservedJob, error: BaseException | None) -> None:
        attempt = self._running.pop(id(job), None)
        if attempt is None:  # it began before anybody traced it
            return
        attempt.end(job.outcome, error)
        attributes = dict(attempt.attributes)
        if error is not None:
            attributes["error.type"] = _type_of(error)
        self._processing.record(time.monotonic() - attempt.began_at, attributes)

    def step_started(self, job: ObservedJob, name: str, function: str) -> None:
        if id(job) in self._running and not function.startswith("durable."):
            attributes = {"inconcert.step": name, "inconcert.function": function, "messaging.message.id": job.id}
            self._steps[id(job), name] = _Body(self._tracer.start_span(f"step {name}", attributes=attributes))

    def step_left(self, job: ObservedJob, name: str, error: BaseException | None) -> None:
        step = self._steps.pop((id(job), name), None)
        if step is not None:
            step.leave(error)

    def step_ended(self, job: ObservedJob, outcome: StepOutcome) -> None:
        attempt = self._running.get(id(job))
        if attempt is not None and outcome == "kept":
            attempt.kept_steps += 1

    def step_suspends(self, job: ObservedJob, name: str, seconds: float) -> None:
        del job
        span = trace.get_current_span()
        if span.is_recording():
            span.add_event("suspend", {"inconcert.step": name, "inconcert.seconds": seconds})

    def items_added(self, job: ObservedJob, count: int) -> None:
        attempt = self._running.get(id(job))
        if attempt is not None:
            attempt.items += count

    def lease_acquired(self, lease: ObservedLease, waited: float) -> None:
        span = trace.get_current_span()
        if span.is_recording():
            what: Attributes = {"inconcert.kind": lease.kind, "inconcert.name": lease.name, "inconcert.waited": waited}
            span.add_event(f"acquire {lease.kind}", what)


class _Body:
    """The body of a job, or a step, under way: its span is current in it."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._token = contexts.attach(trace.set_span_in_context(span))
        self._context = contexts.get_current()

    def leave(self, error: BaseException | None) -> None:
        """It was left with this error."""
        if contexts.get_current() is self._context:  # otherwise it is left in another context than it was entered in
            contexts.detach(self._token)
        _end(self.span, error)


class _Attempt(_Body):
    """One attempt under way."""

    def __init__(self, span: Span, attributes: Attributes) -> None:
        super().__init__(span)
        self.attributes = attributes  # of its measurement
        self.began_at = time.monotonic()
        self.kept_steps = self.items = 0  # steps that were kept before; items of its stream that the server has

    def end(self, outcome: str, error: BaseException | None) -> None:
        """It was left with this outcome and error."""
        if self.span.is_recording():
            self.span.set_attribute("inconcert.outcome", outcome)
            for name, count in (("inconcert.kept_steps", self.kept_steps), ("inconcert.items", self.items)):
                if count:
                    self.span.set_attribute(name, count)
        self.leave(error)


class _Sending:
    """Jobs on their way to the server, and their span."""

    def __init__(self, span: Span, durations: metrics.Histogram, attributes: Attributes) -> None:
        self._span = span
        self._durations = durations
        self._attributes = attributes
        self._began_at = time.monotonic()
        carrier: dict[str, str] = {}
        if span.get_span_context().trace_flags.sampled:
            _FORMAT.inject(carrier, trace.set_span_in_context(span))
        self.trace = carrier.get("traceparent", "")

    def end(self, ids: Sequence[str], error: BaseException | None) -> None:
        """The jobs with these ids were enqueued, or were not because of this error."""
        attributes = dict(self._attributes)
        if error is not None:
            attributes["error.type"] = _type_of(error)
        self._durations.record(time.monotonic() - self._began_at, attributes)
        if self._span.is_recording():  # otherwise it has ended before, or nobody wants it
            if len(ids) == 1:
                self._span.set_attribute("messaging.message.id", ids[0])
            _end(self._span, error)


def _attributes(name: str, kind: str, queue: str) -> dict[str, str | int | float]:
    return {
        "messaging.system": _NAME,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _sender(traceparent: str) -> SpanContext | None:
    """The span in which a job was enqueued; None for none, or one that cannot be read."""
    if not traceparent:
        return None
    found = trace.get_current_span(_FORMAT.extract({"traceparent": traceparent}, Context())).get_span_context()
    return found if found.is_valid else None


def _type_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None and span.is_recording():
        span.record_exception(error)
        span.set_attribute("error.type", _type_of(error))
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
