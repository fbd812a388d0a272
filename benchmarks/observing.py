"""What it costs to be watched: jobs with metrics, traces and both, beside jobs that nobody watches, in one run.

    python -m benchmarks.observing [--quick]

One process enqueues jobs that do nothing one by one, and then runs them.  The time is that of its processor, which
other programs on the machine disturb less than a clock; the server is another process.  Spans and metrics go through an
SDK to an exporter that drops them.
"""

import argparse
import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from prometheus_client import CollectorRegistry

from benchmarks import results
from benchmarks.figures import Table, ratio
from benchmarks.server import version
from inconcert import Coordinator
from inconcert.coordinator import session_ref_of
from inconcert.integrations.otel import instrument
from inconcert.integrations.prometheus import Metrics

ROUNDS = 7
ALONE = "nobody"


class Nowhere(SpanExporter):
    """Drops the spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def trace(concert: Coordinator, share: float) -> None:
    """Trace this share of what it does."""
    tracers = TracerProvider(sampler=ParentBasedTraceIdRatio(share))
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    instrument(concert, tracer_provider=tracers, meter_provider=MeterProvider([InMemoryMetricReader()]))


def count(concert: Coordinator) -> None:
    """Measure it for Prometheus."""
    Metrics(concert, registry=CollectorRegistry())


def both(concert: Coordinator) -> None:
    """Measure all, and trace a hundredth."""
    count(concert)
    trace(concert, 0.01)


WATCHED_BY: dict[str, Callable[[Coordinator], None]] = {
    ALONE: lambda _: None,
    "Prometheus": count,
    "SDK, 1 % sampled": lambda concert: trace(concert, 0.01),
    "both": both,
    "SDK, all sampled": lambda concert: trace(concert, 1.0),
}


async def noop() -> None:
    """Do nothing."""


async def work(concert: Coordinator, jobs: int) -> tuple[float, float]:
    """Seconds of the processor to enqueue so many jobs, and to run them."""
    began_at = time.process_time()
    for _ in range(jobs):
        await concert.enqueue("noop")
    enqueued_at = time.process_time()
    await concert.run_worker("default", burst=True)
    return enqueued_at - began_at, time.process_time() - enqueued_at


async def measure(*, quick: bool) -> Table:
    jobs, rounds = (1_000, 3) if quick else (5_000, ROUNDS)
    took: dict[str, list[tuple[float, float]]] = defaultdict(list)
    async with Coordinator.embedded() as concert:
        observers = session_ref_of(concert).observers
        concert.task(name="noop")(noop)
        await work(concert, 100)  # warm
        for _ in range(rounds):
            for name, watch in WATCHED_BY.items():
                await concert.redis.flushdb()
                observers.clear()
                watch(concert)
                took[name].append(await work(concert, jobs))
        server = await version(concert.redis)
    table = Table("enqueue, us", "ratio", "run, us", "ratio", width=24)
    table.versions["server"] = server
    enqueueing, running = map(statistics.median, zip(*took[ALONE], strict=True))
    for name, rounds_of in took.items():
        enqueue, run = map(statistics.median, zip(*rounds_of, strict=True))
        table.row(name, enqueue / jobs * 1e6, ratio(enqueue, enqueueing), run / jobs * 1e6, ratio(run, running))
    return table


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer jobs")
    results.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = parse()
    results.save(options.json, "observing", asyncio.run(measure(quick=options.quick)))
