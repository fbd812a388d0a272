"""An index against a plain one in Python: after any changes they find the same, in the same order, and keep no more."""

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fakeredis import FakeServer
from fakeredis.aioredis import FakeRedis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import inconcert.index.search as searching
from inconcert import Coordinator, Index
from tests.support.raw import new_client
from tests.support.servers import RealServer
from tests.support.world import examples

WORDS = ["a", "ab", "abc", "b", "ba", "c++", "日"]
MOST = 3  # documents in a script, so that few are read in parts

documents = st.sampled_from([f"doc{number}" for number in range(10)])
texts = st.lists(st.sampled_from(WORDS), max_size=8)
numbers = st.sampled_from([-2.0, -0.5, 0.0, 0.1, 1.0, 3.0, 1e6])
names = st.sampled_from(["x", "xy"])
scores = st.dictionaries(names, numbers)
words = st.sampled_from(WORDS)
terms = st.lists(st.tuples(st.booleans(), st.sampled_from(["word", "phrase", "prefix"]), words, words), max_size=3)

MakeClient = Callable[[], Any]


class IndexModel(RuleBasedStateMachine):
    """One index, and a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.documents: dict[str, tuple[list[str], dict[str, float]]] = {}

    def make_client(self) -> Any:
        """Make a client of the server to test on."""
        raise NotImplementedError

    @initialize()
    def open(self) -> None:
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.redis = self.make_client()
        self.concert = Coordinator.from_client(self.redis, namespace="model")
        await self.concert.__aenter__()
        self.index: Index = self.concert.index("it")

    def teardown(self) -> None:
        self.runner.run(self._tear_down())
        self.runner.close()

    async def _tear_down(self) -> None:
        for document in self.documents:
            assert await self.index.remove(document)
        keys = self.index._keys
        kept = (keys.documents, keys.words, keys.postings, keys.ranks, keys.scores, keys.sorted)
        assert not await self.redis.exists(*kept), "the last document has left something"
        await self.redis.delete(*keys)
        await self.concert.__aexit__(None, None, None)
        await self.redis.aclose()

    @rule(document=documents, text=texts, values=scores)
    def add(self, document: str, text: list[str], values: dict[str, float]) -> None:
        self.runner.run(self.index.add(document, " ".join(text), scores=values))
        self.documents[document] = (text, values)

    @rule(document=documents)
    def remove(self, document: str) -> None:
        assert self.runner.run(self.index.remove(document)) is (document in self.documents)
        self.documents.pop(document, None)

    @rule(word=words, others=terms, weights=st.none() | scores, relevance=st.none() | st.sampled_from([0.0, 0.5]))
    def search(self, word: str, others: list[Any], weights: dict[str, float] | None, relevance: float | None) -> None:
        """All hits are those of the model, and each page is a part of them."""
        every = [(False, "word", word, word), *others]
        query = " ".join(f"{'-' * minus}{self._term(*term)}" for minus, *term in every)
        options: dict[str, Any] = {"weights": weights, "relevance": relevance}

        hits = self.runner.run(self.index.search(query, limit=1000, **options))

        share = (0.0 if weights else 1.0) if relevance is None else relevance
        expected = self._expected(every, weights or {}, share)
        assert {hit.id: pytest.approx(hit.score, abs=1e-4, rel=1e-6) for hit in hits} == expected
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
        for offset in range(len(hits) + 1):
            page = self.runner.run(self.index.search(query, offset=offset, limit=2, **options))
            assert page == hits[offset : offset + 2]

    @rule(prefix=words, weights=st.none() | scores)
    def search_beginning(self, prefix: str, weights: dict[str, float] | None) -> None:
        """Found as by any of the words."""
        hits = self.runner.run(self.index.search(f"{prefix}*", weights=weights, limit=1000))
        having = {name for name, (text, _) in self.documents.items() if any(word.startswith(prefix) for word in text)}
        assert {hit.id for hit in hits} == having
        assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.id))
        assert self.runner.run(self.index.search(f"{prefix}*", weights=weights, limit=2)) == hits[:2]

    @rule(prefix=words)
    def suggest(self, prefix: str) -> None:
        counts = {word: sum(word in text for text, _ in self.documents.values()) for word in WORDS}
        expected = [word for word, count in counts.items() if count and word.startswith(prefix)]
        found = self.runner.run(self.index.suggest(prefix))
        assert found == sorted(expected, key=lambda word: (-counts[word], word))

    @invariant()
    def nothing_stale_is_kept(self) -> None:
        """Each key has as many entries as the documents account for."""
        self.runner.run(self._count())

    async def _count(self) -> None:
        keys = self.index._keys
        texts = [set(text) for text, _ in self.documents.values()]
        different = {word for text in texts for word in text}
        assert await self.redis.hlen(keys.documents) == len(texts)
        assert await self.redis.zcard(keys.postings) == sum(map(len, texts))
        assert await self.redis.zcard(keys.sorted) == len(different)
        assert set(await self.redis.hkeys(keys.words)) - {b""} == {word.encode() for word in different}
        assert await self.redis.zcard(keys.ranks) == sum(len(scores) for _, scores in self.documents.values())
        assert await self.redis.hlen(keys.scores) == sum(bool(scores) for _, scores in self.documents.values())

    # The plain index.

    @staticmethod
    def _term(kind: str, one: str, two: str) -> str:
        return {"word": one, "phrase": f'"{one} {two}"', "prefix": f"{one}*"}[kind]

    @staticmethod
    def _matches(text: list[str], kind: str, one: str, two: str) -> bool:
        if kind == "phrase":
            return any(text[i : i + 2] == [one, two] for i in range(len(text)))
        return any(word.startswith(one) if kind == "prefix" else word == one for word in text)

    def _expected(self, every: list[Any], weights: dict[str, float], share: float) -> dict[str, float]:
        looked_for: set[str] = set()
        for minus, kind, one, two in every:
            if not minus and kind != "prefix":
                looked_for |= {one, two} if kind == "phrase" else {one}
        found: dict[str, float] = {}
        for document, (text, values) in self.documents.items():
            if all(self._matches(text, *term) is not minus for minus, *term in every):
                rank = sum(weight * values.get(name, 0.0) for name, weight in weights.items())
                found[document] = rank + share * sum(self._bm25(word, text) for word in looked_for)
        return found

    def _bm25(self, word: str, text: list[str]) -> float:
        total, having = len(self.documents), sum(word in text for text, _ in self.documents.values())
        times, pivot = text.count(word), 1.2 * (0.25 + 0.75 * len(text) / 100)
        return math.log(1 + (total - having + 0.5) / (having + 0.5)) * times / (times + pivot)


@pytest.fixture(params=["fakeredis", "real"])
def make_client(request: pytest.FixtureRequest, server: RealServer) -> Iterator[MakeClient]:
    """Makes a client of fakeredis, anew each time, or of the common server."""
    if request.param == "real":
        yield lambda: new_client(server.url)
    else:
        yield lambda: FakeRedis(server=FakeServer())


def test_index_agrees_with_the_model(
    request: pytest.FixtureRequest, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same hits in the same order, whatever was added, replaced and removed before."""
    monkeypatch.setattr(searching, "_FIRST", 1)
    monkeypatch.setattr(searching, "_MOST", MOST)

    class IndexModelHere(IndexModel):
        def make_client(self) -> Any:
            return make_client()

    run_state_machine_as_test(
        IndexModelHere,
        settings=settings(
            max_examples=examples(40 if "real" in request.node.name else 15),
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
