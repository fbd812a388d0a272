"""One search: lists of documents, each with its best first, are read side by side until the best of all are known.

There is a list for each word of the query, and one for each score that is asked for.  A document that was not met in
any of them so far ranks at most as high as one would that stood at the present position of all.  Once enough documents
are known that rank higher, no other can come before them: so the best ten of 100,000 are found among the first few.

Source: Fagin, Lotem and Naor, "Optimal aggregation algorithms for middleware", 2003: the threshold algorithm.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from inconcert._redis.protocol.replies import Reply
from inconcert._redis.protocol.scripts import load
from inconcert._redis.wire.call import Call
from inconcert.index.query import Query
from inconcert.index.ranking import rarity, share_of
from inconcert.index.scores import score_at

Ranks = dict[str, float]  # document -> its rank


_FIRST = 100  # documents to read before the first look at whether they are enough
_MOST = 1000  # documents to read in one script


@dataclass(slots=True)
class _SortedList:
    """The documents that have a word or a score, and how far they were read."""

    kind: Literal["word", "highest", "lowest"]
    name: str
    weight: float
    has_all: bool = True  # whether every document that matches is on it
    last: str = ""  # the entry that was read last: what orders it, and the document

    def adds(self, fact: Reply) -> float:
        """Its share in the rank of a document, from the impact key of the word or the sort key of the score."""
        if self.kind == "word":
            return self.weight * share_of(int(fact))
        return self.weight * score_at(fact) if fact else 0.0

    @property
    def most(self) -> float:
        """The most that it can add to the rank of a document that was not met."""
        most = self.adds(self.last.partition(" ")[0])
        return most if self.has_all else max(0.0, most)


class IndexKeys(NamedTuple):
    """The keys of an index."""

    documents: str  # hash: document -> its words in their order: ' red apples '
    words: str  # hash: word -> its number; '' -> the last number that was given
    postings: str  # zset: 'NUMBER DOCUMENT' -> NUMBER * 2^20 + impact key: the lower, the more it says
    ranks: str  # zset: 'NAME SORT_KEY DOCUMENT', all with the score 0
    scores: str  # hash: document -> its scores, each '\nNAME SORT_KEY'; the lower its sort key, the higher the score
    sorted: str  # zset: words, all with the score 0
    recent: str
    older: str


_COUNT = load("index/count").bind(IndexKeys)
_SEARCH = load("index/search").bind(IndexKeys)


class Search:
    """The way to the documents that rank highest: `ask`, `take` the reply, and again while there may be others.

    Args:
        query: Further conditions on a document: words that it must have, or must not have.
        words: One or more words that it must have.
        relevance: The weight of the words, 0 or more.
        weights: Name of a score -> its weight, which is not 0.
        wanted: How many documents are to be found.
    """

    def __init__(
        self,
        keys: IndexKeys,
        query: Query,
        words: Sequence[str],
        *,
        relevance: float,
        weights: Mapping[str, float],
        wanted: int,
    ) -> None:
        self.ranks: Ranks = {}
        has = query.has + [f" {prefix}" for prefix in query.prefixes]
        parts = {"words": words, "without": query.without, "has": has, "has_not": query.has_not}
        self._query = msgspec.json.encode(parts | {"names": list(weights)})
        self._keys = keys
        self._lists = [_SortedList("word", word, relevance) for word in words]
        self._lists += [_SortedList("highest" if item[1] > 0 else "lowest", *item) for item in weights.items()]
        self._reading: list[_SortedList] = []  # those of them that are being read
        self._wanted = wanted
        self._enough: float = wanted  # how many must be known before it makes sense to see whether others rank higher
        self._size = 0  # documents to read next

    def ask(self) -> Call:
        """The next call to be submitted."""
        if not self._reading:
            return Call(_COUNT(self._keys, lists=[part for each in self._lists for part in (each.kind, each.name)]))
        lists = [part for each in self._reading for part in (each.kind, each.name, each.last)]
        most = max(1, self._size // len(self._reading))
        return Call(_SEARCH(self._keys, query=self._query, most=most, lists=lists))

    def take(self, reply: Reply) -> bool:
        """Take its reply, and say whether other documents may rank higher than those in `ranks`."""
        if not self._reading:
            return self._begin(*reply)
        self._size = min(2 * self._size, _MOST)
        return self._read(*reply) and not self._is_decided()

    # Private.

    def _begin(self, documents: int, *counts: int) -> bool:
        """Choose what to read: a list on which are all that match, and those that bring the highest forward."""
        for each, count in zip(self._lists, counts, strict=True):
            if each.kind == "word":
                each.weight *= rarity(documents, count)
            else:
                each.has_all = count == documents
        fewest, rarest = min(
            ((count, each) for each, count in zip(self._lists, counts, strict=True) if each.kind == "word"),
            key=lambda item: item[0],
        )
        self._reading = [each for each in self._lists if each is rarest or each.weight]
        self._size = min(_FIRST + self._wanted, _MOST)
        if len(self._reading) > 1 and fewest < _MOST:  # one script reads them all
            self._reading, self._size, self._enough = [rarest], _MOST, math.inf
        return fewest > 0

    def _read(self, lasts: list[bytes], rows: list[Reply]) -> bool:
        """Note the documents that match, and how far each list was read; whether there may be others."""
        width = 1 + len(self._lists)
        for start in range(0, len(rows), width):
            document, *facts = rows[start : start + width]
            rank = 0.0
            for each, fact in zip(self._lists, facts, strict=True):
                rank += each.adds(fact)
            self.ranks[document.decode()] = rank
        for each, last in zip(self._reading, lasts, strict=True):
            each.last = last.decode()
        has_more = all(each.last for each in self._reading if each.has_all)
        self._reading = [each for each in self._reading if each.last]
        return has_more

    def _is_decided(self) -> bool:
        """True if no document that was not met can be among the highest."""
        if len(self.ranks) < self._enough:
            return False
        best = highest(self.ranks, self._wanted)
        self.ranks = dict(best)  # no other that was met can be among them
        document, rank = best[-1]
        bound = 0.0
        for each in self._reading:  # in the order in which a rank is added up, so that both are rounded alike
            bound += each.most
        return (-rank, document) <= (-bound, self._before_equals())

    def _before_equals(self) -> str:
        """The document after which all those come that were not met and rank at the bound; '' if that is not known."""
        ranking = [each for each in self._reading if each.weight]
        if len(ranking) > 1 and any(each.kind != "word" for each in ranking):
            return ""  # large scores may swallow small differences in others
        if not all(each.has_all or each.most > 0 for each in ranking):
            return ""  # documents without the score rank there too
        return max((each.last.partition(" ")[2] for each in ranking), default="")


def highest(ranks: Ranks, count: int) -> list[tuple[str, float]]:
    """The documents that rank highest; those of one rank in the order of their names."""
    return heapq.nsmallest(count, ranks.items(), key=lambda item: (-item[1], item[0]))
