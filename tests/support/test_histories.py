"""What the checkers say of histories written by hand, and that the quick ones agree with the plain ones."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.support.histories import (
    Attempt,
    Begun,
    Life,
    StepResult,
    StepRun,
    Verdict,
    Write,
    differing_results,
    fallen_tokens,
    false_verdicts,
    late_commits,
    misdeliveries,
    repeated_steps,
    stale_writes,
    starved,
    strandings,
    too_many_holders,
    wrong_refusals,
)


def granted(who: str, *times: float, token: int | None = None) -> Attempt:
    """Asked, answered, stopped, gone."""
    asked_at, answered_at, stopped_at, gone_at = (*times, *[math.inf] * (4 - len(times)))
    return Attempt(who, asked_at, answered_at, True, token, stopped_at, gone_at)


def refused(who: str, asked_at: float, answered_at: float) -> Attempt:
    """Told no."""
    return Attempt(who, asked_at, answered_at)


@st.composite
def histories(draw: st.DrawFn) -> list[Attempt]:
    """Attempts at different times."""
    count = draw(st.integers(1, 8))
    times = iter(draw(st.permutations(range(4 * count))))
    attempts: list[Attempt] = []
    for number in range(count):
        asked, answered, stopped, gone = sorted(float(next(times)) for _ in range(4))
        if draw(st.booleans()):
            attempts.append(granted(str(number), asked, answered, stopped, draw(st.sampled_from([gone, math.inf]))))
        else:
            attempts.append(refused(str(number), asked, answered))
    return attempts


@given(histories(), st.integers(1, 3))
def test_too_many_holders_are_those_who_hold_at_once(attempts: list[Attempt], limit: int) -> None:
    """Counted at each grant."""
    holding = [attempt for attempt in attempts if attempt.is_granted]
    plain = [
        one
        for one in holding
        if sum(other.answered_at <= one.answered_at < other.stopped_at for other in holding) > limit
    ]
    assert len(too_many_holders(attempts, limit=limit)) == len(plain)


@given(histories(), st.integers(1, 3))
def test_wrong_refusals_are_those_in_whose_time_there_was_room(attempts: list[Attempt], limit: int) -> None:
    """At each instant of it."""

    def possibly_held(at: float) -> int:
        return sum(other.is_granted and other.asked_at <= at < other.gone_at for other in attempts)

    plain = [
        one
        for one in attempts
        if not one.is_granted
        and max(possibly_held(at + 0.5) for at in range(int(one.asked_at), int(one.answered_at))) < limit
    ]
    assert len(wrong_refusals(attempts, limit=limit)) == len(plain)


def test_who_stops_before_the_next_is_told_is_not_too_many() -> None:
    """However long the release takes."""
    assert too_many_holders([granted("ann", 0, 1, 5, 9), granted("bob", 2, 6, 7, 8)]) == []


def test_who_died_before_it_was_told_holds_nothing() -> None:
    """The answer comes to nobody."""
    assert too_many_holders([granted("ann", 0, 3, 2), granted("bob", 0, 1, 9)]) == []


def test_waiting_while_someone_holds_is_not_stranded() -> None:
    """But from then on it is."""
    attempts = [granted("ann", 0, 1, 50), Attempt("bob", 2)]
    assert strandings(attempts, within=10, until=60) == []
    assert [violation.kind for violation in strandings(attempts, within=10, until=61)] == ["stranded"]


def test_the_dead_wait_for_nothing() -> None:
    """Only until they died."""
    assert strandings([Attempt("ann", 0, stopped_at=5)], within=10, until=100) == []


def test_tokens_of_grants_at_the_same_time_need_no_order() -> None:
    """Only those of one after the other."""
    assert fallen_tokens([granted("ann", 0, 5, token=2), granted("bob", 1, 3, token=1)]) == []
    assert len(fallen_tokens([granted("ann", 0, 1, token=2), granted("bob", 2, 3, token=2)])) == 1


def test_stale_write_is_one_that_was_accepted() -> None:
    """One that was refused is what tokens are for."""
    ann, bob = granted("ann", 0, 1), granted("bob", 2, 3)
    assert stale_writes([Write(ann, 1, True), Write(bob, 3, True), Write(ann, 4, False)]) == []
    assert len(stale_writes([Write(ann, 1, True), Write(bob, 3, True), Write(ann, 4, True)])) == 1


def test_verdict_about_the_moment_of_the_lapse_may_be_either() -> None:
    """What is asked before and answered after is nobody's fault."""
    assert false_verdicts([Verdict("ann", 1, 3, 2, was_held) for was_held in (True, False)]) == []
    assert [found.kind for found in false_verdicts([Verdict("ann", 3, 4, 2, True)])] == ["revived"]
    assert [found.kind for found in false_verdicts([Verdict("ann", 0, 1, 2, False)])] == ["lost in vain"]


def test_each_item_is_handled_once_and_not_before_it_is_due() -> None:
    """Each of the three is told."""
    due = dict.fromkeys("abcd", 5.0)
    found = misdeliveries(due, [("a", 5), ("b", 6), ("b", 7), ("c", 4)])
    assert [violation.kind for violation in found] == ["handled twice", "too early", "never handled"]


def test_step_runs_again_only_until_a_body_has_its_result() -> None:
    """What had run, and was not kept, runs again; and other jobs have steps of the same name."""
    results = [StepResult("job", "one", 1, 3, 5, "a")]
    assert (
        repeated_steps([StepRun("job", "one", 1), StepRun("job", "one", 4), StepRun("other", "one", 9)], results) == []
    )
    assert [found.kind for found in repeated_steps([StepRun("job", "one", 6)], results)] == ["step ran again"]


def test_late_commit_is_one_of_a_step_that_was_through_when_the_job_was_taken_over() -> None:
    """One that was under way then may be kept; and what was kept before is read by all."""
    begun = [Begun("job", 1, 0), Begun("job", 2, 5), Begun("other", 3, 1)]
    in_time = [StepResult("job", "one", 1, 4, 6, "a"), StepResult("job", "two", 2, 7, 8, "b")]
    assert late_commits(begun, [*in_time, StepResult("job", "one", 1, None, 9, "a")]) == []
    assert [found.kind for found in late_commits(begun, [StepResult("job", "two", 1, 6, 7, "a")])] == ["late commit"]


def test_result_of_a_step_is_the_same_in_all_attempts() -> None:
    """Whoever ran it."""
    one, again = StepResult("job", "one", 1, 1, 2, "a"), StepResult("job", "one", 2, None, 4, "a")
    assert differing_results([one, again, StepResult("other", "one", 3, 1, 2, "b")]) == []
    assert [found.kind for found in differing_results([one, again._replace(value="b")])] == ["another result"]


def test_starved_is_a_job_that_others_overtake_again_and_again() -> None:
    """Counted by what begins while it is there, however long that takes."""
    lives = {"quick": Life(0, 3), "slow": Life(1, 1000), "passed": Life(1, 9)}
    begun = [0.5, 1, 2, 4, 5, 6, 8.5]
    assert starved(lives, begun, most=6) == []
    assert [violation.what.split(":")[0] for violation in starved(lives, begun, most=5)] == ["slow", "passed"]
