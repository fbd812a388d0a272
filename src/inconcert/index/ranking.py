"""The relevance of a document to the words of a query.

It is that of BM25: for each word, how rare it is among all documents, times its share in this one, which grows with its
occurrences and shrinks with the length of the text.  BM25 compares the length with the average of all.  Here it is
compared with a fixed one, so that the stored form of a document stays right when others come and go.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
"""

import math

_SPAN = 2**20  # how finely shares are stored; the scripts of _lua/index have it too
_HALF = 1.2  # BM25's k1: so many occurrences say half of what any number of them can
_LENGTH_MATTERS = 0.75  # BM25's b: 0 is not at all, 1 is in full
_USUAL_LENGTH = 100  # words


def impact_key(times: int, length: int) -> int:
    """The impact, which sorts a text among those that have a word: from 0 to 2^20 - 1, and lower for a larger share."""
    pivot = _HALF * (1 - _LENGTH_MATTERS + _LENGTH_MATTERS * length / _USUAL_LENGTH)
    return min(round(_SPAN * pivot / (times + pivot)), _SPAN - 1)


def share_of(key: int) -> float:
    """The share of a word with this key, above 0 and below 1."""
    return 1 - key / _SPAN


def rarity(documents: int, having: int) -> float:
    """The weight of a word that so many of all documents have; above 0."""
    return math.log(1 + (documents - having + 0.5) / (having + 0.5))
