"""Slots of Redis Cluster: every key and every sharded channel lies in one of 16,384."""

import binascii
import itertools
import string
from functools import cache, lru_cache

SLOTS = 16_384


@lru_cache(4096)
def slot_of(key: str) -> int:
    """The slot of a key or channel: that of its hash tag, if it has one."""
    _, opens, rest = key.partition("{")
    tag, closes, _ = rest.partition("}")
    hashed = tag if opens and closes and tag else key
    return binascii.crc_hqx(hashed.encode("utf-8", "surrogatepass"), 0) % SLOTS


def tag_of(slot: int) -> str:
    """A hash tag that lies in this slot, always the same."""
    return _tags()[slot]


@cache
def _tags() -> list[str]:
    """A tag for each slot: the first text of letters and digits that lies in it.  It takes 0.1 s, once."""
    tags: dict[int, str] = {}
    for length in itertools.count(1):
        for characters in itertools.product(string.digits + string.ascii_lowercase, repeat=length):
            tag = "".join(characters)
            tags.setdefault(binascii.crc_hqx(tag.encode(), 0) % SLOTS, tag)
            if len(tags) == SLOTS:
                return [tags[slot] for slot in range(SLOTS)]
    raise AssertionError("endless")
