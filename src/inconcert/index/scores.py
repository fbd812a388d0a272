"""The scores of documents, and their weights in a search."""

import struct
from collections.abc import Mapping

from inconcert._rules.names import check_name
from inconcert.errors import InvalidName

_MOST = 50  # scores of a document, or in a search
_FARTHEST = 1e150  # from 0: so no score times its weight, and no sum of these, leaves what a float can be
_ALL_BITS, _SIGN = 2**64 - 1, 2**63


def sort_key(score: float) -> str:
    """A score as 16 characters whose order is that of the scores, the highest first."""
    [bits] = struct.unpack(">Q", struct.pack(">d", score + 0.0))  # + 0.0: there are two zeros, and they are equal
    return f"{bits if bits & _SIGN else bits ^ _ALL_BITS ^ _SIGN:016x}"


def score_at(key: str | bytes) -> float:
    """The score that has this sort key."""
    bits = int(key, 16)
    score: float = struct.unpack(">d", struct.pack(">Q", bits if bits & _SIGN else bits ^ _ALL_BITS ^ _SIGN))[0]
    return score


def scores_as_text(scores: Mapping[str, float]) -> str:
    """The scores of a document as the server keeps them: a line each, a name and a sort key.

    Raises:
        ValueError: A score is not a number from -1e150 to 1e150, or there are more than 50.
        InvalidName: A name is empty, too long, or has a space or a line break.
    """
    sort_keys = {name: sort_key(score) for name, score in _checked("score", scores).items()}
    return "".join(f"\n{name} {key}" for name, key in sort_keys.items())


def weights_of(weights: Mapping[str, float]) -> dict[str, float]:
    """The weights that matter: those that are not 0.

    Raises:
        ValueError: A weight is not a number from -1e150 to 1e150, or there are more than 50.
        InvalidName: A name is empty, too long, or has a space or a line break.
    """
    return {name: weight for name, weight in _checked("weight", weights).items() if weight}


def number_of(what: str, value: float) -> float:
    """A number as a float; raises `ValueError` if it is not a number, or is farther from 0 than 1e150."""
    is_number = isinstance(value, int | float)  # pyright: ignore[reportUnnecessaryIsInstance] - users without a type checker
    if not is_number or not abs(value) <= _FARTHEST:
        raise ValueError(f"{what} is {value!r}; give a number from -1e150 to 1e150")
    return float(value)


def _checked(what: str, numbers: Mapping[str, float]) -> dict[str, float]:
    if len(numbers) > _MOST:
        raise ValueError(f"there are {len(numbers)} {what}s; give at most {_MOST}")
    checked: dict[str, float] = {}
    for name, number in numbers.items():
        if " " in check_name("score", name) or "\n" in name:
            raise InvalidName(f"the name {name!r} of a score must not have spaces or line breaks; use '_' instead")
        checked[name] = number_of(f"{what} {name!r}", number)
    return checked
