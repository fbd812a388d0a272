"""What a worker answers to probes, judged by what it did last."""

from dataclasses import replace

import pytest

from inconcert._claims.signs import ConsumerSigns
from inconcert.cli.target import address_in
from inconcert.tasks.running.health import WorkerSigns, judge_live, judge_ready

NOW = 1000.0
CONSUMER = ConsumerSigns(turned_at=NOW - 1, is_watched=True, claimed_at=NOW - 5, waits_since=NOW - 5, is_held=True)
IDLE = WorkerSigns(consumer=CONSUMER, claims_since=0.0, is_draining=False, running=0, capacity=2)
BUSY = replace(IDLE, running=2, jobs=[("job a", NOW - 60, None), ("job b", NOW - 3, 1.0)])


def but(signs: WorkerSigns, **changed: object) -> WorkerSigns:
    """These signs, but for something that its consumer did."""
    assert signs.consumer is not None
    return replace(signs, consumer=signs.consumer._replace(**changed))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("signs", "live", "ready", "why"),
    [
        pytest.param(IDLE, True, "ready", "", id="idle"),
        pytest.param(but(IDLE, claimed_at=NOW - 9.9, waits_since=None), True, "ready", "", id="slow"),
        pytest.param(but(IDLE, claimed_at=NOW - 10.1), True, "stuck", "no claim was answered for 10.1 s", id="mute"),
        pytest.param(but(IDLE, waits_since=NOW - 9), True, "stuck", "waits for jobs has not answered", id="no bell"),
        pytest.param(but(IDLE, claimed_at=None), True, "starting", "no claim was answered yet", id="first claim"),
        pytest.param(replace(IDLE, consumer=None), True, "starting", "no claim", id="opening"),
        pytest.param(replace(IDLE, is_draining=True), True, "draining", "told to stop", id="draining"),
        pytest.param(but(IDLE, turned_at=NOW - 11), False, "blocked", "stood still for 11.0 s", id="blocked"),
        pytest.param(but(IDLE, turned_at=NOW - 9), True, "ready", "", id="nearly blocked"),
        pytest.param(but(IDLE, is_watched=False), False, "blocked", "thread that watches", id="unwatched"),
        pytest.param(BUSY, True, "busy", "", id="busy"),
        pytest.param(but(BUSY, claimed_at=NOW - 3600, waits_since=NOW - 3600), True, "busy", "", id="long busy"),
        pytest.param(but(BUSY, is_held=False), True, "stuck", "no heartbeat", id="busy and cut off"),
        pytest.param(
            but(replace(IDLE, claims_since=NOW - 1), claimed_at=NOW - 3600), True, "ready", "", id="free again"
        ),
        pytest.param(
            but(replace(IDLE, claims_since=NOW - 1), claimed_at=NOW - 3600, is_held=False),
            True,
            "stuck",
            "no claim was answered for 3600.0 s",
            id="cut off, so free again",
        ),
        pytest.param(but(IDLE, is_held=False), True, "ready", "", id="another worker begins"),
        pytest.param(
            replace(BUSY, jobs=[("job a", NOW - 60, 40.0), ("job b", NOW - 12, 1.0)]),
            True,
            "stuck",
            "past their time limit",
            id="all hang",
        ),
        pytest.param(
            replace(BUSY, jobs=[("job a", NOW - 60, 40.0), ("job b", NOW - 10, 1.0)]), True, "busy", "", id="one hangs"
        ),
    ],
)
def test_signs_are_judged(signs: WorkerSigns, live: bool, ready: str, why: str) -> None:
    """A worker lives while its loop turns; it is ready while claims are answered, or its places are taken."""
    answered = judge_ready(signs, NOW)
    assert judge_live(signs, NOW).is_ok == live
    assert (answered.state, answered.is_ok) == (ready, ready in {"ready", "busy"})
    assert why in answered.reason
    assert bool(why) == bool(answered.reason)
    if signs.jobs:
        assert (answered.oldest_job, answered.oldest_seconds, answered.running) == ("job a", 60.0, 2)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8081", ("127.0.0.1", 8081)),
        ("localhost:1", ("localhost", 1)),
        (":8081", ("0.0.0.0", 8081)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::]:80", ("::", 80)),
    ],
)
def test_address_of_probes_is_read(text: str, address: tuple[str, int]) -> None:
    """A host and a port."""
    assert address_in("--health", text) == address


@pytest.mark.parametrize("text", ["", "8081", "127.0.0.1", "host:", "host:0", "host:65536", "host:x", "::1:80"])
def test_address_that_is_none_is_refused(text: str) -> None:
    """With an example."""
    with pytest.raises(ValueError, match="give HOST:PORT"):
        address_in("--health", text)
