"""The prose is plain technical English: it has none of the phrases that the house style names."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.each import each
from tests.support.pages import DOCS, PAGES, ROOT, blocks, title

PLACES = [*PAGES, ROOT / "examples", ROOT / "src" / "inconcert"]

_VERB = (
    r"(?:is|are|was|were|has|have|had|can|cannot|could|may|might|must|will|would|does|do|did"
    r"|leaves?|finds?|needs?|goes|comes?|holds?|keeps?|makes?|sees?|takes?|knows?|says)\b"
)
_NOT_THAT = r"(?!(?:that|which|who|whose|when|where)\b)"
# What makes a clause of the words behind ", for": a subject in the nominative, or a verb behind a subject.
_CLAUSES = (
    r"(?:they|he|she|we|I|nobody|nothing|there)(?! or\b| and\b| but\b) \w",
    rf"(?:it|this|that|these|those|one|none|each|all|you) (?:{_NOT_THAT}\w+ )?{_VERB}",
    rf"(?:the|a|an|its|their|each|every|no|any|[A-Z]\w+) (?:{_NOT_THAT}[\w'`-]+ ){{1,4}}{_VERB}",
    r"\w+ing [^.,:;]*\b(?:is|was|has|would|could)\b",
)


class Phrase(NamedTuple):
    """What a page must not say.

    Attributes:
        pattern: A regular expression that finds it in text in which a line break is a space.
        instead: What a native writer says.
        flagged: A sentence that has it.
        allowed: A sentence that looks alike and is right.
    """

    pattern: str
    instead: str
    flagged: str
    allowed: str


PHRASES = {
    "for ever": Phrase(r"(?i)\bfor ever\b", "forever", "None waits for ever.", "None waits forever, for every caller."),
    "is no": Phrase(
        r"\b(?<!here )(?:is|are|was|were) no (?!one\b|(?:longer|more|less|later|\w+er) than\b|longer\b|more than\b)",
        "is not a",
        "A cache is no place for jobs.",
        "There is no history, it is no later than the lease, and it is no longer renewed.",
    ),
    "is none": Phrase(
        r"\b(?<!here )(?:is|are|was|were) none\b",
        "does not exist",
        "Instead of a token that is none.",
        "If there is none.",
    ),
    "one who": Phrase(
        r"(?i)\bone who\b", "a waiter that", "One who waits sends nothing.", "Someone who waits, one whose"
    ),
    "whoever": Phrase(
        r"(?i)\bwhoever\b", "the caller that", "It wakes whoever waits.", "It wakes whichever waits, however."
    ),
    "those who": Phrase(
        r"(?i)\b(?:those|he|she) who\b", "the waiters", "For those who wait.", "For those that wait; she, who"
    ),
    "Else": Phrase(r"\bElse\b", "Otherwise", "Else it joins the line.", "Everything else, or else the default."),
    "set aside": Phrase(
        r"(?i)\b(?:set|sets|setting)(?: it| them| (?:a|an|the) (?:job|item))? aside\b",
        "dead-lettered",
        "A message of a stranger sets the job aside.",
        "The job is aside, and set beside others.",
    ),
    "taken for dead": Phrase(
        r"\b(?:take|takes|taken|took)(?: \w+)? for dead\b",
        "presumed dead",
        "A silent worker is taken for dead.",
        "It is taken for a worker, or for granted.",
    ),
    "and so are the others": Phrase(
        r"\b(?:and|,) so (?:are|is) the others?\b",
        "the same holds for",
        "As `step`, and so are the others.",
        "The first is renewed, and so it lives.",
    ),
    "as what may": Phrase(
        r"\bas what may\b", "because it may", "It is dead-lettered, as what may kill them.", "As may be."
    ),
    "such as cannot": Phrase(
        r"\bsuch as (?:can|cannot|may|must)\b",
        "that cannot",
        "Workers, which may be such as cannot be recovered.",
        "Such as a lock.",
    ),
    ", for": Phrase(
        rf", for (?:{'|'.join(_CLAUSES)})",
        "because",
        "Renewals do not wait, for a renewal could come too late.",
        "A script, for the names that it has, for those that need it, for all queues, for it, or for testing.",
    ),
}


SOURCES = ROOT / "src"
# As a question begins. "True if" and "The number of" say the same without one.
QUESTIONS = {"what", "how", "where", "which", "whether", "when", "who"}
MOST_QUESTIONS = 0.01  # of the docstrings; the most that any of ten libraries of the field has is 0.011

# How often phrases without a noun or an object may stand in 1,000 words of docstrings, the README and the how-to pages.
MOST_IN_1000 = {
    r"likewise|as for|the like|besides|anew": 0.5,
    r"what\s+(?:is|it)": 1.0,
}


class Line(NamedTuple):
    """A piece of prose, and where it begins."""

    number: int
    text: str


def of_page(text: str) -> Iterator[Line]:
    """The paragraphs, list items and rows of a page, and the comments in its Python."""
    lines = text.split("\n")
    for block in blocks(text):
        count = block.text.count("\n")
        lines[block.line - 1 : block.line - 1 + count] = [""] * count
        if block.language == "python":
            yield from (Line(block.line - 1 + comment.number, comment.text) for comment in comments(block.text))

    begin, gathered = 0, list[str]()
    for number, line in enumerate([*lines, ""], 1):
        if gathered and (not line.strip() or re.match(r"\s*(?:[-*|#]|\d+\. |```)", line)):
            yield Line(begin, " ".join(gathered))
            gathered = []
        if line.strip():
            begin = begin if gathered else number
            gathered.append(line.strip())


def comments(text: str) -> Iterator[Line]:
    """The comments of a program."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Line(token.start[0], token.string.lstrip("# "))


def of_code(text: str) -> Iterator[Line]:
    """The docstrings and comments of a program, and the text of the errors that it raises."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node)
            if documented:
                for paragraph in documented.split("\n\n"):
                    yield Line(node.body[0].lineno, paragraph)
        elif isinstance(node, ast.Raise):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield Line(part.lineno, part.value)
    yield from comments(text)


def documented(text: str) -> Iterator[str]:
    """The docstrings of a program."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def begins_with_a_question(docstring: str) -> bool:
    """True if its first word is a question word."""
    first = re.match(r"\w+", docstring)
    return first is not None and first[0].lower() in QUESTIONS


def prose(path: Path) -> Iterator[Line]:
    """What a file says to its readers, without `code` in it."""
    text = path.read_text("utf-8")
    for line in of_page(text) if path.suffix == ".md" else of_code(text):
        yield Line(line.number, " ".join(re.sub(r"`[^`]*`", "`", line.text).split()))


def files(places: Iterable[Path]) -> list[Path]:
    """Each place that is a file, and the Python files of each that is a folder."""
    return sorted({file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])})


@each("path", files(PLACES), ids=title)
def test_prose_has_none_of_the_phrases(path: Path) -> None:
    """It says it in the words of a native writer."""
    found = [
        f"{title(path)}:{line.number}: {match[0]!r}; say {phrase.instead!r}: {line.text}"
        for line in prose(path)
        for phrase in PHRASES.values()
        for match in re.finditer(phrase.pattern, line.text)
    ]

    assert found == []


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    """And not as a question does; private ones, too."""
    all_ = [(path, text) for path in files([SOURCES]) for text in documented(path.read_text("utf-8")) if text]
    found = [f"{title(path)}: {text.splitlines()[0]}" for path, text in all_ if begins_with_a_question(text)]

    assert len(found) <= MOST_QUESTIONS * len(all_), "\n".join(found)


@pytest.mark.parametrize("phrase", MOST_IN_1000)
def test_noun_stands_in_its_place(phrase: str) -> None:
    """Instead of a phrase that refers to one, or asks for one."""
    pages = [ROOT / "README.md", *(DOCS / "how-to").rglob("*.md")]
    texts = [text for path in files([SOURCES]) for text in documented(path.read_text("utf-8"))]
    text = "\n".join([*texts, *(page.read_text("utf-8") for page in pages)])
    found = re.findall(rf"(?i)\b(?:{phrase})\b", text)

    assert len(found) <= MOST_IN_1000[phrase] * len(re.findall(r"[A-Za-z']+", text)) / 1000, Counter(found)


def test_question_is_found() -> None:
    """By the first word alone, in small or capital letters."""
    program = (
        '"""What a lock is."""\n\ndef size():\n    """How many there are."""\n\ndef lock():\n    """Whatever is."""\n'
    )

    assert [begins_with_a_question(text) for text in documented(program)] == [True, True, False]


@pytest.mark.parametrize("name", PHRASES)
def test_phrase_is_found(name: str) -> None:
    """A sentence that has it is flagged, and one that only looks alike is not."""
    phrase = PHRASES[name]

    assert re.search(phrase.pattern, phrase.flagged)
    assert not re.search(phrase.pattern, phrase.allowed)


@pytest.mark.parametrize(
    "flagged",
    [
        "It loses nothing, for nobody awaits a read.",
        "Its id stays, for taking it out would be slow.",
        "A counter that is ahead, for this was set back.",
        "Others are not slowed, for each has its own buffer.",
    ],
)
def test_conjunction_is_found(flagged: str) -> None:
    """`for` with a clause behind it means `because`."""
    assert re.search(PHRASES[", for"].pattern, flagged)


def test_line_breaks_do_not_hide_a_phrase(tmp_path: Path) -> None:
    """A phrase is found in pages, docstrings, comments and errors, with the line at which its text begins."""
    page, program = tmp_path / "page.md", tmp_path / "program.py"
    page.write_text(
        "# Page\n\nIt waits for\never, `for ever`.\n\n"
        "```python\nfor_ever = 'for ever'  # for ever\n```\n\n- item\n- for\n  ever\n"
    )
    program.write_text(
        '"""First.\n\nIt waits for\never.\n"""\n\ndef wait():\n'
        '    # for ever\n    raise ValueError("for ever")\n\nx = "for ever"\n'
    )

    def numbers(path: Path) -> list[int]:
        return [line.number for line in prose(path) if re.search(PHRASES["for ever"].pattern, line.text)]

    assert sorted(numbers(page)) == [3, 7, 11]
    assert sorted(numbers(program)) == [1, 8, 9]
