"""What an index promises, on a real server and on fakeredis."""

import asyncio
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest

import inconcert.index.search as searching
from inconcert import Coordinator, Hit, Index, InvalidName, InvalidPayload, tokenize
from inconcert._core.session import Session
from inconcert._redis.wire.call import Call
from inconcert.index.query import Query
from inconcert.index.scores import score_at, sort_key
from tests.support.raw import raw


@pytest.fixture
def index(any_concert: Coordinator) -> Index:
    """An empty index."""
    return any_concert.index("articles")


async def ids(index: Index, query: str, **options: Any) -> list[str]:
    """What a search finds."""
    return [hit.id for hit in await index.search(query, **options)]


async def keys_of(concert: Coordinator, *, lasting: bool = True) -> set[str]:
    """The keys of the test's indexes: those without a TTL, or those with one."""
    client: Any = raw(concert)
    return {
        key.decode().rpartition(":")[2]
        async for key in client.scan_iter(f"*{concert._ref.keys.namespace}:index:*")
        if (await client.pttl(key) == -1) is lasting
    }


async def test_many_words_with_a_prefix_are_searched_for_some_at_a_time(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other calls do not wait for hundreds of scripts; all of the words are found."""
    asked: list[int] = []
    gather = Session.gather

    async def noted(session: Session, calls: Sequence[Call]) -> list[Any]:
        asked.append(len(calls))
        return await gather(session, calls)

    monkeypatch.setattr(Session, "gather", noted)
    for number in range(50):
        await index.add(f"doc:{number}", f"lock{number:02}")
    assert len(await ids(index, "lock*", limit=100)) == 50
    assert max(asked) == 20
    assert sum(asked) == 2 * 50  # one script counts, and one searches


@pytest.fixture
async def library(index: Index) -> Index:
    """Four documents."""
    await index.add("a", "Redis locks, and how to wait for them", scores={"updated": 300, "votes": 2})
    await index.add("b", "Locks in Java: locks, locks and more locks", scores={"updated": 100, "votes": 50})
    await index.add("c", "Red apples and green pears", scores={"updated": 200})
    await index.add("d", "Waiting for a lock in C++ or C#")
    return index


# Finding.


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("redis", "a"),
        ("REDIS", "a"),
        ("locks", "ab"),
        ("locks redis", "a"),
        ("locks -java", "a"),
        ("-java locks", "a"),
        ("locks -java -redis", ""),
        ("locks -locks", ""),
        ("and", "abc"),
        ("and -unheard", "abc"),
        ("unheard", ""),
        ("locks unheard", ""),
        ("a", "d"),
        ("c", ""),
        ("C++", "d"),
        ("c#", "d"),
        ("c++ c#", "d"),
        ('"how to wait"', "a"),
        ('"to how"', ""),
        ('"locks and"', "ab"),
        ('locks -"more locks"', "a"),
        ('"red apples" green', "c"),
        ("lock*", "abd"),
        ("red*", "ac"),
        ("red* apples", "c"),
        ("re* wait*", "a"),
        ("lock* -locks", "d"),
        ("and -red*", "b"),
        ("wait* -lock -redis", ""),
        ("java:", "b"),
        ("& ... locks - redis", "a"),
        ("red-apples", "c"),
        ("apples-red", ""),
        ("and -red-apples", "ab"),
    ],
)
async def test_query_finds_the_documents_that_match_all_its_terms(library: Index, query: str, expected: str) -> None:
    """Words, phrases and beginnings of words; a `-` turns each into its opposite."""
    assert sorted(await ids(library, query)) == list(expected)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "nothing to look for"),
        ("   ", "nothing to look for"),
        ("-java", "nothing to look for"),
        ('-"a b" -c* - !', "nothing to look for"),
        ('say "hello', "quotation mark"),
        ("*", "is not the beginning of one word"),
        ("hand-o*", "is not the beginning of one word"),
        (" ".join(f"w{number}" for number in range(51)), "at most 50"),
        (f'"{"w " * 5_000}"', "at most 10,000"),
    ],
)
async def test_bad_query_is_refused(index: Index, query: str, message: str) -> None:
    """Before anything is sent: it says what is wrong."""
    with pytest.raises(ValueError, match=message):
        await index.search(query)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop-gap, node.js!", ["don't", "stop", "gap", "node", "js"]),
        ("L\u2019homme 'quoted' rock'n'roll", ["l'homme", "quoted", "rock'n'roll"]),
        ("C++ C# F# g++ a+b x#y #1 c+", ["c++", "c#", "f#", "g++", "a", "b", "x", "y", "1", "c"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("e\u0301 é \ufb01ne x²", ["é", "é", "fine", "x2"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("東京都へ", ["東", "東京", "京", "京都", "都", "都へ", "へ"]),
        ("日 ｶﾅ", ["日", "カ", "カナ", "ナ"]),
        ("ab漢c", ["ab", "漢", "c"]),
        ("한국", ["한", "한국", "국"]),
        ("__init__ snake_case", ["__init__", "snake_case"]),
        ("🎉 \x00 \ud800 ...", []),
        ("", []),
    ],
)
def test_text_becomes_words(text: str, words: list[str]) -> None:
    """In any script, whatever its case and forms."""
    assert tokenize(text) == words


@pytest.mark.parametrize("query", ["東京", "京都", "東京都", "京", "都へ行く", '"東京都へ"', "東*"])
async def test_any_part_of_a_text_without_spaces_is_found(index: Index, query: str) -> None:
    """A run of Chinese, Japanese or Korean is found by each of its parts, and by nothing else."""
    await index.add("yes", "昨日 東京都へ行く")
    await index.add("no", "東の都 へ 行く")

    assert "yes" in await ids(index, query)
    assert await ids(index, "東京") == ["yes"]


async def test_stop_words_are_neither_indexed_nor_looked_for(any_concert: Coordinator) -> None:
    """They say nothing in a query either, not even with a minus."""
    index = any_concert.index("x", stop_words=["the", "of"])
    await index.add("a", "The state of the art")

    assert await ids(index, "the art") == ["a"]
    assert await ids(index, "-the art") == ["a"]
    assert await ids(index, '"state of the art"') == ["a"]
    assert await index.suggest("t") == []
    with pytest.raises(ValueError, match="nothing to look for"):
        await index.search("the")


async def test_tokenizer_is_used_for_documents_and_queries(any_concert: Coordinator) -> None:
    """A function from a text to its words takes the place of ours, or stands on top of it."""
    index = any_concert.index("x", tokenizer=lambda text: [word.removesuffix("s") for word in tokenize(text)])
    await index.add("a", "locks")

    assert await ids(index, "Lock") == ["a"]
    assert await ids(index, "locks") == ["a"]


@pytest.mark.parametrize("word", ["", "two words", "\ud800"])
async def test_tokenizer_must_give_words(any_concert: Coordinator, word: str) -> None:
    """What it gives instead is named."""
    index = any_concert.index("x", tokenizer=lambda _: [word])

    with pytest.raises(ValueError, match="the tokenizer gave"):
        await index.add("a", "anything")


async def test_long_word_is_known_by_its_first_100_characters(index: Index) -> None:
    """As indexed, so looked for."""
    await index.add("a", "x" * 5_000)

    assert await ids(index, "x" * 200) == ["a"]
    assert await ids(index, "x" * 99) == []


# Ranking.


async def test_relevance_grows_with_occurrences_and_shrinks_with_length(index: Index) -> None:
    """BM25: what says most about the word comes first."""
    await index.add("long", "lock " + "other words " * 50)
    await index.add("short", "lock other")
    await index.add("often", "lock lock")

    hits = await index.search("lock")

    assert [hit.id for hit in hits] == ["often", "short", "long"]
    assert hits[0].score > hits[1].score > hits[2].score > 0


async def test_rare_word_weighs_more_than_a_common_one(index: Index) -> None:
    """Of two documents with both words, the one that says more about the rare one comes first."""
    for number in range(20):
        await index.add(f"other{number}", "common")
    await index.add("about-common", "common common common rare")
    await index.add("about-rare", "common rare rare rare")

    assert await ids(index, "common rare") == ["about-rare", "about-common"]


async def test_weights_rank_by_scores(library: Index) -> None:
    """The weighted sum, best first; a document without a score is a hit with 0."""
    assert await library.search("and", weights={"updated": 1}) == [Hit("a", 300), Hit("c", 200), Hit("b", 100)]
    assert await library.search("and", weights={"updated": 1, "votes": 10}) == [
        Hit("b", 600),
        Hit("a", 320),
        Hit("c", 200),
    ]
    assert await library.search("and", weights={"votes": -1}) == [Hit("c", 0), Hit("a", -2), Hit("b", -50)]
    assert await library.search("lock", weights={"updated": 1}) == [Hit("d", 0)]
    assert await library.search("and", weights={"unheard": 1}) == [Hit("a", 0), Hit("b", 0), Hit("c", 0)]


async def test_relevance_and_scores_can_be_mixed(library: Index) -> None:
    """Each with its weight: the rank is the sum."""
    [plain] = await library.search("redis")

    [mixed] = await library.search("redis", weights={"votes": 3}, relevance=10)

    assert mixed.score == pytest.approx(10 * plain.score + 6)
    assert await ids(library, "locks", weights={"votes": 0.001}, relevance=1) == ["b", "a"]
    assert await ids(library, "locks", weights={"updated": 1}, relevance=1) == ["a", "b"]


async def test_scores_are_exact(index: Index) -> None:
    """As they were given, from 1e150 to -1e150; the two zeros are one."""
    numbers = [1e150, 2.0**53, 1.5, 0.1, 5e-324, 0.0, -5e-324, -0.1, -(2.0**53), -1e150]
    for n, number in enumerate(numbers):
        await index.add(f"{n}", "x", scores={"n": number})
    await index.add("zero", "x", scores={"n": -0.0})

    hits = await index.search("x", weights={"n": 1}, limit=20)

    assert [hit.score for hit in hits] == sorted([*numbers, 0.0], reverse=True)
    assert [hit.score for hit in await index.search("x", weights={"n": -1}, limit=20)] == sorted(
        [-number for number in [*numbers, 0.0]], reverse=True
    )


def test_sort_keys_are_in_the_order_of_the_scores() -> None:
    """The highest first; each leads back to its score, and the two zeros share one."""
    numbers = [1e308, 2.0**53, 1.5, 1.0, 5e-324, 0.0, -5e-324, -1.0, -1.5, -1e308]
    keys = [sort_key(number) for number in numbers]

    assert keys == sorted(keys)
    assert [score_at(key) for key in keys] == numbers
    assert sort_key(-0.0) == sort_key(0.0)


async def test_pages_follow_each_other(index: Index) -> None:
    """Ties are broken by the id, so that pages together are the whole, each document once."""
    for number in range(30):
        await index.add(f"{number:02}", "same words", scores={"n": number // 10})

    every: list[dict[str, Any]] = [
        {},
        {"weights": {"n": 1}},
        {"weights": {"n": -1}},
        {"weights": {"n": 1}, "relevance": 1},
    ]
    for options in every:
        whole = await ids(index, "words", limit=30, **options)
        pages = [await ids(index, "words", offset=offset, limit=7, **options) for offset in range(0, 35, 7)]
        assert list(itertools.chain(*pages)) == whole
        assert len(set(whole)) == 30
    assert await ids(index, "words", limit=3, weights={"n": 1}) == ["20", "21", "22"]
    assert await ids(index, "words", limit=3, weights={"n": -1}) == ["00", "01", "02"]
    assert await ids(index, "words", offset=30) == []


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": 1.5},
        {"offset": True},
        {"offset": -1},
        {"offset": 9_991, "limit": 10},
        {"weights": {"n": math.nan}},
        {"weights": {"n": math.inf}},
        {"weights": {"n": 10**400}},
        {"weights": {"n": -1.1e150}},
        {"weights": {"n": "1"}},
        {"weights": {f"n{number}": 1 for number in range(51)}},
        {"relevance": -1},
        {"relevance": math.inf},
    ],
)
async def test_number_out_of_range_is_refused(index: Index, options: dict[str, Any]) -> None:
    """Before anything is sent."""
    with pytest.raises(ValueError, match=r"give|is"):
        await index.search("x", **options)


# Changing.


async def test_adding_again_replaces(library: Index) -> None:
    """No word and no score of the former version is left."""
    await library.add("a", "Quite another text", scores={"votes": 1})

    assert await ids(library, "redis") == []
    assert await ids(library, "another") == ["a"]
    assert await library.search("another", weights={"updated": 1, "votes": 1}) == [Hit("a", 1)]
    assert await library.suggest("redi") == []
    assert await library.size() == 4


async def test_removed_document_is_gone(library: Index) -> None:
    """From all its words; removing it again says that it was not there."""
    assert await library.remove("b")
    assert not await library.remove("b")

    assert await ids(library, "locks") == ["a"]
    assert await library.suggest("java") == []
    assert await library.size() == 3


async def test_last_document_takes_the_index_along(library: Index, any_concert: Coordinator) -> None:
    """What is left is a memory of the latest calls, which ends by itself."""
    assert await keys_of(any_concert) == {"documents", "words", "postings", "ranks", "scores", "sorted"}
    for document in "abcd":
        await library.remove(document)

    assert await keys_of(any_concert) == set()
    assert await keys_of(any_concert, lasting=False) == {"recent"}


async def test_cleared_index_is_empty(library: Index, any_concert: Coordinator) -> None:
    """And as good as new."""
    await library.clear()

    assert await library.size() == 0
    assert await ids(library, "locks") == []
    assert await keys_of(any_concert) == set()
    await library.add("e", "locks")
    assert await ids(library, "locks") == ["e"]


async def test_document_without_words_is_there_and_never_found(index: Index, any_concert: Coordinator) -> None:
    """It counts, and goes like others."""
    await index.add("a", "...", scores={"n": 1})

    assert await index.size() == 1
    assert await index.remove("a")
    assert await keys_of(any_concert) == set()


@pytest.mark.parametrize("name", ["{x}", "}", "a b", "a\nb", "*", "\x00", "3 x", "日本", "c:d", "'", "%d", "[a"])
async def test_any_name_will_do(any_concert: Coordinator, name: str) -> None:
    """For an index and for a document, whatever characters it has."""
    index = any_concert.index(name)
    await index.add(name, "x y", scores={"n": 2})
    await index.add(name + "2", "x z", scores={"n": 1})

    assert await ids(index, "x", weights={"n": 1}) == [name, name + "2"]
    assert await ids(index, "x -z") == [name]
    assert await index.remove(name)
    assert await ids(index, "x") == [name + "2"]
    assert await any_concert.index("another").size() == 0


async def test_names_of_scores_do_not_meet(index: Index) -> None:
    """One that begins like another is another."""
    await index.add("a", "x", scores={"n": 1, "n!": 5, "nn": 7, "%s": 9})

    for name, score in {"n": 1, "n!": 5, "nn": 7, "%s": 9, "s": 0}.items():
        assert await index.search("x", weights={name: 1}) == [Hit("a", score)]


async def test_bad_input_is_refused(index: Index, any_concert: Coordinator) -> None:
    """Before anything is sent."""
    for bad in ("", "x" * 513, "\ud800"):
        with pytest.raises(InvalidName):
            await index.add(bad, "x")
        with pytest.raises(InvalidName):
            any_concert.index(bad)
    for bad in ("", "a b", "a\nb"):
        with pytest.raises(InvalidName):
            await index.add("a", "x", scores={bad: 1})
    for number in (math.nan, 1.1e150, -(10**400)):
        with pytest.raises(ValueError, match="from -1e150 to 1e150"):
            await index.add("a", "x", scores={"n": number})
    with pytest.raises(InvalidPayload, match="more than 1,048,576 characters"):
        await index.add("a", "x" * (2**20 + 1))
    with pytest.raises(InvalidPayload, match="100,001 words"):
        await index.add("a", "x " * 100_001)
    with pytest.raises(InvalidPayload, match="3,001 different words"):
        await index.add("a", " ".join(map(str, range(3_001))))
    for prefix in ("", "\ud800"):
        with pytest.raises(ValueError, match="give at least one character"):
            await index.suggest(prefix)
    with pytest.raises(ValueError, match="limit"):
        await index.suggest("x", limit=1001)
    with pytest.raises(ValueError, match="stop_words"):
        any_concert.index("x", stop_words="the")
    assert await index.size() == 0


async def test_document_may_have_three_thousand_words(concert: Coordinator) -> None:
    """The most that is allowed is indexed whole, replaced and removed whole."""
    index = concert.index("articles")
    words = [f"w{number}" for number in range(3_000)]
    await index.add("a", " ".join(words))
    assert await ids(index, "w0 w999 w1000 w2999") == ["a"]

    await index.add("a", " ".join(words[::2]))
    assert await ids(index, "w2998") == ["a"]
    assert await ids(index, "w2999") == []
    assert len(await index.suggest("w", limit=1000)) == 1000
    assert await index.remove("a")


async def test_beginning_of_very_many_words_is_refused(concert: Coordinator) -> None:
    """Each would be a search of its own; beside another word it is none, and may be the beginning of any number."""
    index = concert.index("articles")
    await index.add("a", " ".join(f"w{number}" for number in range(1_100)))
    with pytest.raises(ValueError, match="1,000 words or more of index 'articles' begin with 'w'; give more"):
        await index.search("w*")
    assert await ids(index, "w1*") == ["a"]
    assert await ids(index, "w* w7") == ["a"]


async def test_text_is_measured_by_what_its_characters_stand_for() -> None:
    """Before it is read: to read the longest text of characters that stand for 18 others would take seconds."""
    index = Coordinator().index("articles", tokenizer=lambda text: pytest.fail(f"read {len(text)} characters"))
    for text in ("\ufdfa" * 2**20, "\ufdfa" * 60_000, "x" * (2**20 + 1)):
        with pytest.raises(InvalidPayload, match="more than 1,048,576 characters, those counted that one stands for"):
            await index.add("a", text)
    with pytest.raises(pytest.fail.Exception, match="read 58000 characters"):
        await index.add("a", "\ufdfa" * 58_000)


# Suggesting.


async def test_suggestions_begin_as_asked_with_the_commonest_first(library: Index) -> None:
    """Words of one frequency are in the order of the alphabet."""
    assert await library.suggest("lo") == ["locks", "lock"]
    assert await library.suggest("A") == ["and", "a", "apples"]
    assert await library.suggest("a", limit=1) == ["and"]
    assert await library.suggest("c+") == ["c++"]
    assert await library.suggest("unheard") == []


# Many documents: read in parts.


@pytest.fixture
async def many(concert: Coordinator) -> Index:
    """2,500 documents, more than one script reads."""
    index = concert.index("articles")
    await asyncio.gather(
        *(
            index.add(
                f"{number:04}",
                f"all mod{number % 7} {'often ' * (number % 5)}" + ("rare" if number % 500 == 3 else "pad"),
                scores={"n": number, "m": -number % 100} if number % 2 else {"n": number},
            )
            for number in range(2_500)
        )
    )
    return index


async def test_long_lists_are_read_in_parts(many: Index) -> None:
    """The hits are those of one list that was read at once."""
    assert await ids(many, "all", weights={"n": 1}, limit=3) == ["2499", "2498", "2497"]
    assert await ids(many, "all", weights={"n": -1}, limit=3) == ["0000", "0001", "0002"]
    assert await ids(many, "all", weights={"m": 1}, limit=3) == ["0001", "0101", "0201"]
    assert await ids(many, "all", weights={"m": -1}, limit=3) == ["0000", "0002", "0004"]
    assert await ids(many, "all mod3 -rare", weights={"n": 1}, limit=2) == ["2495", "2488"]
    assert await ids(many, "rare", weights={"n": 1}) == ["2003", "1503", "1003", "0503", "0003"]
    assert await ids(many, "al*", weights={"n": 1}, limit=1) == ["2499"]
    assert len(await ids(many, "all", limit=2_500)) == 2_500
    assert len(await ids(many, "all", weights={"m": 1}, limit=10_000)) == 2_500
    assert len(await ids(many, "all pad", weights={"m": 1}, relevance=1, limit=3_000)) == 2_495


async def test_long_texts_are_looked_through_in_parts(concert: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that has looked through enough of them leaves the rest to the next: the hits are the same."""
    index = concert.index("articles", tokenizer=str.split)
    asked: list[Call] = []
    ask = searching.Search.ask

    def ask_and_note(self: searching.Search) -> Call:
        asked.append(ask(self))
        return asked[-1]

    monkeypatch.setattr(searching.Search, "ask", ask_and_note)
    pad = " " + " ".join(["x" * 100] * 6_000)  # 600 kB
    for number in range(40):
        await index.add(f"{number:02}", f"red apples{pad if number % 10 else ''}", scores={"n": number // 2})
    whole = [f"{number:02}" for number in range(40)]

    assert sorted(await ids(index, '"red apples"', limit=40)) == whole
    assert len(asked) == 1 + 2  # to count, and 24 MB in portions of 16
    newest = await ids(index, "red app*", weights={"n": 1}, limit=40)
    assert newest == sorted(whole, key=lambda document: (-(int(document) // 2), document))
    assert await ids(index, "red -app*", weights={"n": -1}) == []


async def test_document_without_a_score_is_not_forgotten_at_the_bound(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ranks like those whose score is 0, and before those that weigh less, though it is not on their list."""
    monkeypatch.setattr(searching, "_FIRST", 1)
    monkeypatch.setattr(searching, "_MOST", 2)
    await index.add("a", "word in a text whose length puts it last in the list of the word")
    for document in "bcdef":
        await index.add(document, "word", scores={"n": 0, "m": ord(document)})

    for weights in ({"n": 1}, {"n": -1}, {"m": -1}):
        assert await index.search("word", weights=weights, limit=1) == [Hit("a", 0)]


def test_search_reads_a_list_to_its_end_if_it_is_the_only_one() -> None:
    """Of a rare word, even if it became common since it was counted: nothing is known of the bound of the others."""
    keys = Coordinator().index("articles")._keys
    search = searching.Search(keys, Query(), ["rare", "common"], relevance=1, weights={}, wanted=1)

    assert search.take([10, 1, 10])
    assert search.take([[b"5 a"], [b"a", 5, 1_000_000]])
    assert search.take([[b"6 b"], [b"b", 6, 5]])
    assert not search.take([[b""], []])
    assert list(search.ranks) == ["a", "b"]
