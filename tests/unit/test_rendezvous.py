"""Which member a key belongs to: the same everywhere, few keys move, and a division agrees with single questions."""

from collections import Counter
from itertools import islice

from hypothesis import example, given, settings
from hypothesis import strategies as st

from inconcert._rules.rendezvous import Division, Rendezvous

KEYS = [f"site:{number}" for number in range(2000)]


def members(*names: str) -> Rendezvous:
    """These."""
    rendezvous = Rendezvous()
    for name in names:
        rendezvous.add(name)
    return rendezvous


def owners(rendezvous: Rendezvous) -> dict[str, str | None]:
    """Who has each key."""
    return {key: rendezvous.owner(key) for key in KEYS}


def divided(division: Division, rendezvous: Rendezvous) -> dict[str, str | None]:
    """Who has each key, as a division says when all its steps are done."""
    for _ in division.steps():
        pass
    return {key: member for member in rendezvous.numbers for key in division.of(member)}


def test_owner_is_the_same_in_every_process_and_version() -> None:
    """Fixed, because processes of two releases share keys during a deployment."""
    rendezvous = members("a", "b", "c", "ä", "session.17")
    found = [rendezvous.owner(key) for key in ("k", "site:1", "site:2", "site:3", "", "ü", "x" * 512)]
    assert found == ["ä", "session.17", "ä", "a", "session.17", "session.17", "b"]


def test_nobody_owns_a_key_without_members() -> None:
    """And a single one owns all."""
    assert members().owner("k") is None
    assert set(owners(members("only")).values()) == {"only"}


def test_keys_are_spread_evenly() -> None:
    """Each of ten has a tenth, within five standard deviations."""
    counts = Counter(owners(members(*(f"member.{number}" for number in range(10)))).values())
    assert len(counts) == 10
    assert all(abs(count - 200) < 5 * (2000 * 0.1 * 0.9) ** 0.5 for count in counts.values())


def test_only_the_keys_of_one_that_comes_or_goes_move() -> None:
    """About 1/n of them; the same member gets the same keys again."""
    rendezvous = members(*(f"member.{number}" for number in range(9)))
    before = owners(rendezvous)
    rendezvous.add("new")
    after = owners(rendezvous)
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert 130 < len(moved) < 270
    rendezvous.remove("new")
    assert owners(rendezvous) == before


@settings(deadline=None, max_examples=100)
@given(turns=st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 2)), max_size=8), max_size=8))
@example(turns=[[(True, 0, 1), (True, 1, 0), (False, 0, 1), (False, 1, 1), (True, 2, 1)]])
@example(turns=[[(True, 1, 2)], [(False, 0, 0), (False, 1, 1), (True, 0, 0)]])
def test_division_agrees_with_each_single_owner(turns: list[list[tuple[bool, int, int]]]) -> None:
    """However many come and go between its steps, and in their midst."""
    rendezvous = members("member.0")
    division = Division(KEYS[:100], rendezvous)
    for turn in turns:
        for comes, number, steps in turn:
            member = f"member.{number}"
            if comes:
                rendezvous.add(member)
            else:
                rendezvous.remove(member)
            division.note(member)
            for _ in islice(division.steps(), steps):  # of another that shares the work
                pass
        expected = {key: owner for key in KEYS[:100] if (owner := rendezvous.owner(key)) is not None}
        assert divided(division, rendezvous) == expected


def test_division_does_one_member_in_each_step() -> None:
    """So that many members and keys do not hold up the event loop."""
    rendezvous = members(*(f"member.{number}" for number in range(20)))
    division = Division(KEYS, rendezvous)
    assert len(list(division.steps())) == 20
    assert not list(division.steps())
    rendezvous.remove("member.7")
    division.note("member.7")
    assert len(list(division.steps())) == 1
