"""Scripts and a session for tests of the connection itself."""

from inconcert import Coordinator
from inconcert._core.session import Session
from inconcert._redis.protocol.scripts import Script

__all__ = ["ECHO", "FAIL", "KEY", "echo", "session_of"]

ECHO = Script("test/echo", "-- KEYS  key\n-- ARGV  text\nreturn ARGV[1]").bind()
FAIL = Script("test/fail", "-- KEYS  key\n-- ARGV  text\nreturn redis.call('LPUSH', KEYS[1], ARGV[1])").bind()
KEY = "{test}:count"


def session_of(concert: Coordinator) -> Session:
    """Return what its primitives are given."""
    return concert._ref.session


async def echo(session: Session, text: str) -> None:
    """Send something of one's own, and see that the answer is to that."""
    assert await session.run(ECHO(key=KEY, text=text)) == text.encode()
