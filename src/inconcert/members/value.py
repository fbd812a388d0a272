"""The values of members, which every process of a group keeps."""

from inconcert._rules.payloads import JSON, encode
from inconcert.errors import InvalidPayload

_LARGEST = 4096  # bytes; each process has those of all members


def encode_value(name: str, value: JSON) -> bytes:
    """Encode the value of a member of this group; raises `InvalidPayload` if it is not JSON, or too long."""
    what = f"value of a member of {name!r}"
    text = encode(what, value)
    if len(text) > _LARGEST:
        raise InvalidPayload(
            f"{what} has {len(text)} bytes as JSON; give at most {_LARGEST}, or its address in a store"
        )
    return text
