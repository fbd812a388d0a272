"""The frame of all mutants: a story, told of a recipe, and what the checkers find in its history."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from inconcert.testing import World, simulate
from tests.support.histories import Kind, Violation

__all__ = ["Mutant", "Story", "find", "is_flagged", "name_of"]

Story = Callable[[World, Any], Awaitable[list[Violation]]]
"""Told of a recipe, which makes what each process uses."""


class Mutant(NamedTuple):
    """A recipe with a defect, a story in which it shows, what the checkers are to find there, and in how many seeds."""

    recipe: Any
    story: Story
    kind: Kind
    seeds: int = 1

    def __str__(self) -> str:
        return f"{self.recipe.__name__}-{name_of(self.story)}-{self.kind}".replace(" ", "_")


def is_flagged(mutant: Mutant) -> bool:
    """Whether the checkers find in one of its seeds what they are to find."""
    return any(
        violation.kind == mutant.kind
        for seed in range(mutant.seeds)
        for violation in find(mutant.story, mutant.recipe, seed=seed)
    )


def find(story: Story, recipe: Any, *, seed: int = 0) -> list[Violation]:
    """Tell a story, and return all that is wrong in it."""
    found: list[Violation] = []

    async def tell(world: World) -> None:
        found.extend(await story(world, recipe))

    simulate(tell, seeds=[seed])
    return found


def name_of(story: Any) -> str:
    """A story's name, with its arguments if it is one of several."""
    if keywords := getattr(story, "keywords", {}):
        return f"{story.func.__name__}({', '.join(f'{name}={value}' for name, value in keywords.items())})"
    return str(story.__name__)
