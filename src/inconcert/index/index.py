"""Documents that are found by their words, in the order of their relevance, of scores of their own, or of both.

The server keeps a list of the documents of each word, with those first of which it says most, and a list of those that
have a score, in its order.  The lists of all words are one sorted set, and so are those of all scores: an index has a
fixed number of keys, and each change of a document is one script.

    documents  hash  document -> its words in their order
    words      hash  word -> its number
    postings   zset  the documents of each word
    ranks      zset  the documents of each score
    scores     hash  document -> its scores
    sorted     zset  the words by the alphabet

Source: docs/explanation/ranked-index.md
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from inconcert._core.session import SessionRef
from inconcert._redis.protocol.commands import Argument
from inconcert._redis.protocol.replies import rows
from inconcert._redis.protocol.scripts import load
from inconcert._rules.limits import whole
from inconcert._rules.names import check_name
from inconcert.errors import InvalidPayload
from inconcert.index.query import as_text, parse
from inconcert.index.ranking import impact_key
from inconcert.index.scores import number_of, scores_as_text, weights_of
from inconcert.index.search import IndexKeys, Ranks, Search, highest
from inconcert.index.words import Reader, fold, is_longer, tokenize

_ADD = load("index/add").bind(IndexKeys)
_REMOVE = load("index/remove").bind(IndexKeys)
_CLEAR = load("index/clear").bind(IndexKeys)
_SIZE = load("index/size").bind(IndexKeys)
_WORDS = load("index/words").bind(IndexKeys)

_AT_ONCE = 20  # searches of which a script is under way: other calls wait for these
_MOST_HITS = 10_000  # up to the end of a page; a search that needs more needs a better query
_LONGEST_WORD = 100  # characters, as the reader cuts them
_PAGE = 1000  # words in one reply, as index/words has it
_LONGEST_TEXT = 2**20  # characters
_MOST_WORDS = 100_000  # the server walks through them when the document is replaced
_MOST_DIFFERENT = 3_000  # of them; to replace all takes the server about 40 ms


class _WordRow(NamedTuple):
    word: bytes
    documents: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that matches a query.

    Attributes:
        id: Which document.
        score: What ranks it: its relevance, or its weighted scores, or the sum of both.
    """

    id: str
    score: float


class Index:
    """Finds documents by their words: the most relevant first, or those with the highest scores.

    It keeps the words and scores of a document, not the document itself: store that elsewhere, under the same id.

    Made by `Coordinator.index`:

    ```python
    index = concert.index("articles")
    await index.add("doc:1", "Locks in Redis, without tears", scores={"updated": 1699990000, "votes": 12})
    for hit in await index.search("redis lock* -java", weights={"updated": 1, "votes": 100}):
        print(hit.id, hit.score)
    ```

    Args:
        name: Which index. The same name in the same namespace is the same index, on any machine.
        tokenizer: Text -> its words, without spaces in them. Every process that uses an index must use the same one.
        stop_words: Words that are neither indexed nor searched for, as the tokenizer returns them.

    Raises:
        ValueError: `stop_words` is a string.
    """

    def __init__(
        self,
        ref: SessionRef,
        name: str,
        *,
        tokenizer: Callable[[str], list[str]] = tokenize,
        stop_words: Collection[str] = (),
    ) -> None:
        self._ref = ref
        self._name = name
        self._keys = ref.keys.of(IndexKeys, "index", name)
        self._reader = Reader(tokenizer, stop_words)

    def __repr__(self) -> str:
        return f"<Index {self._name!r}>"

    async def add(self, document_id: str, text: str, *, scores: Mapping[str, float] | None = None) -> None:
        """Add a document or replace its former version: completely, or not at all.

        Args:
            document_id: Which document: a name of your choice.
            text: The text by which it is found, at most 1,048,576 characters with 100,000 words, 3,000 of them
                different. One that stands for several, such as `ﬁ`, counts as these.
            scores: The numbers by which it is ranked: name -> -1e150 to 1e150, at most 50. A name has no spaces.

        Raises:
            ValueError: A score is not a number from -1e150 to 1e150, or there are too many.
            InvalidName: The id, or the name of a score, is invalid.
            InvalidPayload: The text is too long.
            Unavailable: The server could not be asked, or is full; nothing was changed.
            OutcomeUnknown: The server did not answer; add it again.

        Cost: 1 round trip, O(M log N), M different words in the document and N in all together.
        """
        check_name("document", document_id)
        words = self._words_of(f"document {document_id!r} of index {self._name!r}", text)
        values = scores_as_text(scores or {})
        impacts: list[Argument] = []  # each word and its impact key
        for word, times in Counter(words).items():
            impacts += (word, impact_key(times, len(words)))
        session = self._ref.session
        command = _ADD(
            self._keys,
            request=session.new_address(),
            document=document_id,
            text=as_text(words),
            values=values,
            impacts=impacts,
        )
        await session.run(command)

    async def remove(self, document_id: str) -> bool:
        """Remove a document.

        Returns:
            Whether the document was in the index.

        Raises:
            OutcomeUnknown: The server did not answer; remove it again.

        Cost: 1 round trip, O(M log N), M different words in the document and N in all together.
        """
        check_name("document", document_id)
        session = self._ref.session
        return bool(await session.run(_REMOVE(self._keys, request=session.new_address(), document=document_id)))

    async def clear(self) -> None:
        """Remove all documents.

        Raises:
            OutcomeUnknown: The server did not answer; clear it again.

        Cost: 1 round trip, O(1).
        """
        session = self._ref.session
        await session.run(_CLEAR(self._keys, request=session.new_address()))

    async def size(self) -> int:
        """The number of documents. Cost: 1 round trip."""
        size: int = await self._ref.session.run(_SIZE(self._keys))
        return size

    async def search(
        self,
        query: str,
        *,
        weights: Mapping[str, float] | None = None,
        relevance: float | None = None,
        offset: int = 0,
        limit: int = 10,
    ) -> list[Hit]:
        """The documents that match all terms of a query, the highest ranking first.

        A term is a word, a `"phrase"`, or the beginning of a word with `*` after it.  A document must not match a term
        with `-` before it; at least one term must be without.  The beginning of a word does not affect the rank, unless
        the query has no word or phrase: then a document ranks by its most significant word with that beginning, and the
        index must have fewer than 1,000 such words.

        Args:
            query: Such as `redis locks -java "hand over" pre*`.
            weights: Name of a score -> its weight, at most 50. A document without the score has 0.
            relevance: The weight of the words, 0 or more; by default 1 without `weights`, and 0 with them.
            offset: How many hits to skip.
            limit: How many to return, 1 or more; `offset` and `limit` together are at most 10,000.

        Returns:
            The hits. Those of the same rank are in the order of their ids, so that each page follows the one before it.

        Raises:
            ValueError: The query is invalid, has nothing to search for, or is only the beginning of 1,000 words or
                more; or a number is out of range.
            InvalidName: The name of a score is invalid.

        Cost: 2 round trips, and 1 for each further 1,000 documents that must be read: some hundred where one word is
            common, and at most as many as have the rarest of several; see docs/explanation/ranked-index.md.
        """
        terms = parse(query, self._reader)
        wanted = _end_of_page(offset, limit)
        factors = weights_of(weights or {})
        share = number_of("relevance", (0.0 if weights else 1.0) if relevance is None else relevance)
        if share < 0:
            raise ValueError(f"relevance is {relevance!r}; give 0 or more")

        alternatives = (
            [terms.words] if terms.words else [[word] for word in await self._all_with(terms.prefixes.pop(0))]
        )
        searches = [
            Search(self._keys, terms, words, relevance=share, weights=factors, wanted=wanted) for words in alternatives
        ]
        ranks = await self._run(searches)
        return [Hit(*item) for item in highest(ranks, wanted)[offset:]]

    async def suggest(self, prefix: str, *, limit: int = 10) -> list[str]:
        """Words of the documents that begin with `prefix`, the most common first.

        Args:
            prefix: The beginning of a word, in upper or lower case.
            limit: How many words to return, from 1 to 1,000.

        Raises:
            ValueError: `prefix` is empty, or `limit` out of range.

        Cost: 1 round trip. Of more than 1,000 such words, the first 1,000 by the alphabet are looked at.
        """
        if not isinstance(prefix, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
            raise TypeError(f"prefix is {prefix!r}; give a string")
        start = fold(prefix[:_LONGEST_WORD]).encode(errors="ignore").decode()  # no word has lone surrogates
        if not start:
            raise ValueError(f"prefix is {prefix!r}; give at least one character")
        whole("limit", limit, most=_PAGE)
        counts = await self._some_with(start)
        return sorted(counts, key=lambda word: (-counts[word], word))[:limit]

    # Private.

    def _words_of(self, title: str, text: str) -> list[str]:
        """The words of a text in their order, if they are not too many."""
        if is_longer(text, _LONGEST_TEXT):
            raise InvalidPayload(
                f"{title} has more than {_LONGEST_TEXT:,} characters, those counted that one stands for; add it in "
                "parts"
            )
        words = self._reader.words(text)
        if len(words) > _MOST_WORDS:
            raise InvalidPayload(f"{title} has {len(words):,} words; add it in parts of up to {_MOST_WORDS:,}")
        different = len(set(words))
        if different > _MOST_DIFFERENT:
            raise InvalidPayload(
                f"{title} has {different:,} different words; add it in parts of up to {_MOST_DIFFERENT:,}"
            )
        return words

    async def _some_with(self, prefix: str) -> dict[str, int]:
        """The alphabetically first words with this prefix, and how many documents have each."""
        flat = await self._ref.session.run(_WORDS(self._keys, prefix=prefix))
        return {row.word.decode(): row.documents for row in rows(flat, _WordRow)}

    async def _all_with(self, prefix: str) -> list[str]:
        """All words with this prefix; each is a search of its own."""
        found = [*await self._some_with(prefix)]
        if len(found) == _PAGE:
            raise ValueError(
                f"{_PAGE:,} words or more of index {self._name!r} begin with {prefix!r}; "
                "give more of the word, or another word beside it"
            )
        return found

    async def _run(self, searches: list[Search]) -> Ranks:
        """Run searches to their ends, side by side; a document that several find gets the highest of its ranks."""
        unfinished = searches
        while unfinished:
            some, others = unfinished[:_AT_ONCE], unfinished[_AT_ONCE:]
            replies = await self._ref.session.gather([search.ask() for search in some])
            unfinished = others + [search for search, reply in zip(some, replies, strict=True) if search.take(reply)]
        ranks: Ranks = {}
        for search in searches:
            for document, rank in search.ranks.items():
                ranks[document] = max(rank, ranks.get(document, rank))
        return ranks


def _end_of_page(offset: int, limit: int) -> int:
    """The number of hits that a search must find for this page."""
    whole("offset", offset, least=0, most=_MOST_HITS - 1)
    return offset + whole(f"limit at offset {offset}", limit, most=_MOST_HITS - offset)
