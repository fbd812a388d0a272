"""The search of the built site, with the scores that the theme's worker gives.

The worker is lunr with two additions: each word of a query also finds words that begin with it; and the top of a page
counts for more than a section, and a section that has all words for more than one that has some.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

__all__ = ["SiteSearch"]

_K1 = 1.2  # lunr's default; the worker sets its other constant, which weighs the length of a text, to 0


@dataclass(frozen=True)
class _Section:
    page: str
    is_top: bool
    boost: float
    words: dict[str, Counter[str]]  # field -> how often each word is in it


class SiteSearch:
    """The search over the folder of a built site."""

    def __init__(self, site: Path) -> None:
        index: dict[str, Any] = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
        self._separator = re.compile(index["config"]["separator"])
        self._fields = {name: float(field["boost"]) for name, field in index["config"]["fields"].items()}
        self._sections: list[_Section] = []
        holding: Counter[str] = Counter()
        for each in index["docs"]:
            page, _, anchor = each["location"].partition("#")
            words = {field: Counter(self._words(each.get(field, ""))) for field in self._fields}
            self._sections.append(_Section(page, not anchor, each.get("boost", 1.0), words))
            holding.update(set[str]().union(*words.values()))
        total = len(self._sections)
        self._rarity = {word: log(1 + abs((total - n + 0.5) / (n + 0.5))) for word, n in holding.items()}

    def pages(self, query: str) -> list[str]:
        """The pages that a query finds, the best first."""
        wanted = self._words(query)
        found = {word: [term for term in self._rarity if term.startswith(word)] for word in wanted}
        scores: dict[str, float] = {}
        for section in self._sections:
            score = sum(self._score(section, term) for terms in found.values() for term in terms)
            if not score:
                continue
            seen = set[str]().union(*section.words.values())
            complete = sum(any(term in seen for term in terms) for terms in found.values()) / len(found)
            score *= 1 + (section.is_top + complete) ** 2
            scores[section.page] = max(score, scores.get(section.page, 0.0))
        return sorted(scores, key=lambda page: -scores[page])

    def _score(self, section: _Section, term: str) -> float:
        weights = (boost * self._weight(section.words[field][term]) for field, boost in self._fields.items())
        return section.boost * self._rarity[term] ** 2 * sum(weights)

    @staticmethod
    def _weight(count: int) -> float:
        return (_K1 + 1) * count / (_K1 + count)

    def _words(self, text: str | list[str]) -> list[str]:
        plain = re.sub(r"<[^>]+>", " ", " ".join(text) if isinstance(text, list) else text)
        return [word for word in self._separator.split(plain.lower()) if word]
