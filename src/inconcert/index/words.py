"""Texts as words: those of documents, and those of queries."""

import re
import unicodedata
from collections.abc import Callable, Collection
from functools import cache

_CHUNK = 10_000  # characters; all that may come of them is made in 20 ms
_LONGEST_WORD = 100  # characters; nobody types a longer one
_NOT_IN_WORDS = re.compile("[ \ud800-\udfff]")  # the texts that we keep have spaces between words, and are UTF-8

# Scripts that are written without spaces, and Hangul, whose words grow at their ends.
_CJK = re.compile(
    "([\u3005-\u3007\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+)"
)


def tokenize(text: str) -> list[str]:
    """The words of a text in their order, in lower case: how an index reads documents, unless told otherwise.

    A word is a run of letters, digits and marks of any script, with apostrophes inside, and `++` or `#` at its end:
    `don't`, `C++`, `C#`.  A hyphen or a dot separates.  Compatible forms are the same, such as `ﬁ` and `fi`.  A run of
    Chinese, Japanese or Korean characters becomes its characters and its pairs of neighbours, so that any part of it
    is found: `東京都` is `東 東京 京 京都 都`.

    Args:
        text: Any string.
    """
    words: list[str] = []
    for number, part in enumerate(_CJK.split(fold(text))):
        if number % 2:
            words += [piece for i in range(len(part)) for piece in (part[i], part[i : i + 2])][:-1]
        else:
            words += _word().findall(part)
    return words


def fold(text: str) -> str:
    """A text in which upper and lower case, and compatible forms of characters, are the same."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.replace("\u2019", "'")


def is_longer(text: str, most: int) -> bool:
    """True if a text has more characters than this when each is written as those that it stands for: up to 18.

    Looks no further than it must.
    """
    length = 0
    for start in range(0, min(len(text), most + 1), _CHUNK):
        length += len(unicodedata.normalize("NFKC", text[start : start + _CHUNK]))
        if length > most:
            return True
    return len(text) > most


class Reader:
    """The words that an index takes from a text: those of its tokenizer, without stop words.

    Args:
        tokenizer: Text -> its words.
        stop_words: Words that are neither indexed nor looked for, as the tokenizer gives them.
    """

    __slots__ = ("_stop_words", "_tokenizer")

    def __init__(self, tokenizer: Callable[[str], list[str]], stop_words: Collection[str]) -> None:
        if isinstance(stop_words, str):
            raise ValueError(f"stop_words is the string {stop_words!r}; give a list of words")  # noqa: TRY004 - documented
        self._tokenizer = tokenizer
        self._stop_words = frozenset(stop_words)

    def words(self, text: str) -> list[str]:
        """The words of a text in their order, cut at 100 characters."""
        return [word for word in self.all_words(text) if word not in self._stop_words]

    def all_words(self, text: str) -> list[str]:
        """The same with stop words; raises `ValueError` if the tokenizer returned something that is not a word."""
        words = [word[:_LONGEST_WORD] for word in self._tokenizer(text)]
        for word in words:
            if not word or _NOT_IN_WORDS.search(word):
                raise ValueError(
                    f"the tokenizer gave the word {word!r}; let it give words with characters, and no spaces"
                )
        return words


@cache
def _word() -> re.Pattern[str]:
    # Python's \w leaves out combining marks, without which the words of many scripts fall to pieces.
    marks = "".join(chr(code) for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M")
    return re.compile(rf"[\w{marks}]+(?:'[\w{marks}]+)*(?:(?:\+\+|#)(?!\w))?")
