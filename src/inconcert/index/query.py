"""A query of a search: `redis locks -java "hand over" pre*`."""

import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field

from inconcert.index.words import Reader

_LONGEST = 10_000  # characters; users type them
_MOST = 50  # words and phrases in a query; each is looked up for every document that may match

_TERM = re.compile(r'(?P<minus>-?)(?:"(?P<phrase>[^"]*)"|(?P<plain>[^\s"]+))')


@dataclass(slots=True)
class Query:
    """A query, read.

    The text of a document is its words between spaces: ` red apples `.  So a phrase is a part of it, and so is a space
    with the beginning of a word.
    """

    words: list[str] = field(default_factory=list)  # what a document must have
    without: list[str] = field(default_factory=list)  # the words that it must not have
    prefixes: list[str] = field(default_factory=list)  # beginnings of words; it must have a word with each
    has: list[str] = field(default_factory=list)  # parts that its text must have: phrases
    has_not: list[str] = field(default_factory=list)  # parts that its text must not have


def as_text(words: Iterable[str]) -> str:
    """Words as the text of a document, or as a part of one."""
    return f" {' '.join(words)} "


def parse(text: str, reader: Reader) -> Query:
    """Read a query.

    Terms stand between spaces, and a document must match them all: a word, a "phrase", or the beginning of a word with
    `*`.  With `-` before it, it must not match.  A word that consists of several, such as `hand-over`, is a phrase;
    what has no word, such as `&` or a stop word, is ignored.

    Raises:
        ValueError: A quotation mark is left open, a `*` is not after one word, there are more than 50 words or 10,000
            characters, or nothing to search for.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
        raise TypeError(f"a query must be a string, and {text!r} is not; write such as 'redis lock*'")
    if len(text) > _LONGEST:
        raise ValueError(f"the query has {len(text):,} characters; give at most {_LONGEST:,}")
    if text.count('"') % 2:
        raise ValueError(f'the query {text!r} has one quotation mark too many; write phrases as "two words"')
    query = Query()
    for term in _TERM.finditer(text):
        if term["plain"] and term["plain"].endswith("*"):
            _add_prefix(query, term, reader)
        else:
            _add_words(query, term, reader)
    if not query.words and not query.prefixes:
        raise ValueError(f"the query {text!r} has nothing to look for; give a word without '-' that is not a stop word")
    if sum(map(len, astuple(query))) > _MOST:
        raise ValueError(f"the query {text[:40]!r}... has too many words; give at most {_MOST}")
    return query


def _add_prefix(query: Query, term: re.Match[str], reader: Reader) -> None:
    words = reader.all_words(term["plain"].rstrip("*"))
    if len(words) != 1:
        raise ValueError(
            f"{term['plain']!r} is not the beginning of one word; write it as in 'lock*', or without the '*'"
        )
    if term["minus"]:
        query.has_not.append(f" {words[0]}")
    else:
        query.prefixes += words


def _add_words(query: Query, term: re.Match[str], reader: Reader) -> None:
    words = reader.words(term["plain"] or term["phrase"])
    if not term["minus"]:
        query.words += [word for word in dict.fromkeys(words) if word not in query.words]
        if len(words) > 1:
            query.has.append(as_text(words))
    elif len(words) == 1:
        query.without += words
    elif words:
        query.has_not.append(as_text(words))
