"""A trace goes from the enqueueing of a job to each of its attempts."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from inconcert import Coordinator, JobStatus, SyncProducer, WorkerHealth, durable
from tests.support.background import in_background
from tests.support.clusters import RealCluster
from tests.support.durable import wake
from tests.support.jobs import status
from tests.support.lines import in_line
from tests.support.raw import commands_processed, raw
from tests.support.servers import RealServer

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from inconcert.integrations.otel import instrument


class Traced:
    """A provider that keeps the spans of this test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self, name: str) -> list[ReadableSpan]:
        """The ended ones of this name."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


def ids(context: trace.SpanContext | None) -> tuple[int, int]:
    """Which span this is, whether it was received or made here."""
    assert context is not None
    return context.trace_id, context.span_id


@pytest.fixture
def traced(concert: Coordinator) -> Traced:
    """Of the coordinator."""
    traced = Traced()
    instrument(concert, tracer_provider=traced.provider)
    return traced


async def test_an_attempt_links_to_the_enqueueing(concert: Coordinator, traced: Traced) -> None:
    """In a trace of its own, with the attributes of the conventions."""

    @concert.task(name="send", queue="mail")
    async def send() -> None:
        trace.get_current_span().add_event("here")
        async with concert.lock("item:1"):
            pass

    with traced.provider.get_tracer("app").start_as_current_span("request"):
        job = await send.enqueue()
    await concert.run_worker("mail", burst=True)

    [request], [enqueue], [run] = traced.spans("request"), traced.spans("enqueue mail"), traced.spans("run send")
    assert enqueue.parent == request.context
    assert enqueue.kind is trace.SpanKind.PRODUCER
    assert run.kind is trace.SpanKind.CONSUMER
    assert run.parent is None
    assert [ids(link.context) for link in run.links] == [ids(enqueue.context)]
    assert dict(run.attributes or {}) == {
        "messaging.system": "inconcert",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "inconcert.task": "send",
        "inconcert.attempt": 1,
        "inconcert.outcome": "done",
    }
    assert [event.name for event in run.events] == ["here", "acquire lock"]


async def test_each_attempt_has_a_span_with_its_error(concert: Coordinator, traced: Traced) -> None:
    """And links to the same enqueueing."""

    @concert.task(name="fail", max_attempts=2, backoff=lambda _: 0.0)
    async def fail() -> None:
        raise LookupError("gone")

    await fail.enqueue()
    for _ in range(2):
        await concert.run_worker("default", burst=True)

    first, second = traced.spans("run fail")
    assert first.links[0].context == second.links[0].context
    assert [span.status.status_code for span in (first, second)] == [trace.StatusCode.ERROR] * 2
    assert [(span.attributes or {})["inconcert.outcome"] for span in (first, second)] == ["retry", "dead"]
    assert [(span.attributes or {})["error.type"] for span in (first, second)] == ["LookupError"] * 2
    assert [event.name for event in first.events] == ["exception"]


async def test_each_step_that_runs_is_a_span(concert: Coordinator, traced: Traced) -> None:
    """In the trace of its attempt, and current in its function; a kept one is counted, a sleep is an event."""
    seen: list[tuple[int, int]] = []

    async def charge(amount: int) -> int:
        seen.append(ids(trace.get_current_span().get_span_context()))
        if len(seen) == 1:
            raise LookupError("refused")
        return amount

    def pack() -> None:  # in a thread
        seen.append(ids(trace.get_current_span().get_span_context()))

    @concert.task(name="sell", max_attempts=2, backoff=lambda _: 0.0)
    async def sell() -> None:
        await asyncio.gather(durable.step("charge", charge, 1), durable.step("pack", pack), return_exceptions=True)
        await durable.step("charge again", charge, 1)
        trace.get_current_span().add_event("charged")
        async with durable.undo("parcel"):
            await durable.sleep("a day", 86_400)
        await durable.now()

    job = await sell.enqueue()
    async with in_background(concert.run_worker("default")):
        await status(concert, job, JobStatus.DELAYED)
        await wake(concert, job, "a day")
        await job.reschedule(delay=0)
        await job.result(timeout=10.0)

    first, second = traced.spans("run sell")
    assert [event.name for event in first.events] == ["charged", "suspend"]
    suspended = first.events[-1].attributes or {}
    assert suspended["inconcert.step"] == "a day"
    assert 86_000 < float(str(suspended["inconcert.seconds"])) <= 86_400
    assert (first.attributes or {})["inconcert.outcome"] == "asleep"
    assert "inconcert.kept_steps" not in (first.attributes or {})
    assert (second.attributes or {})["inconcert.kept_steps"] == 4  # with the sleep, and the block it is in

    (failed, again), [packed] = traced.spans("step charge"), traced.spans("step pack")
    [charged], [now] = traced.spans("step charge again"), traced.spans("step now")
    assert {ids(step.parent) for step in (failed, packed, charged)} == {ids(first.context)}
    assert {ids(step.parent) for step in (again, now)} == {ids(second.context)}
    assert {ids(step.context) for step in (failed, packed, charged, again)} == set(seen)
    assert dict(packed.attributes or {}) == {
        "inconcert.step": "pack",
        "inconcert.function": pack.__qualname__,
        "messaging.message.id": job.id,
    }
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "LookupError"
    assert packed.status.status_code is trace.StatusCode.UNSET


async def test_a_step_that_is_cancelled_ends_its_span(concert: Coordinator, traced: Traced) -> None:
    """And the span of the job is current again, in a body that goes on."""
    has_begun = asyncio.Event()

    async def forever() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    @concert.task(name="hurry")
    async def hurry() -> None:
        task = asyncio.current_task()
        assert task is not None

        async def stop() -> None:
            await has_begun.wait()
            task.cancel()

        async with in_background(stop()):
            try:
                await durable.step("forever", forever)
            except asyncio.CancelledError:
                task.uncancel()
                trace.get_current_span().add_event("went on")

    await hurry.enqueue()
    await concert.run_worker("default", burst=True)

    [step], [run] = traced.spans("step forever"), traced.spans("run hurry")
    assert (step.attributes or {})["error.type"] == "asyncio.exceptions.CancelledError"
    assert [event.name for event in run.events] == ["went on"]


async def test_the_items_of_a_stream_are_counted(concert: Coordinator, traced: Traced) -> None:
    """Those that the server has, on the span of the attempt."""

    @concert.task(name="count")
    async def count() -> AsyncGenerator[int]:
        for number in range(300):
            yield number

    await count.enqueue()
    await concert.run_worker("default", burst=True)
    [run] = traced.spans("run count")
    assert (run.attributes or {})["inconcert.items"] == 300


async def test_no_span_is_current_after_a_job(concert: Coordinator, traced: Traced) -> None:
    """Whether it was left in the task that entered it, or elsewhere."""
    await concert.enqueue_many([])
    await concert.enqueue("any")
    await concert.enqueue("any")
    async with concert.consume("default") as jobs:
        here, elsewhere = await jobs.claim(2)
        async with here:
            assert trace.get_current_span().is_recording()
        assert not trace.get_current_span().is_recording()
        await asyncio.create_task(elsewhere.__aenter__())
        await elsewhere.__aexit__(None, None, None)
        assert not trace.get_current_span().is_recording()

    assert len(traced.spans("run any")) == 2


async def test_a_failed_enqueueing_is_an_error(concert: Coordinator, traced: Traced, own_server: RealServer) -> None:
    """Of its span, which ends."""
    async with Coordinator(own_server.url, timeout=0.5) as other:
        instrument(other, tracer_provider=traced.provider)
        own_server.kill()
        with pytest.raises(Exception, match="enqueue"):
            await other.enqueue("any")

    [span] = traced.spans("enqueue default")
    assert span.status.status_code is trace.StatusCode.ERROR


async def test_what_is_not_sampled_sends_nothing_along(concert: Coordinator) -> None:
    """And has no link."""
    instrument(concert, tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    await concert.enqueue("any")
    async with concert.consume("default") as jobs:
        [job] = await jobs.claim(1)
        async with job:
            assert job._state.trace == ""


async def test_without_an_sdk_nothing_happens(concert: Coordinator) -> None:
    """The API alone records nothing."""
    instrument(concert)
    await concert.enqueue("any")
    async with concert.consume("default") as jobs:
        [job] = await jobs.claim(1)
        async with job:
            assert not trace.get_current_span().is_recording()
        assert job._state.trace == ""


async def test_what_can_be_seen_sends_nothing_while_nobody_looks(
    own_server: RealServer, namespace: str, traced: Traced
) -> None:
    """Reports, the search for deadlocks, probes, metrics and traces: a holder and a waiter send as little as ever."""
    prometheus = pytest.importorskip("inconcert.integrations.prometheus")
    registry = pytest.importorskip("prometheus_client").CollectorRegistry()
    concert = Coordinator(own_server.url, namespace=namespace, label="web", report=True)
    instrument(concert, tracer_provider=traced.provider)
    metrics = prometheus.Metrics(concert, queues=["mail"], registry=registry)
    async with concert:
        with WorkerHealth().serve("127.0.0.1", 0), prometheus.serve("127.0.0.1", 0, registry=registry):
            lock = concert.lock("item", ttl=600)
            async with lock, in_background(lock.acquire()):
                await in_line(lock, 1)
                before = await commands_processed(concert)
                await asyncio.sleep(1)
                assert await commands_processed(concert) == before + 1
    metrics.close()


async def test_a_producer_without_a_loop_is_traced(
    server: RealServer | RealCluster, namespace: str, concert: Coordinator, traced: Traced
) -> None:
    """From its call to the attempt elsewhere."""
    with SyncProducer(server.url, namespace=namespace) as producer:
        instrument(producer, tracer_provider=traced.provider)
        await asyncio.to_thread(producer.enqueue, "any")
    async with concert.consume("default") as jobs:
        [job] = await jobs.claim(1)
        async with job:
            pass

    [enqueue], [run] = traced.spans("enqueue default"), traced.spans("run any")
    assert ids(run.links[0].context) == ids(enqueue.context)


async def test_a_signature_covers_the_trace_context(server: RealServer | RealCluster, namespace: str) -> None:
    """One that was changed makes the job unreadable."""
    traced = Traced()
    async with Coordinator(server.url, namespace=namespace, signing_keys={"a": "x" * 16}) as signed:
        instrument(signed, tracer_provider=traced.provider)
        await signed.enqueue("any")
        bodies = signed._jobs.partitions[0].bodies
        [(id_, body)] = (await raw(signed).hgetall(bodies)).items()
        assert b'"trace":"00-' in body
        await raw(signed).hset(bodies, id_, body.replace(b'"trace":"00-', b'"trace":"01-'))
        async with signed.consume("default") as jobs:
            assert await jobs.try_claim(1) == []
        assert (await signed.tasks.stats("default")).dead == 1
