"""A document, as the index keeps it."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from inconcert._redis.protocol.commands import Argument
from inconcert.errors import InvalidPayload
from inconcert.index.query import as_text
from inconcert.index.ranking import impact_key
from inconcert.index.scores import scores_as_text
from inconcert.index.words import Reader, is_longer

_LONGEST_TEXT = 2**20  # characters
_MOST_WORDS = 100_000  # the server walks through them when the document is replaced
_MOST_DIFFERENT = 3_000  # of them; to replace all takes the server about 40 ms


class Facts(NamedTuple):
    """The stored form of a document."""

    text: str
    values: str
    impacts: list[Argument]  # each word and its impact key


def facts_of(title: str, text: str, scores: Mapping[str, float], reader: Reader) -> Facts:
    """Its words in their order, its scores, and each word with its impact key: what `index/add` is given.

    Args:
        title: The document's name in errors.
        text: The text by which it is found.
        scores: The numbers by which it is ranked.
        reader: How a text becomes words.

    Raises:
        ValueError: A score is not a number from -1e150 to 1e150, or there are too many.
        InvalidName: The name of a score is invalid.
        InvalidPayload: The text is too long, or has too many words.
    """
    if is_longer(text, _LONGEST_TEXT):
        raise InvalidPayload(
            f"{title} has more than {_LONGEST_TEXT:,} characters, those counted that one stands for; add it in parts"
        )
    words = reader.words(text)
    if len(words) > _MOST_WORDS:
        raise InvalidPayload(f"{title} has {len(words):,} words; add it in parts of up to {_MOST_WORDS:,}")
    counts = Counter(words)
    if len(counts) > _MOST_DIFFERENT:
        raise InvalidPayload(
            f"{title} has {len(counts):,} different words; add it in parts of up to {_MOST_DIFFERENT:,}"
        )
    impacts: list[Argument] = [part for word, times in counts.items() for part in (word, impact_key(times, len(words)))]
    return Facts(as_text(words), scores_as_text(scores), impacts)
