"""Which slot a key lies in, as the server computes it."""

import pytest

from inconcert._redis.protocol.slots import SLOTS, slot_of, tag_of


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("123456789", 12739),  # the check value of the algorithm
        ("foo", 12182),
        ("{foo}:anything", 12182),
        ("before{foo}after{bar}", 12182),
        ("foo{}bar", 14292),  # an empty tag is none
        ("{foo", 13308),  # nor is one that does not close
        ("a{b{c}d}e", 15725),  # it begins with the first brace, and ends with the first that closes
        ("ü{é}", 10180),
    ],
)
def test_slot_is_what_the_server_says(key: str, slot: int) -> None:
    """Values that `CLUSTER KEYSLOT` answers."""
    assert slot_of(key) == slot


def test_every_slot_has_a_tag_in_it() -> None:
    """Of letters and digits only."""
    tags = [tag_of(slot) for slot in range(SLOTS)]
    assert [slot_of(f"inbox:{{{tag}}}:x") for tag in tags] == list(range(SLOTS))
    assert all(tag.isalnum() for tag in tags)
