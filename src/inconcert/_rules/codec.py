"""Codecs for the values of one object, such as a queue: as any JSON, or as one type."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from inconcert._rules.conversion import Converter
from inconcert._rules.payloads import JSON, decode, encode

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # every type checker knows it, installed or not

    T = TypeVar("T", default=JSON)
else:
    from typing import TypeVar

    T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """The encoding of some values; equal to another for the same values of the same type."""

    what: str  # what the values are, as errors name them, such as `item for queue 'thumbnails'`
    value_type: Any  # their type; None for any JSON
    # raises `InvalidPayload` if a value cannot be sent, or would arrive changed
    encode: Callable[[T], bytes] = field(compare=False)
    # raises `UnreadablePayload` if the text is JSON that does not fit the type, and `ValueError` if it is not
    # JSON
    decode: Callable[[bytes], T] = field(compare=False)


def codec_of(what: str, value_type: Any) -> Codec[Any]:  # noqa: ANN401 - also unions and the like
    """The codec for values of this type, or for any JSON if it is None.

    Raises:
        TypeError: JSON cannot represent this type.
    """
    if value_type is None:
        return Codec(what, None, partial(encode, what), decode)
    converter = Converter(what, value_type)
    converter.check()
    return Codec(what, value_type, lambda value: encode(what, converter.to_json(value)), converter.read)
