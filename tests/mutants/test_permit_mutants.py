"""Locks and semaphores: each textbook recipe is flagged, and ours, in the same story, are not."""

from functools import partial

import pytest

from tests.mutants.flagging import Mutant, Story, find, is_flagged, name_of
from tests.mutants.locks import (
    CachedScriptLock,
    CarelessReleaseLock,
    ClientClockLock,
    ClientClockTokenLock,
    CountedTokenLock,
    EndlessLock,
    LapsingLock,
    RenewedLock,
    RepairedLock,
    SetnxThenExpireLock,
)
from tests.mutants.permit_stories import (
    dies,
    has_a_fast_clock,
    hears_no_reply_to_acquire,
    hears_no_reply_to_release,
    is_cancelled_while_it_acquires,
    is_cancelled_while_it_releases,
    is_crowded,
    loses_all_data,
    meets_a_server_without_scripts,
    releases_late,
    renews_late,
    works_for_long,
    writes_late,
)
from tests.mutants.permits import OurLock, OurSemaphore, OurWriteLock, Recipe
from tests.mutants.semaphores import ClockSemaphore, CounterSemaphore, FairSemaphore, GuardedSemaphore

_MUTANTS = [
    Mutant(SetnxThenExpireLock, partial(dies, after=1), "stranded"),
    Mutant(RepairedLock, partial(dies, after=1), "stranded"),
    Mutant(RepairedLock, partial(dies, after=2), "stranded"),
    Mutant(EndlessLock, partial(dies, after=1), "stranded"),
    Mutant(LapsingLock, works_for_long, "too many hold"),
    Mutant(LapsingLock, writes_late, "stale write"),
    Mutant(CarelessReleaseLock, releases_late, "too many hold"),
    Mutant(ClientClockLock, partial(has_a_fast_clock, limit=1), "too many hold"),
    Mutant(ClientClockTokenLock, partial(has_a_fast_clock, limit=1), "token fell"),
    Mutant(CountedTokenLock, loses_all_data, "token fell"),
    Mutant(LapsingLock, hears_no_reply_to_acquire, "stranded"),
    Mutant(LapsingLock, hears_no_reply_to_release, "lost in vain"),
    Mutant(LapsingLock, is_cancelled_while_it_acquires, "stranded"),
    Mutant(RenewedLock, is_cancelled_while_it_releases, "stranded"),
    Mutant(CachedScriptLock, partial(meets_a_server_without_scripts, after=2), "stranded"),
    Mutant(CounterSemaphore, partial(dies, after=1), "stranded"),
    Mutant(ClockSemaphore, partial(is_crowded, limit=3), "too many hold", seeds=10),
    Mutant(ClockSemaphore, partial(is_crowded, limit=3), "wrong refusal", seeds=10),
    Mutant(ClockSemaphore, partial(is_crowded, limit=3, behind=0.05), "too many hold", seeds=10),
    Mutant(FairSemaphore, partial(is_crowded, limit=1), "too many hold", seeds=10),
    Mutant(FairSemaphore, partial(is_crowded, limit=3), "too many hold", seeds=10),
    Mutant(FairSemaphore, partial(is_crowded, limit=1), "wrong refusal", seeds=10),
    Mutant(FairSemaphore, partial(has_a_fast_clock, limit=3), "too many hold"),
    Mutant(FairSemaphore, renews_late, "revived"),
    Mutant(GuardedSemaphore, partial(is_crowded, limit=3), "wrong refusal", seeds=10),
]

_STORIES = {name_of(mutant.story): mutant for mutant in _MUTANTS}  # by their names, for some have several mutants
_OURS = [
    pytest.param(recipe, mutant.story, min(mutant.seeds, 3), id=f"{recipe.__name__}-{name}")
    for name, mutant in _STORIES.items()
    for recipe in ([OurSemaphore] if "limit=3" in name else [OurLock, OurWriteLock, OurSemaphore])
]


@pytest.mark.parametrize("mutant", _MUTANTS, ids=str)
def test_checkers_flag(mutant: Mutant) -> None:
    """The recipe's defect shows in the story, and is named."""
    assert is_flagged(mutant)


@pytest.mark.parametrize(("recipe", "story", "seeds"), _OURS)
def test_checkers_find_nothing_in_ours(recipe: type[Recipe], story: Story, seeds: int) -> None:
    """In the same story."""
    assert [violation for seed in range(seeds) for violation in find(story, recipe, seed=seed)] == []
