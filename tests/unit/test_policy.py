"""From which queue a consumer claims next."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inconcert import Coordinator
from inconcert._claims.policy import Policy, Strict, Weighted

BUSY = 10**9  # jobs in a queue that always has work


def claim(policy: Policy, backlog: dict[str, int], room: int) -> list[str]:
    """What the script does: jobs off the queues in the order given."""
    order, count = policy.turn(room)
    taken: list[str] = []
    for queue in order:
        number = min(backlog[queue], count - len(taken))
        backlog[queue] -= number
        taken += [queue] * number
    policy.took(order, count, taken)
    return taken


def test_strict_order_never_changes() -> None:
    """Whatever was claimed."""
    backlog = {"high": BUSY, "low": BUSY}
    policy = Strict(["high", "low"])
    assert {queue for _ in range(10) for queue in claim(policy, backlog, 10)} == {"high"}


def test_weights_are_shares() -> None:
    """In each round of seven, and however many there is room for."""
    for room in (1, 3, 100):
        backlog = {"high": BUSY, "low": BUSY}
        policy = Weighted({"high": 6, "low": 1})
        taken: list[str] = []
        while len(taken) < 700:
            taken += claim(policy, backlog, room)
        assert abs(Counter(taken)["low"] - len(taken) / 7) <= 1


def test_equal_weights_take_turns() -> None:
    """The first of the list first."""
    backlog = dict.fromkeys("abc", BUSY)
    policy = Weighted(dict.fromkeys("abc", 1))
    assert "".join(queue for _ in range(6) for queue in claim(policy, backlog, 5)) == "abcabc"


def test_what_is_empty_is_passed_over() -> None:
    """All the room goes to who has work."""
    backlog = {"high": 0, "low": 100}
    policy = Weighted({"high": 6, "low": 1})
    assert claim(policy, backlog, 6) == ["low"] * 6


def test_idle_queue_saves_nothing_up() -> None:
    """After a long idle time it gets its share, and not all that it could have had."""
    backlog = {"high": BUSY, "low": 0}
    policy = Weighted({"high": 1, "low": 1})
    for _ in range(1000):
        claim(policy, backlog, 1)
    backlog["low"] = BUSY
    assert Counter(queue for _ in range(20) for queue in claim(policy, backlog, 1)) == {"high": 10, "low": 10}


WEIGHTS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 20), min_size=2)


@given(weights=WEIGHTS, rooms=st.lists(st.integers(1, 30), min_size=1, max_size=200), data=st.data())
def test_any_window_has_the_shares(weights: dict[str, int], rooms: list[int], data: st.DataObject) -> None:
    """While all have work, no two differ by more than 2 rounds in any window, whatever the room."""
    policy, backlog = Weighted(weights), dict.fromkeys(weights, BUSY)
    claims = [claim(policy, backlog, room) for room in rooms]
    start = data.draw(st.integers(0, len(claims)))
    end = data.draw(st.integers(start, len(claims)))
    got = Counter(queue for taken in claims[start:end] for queue in taken)
    rounds = [got[queue] / weight for queue, weight in weights.items()]
    assert max(rounds) - min(rounds) <= 2 + 1e-6


@given(
    weights=WEIGHTS,
    steps=st.lists(st.tuples(st.integers(1, 30), st.sampled_from("abcde"), st.integers(0, 5)), max_size=200),
    data=st.data(),
)
def test_others_that_come_and_go_do_not_starve_one_that_has_work(
    weights: dict[str, int], steps: list[tuple[int, str, int]], data: st.DataObject
) -> None:
    """Each of two that always have work gets its share of the other's, within one claim."""
    one, other = data.draw(st.permutations(sorted(weights)))[:2]
    policy = Weighted(weights)
    backlog = {queue: BUSY if queue in {one, other} else 0 for queue in weights}
    got: Counter[str] = Counter()
    for room, queue, added in steps:
        if queue in backlog:
            backlog[queue] += added
        before = sum(backlog.values())
        taken = claim(policy, backlog, room)
        assert taken
        assert before - sum(backlog.values()) == len(taken)
        got.update(taken)
    slack = 1 + max(weights.values()) / min(weights[one], weights[other])
    assert abs(got[one] / weights[one] - got[other] / weights[other]) <= slack + 1e-6


@given(
    weights=st.dictionaries(st.sampled_from("abc"), st.integers(1, 4), min_size=2),
    steps=st.lists(st.tuples(st.integers(1, 5), st.sampled_from("abc"), st.integers(0, 20)), max_size=300),
)
def test_no_queue_with_work_waits_for_ever(weights: dict[str, int], steps: list[tuple[int, str, int]]) -> None:
    """Also not one that was empty for a time: a few rounds of the others pass at most.

    It may have had what another left of its turn, as many jobs as the heaviest weighs, and waits as long for them.
    """
    policy, backlog = Weighted(weights), dict.fromkeys(weights, 0)
    waited = dict.fromkeys(weights, 0)
    for room, queue, added in steps:
        if queue in backlog:
            backlog[queue] += added
        taken = claim(policy, backlog, room)
        for each in weights:
            waited[each] = waited[each] + len(taken) if backlog[each] and each not in taken else 0
        rounds = {each: 2 + max(weights.values()) / weights[each] for each in weights}
        assert all(waited[each] <= rounds[each] * sum(weights.values()) for each in weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"high": 6}, r"weights are for \['high'\], and queues are \('high', 'low'\)"),
        ({"high": 6, "low": 1, "other": 1}, "give each queue one weight"),
        ({"high": 6, "low": 0}, "the weight of queue 'low' is 0; give a whole number from 1 to 1,000"),
        ({"high": 1001, "low": 1}, "the weight of queue 'high' is 1001"),
        ({"high": 0.5, "low": 1}, "the weight of queue 'high' is 0.5"),
    ],
)
def test_what_cannot_be_weights_is_refused(weights: dict[str, int], message: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ValueError, match=message):
        Coordinator().consume("high", "low", weights=weights)
