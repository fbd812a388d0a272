"""A resource that knows fencing tokens: what a lock is for, in the smallest form."""

from typing import cast

from tests.support.servers import command

__all__ = ["FencedRegister"]

_WRITE = """
local highest = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
local accepted = tonumber(ARGV[1]) >= highest
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. tostring(accepted))
if accepted then
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
end
return accepted and 1 or 0
"""


class FencedRegister:
    """A value in a store that several processes reach; a write with a lower token than one seen before is refused.

    Args:
        url: The server that plays the store.
        name: Which register.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._keys = (f"register:{name}", f"register:{name}:log")

    def write(self, fencing_token: int, value: str) -> bool:
        """Store the value. False if the token was too low, and nothing was stored."""
        return bool(command(self._url, "EVAL", _WRITE, 2, *self._keys, fencing_token, value))

    def read(self) -> str:
        """The value that was stored last."""
        return cast("str", command(self._url, "HGET", self._keys[0], "value"))

    def log(self) -> list[tuple[int, bool]]:
        """Every write that was tried, in order: its token, and whether it was accepted."""
        lines = cast("list[str]", command(self._url, "LRANGE", self._keys[1], 0, -1))
        return [(int(token), accepted == "true") for token, accepted in map(str.split, lines)]

    def close(self) -> None:
        """Remove it."""
        command(self._url, "DEL", *self._keys)
